//! The threaded shell: [`SqliteCore`] and [`LogCore`] on one thread each and connections for reads on others, all
//! behind the `Store` port. It owns threads and files and must not know any rule or table.

use super::background::{BackgroundCheck, Findings};
use super::checkpoint::Checkpointer;
use super::connection::{Durability, beside, open_for_reading};
use super::core::SqliteCore;
use super::figures::Figures;
use super::integrity;
use super::lock::DirectoryLock;
use super::logs::{LogCore, read_removed_until};
use super::open::{
    LOGS_FILE, MAIN_FILE, OpenError, OpenFile, SqliteOptions, database_error, missing_tables, open_checked,
};
use super::threads::{BatchThread, Pool, gone, panicked};
use super::write::{Purged, SqliteCall, SqliteReply, Upkeep, UpkeepReply};
use super::{membership, migrate};
use crate::audit::{AuditCall, serve_audit};
use crate::counter_mismatch::CounterMismatch;
use crate::directory::{DirectoryCall, DirectoryReply, serve_directory};
use crate::failures;
use crate::fault::Fault;
use crate::membership::{MembershipCall, MembershipReply, serve_membership};
use crate::reads::ReaderLanes;
use crate::store_port::serve_reads;
use punctual_core::ids::JobId;
use punctual_core::ports::{Clock, Entries, LogLine, StoreError};
use punctual_core::time::Timestamp;
use rusqlite::Connection;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::oneshot;

/// Approximate maximum of rows in one transaction. Further calls wait for the next one, so that no caller waits for a
/// commit of unbounded size.
const TRANSACTION_ROWS_MAX: usize = 10_000;
/// Maximum log lines of one transaction.
const TRANSACTION_LINES_MAX: usize = 10_000;

/// The store of a single node. Dropping it completes all calls that were sent, checkpoints the write-ahead log and
/// releases the directory.
pub struct SqliteStore {
    // Fields are dropped in this order. The writers' connections close last, so that they run the final checkpoint;
    // then the lock is released.
    _check: Option<BackgroundCheck>,
    findings: Arc<Findings>,
    readers: Pool<ReaderThread>,
    writer: BatchThread<CallRequest>,
    log_writer: BatchThread<LogRequest>,
    clock: Arc<dyn Clock>,
    figures: Arc<Figures>,
    dir: PathBuf,
    _lock: DirectoryLock,
}

struct CallRequest {
    call: SqliteCall,
    answer: oneshot::Sender<Result<SqliteReply, StoreError>>,
}

enum LogRequest {
    Append { lines: Vec<LogLine>, answer: oneshot::Sender<Result<(), StoreError>> },
    Retain { before: Timestamp, limit: usize, answer: oneshot::Sender<Result<u64, StoreError>> },
    Forget { jobs: Vec<JobId>, answer: oneshot::Sender<Result<(), StoreError>> },
}

/// The state of a reading thread.
pub(super) struct ReaderThread {
    pub main: Connection,
    pub logs: Connection,
    pub lanes: ReaderLanes,
}

impl SqliteStore {
    /// Opens the store in a directory, or creates it.
    pub fn open(options: &SqliteOptions, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let dir = &options.dir;
        let io_error = |path: &Path| {
            let path = path.to_owned();
            move |source| OpenError::Io { path, source }
        };
        std::fs::create_dir_all(dir).map_err(io_error(dir))?;
        let lock = DirectoryLock::take(dir)?;
        let (main_path, logs_path) = (dir.join(MAIN_FILE), dir.join(LOGS_FILE));
        let main = open_checked(&main_path, Durability::PowerLoss, migrate::MAIN)?;
        if let Some(problem) = missing_tables(&main, dir, MAIN_FILE)
            .map_err(|fault| database_error(&main_path)(StoreError::from(fault)))?
        {
            return Err(OpenError::Damaged { path: main_path, problems: vec![problem] });
        }
        let core = SqliteCore::migrated(main).map_err(database_error(&main_path))?;
        let logs = open_checked(&logs_path, Durability::ProcessDeath, migrate::LOGS)?;
        let logs = LogCore::migrated(logs).map_err(database_error(&logs_path))?;
        let logs = logs.with_bytes_max(options.log_bytes_max);
        let figures = Arc::new(Figures::default());
        let checkpointer = Checkpointer::spawn(&main_path, figures.clone())
            .map_err(|fault| database_error(&main_path)(StoreError::from(fault)))?;
        let readers = (0..options.reader_count.max(1))
            .map(|_| ReaderThread::open(&main_path, &logs_path))
            .collect::<Result<Vec<_>, _>>()?;
        let files = [main_path.clone(), beside(&main_path, "-wal")].map(OpenFile::of);
        let files = files.into_iter().collect::<std::io::Result<Vec<_>>>().map_err(io_error(dir))?;
        let findings = Arc::new(Findings::default());
        let check = options.check_interval.map(|interval| {
            let files = [&main_path, &logs_path].map(|path| OpenFile::of(path.clone()));
            let files = files.into_iter().collect::<std::io::Result<Vec<_>>>();
            files.and_then(|files| BackgroundCheck::spawn(files, interval, findings.clone()))
        });
        Ok(SqliteStore {
            _check: check.transpose().map_err(io_error(dir))?,
            findings,
            readers: Pool::spawn("store-reader", readers).map_err(io_error(dir))?,
            writer: spawn_writer(WriterSide { checkpointer, core, files, figures: figures.clone() })
                .map_err(io_error(dir))?,
            log_writer: spawn_log_writer(logs, figures.clone()).map_err(io_error(dir))?,
            clock,
            figures,
            dir: dir.clone(),
            _lock: lock,
        })
    }

