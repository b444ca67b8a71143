//! Maintenance of a store: how long data is kept, and what a maintenance run has done.

use crate::ids::JobId;
use crate::limits;
use crate::time::Timestamp;

/// How far back data is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Horizon {
    /// History, skipped ranges and logs from before this time are deleted.
    pub history: Timestamp,
    /// Responses to requests from before this time are deleted.
    pub requests: Timestamp,
}

impl Horizon {
    /// The time at which it was computed, derived from the fixed retention of responses.
    pub fn now(&self) -> Timestamp {
        self.requests.plus(limits::REQUESTS_KEPT)
    }

    /// Names of workers without a session since before this time are deleted.
    pub fn workers(&self) -> Timestamp {
        self.history.minus(limits::WORKER_NAMES_KEPT)
    }
}

/// One step over jobs, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retirement {
    /// Jobs that finished before this time are deleted.
    pub finished_before: Timestamp,
    pub after: Option<JobId>,
    pub limit: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retired {
    pub jobs: u64,
    /// Where the next step continues; `None` at the end.
    pub next: Option<JobId>,
}

/// The store's clock, and the record that it is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotedClock {
    pub now: Timestamp,
    /// The time at which retention last found the clock steady; `None` if it never has.
    pub noted: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retained {
    pub history: u64,
    pub logs: u64,
    pub skipped: u64,
    pub requests: u64,
    /// Whether there is more to delete than the limit allowed.
    pub more: bool,
}
