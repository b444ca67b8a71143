//! The baseline of MariaDB or MySQL: the rows of no-op jobs in the tables of a separate database, written in batches
//! by as many plain connections as a store has writers, in statements whose text was built before. Also a small
//! commit, the size of the database, and a history, for benchmarks.

use super::connection::Connection;
use super::migrate::{self, MigrateError};
use super::options::{MySqlOptions, Target};
use super::partitions::{self, FIRST, PartitionedTable, width_us};
use super::tables::MySqlConnect;
use crate::baseline::rows::{LANE, SESSION, due_job, future_job, payload};
use crate::baseline::{
    BaselineBatch, BaselineDatabase, BaselineOptions, BaselineRates, DatabaseSize, NOT_EMPTY, Past,
    RowProgress, past, write_all,
};
use crate::cells::get;
use crate::fault::Fault;
use async_trait::async_trait;
use punctual_core::ids::JobId;
use punctual_core::ports::StoreError;
use punctual_core::time::duration_micros;
use std::fmt::Write as _;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// Keys per statement: MariaDB creates a temporary table for a list of a thousand.
const KEYS_AT_ONCE: usize = 500;

/// How often a transaction of the baseline is retried after conflicts.
const CONFLICTS_MAX: usize = 100;

/// Row 0 belongs to no `StoredNumber`.
const COMMIT: &str = "INSERT INTO probe (id, at) VALUES (0, ?) ON DUPLICATE KEY UPDATE at = VALUES(at)";
/// The size of the files. Users who may not see the storage engine's tables get the size from statistics.
const FILES: &str = "SELECT CAST(COALESCE(SUM(file_size), 0) AS UNSIGNED) FROM \
     information_schema./*!80000 innodb_tablespaces */ /*M! innodb_sys_tablespaces */ \
     WHERE name LIKE CONCAT(DATABASE(), '/%')";
const STATISTICS: &str = "SELECT CAST(COALESCE(SUM(data_length + index_length), 0) AS UNSIGNED) \
     FROM information_schema.tables WHERE table_schema = DATABASE()";
/// MySQL would return cached values that may be a day old.
const FRESH_STATISTICS: &str =
    "SET SESSION /*!80000 information_schema_stats_expiry = 0 */ /*M! sql_notes = 1 */";

/// A database with the tables of this version, and a connection to it on which each statement is a transaction.
pub struct MySqlBaseline {
    options: MySqlOptions,
    target: Target,
    connection: Connection,
    commits: i64,
}

impl MySqlBaseline {
    /// Connects, and creates the tables if they do not exist.
    pub async fn open(options: &MySqlOptions) -> Result<Self, MigrateError> {
        migrate::up(options).await?;
        let target = options.target()?;
        let mut connection = Connection::defining(&target).await?;
        connection.run_text(FRESH_STATISTICS).await?;
        Ok(MySqlBaseline { options: options.clone(), target, connection, commits: 0 })
    }

    async fn number(&mut self, sql: &str) -> Result<u64, Fault> {
        let row = self.connection.one(sql, vec![]).await?;
        get(&row.ok_or_else(|| Fault::Missing("an answer of one row".to_owned()))?, 0)
    }

    async fn rates(&mut self, options: BaselineOptions) -> Result<BaselineRates, Fault> {
        if self.number("SELECT EXISTS (SELECT 1 FROM jobs)").await? > 0 {
            return Err(Fault::MySql(NOT_EMPTY.to_owned()));
        }
        let mut connections = Vec::new();
        for _ in 0..self.options.writers.max(1) {
            connections.push(Connection::writing(&self.target).await?);
        }
        let all = |batch: fn(Range<usize>, BaselineOptions) -> MySqlBatch| {
            Arc::new(options.batches().map(|numbers| batch(numbers, options)).collect::<Vec<_>>())
        };
        let (insert_per_sec, connections) = write_all(connections, &all(MySqlBatch::insert), ()).await?;
        let (claim_complete_per_sec, connections) =
            write_all(connections, &all(MySqlBatch::claim_and_complete), ()).await?;
        let (hold_per_sec, connections) = write_all(connections, &all(MySqlBatch::hold), ()).await?;
        for connection in connections {
            connection.close().await;
        }
        Ok(BaselineRates { insert_per_sec, claim_complete_per_sec, hold_per_sec })
    }