    /// Completes all calls that were sent and closes the files; the same as dropping it.
    pub fn close(self) {}

    /// The version of the main database's tables.
    pub const fn schema_version() -> usize {
        migrate::MAIN.len()
    }

    /// The data directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// All problems of the files and between their tables; empty if there are none. Reads all files while other work
    /// continues.
    pub async fn integrity_check(&self) -> Result<Vec<String>, StoreError> {
        let check = |reader: &mut ReaderThread| {
            let mut problems = integrity::problems(&reader.main)?;
            problems.extend(integrity::file_problems(&reader.logs)?);
            Ok(problems)
        };
        self.readers.run(check).await
    }

    /// Corrects counters that differ from their rows. Returns the changes.
    pub async fn repair_counters(&self) -> Result<Vec<CounterMismatch>, StoreError> {
        match self.call(SqliteCall::Upkeep(Upkeep::RepairCounters)).await? {
            SqliteReply::Upkeep(UpkeepReply::CountersRepaired(repaired)) => Ok(repaired),
            other => Err(StoreError::Broken(format!("maintenance answered with {other:?}"))),
        }
    }

    /// Sends one call to the writer. It shares a transaction with the other waiting calls.
    pub async fn call(&self, call: SqliteCall) -> Result<SqliteReply, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.writer.send(CallRequest { call, answer }).await?;
        answered.await.map_err(|_| gone())?
    }

    async fn directory_call(&self, call: DirectoryCall) -> Result<DirectoryReply, StoreError> {
        match self.call(SqliteCall::Directory(Box::new(call))).await? {
            SqliteReply::Directory(reply) => Ok(reply),
            other => Err(StoreError::Broken(format!("the directory answered with {other:?}"))),
        }
    }

    async fn audit_call(&self, call: AuditCall) -> Result<u64, StoreError> {
        match self.call(SqliteCall::Audit(call)).await? {
            SqliteReply::Audited(count) => Ok(count),
            other => Err(StoreError::Broken(format!("the audit log answered with {other:?}"))),
        }
    }

    async fn membership_call(&self, call: MembershipCall) -> Result<MembershipReply, StoreError> {
        match self.call(SqliteCall::Membership(call)).await? {
            SqliteReply::Membership(reply) => Ok(reply),
            other => Err(StoreError::Broken(format!("the membership table answered with {other:?}"))),
        }
    }

    async fn membership_entries(&self) -> Result<Entries, StoreError> {
        self.read(membership::entries).await
    }

    pub(super) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.readers.run(move |reader| Ok(read(&reader.main)?)).await
    }
}

serve_membership!(SqliteStore);

impl ReaderThread {
    fn open(main: &Path, logs: &Path) -> Result<Self, OpenError> {
        let open = |path: &Path| {
            open_for_reading(path).map_err(|fault| database_error(path)(StoreError::from(fault)))
        };
        Ok(ReaderThread { main: open(main)?, logs: open(logs)?, lanes: ReaderLanes::default() })
    }
}

/// The state of the writing thread. Fields are dropped in this order: the last connection to close runs the final
/// checkpoint.
struct WriterSide {
    checkpointer: Checkpointer,
    core: SqliteCore,
    /// The main file and its write-ahead log.
    files: Vec<OpenFile>,
    figures: Arc<Figures>,
}

