//! Executions as shown to users and listeners: single ones, lists over all jobs, and history as it grows.

use crate::ids::{ExecutionId, JobId, OccurrenceId, SessionId};
use crate::lifecycle::Status;
use crate::occurrence::{Finished, Live, Origin};
use crate::ports::Lane;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq)]
pub enum ExecutionView {
    Live {
        live: Live,
        /// The worker that holds it.
        worker: Option<String>,
    },
    Finished(Finished),
}

impl ExecutionView {
    pub fn id(&self) -> ExecutionId {
        match self {
            ExecutionView::Live { live, .. } => live.execution(),
            ExecutionView::Finished(finished) => finished.id,
        }
    }
}

/// An execution that has ended, with its position in history.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedEvent {
    pub place: u64,
    pub queue: String,
    pub finished: Finished,
}

/// Executions that finished after a position. Those of deleted jobs are included until the jobs are purged.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedPage {
    pub items: Vec<FinishedEvent>,
    /// The last position that was read: where to continue.
    pub looked_to: u64,
    /// Whether there may be more now.
    pub more: bool,
}

/// What a finished execution adds to roll-ups. Small, unlike [`FinishedEvent`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunTimes {
    pub owner: String,
    pub job_name: String,
    pub lane: Lane,
    pub status: Status,
    pub origin: Origin,
    pub attempt: u32,
    pub scheduled_time: Timestamp,
    pub available_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub completed_at: Timestamp,
}

/// The same for executions that finished after a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunTimesPage {
    pub items: Vec<RunTimes>,
    /// The last position that was read: where to continue.
    pub looked_to: u64,
    /// Whether there may be more now.
    pub more: bool,
}

/// The first and last positions of history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistorySpan {
    /// A follower before this position has missed rows that retention deleted.
    pub begins_after: u64,
    /// The last assigned position.
    pub ends_at: u64,
}

/// The current state of an execution that has not ended.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenExecution {
    pub live: Live,
    /// The worker that holds it.
    pub worker: Option<String>,
    pub queue: String,
    pub job_type: String,
}

/// Filter for the executions of all jobs.
#[derive(Debug, Clone)]
pub struct ExecutionQuery {
    pub walk: ExecutionWalk,
    pub limit: usize,
    pub queue: Option<String>,
    pub job_type: Option<String>,
    pub owner: Option<String>,
    /// The name of the worker that runs or ran them.
    pub worker: Option<String>,
    /// Only finished executions that ended at or after this time.
    pub ended_from: Option<Timestamp>,
    /// Only finished executions that ended before this time: the list begins there.
    pub ended_until: Option<Timestamp>,
}

/// The state of the executions in a list, and where the listing continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecutionWalk {
    /// In an order that the store chooses.
    Running {
        after: Option<RunningPlace>,
    },
    /// The latest job first.
    Queued {
        before: Option<OccurrenceId>,
    },
    Waiting {
        before: Option<OccurrenceId>,
    },
    /// Queued executions of the queue of the query, in the order in which workers claim them. One page has a bounded
    /// number of them, and no next one.
    Next,
    /// The latest to end first, by position in history.
    Finished {
        status: Status,
        before: Option<u64>,
    },
}

/// An execution in a list over all jobs.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedExecution {
    pub view: ExecutionView,
    pub job_name: String,
    pub job_type: String,
    pub queue: String,
    pub max_retries: u32,
}

/// Where a listing of running executions continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningPlace {
    pub session: SessionId,
    pub occurrence: OccurrenceId,
}

/// To whom a job belongs, and its lane: what decides whether a caller may see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobOwner {
    pub job: JobId,
    pub owner: String,
    pub lane: Lane,
}
