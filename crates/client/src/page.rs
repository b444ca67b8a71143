//! Paged lists.

use crate::execution::{ExecutionBody, SkipRangeBody};
use crate::wire::wire;
use serde::{Deserialize, Serialize};

/// One page of a list. A page may be shorter than its limit even if another one follows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Opaque: pass it as `cursor` to read on; null on the last page.
    pub next_cursor: Option<String>,
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
