//! A database without the scheduler on top of it, for benchmarks: what it can do at best, what a small commit takes, how
//! much room it takes up, and a past to look back on. The adapters say how; here is what all of them share.
//!
//! Nothing of it is for a database that somebody uses: the floor refuses one in which there are jobs.

pub(crate) mod past;
pub(crate) mod rows;

pub use past::{Past, RUNS_PER_JOB};

use async_trait::async_trait;
use punctual_core::ports::StoreError;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How much to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FloorOptions {
    pub jobs: usize,
    /// Jobs of one transaction.
    pub batch: usize,
    /// Bytes of each job's payload.
    pub payload_bytes: usize,
}

/// What was measured: on one thread of the embedded store, or on as many connections as a server has writers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Floor {
    /// Jobs inserted as a submit does: the job and its live row.
    pub insert_per_sec: f64,
    /// Jobs claimed and completed, in a transaction each.
    pub claim_complete_per_sec: f64,
    /// Jobs of the future inserted as a submit does: the job and its schedule.
    pub hold_per_sec: f64,
}

/// What a database takes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatabaseSize {
    /// Tables and indexes, with the room in them that is free.
    pub bytes: u64,
    /// Row versions that wait to be swept away, where the database counts them.
    pub dead_rows: Option<u64>,
}

/// Is told how many rows have been written since it was told last.
pub type Progress = Arc<dyn Fn(u64) + Send + Sync>;

/// A database on a server, with the tables of this version.
#[async_trait]
pub trait BareDatabase: Send {
    /// One small change, to its durable end: no commit of the store can be faster.
    async fn commit_once(&mut self) -> Result<(), StoreError>;

    async fn size(&mut self) -> Result<DatabaseSize, StoreError>;

    /// Where the server keeps its files, if it runs on this machine and tells this user.
    async fn data_directory(&mut self) -> Option<PathBuf>;

    /// Raw rows in batches over plain connections, as many as the store has writers: equal to those of jobs, in the very
    /// tables, without rules, answers or anything read. The database must be empty.
    async fn measure_floor(&mut self, options: FloorOptions) -> Result<Floor, StoreError>;

    /// Writes what executions of the past have left.
    async fn keep_past(&mut self, past: Past, progress: Progress) -> Result<(), StoreError>;
}

/// What a floor is measured with, so that it has no rows to share with anybody.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) const NOT_EMPTY: &str = "the floor is measured in a database without jobs";

pub(crate) fn per_sec(jobs: usize, spent: Duration) -> f64 {
    jobs as f64 / spent.as_secs_f64().max(f64::EPSILON)
}
