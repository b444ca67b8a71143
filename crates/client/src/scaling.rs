//! Worker capacity that queues need, on the wire.

use crate::client::{Client, ClientError, PageQuery, segment};
use crate::duration::Seconds;
use reqwest::Method;
use serde::{Deserialize, Serialize};

/// Current and required capacity of one queue, or of all queues.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScalingBody {
    /// Null for all queues together.
    pub queue: Option<String>,
    /// Executions that could start now; 0 for a paused queue.
    pub queued: u64,
    pub running: u64,
    /// How long the oldest of the queued ones has waited.
    pub oldest_wait_secs: Seconds,
    /// Workers that serve it and accept work.
    pub workers: u64,
    /// Their slots.
    pub slots: u64,
    /// The slots needed so that nothing waits longer than wanted.
    pub desired_slots: u64,
    /// The same in workers.
    pub desired_workers: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScalingPage {
    /// By name.
    pub items: Vec<ScalingBody>,
    /// For all queues together, for workers that serve all of them.
    pub total: ScalingBody,
    /// Opaque: pass it as `cursor` to read on; null on the last page.
    #[serde(default)]
    pub next_cursor: Option<String>,
}

impl Client {
    /// All queues. Reads all pages.
    pub async fn autoscaling(&self) -> Result<ScalingPage, ClientError> {
        let mut all: Option<ScalingPage> = None;
        let mut cursor: Option<String> = None;
        loop {
            let query = PageQuery { limit: None, cursor: cursor.as_deref() };
            let page: ScalingPage =
                self.send(self.request(Method::GET, "/autoscaling").query(&query)).await?;
            cursor = page.next_cursor.clone();
            let all = match &mut all {
                Some(all) => {
                    all.items.extend(page.items);
                    all
                }
                None => all.insert(page),
            };
            if cursor.is_none() {
                all.next_cursor = None;
                return Ok(all.clone());
            }
        }
    }

    pub async fn autoscaling_of(&self, queue: &str) -> Result<ScalingBody, ClientError> {
        self.send(self.request(Method::GET, &format!("/autoscaling/{}", segment(queue)))).await
    }
}
