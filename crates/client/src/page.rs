//! Paged lists.

use crate::execution::{ExecutionBody, SkipRangeBody};
use crate::job::JobBody;
use crate::wire::wire;
use punctual_core::time::Timestamp;
use serde::{Deserialize, Serialize};

/// One page of a list. A page may be shorter than its limit even if another one follows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Opaque: pass it as `cursor` to read on; null on the last page.
    pub next_cursor: Option<String>,
}

wire! {
    /// How many jobs a sorted list has compared.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ComparedBody as "Compared" {
        /// Jobs that match, the latest first.
        pub jobs: u64,
        /// There are no others, so that the order is exact.
        pub complete: bool,
    }

    /// One page of jobs, newest first or in the order of `sort`.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    pub struct JobsPage as "JobPage" {
        /// A page may be shorter than its limit and still have a next one.
        pub items: Vec<JobBody> = up_to(limits::PAGE_ITEMS_MAX, list(the("Job"))),
        /// Opaque: pass it as `cursor` to read on; null on the last page, and with `sort`.
        pub next_cursor: Option<String> = text().example(CURSOR_EXAMPLE),
        /// If there is a next page: about all jobs that were created since this time were examined.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub examined_back_to: Option<Timestamp>,
        /// With `sort`: how far the list has looked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub compared: Option<ComparedBody>,
    }
}

wire! {
    /// One page of a job's executions, open and finished in one order: latest occurrence and attempt first.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    pub struct ExecutionsPage as "ExecutionPage" {
        /// The executions.
        pub items: Vec<ExecutionBody>,
        /// Occurrences that did not run, latest first; on the first page only.
        #[serde(default)]
        pub skipped: Vec<SkipRangeBody>,
        /// Opaque: pass it as `cursor` to read on; null on the last page.
        pub next_cursor: Option<String> = text().example(CURSOR_EXAMPLE),
    }
}
