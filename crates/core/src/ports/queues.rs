//! Queues with settings, as stored.

use crate::queue::QueueSettings;
use crate::readmission::Readmission;
use crate::time::Timestamp;

/// Whether a queue hands out work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pausing {
    Pause,
    Resume,
}

/// A queue with settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueRow {
    pub queue: String,
    pub paused_at: Option<Timestamp>,
    pub settings: QueueSettings,
    /// The re-admission of queued executions after limits have become tighter. Not visible to users.
    pub readmission: Option<Readmission>,
    /// Why the settings cannot be read. Until they are set again, no execution of the queue starts, as if it
    /// were paused: a limit that cannot be read must not be exceeded.
    pub unreadable: Option<String>,
}

impl QueueRow {
    /// A queue without settings.
    pub fn unset(queue: &str) -> Self {
        QueueRow {
            queue: queue.to_owned(),
            paused_at: None,
            settings: QueueSettings::default(),
            readmission: None,
            unreadable: None,
        }
    }

    /// Whether none of its executions may start: it is paused, or its settings cannot be read.
    pub fn is_held(&self) -> bool {
        self.paused_at.is_some() || self.unreadable.is_some()
    }

    /// Whether its limits admit nothing for now. Executions that a paused queue admitted could not start, and
    /// would all start at once when it is resumed. During a re-admission, the order is not known yet.
    pub fn holds_its_lines(&self) -> bool {
        self.is_held() || self.readmission.is_some()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PausedQueue {
    pub queue: String,
    pub paused_at: Timestamp,
}
