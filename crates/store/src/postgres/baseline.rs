//! The baseline of PostgreSQL: the rows of no-op jobs in the tables of a separate database, written in batches by as
//! many plain connections as a store has writers. Only columns that differ from row to row are sent. Also a small
//! commit, the size of the database, and a history, for benchmarks.

use super::connection::connect;
use super::migrate::{self, MigrateError};
use super::options::PostgresOptions;
use super::partitions::{PartitionedTable, Partitions};
use super::rows::uuid;
use super::tables::SharedDatabase;
use super::wire::{Parameter, StatementCall, TransactionFrame, Wire, column, value};
use crate::baseline::rows::{LANE, NOW_US, SESSION, due_job, future_job, payload};
use crate::baseline::{
    BaselineBatch, BaselineDatabase, BaselineOptions, BaselineRates, DatabaseSize, NOT_EMPTY, Past,
    RowProgress, past, write_all,
};
use crate::cells::get;
use crate::fault::Fault;
use async_trait::async_trait;
use punctual_core::ids::JobId;
use punctual_core::ports::StoreError;
use std::path::PathBuf;
use std::sync::Arc;
use tokio_postgres::Client;
use uuid::Uuid;

const INSERT_JOBS: &str = "INSERT INTO jobs (id, lane, created_at, version, mark, priority, schedule_type, execute_at, payload) \
     SELECT id, $4, created_at, 1, 0, 5, CASE WHEN execute_at IS NULL THEN 0 ELSE 1 END, execute_at, $5 \
     FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) AS new(id, created_at, execute_at)";
const INSERT_LIVE: &str = "INSERT INTO live (job, occurrence, lane, rank, available_at, scheduled_time, job_version, attempt, charged, \
     epoch, segment, state, gates, priority, origin, ties, cancel_requested) \
     SELECT job, 1, $4, at, at, at, 1, 1, 0, 0, segment, 1, 0, 5, 0, 128, false \
     FROM unnest($1::uuid[], $2::bigint[], $3::smallint[]) AS new(job, at, segment)";
const CLAIM: &str = "UPDATE live SET state = 2, epoch = 1, session = $2, claimed_at = available_at \
     WHERE job = ANY($1) AND occurrence = 1";
const DELETE_LIVE: &str = "DELETE FROM live WHERE job = ANY($1) AND occurrence = 1";
const INSERT_HISTORY: &str = "INSERT INTO history (job, occurrence, completed_at, place, scheduled_time, available_at, attempt, epoch, \
     job_version, status, origin, started_at, session, worker) \
     SELECT job, 1, at, at, at, at, 1, 1, 1, 0, 0, at, $3, 1 \
     FROM unnest($1::uuid[], $2::bigint[]) AS new(job, at)";
const INSERT_SCHEDULES: &str = "INSERT INTO schedules (job, lane, fired, version, job_version, segment, priority, overlap, ties, due_at) \
     SELECT job, $4, 0, 1, 1, segment, 5, 0, 0, due_at \
     FROM unnest($1::uuid[], $2::bigint[], $3::smallint[]) AS new(job, due_at, segment)";

/// Row 0 belongs to no `StoredNumber`.
const COMMIT: &str =
    "INSERT INTO probe (id, at) VALUES (0, $1) ON CONFLICT (id) DO UPDATE SET at = excluded.at";
const SIZE: &str = "SELECT pg_database_size(current_database()), \
     (SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables)";

/// Whether the server reports that it was reached without a network.
const IS_NEAR: &str = "SELECT inet_server_addr() IS NULL OR inet_server_addr() <<= inet '127.0.0.0/8' \
     OR inet_server_addr() = inet '::1'";
/// Over the time that such a history takes to build up, autovacuum would have run many times.
const SWEEP: &str = "VACUUM (ANALYZE) jobs, history";

/// A database with the tables of this version, and a connection to it.
pub struct PostgresBaseline {
    options: PostgresOptions,
    client: Client,
    commits: i64,
}

impl PostgresBaseline {
    /// Connects, and creates the tables if they do not exist.
    pub async fn open(options: &PostgresOptions) -> Result<Self, MigrateError> {
        migrate::up(options).await?;
        let client = connect(&options.target()?).await?;
        Ok(PostgresBaseline { options: options.clone(), client, commits: 0 })
    }

    fn shared(&self) -> Result<SharedDatabase, StoreError> {
        SharedDatabase::new(&self.options).map_err(|error| StoreError::Broken(error.to_string()))
    }

    async fn rates(&self, options: BaselineOptions) -> Result<BaselineRates, Fault> {
        let row = self.client.query_one("SELECT EXISTS (SELECT 1 FROM jobs)", &[]).await?;
        if get(&row, 0)? {
            return Err(Fault::Postgres(NOT_EMPTY.to_owned()));
        }
        let target = self.options.target().map_err(|error| Fault::Postgres(error.to_string()))?;
        let mut wires = Vec::new();
        for _ in 0..self.options.writers.max(1) {
            wires.push(Wire::connect(&target).await?);
        }
        let partitions = Partitions::new(target, self.options.partition_width);
        partitions.ensure(PartitionedTable::History, [NOW_US, NOW_US + options.jobs as i64]).await?;
        let due = PostgresBatch::all(options, BaselineKind::Due);
        let (insert_per_sec, wires) = write_all(wires, &due, BaselinePhase::Insert).await?;
        let (claim_complete_per_sec, wires) = write_all(wires, &due, BaselinePhase::ClaimAndComplete).await?;
        let future = PostgresBatch::all(options, BaselineKind::Future);
        let (hold_per_sec, _) = write_all(wires, &future, BaselinePhase::Hold).await?;
        Ok(BaselineRates { insert_per_sec, claim_complete_per_sec, hold_per_sec })
    }
}

