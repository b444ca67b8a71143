//! What a store counts, for people and for metrics. Nothing is decided by it.

use crate::histogram::HistogramSnapshot;
use crate::ports::Lane;
use crate::time::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Depth {
    pub lane: Lane,
    pub waiting: u64,
    pub queued: u64,
    pub running: u64,
    /// When the oldest queued execution became available; looked for among the first of the lane, so that of very
    /// many with different priorities it may not be the oldest of all.
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
    /// Occurrences that failed for good and were neither redriven nor discarded.
    pub dead_letters: u64,
}

/// How a store has fared since it was opened, for metrics. Durations are in microseconds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreFigures {
    pub transaction_time: HistogramSnapshot,
    /// Calls that shared a transaction.
    pub transaction_writes: HistogramSnapshot,
    pub checkpoint_time: HistogramSnapshot,
    pub database_bytes: u64,
    /// Of the database, what is free to be used again.
    pub free_bytes: u64,
    /// The write-ahead log.
    pub wal_bytes: u64,
    /// The log lines of executions.
    pub log_bytes: u64,
    /// Log lines that this process has removed because all lines together had reached their limit, and their bytes.
    pub log_lines_removed: u64,
    pub log_bytes_removed: u64,
    /// How often a row that cannot be read was passed over.
    pub malformed_rows: u64,
}

/// What a store knows of its own failures, without asking its database. For metrics and readiness; no rule depends on it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreHealth {
    /// Failures of reads and writes since the process started, by kind. Every kind is listed, also those at zero.
    pub errors: Vec<(&'static str, u64)>,
    /// What checks of the database files found wrong. Empty when nothing is, and where a server checks its own files.
    pub damage: Vec<String>,
    /// Background checks of the database files that have covered everything.
    pub checks_completed: u64,
}
