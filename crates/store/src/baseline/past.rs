//! The rows that past executions would have left: finished jobs that ran a few times each, and their
//! history, spread evenly over a time span and ordered by end.

use super::rows::{SESSION, payload};
use crate::counters::JobTally;
use punctual_core::ids::{Epoch, JobId};
use punctual_core::job::{Job, JobSpec, StoredStatus};
use punctual_core::lifecycle::Status;
use punctual_core::occurrence::{Finished, Origin};
use punctual_core::time::{Timestamp, duration_micros};
use std::time::Duration;

/// Executions of each job: the first ran at once, the others were triggered.
pub const RUNS_PER_JOB: u64 = 10;
/// Jobs per transaction.
const JOBS_PER_BATCH: u64 = 200;
/// The time from an execution's availability to its start, and from its start to its end.
const WAIT_US: i64 = 1_500;
const RUN_US: i64 = 900;

/// The amount of history to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Past {
    pub executions: u64,
    /// When the last execution ended.
    pub until: Timestamp,
    /// How long before that the first one ended.
    pub span: Duration,
    /// Bytes of each job's payload.
    pub payload_bytes: usize,
}

/// Jobs and their finished executions.
#[derive(Debug, Default)]
pub(crate) struct PastBatch {
    pub jobs: Vec<Job>,
    pub ends: Vec<Finished>,
}

impl PastBatch {
    /// Jobs by status, for the stored counters.
    pub fn job_counts(&self) -> JobTally {
        JobTally { completed: self.jobs.len() as i64, ..JobTally::default() }
    }
}

impl Past {
    pub(crate) fn jobs(&self) -> u64 {
        self.executions.div_ceil(RUNS_PER_JOB)
    }

    /// In the order of time, one transaction each.
    pub(crate) fn batches(self) -> impl Iterator<Item = PastBatch> {
        let jobs = self.jobs();
        (0..jobs).step_by(JOBS_PER_BATCH as usize).map(move |first| {
            let mut batch = PastBatch::default();
            for number in first..jobs.min(first + JOBS_PER_BATCH) {
                let ends = self.ends_of(number);
                batch.jobs.push(self.job(number, ends.len() as u32));
                batch.ends.extend(ends);
            }
            batch
        })
    }

    fn ended_at(self, execution: u64) -> Timestamp {
        let span = i128::from(duration_micros(self.span));
        let left = i128::from(self.executions - 1 - execution) * span / i128::from(self.executions);
        self.until.shifted(-i64::try_from(left).unwrap_or(i64::MAX))
    }

    fn id(self, number: u64) -> JobId {
        let submitted_at = self.ended_at(number * RUNS_PER_JOB).shifted(-WAIT_US - RUN_US);
        JobId::new(submitted_at, scattered(number))
    }

    fn job(self, number: u64, runs: u32) -> Job {
        let id = self.id(number);
        let mut spec = JobSpec::named("noop");
        spec.payload = payload(self.payload_bytes);
        Job {
            id,
            version: 1,
            mark: StoredStatus::Active,
            numbered: Some(runs),
            fired: 0,
            created_at: id.made_at(),
            updated_at: id.made_at(),
            spec,
        }
    }

    fn ends_of(self, number: u64) -> Vec<Finished> {
        let (job, first) = (self.id(number), number * RUNS_PER_JOB);
        let end = |execution: u64| {
            let completed_at = self.ended_at(execution);
            let available_at = completed_at.shifted(-WAIT_US - RUN_US);
            Finished {
                id: job.occurrence((execution - first) as u32 + 1).attempt(1),
                epoch: Epoch(1),
                status: Status::Succeeded,
                scheduled_time: available_at,
                origin: if execution == first { Origin::Schedule } else { Origin::Trigger },
                job_version: 1,
                available_at,
                started_at: Some(completed_at.shifted(-RUN_US)),
                completed_at,
                session: Some(SESSION),
                worker: None,
                reason: None,
                error: None,
                result: None,
                input: None,
            }
        };
        (first..self.executions.min(first + RUNS_PER_JOB)).map(end).collect()
    }
}