#[async_trait]
impl BaselineDatabase for PostgresBaseline {
    async fn commit_once(&mut self) -> Result<(), StoreError> {
        self.commits += 1;
        self.client.execute(COMMIT, &[&self.commits]).await.map_err(Fault::from)?;
        Ok(())
    }

    async fn size(&mut self) -> Result<DatabaseSize, StoreError> {
        let row = self.client.query_one(SIZE, &[]).await.map_err(Fault::from)?;
        let (bytes, dead): (i64, i64) = (get(&row, 0)?, get(&row, 1)?);
        let dead_rows = Some(u64::try_from(dead).unwrap_or(0));
        Ok(DatabaseSize { bytes: u64::try_from(bytes).unwrap_or(0), dead_rows })
    }

    async fn data_directory(&mut self) -> Option<PathBuf> {
        if !get::<bool>(&self.client.query_one(IS_NEAR, &[]).await.ok()?, 0).ok()? {
            return None;
        }
        let row = self.client.query_one("SHOW data_directory", &[]).await.ok()?;
        get::<String>(&row, 0).ok().map(PathBuf::from)
    }

    async fn measure_baseline(&mut self, options: BaselineOptions) -> Result<BaselineRates, StoreError> {
        Ok(self.rates(options).await?)
    }

    async fn keep_past(&mut self, past: Past, progress: RowProgress) -> Result<(), StoreError> {
        past::keep(&self.shared()?, self.options.writers, past, progress).await?;
        // It may take longer than the store's statement timeout.
        self.client.batch_execute("SET statement_timeout = 0").await.map_err(Fault::from)?;
        self.client.batch_execute(SWEEP).await.map_err(Fault::from)?;
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BaselineKind {
    Due,
    Future,
}

/// The columns of a batch that differ from row to row, built before the measurement starts.
struct PostgresBatch {
    ids: Vec<Uuid>,
    segments: Vec<i16>,
    created_at: Vec<i64>,
    execute_at: Vec<Option<i64>>,
    payload: String,
}

impl PostgresBatch {
    fn all(options: BaselineOptions, kind: BaselineKind) -> Arc<Vec<PostgresBatch>> {
        // Future jobs come after the others in the same table.
        let first = if kind == BaselineKind::Future { options.jobs } else { 0 };
        let row = |number: usize| match kind {
            BaselineKind::Due => (due_job(number, 0).0, None),
            BaselineKind::Future => {
                let (job, schedule) = future_job(first + number, 0);
                (job, schedule.due_at.map(|at| at.as_micros()))
            }
        };
        let batches = options.batches().map(|numbers| {
            let rows: Vec<_> = numbers.map(row).collect();
            PostgresBatch {
                ids: rows.iter().map(|(job, _)| uuid(job.id)).collect(),
                segments: rows.iter().map(|(job, _)| segment(job.id)).collect(),
                created_at: rows.iter().map(|(job, _)| job.created_at.as_micros()).collect(),
                execute_at: rows.iter().map(|(_, at)| *at).collect(),
                payload: payload(options.payload_bytes),
            }
        });
        Arc::new(batches.collect())
    }

    fn ids(&self) -> Parameter<'_> {
        value(self.ids.as_slice())
    }

    fn insert_jobs(&self) -> StatementCall<'_> {
        let [created, execute] = [value(self.created_at.as_slice()), value(self.execute_at.as_slice())];
        StatementCall::new(
            INSERT_JOBS,
            [self.ids(), created, execute, value(LANE), value(self.payload.as_str())],
        )
    }

    fn live(&self) -> StatementCall<'_> {
        let [at, segments] = [value(self.created_at.as_slice()), value(self.segments.as_slice())];
        StatementCall::new(INSERT_LIVE, [self.ids(), at, segments, value(LANE)])
    }

    fn schedules(&self) -> StatementCall<'_> {
        let due = column(self.execute_at.iter().copied());
        StatementCall::new(INSERT_SCHEDULES, [self.ids(), due, value(self.segments.as_slice()), value(LANE)])
    }

    fn history(&self) -> StatementCall<'_> {
        StatementCall::new(INSERT_HISTORY, [self.ids(), value(self.created_at.as_slice()), value(SESSION.0)])
    }
}

#[async_trait]
impl BaselineBatch<Wire> for PostgresBatch {
    type Phase = BaselinePhase;

    fn jobs(&self) -> usize {
        self.ids.len()
    }

    async fn write(&self, wire: &mut Wire, phase: BaselinePhase) -> Result<(), Fault> {
        let whole = TransactionFrame::BeginAndCommit;
        match phase {
            BaselinePhase::Insert => wire.run(whole, vec![self.insert_jobs(), self.live()]).await?,
            BaselinePhase::ClaimAndComplete => {
                wire.run(whole, vec![StatementCall::new(CLAIM, [self.ids(), value(SESSION.0)])]).await?;
                wire.run(whole, vec![StatementCall::new(DELETE_LIVE, [self.ids()]), self.history()]).await?
            }
            BaselinePhase::Hold => wire.run(whole, vec![self.insert_jobs(), self.schedules()]).await?,
        };
        Ok(())
    }
}

fn segment(job: JobId) -> i16 {
    i16::from(job.segment().index())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BaselinePhase {
    Insert,
    ClaimAndComplete,
    Hold,
}
