//! The read verbs of all stores: for users, and for the loops that look for work. Every list reads a
//! bounded number of rows and holds a bounded number of bytes, regardless of the size of the database.
//!
//! A verb takes a handful of statements, no matter how many items it is about. It is written over a
//! [`ReadConnection`], for which each dialect has the statements. It is compiled once: next to a round trip
//! to a server or a statement of SQLite, calls through a trait object cost nothing.

mod audit;
mod directory;
mod due;
mod events;
mod executions;
mod jobs;
mod lanes;
mod limiters;
mod listed;
mod logs;
mod overview;
mod page;
pub(crate) mod rows;
mod views;

pub(crate) use events::HistoryBounds;
pub(crate) use lanes::ReaderLanes;
pub(crate) use views::EndedAt;

use crate::cells::{Cell, RowCells, get, read};
use crate::counters::shown;
use crate::fault::Fault;
use crate::malformed::{rows_passed_over, skip_malformed};
use crate::row_list::{List, row};
use crate::stored_numbers::StoredNumber;
use async_trait::async_trait;
use punctual_core::ids::ExecutionId;
use punctual_core::limits;
use punctual_core::ports::{HistorySpan, NotedClock, StoreFigures};
use punctual_core::time::Timestamp;

/// The kind of a read. All dialects return the same columns, with the exceptions that are documented here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadKind {
    /// Bytes: of the database, free ones, and of log lines.
    Sizes,
    Clock,
    StoredNumber,
    Lanes,
    DueSchedules,
    DueLive,
    Sessions,
    TokenOfSession,
    Holdings,
    Queues,
    Depths,
    JobCounts,
    Ahead,
    Token,
    Tokens,
    User,
    UserByEmail,
    Users,
    Secret,
    Secrets,
    Document,
    Documents,
    WaitingLines,
    Started,
    Limiters,
    NotesOfJob,
    Checkpoint,
    LatestJobs,
    MarkedJobs,
    TaggedJobs,
    ActiveJobs,
    ScheduledJobs,
    OneJob,
    TagsOfJobs,
    /// Only if [`ReadBatches::has_standing`].
    StandingOfJobs,
    Jobs,
    Schedules,
    OpenOfJobs,
    LastFinished,
    HistoryOfJob,
    /// The live row with its worker and the finished execution, after two flags that say which of them exist.
    Execution,
    OpenOfJobBefore,
    Skipped,
    /// If [`ReadBatches::has_errors_apart`], without the error, but with its length and whether it contains
    /// the text.
    DeadLetters,
    DeadLettersOfJob,
    /// Only if [`ReadBatches::has_errors_apart`].
    ErrorsOfLetters,
    HistoryBounds,
    /// Ends with whether the row has settled, unless the connection knows a bound for all rows
    /// ([`ReadConnection::settled_below`]).
    FinishedAfter,
    /// Ends as [`ReadKind::FinishedAfter`] does.
    RunTimesAfter,
    OpenExecutions,
    Running,
    OpenBefore,
    LanesOfQueue,
    /// The first queued rows of each lane, in the order of claims.
    HeadsOfLanes,
    /// May end with the length of error and result.
    FinishedBefore,
    FinishedAt,
    NamesOfJobs,
    OwnersOfJobs,
    KeyHolder,
    LinesOfExecution,
    LastLines,
    AuditPage,
    AuditChain,
    AuditEnds,
    Unsealed,
    UnsealedCount,
}

/// A read with its parameters, in the order in which PostgreSQL numbers them: the columns of the list, then
/// the values.
#[derive(Debug)]
pub(crate) struct Query<'a> {
    pub read: ReadKind,
    pub list: Option<List<'a>>,
    pub values: Vec<Cell<'a>>,
}

impl<'a> Query<'a> {
    pub fn of<const N: usize>(read: ReadKind, values: [Cell<'a>; N]) -> Self {
        Query { read, list: None, values: values.into() }
    }

    /// About all rows of a list. An empty list has no rows, and nothing is sent.
    pub fn listed(read: ReadKind, list: List<'a>) -> Self {
        Query { read, list: Some(list), values: vec![] }
    }

    pub fn with<const N: usize>(self, values: [Cell<'a>; N]) -> Self {
        Query { values: values.into(), ..self }
    }

    pub fn is_needless(&self) -> bool {
        self.list.as_ref().is_some_and(List::is_empty)
    }
}

/// A row of any driver.
pub(crate) type AnyRow = dyn RowCells + Send + Sync;

trait RowSet: Send + Sync {
    fn len(&self) -> usize;
    fn row(&self, index: usize) -> &AnyRow;
}

impl<R: RowCells + Send + Sync + 'static> RowSet for Vec<R> {
    fn len(&self) -> usize {
        Vec::len(self)
    }

    fn row(&self, index: usize) -> &AnyRow {
        &self[index]
    }
}

/// The rows of a query.
pub(crate) struct FetchedRows {
    rows: Box<dyn RowSet>,
    looked_at: usize,
}

impl FetchedRows {
    pub fn new<R: RowCells + Send + Sync + 'static>(rows: Vec<R>) -> Self {
        FetchedRows { looked_at: rows.len(), rows: Box::new(rows) }
    }

