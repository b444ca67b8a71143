//! The limit on the total size of log lines on a database server, and how much of it this process must free
//! for the lines that it appended.
//!
//! While the tables exceed the limit, the oldest days are dropped first. When only the current day is left,
//! each process removes the logs of the executions that ended first: as many bytes as it has appended. So
//! the total stays constant, even if the database has not freed the pages yet.

use crate::execution_log_quota::RemovedLines;
use punctual_core::ids::ExecutionId;
use punctual_core::ports::LogLine;
use punctual_core::time::Timestamp;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// The approximate size of a line without its text.
pub(crate) const LINE_OVERHEAD_BYTES: u64 = 100;
/// How many times a process checks the size while it appends as much as the limit, within the bounds below.
const LOOKS_PER_LIMIT: u64 = 64;
const LOOK_BYTES_MIN: u64 = 64 << 10;
const LOOK_BYTES_MAX: u64 = 64 << 20;
/// Ended executions that one scan of history finds.
pub(crate) const ENDED_PER_LOOK: usize = 200;
/// Executions whose lines one transaction removes: each may have a few megabytes.
pub(crate) const EXECUTIONS_PER_STEP: usize = 4;

/// One process's state for the limit.
#[derive(Debug)]
pub(crate) struct LogQuota {
    bytes_max: Option<u64>,
    /// Bytes appended since lines were last removed or found to be within the limit. Negative after more
    /// was removed.
    owed: AtomicI64,
    lines_removed: AtomicU64,
    bytes_removed: AtomicU64,
}

/// A check of the size that is due.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QuotaLook {
    pub bytes_max: u64,
    /// Bytes to remove if the limit is exceeded.
    pub owed: u64,
}

/// An execution that has ended, in the order of history.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndedExecution {
    pub place: i64,
    pub execution: ExecutionId,
    pub completed_at: Timestamp,
    pub has_lines: bool,
}

impl LogQuota {
    pub fn new(bytes_max: Option<u64>) -> Self {
        LogQuota {
            bytes_max,
            owed: AtomicI64::default(),
            lines_removed: AtomicU64::default(),
            bytes_removed: AtomicU64::default(),
        }
    }

    /// Records appended lines. Returns the check to run, if one is due.
    pub fn appended(&self, lines: &[LogLine]) -> Option<QuotaLook> {
        let bytes_max = self.bytes_max?;
        let bytes: u64 = lines.iter().map(|line| line.message.len() as u64 + LINE_OVERHEAD_BYTES).sum();
        let added = signed(bytes);
        let owed = u64::try_from(self.owed.fetch_add(added, Ordering::Relaxed) + added).unwrap_or(0);
        let due = (bytes_max / LOOKS_PER_LIMIT).clamp(LOOK_BYTES_MIN, LOOK_BYTES_MAX);
        (owed >= due).then_some(QuotaLook { bytes_max, owed })
    }

    /// Settles this check. Bytes that were removed beyond it count for later checks.
    pub fn settle(&self, look: QuotaLook, freed: u64) {
        self.owed.fetch_sub(signed(look.owed.max(freed)), Ordering::Relaxed);
    }

    pub fn note_removed(&self, removed: RemovedLines) {
        self.lines_removed.fetch_add(removed.lines, Ordering::Relaxed);
        self.bytes_removed.fetch_add(removed.bytes, Ordering::Relaxed);
    }

    /// The lines that this process has removed.
    pub fn removed(&self) -> RemovedLines {
        RemovedLines {
            lines: self.lines_removed.load(Ordering::Relaxed),
            bytes: self.bytes_removed.load(Ordering::Relaxed),
        }
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
