//! Worker capacity that queues need, on the wire.

use crate::client::{Client, ClientError, PageQuery, segment};
use crate::duration::Seconds;
use crate::wire::wire;
use reqwest::Method;
use serde::{Deserialize, Serialize};

wire! {
    /// What a queue, or all queues together, have and need.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct ScalingBody as "Scaling" {
        /// Its name; null for all queues together.
        pub queue: Option<String> = text().example("default"),
        /// Executions that could start now; 0 for a paused queue.
        pub queued: u64,
        /// Executions that run.
        pub running: u64,
        /// How long the oldest of the queued ones has waited.
        pub oldest_wait_secs: Seconds = number(0.0..=1e12),
        /// Workers that serve it and accept work.
        pub workers: u64,
        /// Their slots.
        pub slots: u64,
        /// The slots that are needed so that no execution waits longer than the target.
        pub desired_slots: u64,
        /// The same in workers.
        pub desired_workers: u64,
    }
}

wire! {
    /// What queues have and need.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct ScalingPage as "ScalingPage" {
        /// Queues that have executions, or workers of their own.
        pub items: Vec<ScalingBody>,
        /// All queues together, for workers that serve all of them.
        pub total: ScalingBody,
        /// Pass it as `cursor` to read on; null on the last page.
        #[serde(default)]
        pub next_cursor: Option<String>,
    }
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
