//! Explanations of a job's state: sentences for people and facts for programs.

use crate::advice::Advice;
use crate::duration::Span;
use crate::execution::{ExecutionStatus, SkipRangeBody};
use crate::wire::wire;
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::job::JobStatus;
use punctual_core::time::Timestamp;
use serde::{Deserialize, Serialize};

wire! {
    /// Why a job is in its current state. The sentences are for people and may be worded differently in a
    /// later version.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ExplainBody as "Explanation" {
        /// The job.
        pub job_id: JobId,
        /// The status of the job.
        pub status: JobStatus,
        /// The most important sentence.
        pub summary: String,
        /// All sentences.
        pub sentences: Vec<String> = list(text().about("One of them.")),
        /// Actions that may help, the most important first; empty if nothing blocks the job.
        #[serde(default)]
        pub advice: Vec<Advice>,
        /// The open executions, latest first; at most 10.
        pub executions: Vec<ExecutionExplained>,
        /// When the next occurrence runs.
        pub next_run_time: Option<Timestamp>,
        /// Occurrences that did not run, latest first; at most 10 ranges.
        pub skipped: Vec<SkipRangeBody>,
        /// The latest finished occurrences, latest first; at most 10.
        pub recent: Vec<RecentOccurrence>,
    }
}

wire! {
    /// Why an open execution is where it is.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ExecutionExplained as "ExecutionExplained" {
        /// The execution.
        pub execution_id: ExecutionId,
        /// The state of the execution.
        pub status: ExecutionStatus,
        /// Why.
        pub sentences: Vec<String> = list(text().about("One sentence.")),
    }
}

wire! {
    /// How an occurrence ended.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct RecentOccurrence as "RecentOccurrence" {
        /// Its nominal time.
        pub scheduled_time: Timestamp,
        /// The status of its last attempt.
        pub status: ExecutionStatus,
        /// Why it ended like that, if the status alone does not say it.
        pub reason: Option<String>,
        /// How long after its scheduled time its first attempt started; null if it never did or that attempt
        /// is no longer stored.
        pub late_by: Option<Span>,
        /// Attempts that were started.
        pub attempts: u32,
    }
}
