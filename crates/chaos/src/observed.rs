//! All that a run has shown, as plain values: what clients asked for and were told, what the API says of it afterwards, what the
//! record outside has, and what was done to the cluster. The checker judges these and nothing else.

use crate::member::UnorderedEnd;
use crate::nemesis::Fault;
use crate::recorder::Run;
use punctual_client::ExecutionStatus;
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::schedule::SkipReason;
use punctual_core::time::Timestamp;
use serde::Serialize;
use std::time::Duration;

/// A job as a client asked for it.
#[derive(Debug, Clone)]
pub struct Wish {
    /// Its `idempotency_key`: however often it was submitted, it is one job.
    pub key: String,
    pub times: Times,
    pub overlap: Overlap,
    pub attempts: Attempts,
    /// The job that a server said it made of it. Nothing if no answer came: then it may be there, once, or not.
    pub acknowledged: Option<JobId>,
}

/// When a job must run, worked out without asking Punctual.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    Once {
        /// Nothing for at once.
        at: Option<Timestamp>,
    },
    Every {
        first: Timestamp,
        step: Duration,
        /// None later than this.
        last: Timestamp,
    },
}

impl Times {
    /// All times of a recurring job.
    pub fn nominal(&self) -> Vec<Timestamp> {
        match *self {
            Times::Once { at } => at.into_iter().collect(),
            Times::Every { first, step, last } => {
                std::iter::successors(Some(first), |at| Some(at.plus(step)))
                    .take_while(|at| *at <= last)
                    .collect()
            }
        }
    }
}

/// Whether two occurrences of a job may run at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overlap {
    Allow,
    Skip,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempts {
    /// As many as it takes: it must succeed in the end.
    UntilItSucceeds,
    /// `max_retries: 0`.
    AtMostOne,
}

/// A job as the API shows it when all is over.
#[derive(Debug, Clone, Serialize)]
pub struct FoundJob {
    pub id: JobId,
    pub key: Option<String>,
    pub is_finished: bool,
    pub executions: Vec<FoundExecution>,
    pub skips: Vec<FoundSkip>,
}

#[derive(Debug, Clone, Serialize)]
pub struct FoundExecution {
    pub id: ExecutionId,
    pub scheduled_time: Timestamp,
    pub status: ExecutionStatus,
    pub worker: Option<String>,
    pub completed_at: Option<Timestamp>,
    /// The run of the record that its result names.
    pub run: Option<u64>,
}

#[derive(Debug, Clone, Serialize)]
pub struct FoundSkip {
    pub first: Timestamp,
    pub last: Timestamp,
    pub count: u64,
    pub reason: SkipReason,
}

/// One request of a client that tries the next node when one fails.
#[derive(Debug, Clone)]
pub struct Asked {
    pub from: Timestamp,
    pub until: Timestamp,
    pub tries: u32,
    /// What the last node said, if none gave an answer within the client's patience.
    pub failure: Option<String>,
}

/// Everything together.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    /// The names of the API nodes.
    pub apis: Vec<String>,
    pub wishes: Vec<Wish>,
    pub jobs: Vec<FoundJob>,
    pub runs: Vec<Run>,
    pub asked: Vec<Asked>,
    pub faults: Vec<Fault>,
    pub unordered_ends: Vec<UnorderedEnd>,
}
