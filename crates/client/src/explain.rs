//! Explanations of a job's state: sentences for people and facts for programs.

use crate::advice::Advice;
use crate::duration::Span;
use crate::execution::{ExecutionStatus, SkipRangeBody};
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::job::JobStatus;
use punctual_core::time::Timestamp;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainBody {
    pub job_id: JobId,
    pub status: JobStatus,
    /// The most important sentence.
    pub summary: String,
    pub sentences: Vec<String>,
    /// Advice, the most important first.
    #[serde(default)]
    pub advice: Vec<Advice>,
    /// Open executions, latest first. Of very many, only running ones and then the earliest; a sentence then
    /// says how many are left out.
    pub executions: Vec<ExecutionExplained>,
    pub next_run_time: Option<Timestamp>,
    /// Occurrences that did not run, latest first.
    pub skipped: Vec<SkipRangeBody>,
    /// The latest finished occurrences, latest first.
    pub recent: Vec<RecentOccurrence>,
}

/// Why an open execution is in its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionExplained {
    pub execution_id: ExecutionId,
    pub status: ExecutionStatus,
    pub sentences: Vec<String>,
}

/// How an occurrence ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecentOccurrence {
    pub scheduled_time: Timestamp,
    /// The status of its last attempt.
    pub status: ExecutionStatus,
    /// Why it ended like that, where the status alone does not explain it.
    pub reason: Option<String>,
    /// How long after its scheduled time its first attempt started; null if it never started or is no longer
    /// retained.
    pub late_by: Option<Span>,
    /// Attempts that were started.
    pub attempts: u32,
}
