//! The baseline: a database without the scheduler on top of it, for benchmarks. It measures the best possible
//! throughput, the latency of a small commit and the disk space used, and it can write a history. The adapters
//! implement it; this module holds what they share.
//!
//! Do not run it on a database that is in use: the baseline refuses a database that has jobs.

pub(crate) mod past;
pub(crate) mod rows;

pub use past::{Past, RUNS_PER_JOB};

use crate::fault::Fault;
use async_trait::async_trait;
use punctual_core::ports::StoreError;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How much to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BaselineOptions {
    pub jobs: usize,
    /// Jobs per transaction.
    pub batch: usize,
    /// Bytes of each job's payload.
    pub payload_bytes: usize,
}

/// The measured rates: on one thread of the embedded store, or on as many connections as a server store has writers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BaselineRates {
    /// Jobs inserted the way a submit does: the job and its live row.
    pub insert_per_sec: f64,
    /// Jobs claimed and completed, in one transaction each.
    pub claim_complete_per_sec: f64,
    /// Future jobs inserted the way a submit does: the job and its schedule.
    pub hold_per_sec: f64,
}

/// The size of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatabaseSize {
    /// Tables and indexes, including their free space.
    pub bytes: u64,
    /// Dead row versions that are not vacuumed yet, if the database counts them.
    pub dead_rows: Option<u64>,
}

/// Called with the number of rows written since the last call.
pub type RowProgress = Arc<dyn Fn(u64) + Send + Sync>;

/// A database on a server, with the tables of this version.
#[async_trait]
pub trait BaselineDatabase: Send {
    /// One small change, until it is durable: no commit of the store can be faster.
    async fn commit_once(&mut self) -> Result<(), StoreError>;

    async fn size(&mut self) -> Result<DatabaseSize, StoreError>;

    /// The server's data directory, if the server runs on this machine and shows it to this user.
    async fn data_directory(&mut self) -> Option<PathBuf>;

    /// Raw rows in batches over plain connections, as many as the store has writers. The rows equal those
    /// of jobs and go into the same tables, without rules, replies or reads. The database must be empty.
    async fn measure_baseline(&mut self, options: BaselineOptions) -> Result<BaselineRates, StoreError>;

    /// Writes the rows that past executions would have left.
    async fn keep_past(&mut self, past: Past, progress: RowProgress) -> Result<(), StoreError>;
}

/// The database must be empty, so that the measurement shares no rows with anything else.
pub(crate) const NOT_EMPTY: &str = "the baseline is measured in a database without jobs";

/// Some jobs of the baseline, which one connection writes at a time.
#[async_trait]
pub(crate) trait BaselineBatch<C>: Send + Sync + 'static {
    /// What a batch can write.
    type Phase: Copy + Send + 'static;

    fn jobs(&self) -> usize;

    async fn write(&self, connection: &mut C, phase: Self::Phase) -> Result<(), Fault>;
}

/// Each connection takes the next batch until none is left. Returns the overall rate, and the connections.
pub(crate) async fn write_all<C: Send + 'static, B: BaselineBatch<C>>(
    connections: Vec<C>,
    batches: &Arc<Vec<B>>,
    phase: B::Phase,
) -> Result<(f64, Vec<C>), Fault> {
    let next = Arc::new(AtomicUsize::new(0));
    let started = Instant::now();
    let mut writers = JoinSet::new();
    for mut connection in connections {
        let (next, batches) = (next.clone(), batches.clone());
        writers.spawn(async move {
            while let Some(batch) = batches.get(next.fetch_add(1, Ordering::Relaxed)) {
                batch.write(&mut connection, phase).await?;
            }
            Ok::<C, Fault>(connection)
        });
    }
    let mut connections = Vec::new();
    while let Some(ended) = writers.join_next().await {
        connections.push(ended.map_err(|error| Fault::Away(error.to_string()))??);
    }
    let jobs = batches.iter().map(B::jobs).sum();
    Ok((per_sec(jobs, started.elapsed()), connections))
}

pub(crate) fn per_sec(jobs: usize, spent: Duration) -> f64 {
    jobs as f64 / spent.as_secs_f64().max(f64::EPSILON)
}