    /// The statement has read this many rows, and omitted those after the one that fills the page.
    pub fn of_looked_at<R: RowCells + Send + Sync + 'static>(rows: Vec<R>, looked_at: usize) -> Self {
        FetchedRows { rows: Box::new(rows), looked_at }
    }

    fn len(&self) -> usize {
        self.rows.len()
    }

    fn is_cut_off(&self) -> bool {
        self.len() < self.looked_at
    }

    fn iter(&self) -> impl Iterator<Item = &AnyRow> + Clone {
        (0..self.len()).map(|index| self.rows.row(index))
    }

    fn first(&self) -> Option<&AnyRow> {
        self.iter().next()
    }

    /// The row that must be there.
    fn only(&self, what: &str) -> Result<&AnyRow, Fault> {
        self.first().ok_or_else(|| Fault::Missing(what.to_owned()))
    }
}

/// How much a dialect reads at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadBatches {
    /// Rows of a page that may be large. Without a limit if the statement omits those that do not fit.
    pub rows: usize,
    pub dead_letters: usize,
    /// Candidates for a list of jobs that are filtered together.
    pub candidates: usize,
    pub views: usize,
    /// Executions of a list whose details are read together.
    pub details: usize,
    /// Whether queries of one fetch are sent together.
    pub is_pipelined: bool,
    /// Whether a statement tells which jobs have open or future occurrences. Otherwise their views do.
    pub has_standing: bool,
    /// Whether the errors of dead letters are read after it is known which ones are listed.
    pub has_errors_apart: bool,
}

impl ReadBatches {
    /// Rows to read at once for a page in which each row is an item: one more than it holds shows whether
    /// there is a next page.
    fn rows_of(&self, items: usize) -> usize {
        (items.clamp(1, limits::PAGE_ITEMS_MAX) + 1).min(self.rows)
    }
}

/// A connection for one verb: the statements of a dialect.
#[async_trait]
pub(crate) trait ReadConnection: Send {
    fn batches(&self) -> &'static ReadBatches;

    /// The rows of each query.
    async fn fetch(&mut self, queries: Vec<Query<'_>>) -> Result<Vec<FetchedRows>, Fault>;

    /// All queries up to [`Self::end_snapshot`] see what is committed now. Does nothing where the connection
    /// already has a snapshot if the verb needs one.
    async fn begin_snapshot(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// If a query before this fails, the connection is closed, and the snapshot with it.
    async fn end_snapshot(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// The position in history below which no row can appear any more. `None` if only the rows themselves
    /// tell.
    async fn settled_below(&mut self) -> Result<Option<i64>, Fault>;

    /// The range of positions in history.
    async fn history_span(&mut self) -> Result<HistorySpan, Fault>;
}

/// The bytes that fit into a page, for statements that omit what would not fit.
const PAGE_BYTES: usize = limits::PAGE_BYTES_MAX;

/// The attempt of an execution, as far as its column goes.
pub(crate) fn attempt_of(id: ExecutionId) -> i32 {
    i32::try_from(id.attempt).unwrap_or(i32::MAX)
}

/// The read verbs over one connection.
pub(crate) struct Reads<'a> {
    connection: &'a mut dyn ReadConnection,
    lanes: &'a ReaderLanes,
}

impl<'a> Reads<'a> {
    pub fn new(connection: &'a mut dyn ReadConnection, lanes: &'a ReaderLanes) -> Self {
        Reads { connection, lanes }
    }

    /// The time by the database's clock.
    pub async fn clock(&mut self) -> Result<Timestamp, Fault> {
        get(self.rows(Query::of(ReadKind::Clock, [])).await?.only("the time")?, 0)
    }

    /// The same, with the time at which retention last found the clock steady.
    pub async fn noted_clock(&mut self) -> Result<NotedClock, Fault> {
        let noted = self.steady_clock().await?;
        Ok(NotedClock { now: self.clock().await?, noted })
    }

    /// The time at which retention last found the clock steady.
    pub async fn steady_clock(&mut self) -> Result<Option<Timestamp>, Fault> {
        self.stored_number(StoredNumber::SteadyClock).await
    }

    /// Log lines written before this time may have been removed.
    pub async fn logs_removed_until(&mut self) -> Result<Option<Timestamp>, Fault> {
        self.stored_number(StoredNumber::LogsRemoved).await
    }

    async fn stored_number(&mut self, mark: StoredNumber) -> Result<Option<Timestamp>, Fault> {
        let fetched = self.rows(Query::of(ReadKind::StoredNumber, row![mark.id()])).await?;
        Ok(fetched.first().map(|row| skip_malformed(read(row, 0, "probe.at"))).transpose()?.flatten())
    }

    pub async fn history_span(&mut self) -> Result<HistorySpan, Fault> {
        self.connection.history_span().await
    }

    /// The sizes of the database; the writers' statistics are zero.
    pub async fn figures(&mut self) -> Result<StoreFigures, Fault> {
        let fetched = self.rows(Query::of(ReadKind::Sizes, [])).await?;
        let sizes = fetched.only("sizes")?;
        Ok(StoreFigures {
            database_bytes: shown(get(sizes, 0)?),
            free_bytes: shown(get(sizes, 1)?),
            log_bytes: shown(get(sizes, 2)?),
            malformed_rows: rows_passed_over(),
            ..StoreFigures::default()
        })
    }

    /// The rows of one query.
    async fn rows(&mut self, query: Query<'_>) -> Result<FetchedRows, Fault> {
        let [fetched] = self.fetch([query]).await?;
        Ok(fetched)
    }

    /// The rows of several queries that do not depend on each other.
    async fn fetch<const N: usize>(&mut self, queries: [Query<'_>; N]) -> Result<[FetchedRows; N], Fault> {
        let fetched = self.connection.fetch(queries.into()).await?;
        fetched.try_into().map_err(|_| Fault::Missing("rows of a query".to_owned()))
    }
}
