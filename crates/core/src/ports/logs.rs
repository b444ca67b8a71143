//! The log lines of handlers, as stored.

use crate::ids::ExecutionId;
use crate::time::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// Numbers the lines; the cursor of their list. Assigned by the store.
    pub number: u64,
    pub execution: ExecutionId,
    pub timestamp: Timestamp,
    pub stream: LogStream,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LogStream {
    Stdout,
    Stderr,
    /// Written by Punctual or by the handler's own logger.
    Log,
}
