//! Executions as people and listeners see them: one, those of all jobs, and history as it grows.

use crate::ids::{ExecutionId, OccurrenceId, SessionId};
use crate::lifecycle::Status;
use crate::occurrence::{Finished, Live};

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

/// An execution that has ended, with its place in history.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedEvent {
    pub place: u64,
    pub queue: String,
    pub finished: Finished,
}

/// Some of what finished after a place. What belonged to deleted jobs is there until they are purged.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedPage {
    pub items: Vec<FinishedEvent>,
    /// The last place that was looked at: where to go on.
    pub looked_to: u64,
    /// Whether there may be more now.
    pub more: bool,
}

/// Where history begins and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistorySpan {
    /// Whoever stands before this place has missed what retention took away.
    pub begins_after: u64,
    /// The last place that was given.
    pub ends_at: u64,
}

/// An execution that has not ended, as it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenExecution {
    pub live: Live,
    /// The worker that holds it.
    pub worker: Option<String>,
    pub queue: String,
    pub job_type: String,
}

/// Which executions of all jobs are meant.
#[derive(Debug, Clone)]
pub struct ExecutionQuery {
    pub walk: ExecutionWalk,
    pub limit: usize,
    pub queue: Option<String>,
    pub job_type: Option<String>,
    /// The name of the worker that runs or ran them.
    pub worker: Option<String>,
}

/// How the executions of a list stand, and where the walk over them goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecutionWalk {
    /// In an order of the store's own.
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
    /// The latest to end first, by places in history.
    Finished {
        status: Status,
        before: Option<u64>,
    },
}

/// An execution among those of other jobs.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedExecution {
    pub view: ExecutionView,
    pub job_name: String,
    pub job_type: String,
    pub queue: String,
    pub max_retries: u32,
}

/// Where a walk over what runs goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunningPlace {
    pub session: SessionId,
    pub occurrence: OccurrenceId,
}