impl WriterSide {
    /// Applies all calls. A panic becomes an error reply.
    fn apply(&mut self, calls: &[SqliteCall]) -> Vec<Result<SqliteReply, StoreError>> {
        let count = calls.len();
        if let Err(gone) = self.files.iter().try_for_each(OpenFile::is_still_there) {
            return vec![Err(gone); count];
        }
        let core = &mut self.core;
        let started = Instant::now();
        let replies = catch_unwind(AssertUnwindSafe(|| core.apply(calls))).unwrap_or_else(|panic| {
            core.abandon();
            answers_after_panic(&*panic, count)
        });
        self.figures.transaction_time.observe_duration(started.elapsed());
        self.figures.transaction_writes.observe(count as u64);
        self.checkpointer.committed(self.core.total_changes());
        replies
    }
}

fn spawn_writer(mut side: WriterSide) -> std::io::Result<BatchThread<CallRequest>> {
    let weight = |request: &CallRequest| request.call.weight();
    BatchThread::spawn("store-writer", TRANSACTION_ROWS_MAX, weight, move |requests: Vec<CallRequest>| {
        let (calls, answers): (Vec<_>, Vec<_>) =
            requests.into_iter().map(|request| (request.call, request.answer)).unzip();
        for (answer, reply) in answers.into_iter().zip(side.apply(&calls)) {
            // The receiver is gone if the caller was cancelled.
            let _ = answer.send(reply);
        }
    })
}

/// If several writes shared the transaction, it is not known which of them panicked: all callers may retry.
fn answers_after_panic(
    panic: &(dyn std::any::Any + Send),
    count: usize,
) -> Vec<Result<SqliteReply, StoreError>> {
    let error = panicked(panic);
    tracing::error!(%error, writes = count, "a transaction was abandoned");
    let error = match error {
        StoreError::Broken(reason) if count > 1 => StoreError::Unavailable(reason),
        error => error,
    };
    vec![Err(error); count]
}

fn spawn_log_writer(mut logs: LogCore, figures: Arc<Figures>) -> std::io::Result<BatchThread<LogRequest>> {
    let weight = |request: &LogRequest| match request {
        LogRequest::Append { lines, .. } => lines.len().max(1),
        LogRequest::Retain { limit, .. } => (*limit).max(1),
        LogRequest::Forget { jobs, .. } => jobs.len(),
    };
    BatchThread::spawn("store-logs", TRANSACTION_LINES_MAX, weight, move |requests: Vec<LogRequest>| {
        let handled = catch_unwind(AssertUnwindSafe(|| handle_log_requests(&mut logs, requests)));
        if let Err(panic) = handled {
            tracing::error!(error = %panicked(&*panic), "a transaction of log lines was abandoned");
            logs.abandon();
        }
        figures.note_removed(logs.removed());
    })
}

/// Appends all lines in one transaction, then handles the other requests.
fn handle_log_requests(logs: &mut LogCore, requests: Vec<LogRequest>) {
    let mut lines = Vec::new();
    let mut answers = Vec::new();
    let mut retains = Vec::new();
    let mut forgets = Vec::new();
    for request in requests {
        match request {
            LogRequest::Append { lines: more, answer } => {
                lines.extend(more);
                answers.push(answer);
            }
            LogRequest::Retain { before, limit, answer } => retains.push((before, limit, answer)),
            LogRequest::Forget { jobs, answer } => forgets.push((jobs, answer)),
        }
    }
    let appended = if lines.is_empty() { Ok(()) } else { logs.append(&lines) };
    for answer in answers {
        let _ = answer.send(appended.clone());
    }
    for (jobs, answer) in forgets {
        let _ = answer.send(logs.forget(&jobs));
    }
    for (before, limit, answer) in retains {
        let _ = answer.send(logs.retain(before, limit));
    }
}

/// Sends a maintenance call and unpacks the reply. A reply of another kind is a bug in the core.
macro_rules! kept {
    ($store:expr, $upkeep:expr, $reply:pat => $value:expr) => {
        match $store.call(SqliteCall::Upkeep($upkeep)).await? {
            SqliteReply::Upkeep($reply) => Ok($value),
            other => Err(StoreError::Broken(format!("maintenance answered with {other:?}"))),
        }
    };
}

/// Reads from the main database.
macro_rules! read {
    ($readers:expr, $reads:ident => $verb:expr) => {
        crate::sqlite::store::read_from!($readers, main, $reads => $verb)
    };
}
use {read as list, read as read_at_once};

/// Reads from the database of log lines.
macro_rules! read_logs {
    ($readers:expr, $reads:ident => $verb:expr) => {
        crate::sqlite::store::read_from!($readers, logs, $reads => $verb)
    };
}

