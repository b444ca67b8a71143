//! Queues on the wire.

use punctual_core::time::Timestamp;
use serde::{Deserialize, Serialize};

/// A queue with live work, or a paused one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueBody {
    pub queue: String,
    pub paused: bool,
    pub paused_at: Option<Timestamp>,
    pub waiting: u64,
    pub queued: u64,
    pub running: u64,
    /// When the oldest queued execution became available.
    pub oldest_queued_at: Option<Timestamp>,
}