    /// A separate partition for each day of the history, as if this version had been running all the time.
    async fn partition_history(&mut self, past: Past) -> Result<(), Fault> {
        let all = partitions::all(&mut self.connection, PartitionedTable::History).await?;
        let Some(first) = all.iter().find(|partition| partition.name == FIRST) else { return Ok(()) };
        let width = width_us(self.options.partition_width);
        let begins = past.until.as_micros().saturating_sub(duration_micros(past.span));
        let mut starts = begins - begins.rem_euclid(width);
        let mut parts = vec![format!("PARTITION {FIRST} VALUES LESS THAN ({starts})")];
        while starts < first.ends {
            let ends = starts.saturating_add(width).min(first.ends);
            parts.push(format!("PARTITION p_{starts} VALUES LESS THAN ({ends})"));
            starts = ends;
        }
        let define = format!("ALTER TABLE history REORGANIZE PARTITION {FIRST} INTO ({})", parts.join(", "));
        let is_defined = self.connection.define(&define).await?;
        if is_defined { Ok(()) } else { Err(Fault::Away("the table of history is in use".to_owned())) }
    }
}

#[async_trait]
impl BaselineDatabase for MySqlBaseline {
    async fn commit_once(&mut self) -> Result<(), StoreError> {
        self.commits += 1;
        self.connection.run(COMMIT, vec![self.commits.into()]).await?;
        Ok(())
    }

    async fn size(&mut self) -> Result<DatabaseSize, StoreError> {
        let bytes = match self.number(FILES).await {
            Ok(bytes) if bytes > 0 => bytes,
            Ok(_) | Err(Fault::MySql(_)) => self.number(STATISTICS).await?,
            Err(fault) => return Err(fault.into()),
        };
        Ok(DatabaseSize { bytes, dead_rows: None })
    }

    async fn data_directory(&mut self) -> Option<PathBuf> {
        let row = self.connection.one("SELECT @@datadir, @@hostname", vec![]).await.ok()??;
        let here = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
        let is_near = get::<String>(&row, 1).ok()? == here.trim();
        get::<String>(&row, 0).ok().filter(|_| is_near).map(PathBuf::from)
    }

    async fn measure_baseline(&mut self, options: BaselineOptions) -> Result<BaselineRates, StoreError> {
        Ok(self.rates(options).await?)
    }

    async fn keep_past(&mut self, past: Past, progress: RowProgress) -> Result<(), StoreError> {
        self.partition_history(past).await?;
        let connect =
            MySqlConnect::new(&self.options).map_err(|error| StoreError::Broken(error.to_string()))?;
        Ok(past::keep(&connect, self.options.writers, past, progress).await?)
    }
}

/// The work on some jobs, as the texts of its transactions.
struct MySqlBatch {
    jobs: usize,
    transactions: Vec<Vec<String>>,
}

impl MySqlBatch {
    fn insert(numbers: Range<usize>, options: BaselineOptions) -> MySqlBatch {
        let payload = payload(options.payload_bytes);
        let (mut jobs, mut lives) = (BaselineRows::new(JOBS), BaselineRows::new(LIVE));
        for number in numbers.clone() {
            let (job, row) = due_job(number, 0);
            let (id, at) = (hex(job.id), row.live.available_at.as_micros());
            jobs.add(format_args!("x'{id}',{LANE},{at},1,0,5,0,NULL,'{payload}'"));
            let (rank, segment) = (row.live.rank, job.id.segment().index());
            lives.add(format_args!(
                "x'{id}',1,{LANE},{rank},{at},{at},1,1,0,0,{segment},1,0,5,0,128,0,{LANE}"
            ));
        }
        MySqlBatch { jobs: numbers.len(), transactions: vec![vec![jobs.sql, lives.sql]] }
    }

