//! Lists, a page at a time.

use crate::execution::{ExecutionBody, SkipRangeBody};
use serde::{Deserialize, Serialize};

/// One page of a list. It may be shorter than its limit and still have a next one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Opaque: give it back as `cursor` to read on; null on the last page.
    pub next_cursor: Option<String>,
}

/// One page of a job's executions, open and finished in one order: latest occurrence and attempt first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExecutionsPage {
    pub items: Vec<ExecutionBody>,
    /// Occurrences that did not run, latest first; on the first page only.
    #[serde(default)]
    pub skipped: Vec<SkipRangeBody>,
    pub next_cursor: Option<String>,
}
