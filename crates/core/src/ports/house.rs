//! How far back a store keeps things, and what its housekeeping has done.

use crate::ids::JobId;
use crate::limits;
use crate::time::Timestamp;

/// How far back things are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Horizon {
    /// History, skipped ranges and logs from before this time go.
    pub history: Timestamp,
    /// Answers to requests from before this time go.
    pub requests: Timestamp,
}

impl Horizon {
    /// The time at which it was computed: answers to requests are always kept for the same time.
    pub fn now(&self) -> Timestamp {
        self.requests.plus(limits::REQUESTS_KEPT)
    }

    /// Names of workers that have had no session since before this time go.
    pub fn workers(&self) -> Timestamp {
        self.history.minus(limits::WORKER_NAMES_KEPT)
    }
}

/// A walk over jobs, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retirement {
    /// Jobs that finished before this time go.
    pub finished_before: Timestamp,
    pub after: Option<JobId>,
    pub limit: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retired {
    pub jobs: u64,
    /// Where the walk goes on; `None` at its end.
    pub next: Option<JobId>,
}

/// The store's clock, and what it is compared with.
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
