//! The log quota of one execution, in every database. Whatever its worker sends, a log line marks the place
//! where further lines were dropped.

use punctual_core::limits;
use punctual_core::ports::{LogLine, LogStream};

/// Slightly more than a worker that obeys the limits sends, so that its own message about the limit fits.
const LINES_MAX: usize = limits::LOG_LINES_PER_EXECUTION_MAX + 1;
const BYTES_MAX: usize = limits::LOG_BYTES_PER_EXECUTION_MAX + 2 * limits::LOG_LINE_BYTES_MAX;
/// The message that replaces the dropped lines.
const DROPPED: &str = "the log is full: this and all further lines are dropped";

/// The size of one execution's log so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ExecutionLogSize {
    pub lines: usize,
    pub bytes: usize,
}

/// Log lines removed since the store was opened, to keep the total log size within its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RemovedLines {
    pub lines: u64,
    pub bytes: u64,
}

impl ExecutionLogSize {
    /// What to store for one more line: the line itself, the message that all further lines are dropped, or
    /// nothing after that message.
    pub fn admit(&mut self, line: &LogLine) -> Option<LogLine> {
        if self.is_full() {
            return None;
        }
        *self = ExecutionLogSize { lines: self.lines + 1, bytes: self.bytes + line.message.len() };
        Some(if self.is_full() {
            LogLine { stream: LogStream::Log, message: DROPPED.to_owned(), ..line.clone() }
        } else {
            line.clone()
        })
    }

    /// Whether the limit was exceeded before. Then the last line says so, and nothing more is stored.
    fn is_full(self) -> bool {
        self.lines > LINES_MAX || self.bytes > BYTES_MAX
    }
}