/// Pseudo-random bits, so that jobs are spread over all segments (the finalizer of splitmix64).
fn scattered(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

pub(crate) use on_servers::keep;

mod on_servers {
    //! Writes the history over several connections at once.

    use super::{Past, PastBatch};
    use crate::baseline::RowProgress;
    use crate::counters::CounterChanges;
    use crate::fault::Fault;
    use crate::rows::JobRow;
    use crate::unit_of_work::{Connect, EndedRow, ReadSet, Tables, WriteSet};
    use futures_util::future::try_join_all;

    const WORKER: &str = "past";

    /// Uses the adapter's own statements, so that every column has the value that a job would have left.
    pub(crate) async fn keep(
        connect: &dyn Connect,
        writers: usize,
        past: Past,
        progress: RowProgress,
    ) -> Result<(), Fault> {
        let mut connections = try_join_all((0..writers.max(1)).map(|writer| connect.connect(writer))).await?;
        let names = match connections.first_mut() {
            Some(first) => Names::of(first.as_mut()).await?,
            None => return Ok(()),
        };
        let mut batches = past.batches();
        loop {
            let some: Vec<PastBatch> = batches.by_ref().take(connections.len()).collect();
            if some.is_empty() {
                return Ok(());
            }
            let ended: usize = some.iter().map(|batch| batch.ends.len()).sum();
            let writes = connections.iter_mut().zip(some);
            try_join_all(writes.map(|(tables, batch)| write(tables.as_mut(), batch, names))).await?;
            progress(ended as u64);
        }
    }

    #[derive(Debug, Clone, Copy)]
    struct Names {
        lane: i64,
        worker: i64,
    }

    impl Names {
        async fn of(tables: &mut dyn Tables) -> Result<Self, Fault> {
            let lane = ("default".to_owned(), "noop".to_owned());
            let read_set = ReadSet {
                lanes: [lane.clone()].into(),
                workers: [WORKER.to_owned()].into(),
                ..ReadSet::default()
            };
            let found = tables.intern(&read_set).await?;
            let is_ours = |queue: &str, job_type: &str| (queue, job_type) == (&lane.0, &lane.1);
            let lane = found.lanes.iter().find(|(_, lane)| is_ours(lane.queue(), lane.job_type()));
            let worker = found.workers.iter().find(|(name, _)| name == WORKER);
            let missing = || Fault::Missing("a lane or a worker".to_owned());
            Ok(Names { lane: lane.ok_or_else(missing)?.0, worker: worker.ok_or_else(missing)?.1 })
        }
    }

    async fn write(tables: &mut dyn Tables, batch: PastBatch, names: Names) -> Result<(), Fault> {
        let counts = CounterChanges { jobs: batch.job_counts(), ..CounterChanges::default() };
        let row = |job| JobRow { job, lane: names.lane };
        let end = |finished| EndedRow { finished, worker: Some(names.worker) };
        let write_set = WriteSet {
            jobs_inserted: batch.jobs.into_iter().map(row).collect(),
            history: batch.ends.into_iter().map(end).collect(),
            counts,
            ..WriteSet::default()
        };
        tables.begin().await?;
        tables.commit(&write_set).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_is_complete_evenly_spread_and_ordered() {
        let until = Timestamp::from_micros(2_000_000_000_000_000);
        let span = Duration::from_secs(29 * 24 * 3_600);
        let past = Past { executions: 4_205, until, span, payload_bytes: 20 };
        let batches: Vec<PastBatch> = past.batches().collect();
        let jobs: Vec<JobId> = batches.iter().flat_map(|batch| &batch.jobs).map(|job| job.id).collect();
        let ends: Vec<Finished> = batches.into_iter().flat_map(|batch| batch.ends).collect();
        assert_eq!((jobs.len(), ends.len()), (421, 4_205));
        assert!(jobs.is_sorted_by(|one, next| one < next), "ids sort by time");
        assert!(ends.is_sorted_by_key(|end| end.completed_at));
        assert_eq!(ends.last().map(|end| end.completed_at), Some(until));
        let first = ends.first().map_or(until, |end| end.completed_at);
        assert!(until.since(first) < span && span - until.since(first) < Duration::from_secs(3_600));
        assert!(ends.iter().all(|end| jobs.binary_search(&end.id.occurrence.job).is_ok()));
        assert_eq!(
            ends.last().map(|end| end.id.occurrence.number),
            Some(5),
            "the last job has the remaining executions"
        );
    }
}
