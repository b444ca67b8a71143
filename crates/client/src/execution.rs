//! Executions and skipped occurrences on the wire.

use crate::client::{Client, ClientError};
use crate::page::Page;
use crate::wire::wire;
use punctual_core::gates::Gate;
use punctual_core::ids::{ExecutionId, JobId, OccurrenceId};
use punctual_core::lifecycle::{State, Status};
use punctual_core::notes::Percent;
use punctual_core::occurrence::Origin;
use punctual_core::schedule::SkipReason;
use punctual_core::time::Timestamp;
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::fmt;

wire! {
    /// One attempt of one occurrence of a job.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    pub struct ExecutionBody as "Execution" {
        /// The execution.
        pub execution_id: ExecutionId,
        /// Its job.
        pub job_id: JobId,
        /// The version of its job at that time.
        pub job_version: u32 = whole(1..=u32::MAX.into()),
        /// The nominal time of the occurrence, the same for all its attempts.
        pub scheduled_time: Timestamp,
        /// What caused the occurrence: its schedule, also if it was missed and is replayed, or a trigger.
        /// `backfill` is one that a user asked to run again.
        pub origin: Origin,
        /// The number of the attempt within the occurrence.
        pub attempt_number: u32 = whole(1..=u32::MAX.into()),
        /// The state of the execution.
        pub status: ExecutionStatus,
        /// Why it did not run.
        pub reason: Option<String>,
        /// What a waiting execution waits for.
        pub gates: Vec<Gate> = list(words::<Gate>().about("One reason to wait.")),
        /// The worker that runs or ran it.
        pub worker_id: Option<String>,
        /// When this attempt could start: later than scheduled for a retry.
        pub available_at: Timestamp,
        /// When it expires unless it has started; null once it has ended.
        #[serde(default)]
        pub expires_at: Option<Timestamp>,
        /// It is running and has been asked to stop.
        #[serde(default)]
        pub cancel_requested: bool,
        /// When its handler started; while it runs, when its worker received it.
        pub started_at: Option<Timestamp>,
        /// When it ended.
        pub completed_at: Option<Timestamp>,
        /// The error of the handler; at most 8 KiB.
        pub error_message: Option<String>,
        /// The result of the handler, or null; at most 64 KiB. A result stored before its depth was limited
        /// is shown as `{"unreadable": …, "text": …}`.
        pub result: Option<Box<RawValue>>,
        /// The payload of this run, if it has one of its own instead of the job's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub payload: Option<Box<RawValue>> = any(),
        /// The occurrence that this run repeats, if a user asked for a re-run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub repeats: Option<OccurrenceId>,
        /// A user asked for it to run at another time than its scheduled one.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub moved: bool = flag(),
        /// The handler of the attempt before this one chose when this one starts: by `retry_at`, `retry_after`
        /// or a snooze.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub chosen_by_handler: bool = flag(),
        /// The progress of the attempt; null until it reports any.
        #[serde(default)]
        pub progress: Option<ProgressBody>,
        /// The size of the checkpoint that the occurrence has saved for its next attempt; null if there is
        /// none.
        #[serde(default)]
        pub checkpoint_bytes: Option<u64>,
        /// The checkpoint, at most 64 KiB; only where one execution is shown, and only if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub checkpoint: Option<Box<RawValue>>,
        /// The name of its job; only where executions of all jobs are listed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub name: Option<String>,
        /// The type of its job; only in that list.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub job_type: Option<String>,
        /// The queue of its job; only in that list.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub queue: Option<String>,
        /// The retries that its job allows; only in that list.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub max_retries: Option<u32> = whole(0..=u32::MAX.into()),
    }
}

/// Filters for executions of all jobs. Absent filters match all, except for the status.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ExecutionFilter {
    /// RUNNING by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<ExecutionStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The name of the worker that runs or ran them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

