//! Executions and skipped occurrences on the wire.

use crate::client::{Client, ClientError};
use crate::page::Page;
use punctual_core::gates::Gate;
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::lifecycle::{State, Status};
use punctual_core::notes::Percent;
use punctual_core::occurrence::Origin;
use punctual_core::schedule::SkipReason;
use punctual_core::time::Timestamp;
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::fmt;

/// One attempt of one occurrence of a job.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExecutionBody {
    pub execution_id: ExecutionId,
    pub job_id: JobId,
    pub job_version: u32,
    /// The nominal time of its occurrence.
    pub scheduled_time: Timestamp,
    pub origin: Origin,
    pub attempt_number: u32,
    pub status: ExecutionStatus,
    /// Why it did not run.
    pub reason: Option<String>,
    /// What a waiting execution waits for.
    pub gates: Vec<Gate>,
    pub worker_id: Option<String>,
    pub available_at: Timestamp,
    /// When it expires unless it has started; only for executions that have not ended.
    #[serde(default)]
    pub expires_at: Option<Timestamp>,
    /// It is running and has been asked to stop.
    #[serde(default)]
    pub cancel_requested: bool,
    pub started_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
    pub error_message: Option<String>,
    pub result: Option<Box<RawValue>>,
    /// The last progress that its handler reported; for a failed execution, as long as it is retained.
    #[serde(default)]
    pub progress: Option<ProgressBody>,
    /// The size of the occurrence's checkpoint for the next attempt.
    #[serde(default)]
    pub checkpoint_bytes: Option<u64>,
    /// The checkpoint; only where a single execution is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Box<RawValue>>,
    /// The name of its job; like the following fields, only where executions of all jobs are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The retries that its job allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<u32>,
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
}

/// The progress of an execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgressBody {
    /// From 0 to 100.
    pub percent: Option<Percent>,
    pub message: Option<String>,
    /// When its handler last reported progress or a checkpoint.
    pub noted_at: Timestamp,
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

/// How to trigger a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TriggerRequest {
    /// In addition to open executions, whatever the job's `overlap_policy`.
    #[serde(rename = "override", default)]
    pub despite_overlap: bool,
}

/// The status of an execution, as one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ExecutionStatus {
    Waiting,
    Queued,
    Running,
    Succeeded,
    Failed,
    TimedOut,
    Cancelled,
    Lost,
    Skipped,
    Expired,
}

impl ExecutionStatus {
    pub const fn as_str(self) -> &'static str {
        match self {
            ExecutionStatus::Waiting => "WAITING",
            ExecutionStatus::Queued => "QUEUED",
            ExecutionStatus::Running => "RUNNING",
            ExecutionStatus::Succeeded => "SUCCEEDED",
            ExecutionStatus::Failed => "FAILED",
            ExecutionStatus::TimedOut => "TIMED_OUT",
            ExecutionStatus::Cancelled => "CANCELLED",
            ExecutionStatus::Lost => "LOST",
            ExecutionStatus::Skipped => "SKIPPED",
            ExecutionStatus::Expired => "EXPIRED",
        }
    }

    pub const fn is_finished(self) -> bool {
        !matches!(self, ExecutionStatus::Waiting | ExecutionStatus::Queued | ExecutionStatus::Running)
    }
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

impl From<Status> for ExecutionStatus {
    fn from(status: Status) -> Self {
        match status {
            Status::Succeeded => ExecutionStatus::Succeeded,
            Status::Failed => ExecutionStatus::Failed,
            Status::TimedOut => ExecutionStatus::TimedOut,
            Status::Cancelled => ExecutionStatus::Cancelled,
            Status::Lost => ExecutionStatus::Lost,
            Status::Skipped => ExecutionStatus::Skipped,
            Status::Expired => ExecutionStatus::Expired,
        }
    }
}

/// Consecutive occurrences that did not run, for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkipRangeBody {
    pub first: Timestamp,
    pub last: Timestamp,
    pub count: u64,
    pub reason: SkipReason,
}