macro_rules! read_from {
    ($readers:expr, $file:ident, $reads:ident => $verb:expr) => {{
        let read = move |reader: &mut crate::sqlite::store::ReaderThread| {
            let mut connection = crate::sqlite::reads::SqliteReading::new(&mut reader.$file);
            let mut $reads = crate::reads::Reads::new(&mut connection, &reader.lanes);
            Ok(crate::sqlite::reads::finished($verb)?)
        };
        $readers.run(read).await
    }};
}
pub(super) use read_from;

serve_directory!(SqliteStore);
serve_audit!(SqliteStore);
serve_reads! { SqliteStore {
    async fn clock(&self) -> Result<Timestamp, StoreError> {
        Ok(self.clock.wall())
    }

    async fn write(&self, write: Write) -> Result<WriteReply, StoreError> {
        match self.call(SqliteCall::Write(write)).await? {
            SqliteReply::Write(reply) => Ok(reply),
            other => Err(StoreError::Broken(format!("a write was answered with {other:?}"))),
        }
    }

    async fn figures(&self) -> Result<StoreFigures, StoreError> {
        let sizes = read!(self.readers, reads => reads.figures())?;
        Ok(self.figures.read(sizes, &self.dir))
    }

    fn health(&self) -> StoreHealth {
        StoreHealth {
            errors: failures::counts(),
            damage: self.findings.problems(),
            checks_completed: self.findings.completed(),
        }
    }

    async fn append_logs(&self, lines: Vec<LogLine>) -> Result<(), StoreError> {
        let (answer, answered) = oneshot::channel();
        self.log_writer.send(LogRequest::Append { lines, answer }).await?;
        answered.await.map_err(|_| gone())?
    }

    async fn logs_removed_until(&self) -> Result<Option<Timestamp>, StoreError> {
        self.readers.run(|reader| read_removed_until(&reader.logs)).await
    }

    async fn noted_clock(&self) -> Result<NotedClock, StoreError> {
        let noted = read!(self.readers, reads => reads.steady_clock())?;
        Ok(NotedClock { now: self.clock.wall(), noted })
    }

    async fn note_clock(&self, at: Timestamp) -> Result<(), StoreError> {
        kept!(self, Upkeep::NoteClock { at }, UpkeepReply::ClockNoted => ())
    }

    async fn retain(&self, horizon: Horizon, limit: usize) -> Result<Retained, StoreError> {
        let (answer, answered) = oneshot::channel();
        let before = horizon.history;
        self.log_writer.send(LogRequest::Retain { before, limit, answer }).await?;
        let retained: Result<_, StoreError> =
            kept!(self, Upkeep::Retain { horizon, limit }, UpkeepReply::Retained(retained) => retained);
        let retained = retained?;
        let logs = answered.await.map_err(|_| gone())??;
        let more = retained.more || (limit > 0 && logs == limit as u64);
        Ok(Retained { logs, more, ..retained })
    }

    async fn delete_unused(&self, limit: usize) -> Result<bool, StoreError> {
        kept!(self, Upkeep::DeleteUnused { limit }, UpkeepReply::UnusedDeleted(more) => more)
    }

    async fn retire(&self, now: Timestamp, retirement: Retirement) -> Result<Retired, StoreError> {
        kept!(self, Upkeep::Retire { now, retirement }, UpkeepReply::Retired(retired) => retired)
    }

    async fn purge(&self, before: Timestamp, limit: usize) -> Result<bool, StoreError> {
        let purged: Result<Purged, StoreError> =
            kept!(self, Upkeep::Purge { before, limit }, UpkeepReply::Purged(purged) => purged);
        let Purged { jobs, more } = purged?;
        if !jobs.is_empty() {
            // If this fails, the lines are deleted by age.
            let (answer, answered) = oneshot::channel();
            self.log_writer.send(LogRequest::Forget { jobs, answer }).await?;
            answered.await.map_err(|_| gone())??;
        }
        Ok(more)
    }

    async fn probe(&self, now: Timestamp) -> Result<(), StoreError> {
        let () = kept!(self, Upkeep::Probe { now }, UpkeepReply::Probed => ())?;
        match self.findings.problems().as_slice() {
            [] => Ok(()),
            problems => Err(StoreError::Broken(format!(
                "its files are damaged: restore a backup; found: {}",
                problems.join("; ")
            ))),
        }
    }

    async fn keep_condition(&self, session: SessionId, condition: WorkerCondition) -> Result<(), StoreError> {
        kept!(self, Upkeep::KeepCondition { session, condition }, UpkeepReply::ConditionKept => ())
    }
} }
