//! Statistics of a store, for users and metrics. No rule depends on them.

use crate::histogram::HistogramSnapshot;
use crate::job::JobStatus;
use crate::ports::Lane;
use crate::time::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Depth {
    pub lane: Lane,
    pub waiting: u64,
    pub queued: u64,
    pub running: u64,
    /// When the oldest queued execution became available. It is searched among the first ones of the lane:
    /// with very many of different priorities it may not be the oldest of all.
    pub oldest_queued: Option<Timestamp>,
}

/// How many jobs there are by status, and how many dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JobCounts {
    pub active: u64,
    pub paused: u64,
    pub completed: u64,
    pub failed: u64,
    pub cancelled: u64,
    /// Occurrences that failed finally and were neither redriven nor discarded.
    pub dead_letters: u64,
}

impl JobCounts {
    /// The number of jobs with this status.
    pub fn of(&mut self, status: JobStatus) -> &mut u64 {
        match status {
            JobStatus::Active => &mut self.active,
            JobStatus::Paused => &mut self.paused,
            JobStatus::Completed => &mut self.completed,
            JobStatus::Failed => &mut self.failed,
            JobStatus::Cancelled => &mut self.cancelled,
        }
    }
}

/// Statistics of a store since it was opened, for metrics. Durations are in microseconds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreFigures {
    pub transaction_time: HistogramSnapshot,
    /// Calls that shared a transaction.
    pub transaction_writes: HistogramSnapshot,
    pub checkpoint_time: HistogramSnapshot,
    pub database_bytes: u64,
    /// Bytes of the database that are free for reuse.
    pub free_bytes: u64,
    /// Size of the write-ahead log.
    pub wal_bytes: u64,
    /// Size of the log lines of executions.
    pub log_bytes: u64,
    /// Log lines that this process has removed because the limit for all lines was reached, and their bytes.
    pub log_lines_removed: u64,
    pub log_bytes_removed: u64,
    /// How often a malformed row was skipped.
    pub malformed_rows: u64,
}

/// The failures that a store has recorded itself, without a query to its database. For metrics and readiness;
/// no rule depends on it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreHealth {
    /// Failed reads and writes since the process started, by kind. Kinds without failures are listed, too.
    pub errors: Vec<(&'static str, u64)>,
    /// Damage found by checks of the database files. Empty if there is none, and where a server checks its
    /// own files.
    pub damage: Vec<String>,
    /// Completed background checks of the database files.
    pub checks_completed: u64,
}
