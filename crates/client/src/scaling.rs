//! How much capacity queues need, on the wire.

use crate::client::{Client, ClientError, PageQuery, segment};
use crate::duration::Seconds;
use reqwest::Method;
use serde::{Deserialize, Serialize};

/// What one queue, or all of them, have and need.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScalingBody {
    /// Null for all queues together.
    pub queue: Option<String>,
    /// Executions that could start now; none of a queue that is paused.
    pub queued: u64,
    pub running: u64,
    /// How long the oldest of the queued ones has waited.
    pub oldest_wait_secs: Seconds,
    /// Workers that serve it and take work.
    pub workers: u64,
    /// Their slots.
    pub slots: u64,
    /// The slots that would have nothing wait longer than wanted.
    pub desired_slots: u64,
    /// The same in workers.
    pub desired_workers: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScalingPage {
    /// By name.
    pub items: Vec<ScalingBody>,
    /// Of all queues together, for workers that serve them all.
    pub total: ScalingBody,
    /// Opaque: give it back as `cursor` to read on; null on the last page.
    #[serde(default)]
    pub next_cursor: Option<String>,
}

impl Client {
    /// All queues, however many pages they fill.
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
