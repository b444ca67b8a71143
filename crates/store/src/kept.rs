//! How much is kept of an execution's log lines, in every database: whatever its worker sends, a line says where the rest
//! was dropped.

use punctual_core::limits;
use punctual_core::ports::{LogLine, LogStream};

/// A little more than a worker that keeps to the limits sends, so that its own last word on them fits.
const LINES_MAX: usize = limits::LOG_LINES_PER_EXECUTION_MAX + 1;
const BYTES_MAX: usize = limits::LOG_BYTES_PER_EXECUTION_MAX + 2 * limits::LOG_LINE_BYTES_MAX;
/// What stands where lines were dropped.
const DROPPED: &str = "the log is full: this and all further lines are dropped";

/// What is kept of one execution so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Kept {
    pub lines: usize,
    pub bytes: usize,
}

/// Lines that were removed to keep all lines together within their limit, since the store was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RemovedLines {
    pub lines: u64,
    pub bytes: u64,
}

impl Kept {
    /// What is kept of one more line: itself, or the word that all further ones are dropped, or nothing after that.
    pub fn admit(&mut self, line: &LogLine) -> Option<LogLine> {
        if self.is_full() {
            return None;
        }
        *self = Kept { lines: self.lines + 1, bytes: self.bytes + line.message.len() };
        Some(if self.is_full() {
            LogLine { stream: LogStream::Log, message: DROPPED.to_owned(), ..line.clone() }
        } else {
            line.clone()
        })
    }

    /// Whether the limit was reached before: then the last line says so, and nothing more is kept.
    fn is_full(self) -> bool {
        self.lines > LINES_MAX || self.bytes > BYTES_MAX
    }
}
