//! All observations of a run, as plain values: client requests and their responses, what the API returns afterwards,
//! what the external record contains, and which faults were caused. The checker uses only these.

use crate::member::UnorderedEnd;
use crate::nemesis::InjectedFault;
use crate::receiver::NotificationTry;
use crate::recorder::RecordedRun;
use punctual_client::ExecutionStatus;
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::schedule::SkipReason;
use punctual_core::time::Timestamp;
use serde::Serialize;
use std::time::Duration;

/// A job that a client requested.
#[derive(Debug, Clone)]
pub struct RequestedJob {
    /// Its `idempotency_key`: however often it is submitted, it is one job.
    pub key: String,
    pub times: Times,
    pub overlap: OverlapAllowed,
    pub attempts: Attempts,
    /// The job id in the server's response. `None` without a response: then the job exists once or not at
    /// all.
    pub acknowledged: Option<JobId>,
}

/// When a job must run, computed without Punctual.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    Once {
        /// `None` for immediately.
        at: Option<Timestamp>,
    },
    Every {
        first: Timestamp,
        step: Duration,
        /// The last possible time.
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

/// Whether two occurrences of a job may run concurrently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverlapAllowed {
    Allow,
    Skip,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempts {
    /// As many as necessary: it must eventually succeed.
    UntilItSucceeds,
    /// `max_retries: 0`.
    AtMostOne,
}

/// A job as the API shows it at the end.
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
    /// The recorded run that its result names.
    pub run: Option<u64>,
}

#[derive(Debug, Clone, Serialize)]
pub struct FoundSkip {
    pub first: Timestamp,
    pub last: Timestamp,
    pub count: u64,
    pub reason: SkipReason,
}

/// One request of a client, which tries the next node when one fails.
#[derive(Debug, Clone)]
pub struct ClientRequest {
    pub from: Timestamp,
    pub until: Timestamp,
    pub tries: u32,
    /// The last error, if no node answered within the client's patience.
    pub failure: Option<String>,
}

/// All observations.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    /// The names of the API nodes.
    pub apis: Vec<String>,
    pub wishes: Vec<RequestedJob>,
    pub jobs: Vec<FoundJob>,
    pub runs: Vec<RecordedRun>,
    pub asked: Vec<ClientRequest>,
    pub faults: Vec<InjectedFault>,
    pub unordered_ends: Vec<UnorderedEnd>,
    /// All tries of all notifications.
    pub messages: Vec<NotificationTry>,
    /// The names of jobs that could not run.
    pub unserved: Vec<String>,
}
