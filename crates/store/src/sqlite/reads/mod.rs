//! A connection for one read verb of [`crate::reads`]. Nothing here waits for anything but the disk, so the future of
//! a verb is complete after one poll and needs no runtime.

pub(crate) mod statements;

use super::names::last_history_number;
use super::rows::SqliteRow;
use crate::cells::{Cell, read};
use crate::codecs::job_id;
use crate::fault::Fault;
use crate::malformed::{readable, skip_malformed};
use crate::reads::{
    self, FetchedRows, HistoryBounds, Query, ReadBatches, ReadConnection, ReadKind, ReaderLanes,
};
use crate::row_list::{List, ids};
use async_trait::async_trait;
use futures_util::FutureExt;
use punctual_core::ids::{ExecutionId, JobId, OccurrenceId, SegmentSet, SessionId};
use punctual_core::limiter::{LimiterId, LimiterUse, WaitList};
use punctual_core::notes::{Checkpoint, Noted};
use punctual_core::occurrence::Finished;
use punctual_core::ports::{
    AuditRow, ChainEnds, DeadLetter, DeadLetterQuery, Depth, Due, ExecutionView, FinishedPage, HistorySpan,
    JobCounts, JobOwner, JobQuery, JobView, OpenExecution, Page, PausedQueue, QueueRow, SessionRow,
    StoreError,
};
use punctual_core::schedule::SkipRange;
use punctual_core::time::Timestamp;
use rusqlite::Connection;
use statements::{ACTIVE_LIVE, ACTIVE_SCHEDULES, statement};
use std::collections::BTreeSet;

/// Few, because another statement costs almost nothing, and a row may be large.
const BATCHES: ReadBatches = ReadBatches {
    rows: 100,
    dead_letters: 100,
    candidates: 50,
    views: 8,
    details: 8,
    is_pipelined: false,
    has_standing: true,
    has_errors_apart: false,
};

pub(crate) struct SqliteReading<'a> {
    conn: &'a mut Connection,
}

impl Drop for SqliteReading<'_> {
    fn drop(&mut self) {
        // A verb that failed has left its snapshot open.
        if !self.conn.is_autocommit()
            && let Err(error) = self.conn.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "a snapshot could not be released");
        }
    }
}

impl<'a> SqliteReading<'a> {
    pub fn new(conn: &'a mut Connection) -> Self {
        SqliteReading { conn }
    }

    fn rows(&self, query: Query<'_>) -> Result<Vec<SqliteRow>, Fault> {
        let Query { read, list, values } = query;
        match list {
            Some(list) => self.each(statement(read), &list, &values),
            None if read == ReadKind::ActiveJobs => self.active_jobs(&values),
            None => SqliteRow::all(self.conn, statement(read), [&values[..]]),
        }
    }

    /// The rows for each row of a list.
    fn each(&self, sql: &str, list: &List<'_>, values: &[Cell<'_>]) -> Result<Vec<SqliteRow>, Fault> {
        SqliteRow::all(self.conn, sql, list.rows().map(|key| [key, values].concat()))
    }

    fn active_jobs(&self, bounds: &[Cell<'_>]) -> Result<Vec<SqliteRow>, Fault> {
        let mut jobs = BTreeSet::new();
        for sql in [ACTIVE_LIVE, ACTIVE_SCHEDULES] {
            let rows = SqliteRow::all(self.conn, sql, [bounds])?;
            jobs.extend(readable(rows.iter().map(|row| job_id(row, 0)))?);
        }
        let count = read(bounds, 1, "a limit")?;
        self.each(statement(ReadKind::OneJob), &ids(jobs.iter().rev().take(count)), &[])
    }

    fn run(&self, sql: &str) -> Result<(), Fault> {
        self.conn.prepare_cached(sql)?.execute([])?;
        Ok(())
    }
}

