//! Queues on the wire.

use punctual_core::time::Timestamp;
use serde::{Deserialize, Serialize};

/// A queue with live work, or one that is paused or has settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueBody {
    pub queue: String,
    pub paused: bool,
    pub paused_at: Option<Timestamp>,
    /// How many executions may wait or be queued before submits are refused; null for any number.
    #[serde(default)]
    pub max_depth: Option<u64>,
    pub waiting: u64,
    pub queued: u64,
    pub running: u64,
    /// When the oldest queued execution became available.
    pub oldest_queued_at: Option<Timestamp>,
}

impl QueueBody {
    /// What counts against `max_depth`: executions that have not started.
    pub fn depth(&self) -> u64 {
        self.waiting + self.queued
    }
}

/// All settings of a queue, as they are to be. What is left out is as by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetQueue {
    /// How many executions may wait or be queued before submits are refused; null for any number.
    #[serde(default)]
    pub max_depth: Option<u64>,
}