    fn claim_and_complete(numbers: Range<usize>, _: BaselineOptions) -> MySqlBatch {
        let (mut history, mut keys) = (BaselineRows::new(HISTORY), Vec::new());
        for number in numbers.clone() {
            let (job, row) = due_job(number, 0);
            let (id, at) = (hex(job.id), row.live.available_at.as_micros());
            history.add(format_args!("x'{id}',1,{at},{at},{at},1,1,1,0,0,{at},{},1", SESSION.0));
            keys.push(format!("x'{id}'"));
        }
        let each =
            |text: fn(&str) -> String| keys.chunks(KEYS_AT_ONCE).map(move |some| text(&some.join(",")));
        let claim = each(claim_sql).collect();
        let complete = each(delete_sql).chain([history.sql]).collect();
        MySqlBatch { jobs: numbers.len(), transactions: vec![claim, complete] }
    }

    /// Future jobs come after the others in the same table.
    fn hold(numbers: Range<usize>, options: BaselineOptions) -> MySqlBatch {
        let payload = payload(options.payload_bytes);
        let (mut jobs, mut schedules) = (BaselineRows::new(JOBS), BaselineRows::new(SCHEDULES));
        for number in numbers.clone() {
            let (job, schedule) = future_job(options.jobs + number, 0);
            let (id, created) = (hex(job.id), job.created_at.as_micros());
            let due = schedule.due_at.map_or(0, |at| at.as_micros());
            jobs.add(format_args!("x'{id}',{LANE},{created},1,0,5,1,{due},'{payload}'"));
            schedules.add(format_args!("x'{id}',{LANE},0,1,1,{},5,0,0,{due}", job.id.segment().index()));
        }
        MySqlBatch { jobs: numbers.len(), transactions: vec![vec![jobs.sql, schedules.sql]] }
    }
}

#[async_trait]
impl BaselineBatch<Connection> for MySqlBatch {
    type Phase = ();

    fn jobs(&self) -> usize {
        self.jobs
    }

    async fn write(&self, connection: &mut Connection, (): ()) -> Result<(), Fault> {
        for transaction in &self.transactions {
            // Connections conflict if they write adjacent rows.
            let mut tries = 1;
            while let Err(fault) = run_one(connection, transaction).await {
                connection.roll_back().await;
                if !fault.is_conflict() || tries == CONFLICTS_MAX {
                    return Err(fault);
                }
                tries += 1;
            }
        }
        Ok(())
    }
}

async fn run_one(connection: &mut Connection, transaction: &[String]) -> Result<(), Fault> {
    for sql in transaction {
        connection.run_text(sql).await?;
    }
    connection.commit().await
}

const JOBS: &str =
    "INSERT INTO jobs (id, lane, created_at, version, mark, priority, schedule_type, execute_at, payload)";
const LIVE: &str = "INSERT INTO live (job, occurrence, lane, claim_rank, available_at, scheduled_time, job_version, attempt, \
     charged, epoch, segment, state, gates, priority, origin, ties, cancel_requested, queued_lane)";
const HISTORY: &str = "INSERT INTO history (job, occurrence, completed_at, scheduled_time, available_at, attempt, epoch, \
     job_version, status, origin, started_at, session, worker)";
const SCHEDULES: &str = "INSERT INTO schedules (job, lane, fired, version, job_version, segment, priority, overlap, ties, due_at)";

fn claim_sql(keys: &str) -> String {
    format!(
        "UPDATE live FORCE INDEX (PRIMARY) SET state = 2, epoch = 1, queued_lane = NULL, session = {}, \
         claimed_at = available_at WHERE job IN ({keys}) AND occurrence = 1",
        SESSION.0
    )
}

fn delete_sql(keys: &str) -> String {
    format!("DELETE live FROM live FORCE INDEX (PRIMARY) WHERE job IN ({keys}) AND occurrence = 1")
}

/// An insert of many rows, which contain only our own numbers and letters.
struct BaselineRows {
    sql: String,
    is_empty: bool,
}

impl BaselineRows {
    fn new(head: &str) -> Self {
        BaselineRows { sql: format!("{head} VALUES "), is_empty: true }
    }

    fn add(&mut self, values: std::fmt::Arguments<'_>) {
        let comma = if std::mem::take(&mut self.is_empty) { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = write!(self.sql, "{comma}({values})");
    }
}

fn hex(job: JobId) -> String {
    job.as_bytes().iter().fold(String::with_capacity(32), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