#[async_trait]
impl ReadConnection for SqliteReading<'_> {
    fn batches(&self) -> &'static ReadBatches {
        &BATCHES
    }

    async fn fetch(&mut self, queries: Vec<Query<'_>>) -> Result<Vec<FetchedRows>, Fault> {
        queries.into_iter().map(|query| Ok(FetchedRows::new(self.rows(query)?))).collect()
    }

    async fn begin_snapshot(&mut self) -> Result<(), Fault> {
        self.run("BEGIN")
    }

    async fn end_snapshot(&mut self) -> Result<(), Fault> {
        self.run("COMMIT")
    }

    /// There is one writer, so rows appear in the order of their positions.
    async fn settled_below(&mut self) -> Result<Option<i64>, Fault> {
        Ok(Some(i64::MAX))
    }

    async fn history_span(&mut self) -> Result<HistorySpan, Fault> {
        let bounds = SqliteRow::all(self.conn, statement(ReadKind::HistoryBounds), [[]])?;
        let bounds =
            bounds.first().map(|row| skip_malformed(HistoryBounds::read(row))).transpose()?.flatten();
        let begins_after = bounds.map_or(0, |bounds| bounds.retained);
        let ends_at = last_history_number(self.conn)?;
        let ends_at = u64::try_from(ends_at).map_err(|_| Fault::damaged("history.seq", ends_at))?;
        Ok(HistorySpan { begins_after, ends_at })
    }
}

/// The result of a verb.
pub(crate) fn finished<T>(verb: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    verb.now_or_never().unwrap_or_else(|| Err(Fault::Missing("the end of a verb that waits".to_owned())))
}

/// The read verbs for callers without a runtime, such as the simulator.
pub struct SqliteReads<'a> {
    connection: SqliteReading<'a>,
    lanes: &'a ReaderLanes,
}

macro_rules! verbs {
    ($($verb:ident($($argument:ident: $type:ty),*) -> $found:ty;)*) => {
        impl<'a> SqliteReads<'a> {
            pub(crate) fn new(conn: &'a mut Connection, lanes: &'a ReaderLanes) -> Self {
                SqliteReads { connection: SqliteReading::new(conn), lanes }
            }

            $(pub fn $verb(&mut self, $($argument: $type),*) -> Result<$found, StoreError> {
                Ok(finished(reads::Reads::new(&mut self.connection, self.lanes).$verb($($argument),*))?)
            })*
        }
    };
}

verbs! {
    due(segments: SegmentSet, until: Timestamp, limit: usize) -> Vec<Due>;
    sessions() -> Vec<SessionRow>;
    token_of_session(session: SessionId) -> Option<String>;
    holdings() -> Vec<(SessionId, u64)>;
    job(id: JobId) -> Option<JobView>;
    jobs(query: &JobQuery) -> Page<JobView, JobId>;
    named_job(owner: &str, name: &str) -> Option<JobId>;
    job_owners(jobs: &[JobId]) -> Vec<JobOwner>;
    history(job: JobId, before: Option<ExecutionId>, limit: usize) -> Page<Finished, ExecutionId>;
    execution(id: ExecutionId) -> Option<ExecutionView>;
    notes(job: JobId, up_to: u32, limit: usize) -> Vec<Noted>;
    checkpoint(occurrence: OccurrenceId) -> Option<Checkpoint>;
    skipped(job: JobId, limit: usize) -> Vec<SkipRange>;
    dead_letters(query: &DeadLetterQuery) -> Page<DeadLetter, u64>;
    queues() -> Vec<QueueRow>;
    paused_queues() -> Vec<PausedQueue>;
    waiting_lines(after: Option<LimiterId>, limit: usize) -> Page<WaitList, LimiterId>;
    limiters(lines: &[WaitList]) -> Vec<LimiterUse>;
    finished_after(after: u64, limit: usize) -> FinishedPage;
    history_span() -> HistorySpan;
    open_executions(ids: &[OccurrenceId]) -> Vec<OpenExecution>;
    depths() -> Vec<Depth>;
    job_counts() -> JobCounts;
    audit_ends() -> Option<ChainEnds>;
    audit_chain(after: u64, limit: usize) -> Vec<AuditRow>;
}
