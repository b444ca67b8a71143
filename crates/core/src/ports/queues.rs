//! Queues as a store keeps them: those of which something is set.

use crate::placing::Placing;
use crate::queue::QueueSettings;
use crate::time::Timestamp;

/// Whether a queue hands out work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pausing {
    Pause,
    Resume,
}

/// A queue of which something is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueRow {
    pub queue: String,
    pub paused_at: Option<Timestamp>,
    pub settings: QueueSettings,
    /// What is queued is to take its place again, because limits have become tighter. Nobody outside is told.
    pub placing: Option<Placing>,
    /// Why the settings cannot be read. Then nothing of the queue starts, as if it were paused, until they are set again:
    /// a limit that cannot be read must not be exceeded.
    pub unreadable: Option<String>,
}

impl QueueRow {
    /// A queue of which nothing is set.
    pub fn unset(queue: &str) -> Self {
        QueueRow {
            queue: queue.to_owned(),
            paused_at: None,
            settings: QueueSettings::default(),
            placing: None,
            unreadable: None,
        }
    }

    /// Whether nothing of it starts: it is paused, or its settings cannot be read.
    pub fn is_held(&self) -> bool {
        self.paused_at.is_some() || self.unreadable.is_some()
    }

    /// Whether nothing goes through its limits for now: what a paused queue would let through could not start, and
    /// would all start at once when it is resumed. While places are taken again, who goes first is not known.
    pub fn holds_its_lines(&self) -> bool {
        self.is_held() || self.placing.is_some()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PausedQueue {
    pub queue: String,
    pub paused_at: Timestamp,
}