impl Client {
    /// Executions of all jobs that have one status.
    pub async fn all_executions(&self, filter: &ExecutionFilter) -> Result<Page<ExecutionBody>, ClientError> {
        self.send(self.request(Method::GET, "/executions").query(filter)).await
    }

    /// Adds an occurrence that repeats the one of a finished execution.
    pub async fn rerun(&self, id: ExecutionId, how: TriggerRequest) -> Result<ExecutionBody, ClientError> {
        self.send(self.once(&format!("/executions/{id}/rerun")).json(&how)).await
    }
}

wire! {
    /// Progress as reported by a handler.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ProgressBody as "Progress" {
        /// The completed share.
        pub percent: Option<Percent> = number(0.0..=100.0).example(40),
        /// The current step; at most 500 bytes.
        pub message: Option<String> = text().example("page 5 of 12"),
        /// When it was last reported.
        pub noted_at: Timestamp,
    }
}

impl fmt::Display for ProgressBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.percent, &self.message) {
            (Some(percent), Some(message)) => write!(f, "{percent}, {message}"),
            (Some(percent), None) => write!(f, "{percent}"),
            (None, Some(message)) => f.write_str(message),
            (None, None) => Ok(()),
        }
    }
}

wire! {
    /// How to trigger a job.
    #[derive(Debug, Clone, Default, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct TriggerRequest as "Trigger" {
        /// Replaces the whole payload for this run and its retries; the job keeps its own. A re-run without it has
        /// the payload of the run that it repeats, if that had one of its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub payload: Option<Box<RawValue>> = any().example(json!({"day": "2026-03-01"})),
        /// Run beside open occurrences, whatever the job's `overlap_policy`.
        #[serde(rename = "override", default)]
        pub despite_overlap: bool = flag().otherwise(false),
    }
}

/// Defines the statuses: of an open execution by its state, of a finished one as in history.
macro_rules! statuses {
    (open: $($open:ident $open_word:literal),*; finished: $($finished:ident $word:literal),* $(;)?) => {
        /// The status of an execution, as one word.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "SCREAMING_SNAKE_CASE")]
        pub enum ExecutionStatus {
            $($open,)*
            $($finished,)*
        }

        impl ExecutionStatus {
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(ExecutionStatus::$open => $open_word,)*
                    $(ExecutionStatus::$finished => $word,)*
                }
            }

            /// The status in history, if it has finished.
            pub const fn finished(self) -> Option<Status> {
                match self {
                    $(ExecutionStatus::$open => None,)*
                    $(ExecutionStatus::$finished => Some(Status::$finished),)*
                }
            }

            pub const fn is_finished(self) -> bool {
                self.finished().is_some()
            }
        }

        impl From<Status> for ExecutionStatus {
            fn from(status: Status) -> Self {
                match status {
                    $(Status::$finished => ExecutionStatus::$finished,)*
                }
            }
        }
    };
}

statuses! {
    open: Waiting "WAITING", Queued "QUEUED", Running "RUNNING";
    finished: Succeeded "SUCCEEDED", Failed "FAILED", TimedOut "TIMED_OUT", Cancelled "CANCELLED", Lost "LOST",
        Skipped "SKIPPED", Expired "EXPIRED", Snoozed "SNOOZED";
}

impl fmt::Display for ExecutionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl From<State> for ExecutionStatus {
    fn from(state: State) -> Self {
        match state {
            State::Waiting(_) => ExecutionStatus::Waiting,
            State::Queued => ExecutionStatus::Queued,
            State::Running { .. } => ExecutionStatus::Running,
            State::Finished(status) => status.into(),
        }
    }
}

wire! {
    /// Consecutive occurrences that did not run, for the same reason.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct SkipRangeBody as "SkipRange" {
        /// The nominal time of the first.
        pub first: Timestamp,
        /// The nominal time of the last.
        pub last: Timestamp,
        /// How many.
        pub count: u64,
        /// Why.
        pub reason: SkipReason,
    }
}
