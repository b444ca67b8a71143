//! Log lines have their own database, so that handlers with much output neither delay commits of jobs nor
//! share their file. Synchronous like [`super::SqliteCore`].

use super::connection::{self, Durability};
use super::migrate;
use super::rows::{count, limit, one, one_readable, time};
use crate::codes::Code;
use crate::execution_log_quota::{ExecutionLogSize, RemovedLines};
use crate::fault::Fault;
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::limits;
use punctual_core::ports::{LogLine, StoreError};
use punctual_core::time::Timestamp;
use rusqlite::{Connection, params};
use std::collections::BTreeMap;
use std::path::Path;

const INSERT_LINE: &str = "INSERT INTO lines (job, occurrence, attempt, timestamp, stream, message) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const RETAIN_LINES: &str = "DELETE FROM lines WHERE timestamp < ?1 \
     AND number IN (SELECT number FROM lines ORDER BY number LIMIT ?2)";

pub(crate) const OLDEST_LINES: &str =
    "SELECT number, length(CAST(message AS BLOB)), timestamp FROM lines ORDER BY number LIMIT ?1";
const REMOVE_LINES: &str = "DELETE FROM lines WHERE number <= ?1";
const NOTE_REMOVED: &str =
    "INSERT INTO removed (id, until) VALUES (1, ?1) ON CONFLICT (id) DO UPDATE SET until = ?1";

/// The database of log lines with its one writing connection.
#[derive(Debug)]
pub struct LogCore {
    conn: Connection,
    kept: BTreeMap<ExecutionId, ExecutionLogSize>,
    /// The size limit of the database in bytes; `None` for no limit.
    bytes_max: Option<u64>,
    removed: RemovedLines,
}

/// The minimum that one step removes in bytes, so that a step is worth its transaction.
const REMOVED_BYTES_MIN: u64 = 64 * 1024;
/// Executions whose log size is remembered. Beyond this, all are discarded and counted again on their next
/// write.
const EXECUTIONS_REMEMBERED_MAX: usize = 10_000;
const COUNT_LINES: &str = "SELECT count(*), coalesce(sum(length(CAST(message AS BLOB))), 0) FROM lines \
     WHERE job = ?1 AND occurrence = ?2 AND attempt = ?3";

impl LogCore {
    /// Opens or creates the database file and migrates it to this binary's version.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::migrated(connection::open_for_writing(path, Durability::ProcessDeath)?)
    }

    /// A database that lives as long as this value.
    pub fn open_in_memory() -> Result<Self, StoreError> {
        let conn = Connection::open_in_memory().map_err(Fault::from)?;
        connection::prepare_for_use(&conn, Durability::ProcessDeath.cache_kib())?;
        Self::migrated(conn)
    }

    /// Migrates an open database to this binary's version.
    pub(crate) fn migrated(mut conn: Connection) -> Result<Self, StoreError> {
        migrate::migrate(&mut conn, migrate::LOGS)?;
        Ok(LogCore { conn, kept: BTreeMap::new(), bytes_max: None, removed: RemovedLines::default() })
    }

    /// Limits the size of the database. The oldest lines are removed after each append that exceeds it.
    pub fn with_bytes_max(self, bytes_max: Option<u64>) -> Self {
        LogCore { bytes_max, ..self }
    }

    /// The lines that were removed to keep within the limit.
    pub(crate) fn removed(&self) -> RemovedLines {
        self.removed
    }

    /// Appends lines in one transaction; the store numbers them.
    ///
    /// The log of each execution is limited, whatever its worker sends: a line marks where the rest was
    /// dropped.
    pub fn append(&mut self, lines: &[LogLine]) -> Result<(), StoreError> {
        let appended = self.try_append(lines);
        if appended.is_err() {
            // The counts of a transaction that did not commit are wrong.
            self.kept.clear();
        }
        appended?;
        // The lines are stored: the sender must not send them again because others could not be removed.
        if let Err(error) = self.keep_within_limit().map_err(StoreError::from) {
            tracing::warn!(%error, "old log lines could not be removed; the next append tries again");
        }
        Ok(())
    }

    /// Removes the oldest lines, a step at a time, until the pages in use are within the limit. Freed pages
    /// are reused, so that the file does not grow beyond the limit.
    fn keep_within_limit(&mut self) -> Result<(), Fault> {
        let Some(most) = self.bytes_max else { return Ok(()) };
        loop {
            let excess = used_bytes(&self.conn)?.saturating_sub(most);
            if excess == 0 || !self.remove_oldest(excess.max(REMOVED_BYTES_MIN))? {
                return Ok(());
            }
        }
    }

    /// Removes about this many bytes of the oldest lines. Returns whether there were any.
    fn remove_oldest(&mut self, wanted: u64) -> Result<bool, Fault> {
        let transaction = self.conn.transaction()?;
        let mut removed = RemovedLines::default();
        let mut last = None;
        let mut select = transaction.prepare_cached(OLDEST_LINES)?;
        let mut rows = select.query([limit(limits::LOGS_REMOVED_PER_STEP_MAX)])?;
        while removed.bytes < wanted
            && let Some(row) = rows.next()?
        {
            removed.lines += 1;
            removed.bytes += count(row, 1, "length(lines.message)")?;
            last = Some((row.get::<_, i64>(0)?, row.get::<_, i64>(2)?));
        }
        drop(rows);
        drop(select);
        let Some((number, written_at)) = last else { return Ok(false) };
        transaction.prepare_cached(REMOVE_LINES)?.execute([number])?;
        transaction.prepare_cached(NOTE_REMOVED)?.execute([written_at])?;
        transaction.commit()?;
        self.removed.lines += removed.lines;
        self.removed.bytes += removed.bytes;
        Ok(true)
    }

    /// The lines of one execution, ordered by number.
    #[cfg(test)]
    pub(crate) fn lines(&mut self, execution: ExecutionId, wanted: usize) -> Vec<LogLine> {
        let mut connection = super::reads::SqliteReading::new(&mut self.conn);
        let lanes = crate::reads::ReaderLanes::default();
        let mut reads = crate::reads::Reads::new(&mut connection, &lanes);
        super::reads::finished(reads.logs(execution, None, wanted)).unwrap().items
    }

    /// Deletes all lines of these jobs.
    pub fn forget(&mut self, jobs: &[JobId]) -> Result<(), StoreError> {
        for job in jobs {
            self.forget_job(*job)?;
        }
        Ok(())
    }

    fn forget_job(&mut self, job: JobId) -> Result<(), Fault> {
        self.conn.prepare_cached("DELETE FROM lines WHERE job = ?1")?.execute([job.as_bytes()])?;
        Ok(())
    }

    /// Deletes up to `wanted` of the oldest lines, if they are older than `before`. Returns their number.
    pub fn retain(&mut self, before: Timestamp, wanted: usize) -> Result<u64, StoreError> {
        let mut delete = self.conn.prepare_cached(RETAIN_LINES).map_err(Fault::from)?;
        let deleted = delete.execute(params![before.as_micros(), limit(wanted)]).map_err(Fault::from)?;
        Ok(deleted as u64)
    }

    /// Rolls back what a panic left open.
    pub(crate) fn abandon(&mut self) {
        if !self.conn.is_autocommit()
            && let Err(error) = self.conn.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "a transaction of log lines could not be rolled back");
        }
    }

    #[cfg(test)]
    pub(crate) fn connection(&self) -> &Connection {
        &self.conn
    }

    fn try_append(&mut self, lines: &[LogLine]) -> Result<(), Fault> {
        if self.kept.len() > EXECUTIONS_REMEMBERED_MAX {
            self.kept.clear();
        }
        let transaction = self.conn.transaction()?;
        for line in lines {
            let mut kept = match self.kept.get(&line.execution) {
                Some(kept) => *kept,
                None => count_lines(&transaction, line.execution)?,
            };
            if let Some(line) = kept.admit(line) {
                insert_line(&transaction, &line)?;
            }
            self.kept.insert(line.execution, kept);
        }
        transaction.commit()?;
        Ok(())
    }
}

/// The size of the database, without free pages.
fn used_bytes(conn: &Connection) -> Result<u64, Fault> {
    let pragma = |sql: &str| -> Result<u64, Fault> {
        let value: i64 = conn.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
        Ok(u64::try_from(value).unwrap_or(0))
    };
    let used = pragma("PRAGMA page_count")?.saturating_sub(pragma("PRAGMA freelist_count")?);
    Ok(used * pragma("PRAGMA page_size")?)
}

/// The time up to which lines may have been removed to keep within the limit.
pub(crate) fn read_removed_until(conn: &Connection) -> Result<Option<Timestamp>, StoreError> {
    Ok(try_read_removed_until(conn)?)
}

fn try_read_removed_until(conn: &Connection) -> Result<Option<Timestamp>, Fault> {
    let mut select = conn.prepare_cached("SELECT until FROM removed WHERE id = 1")?;
    one_readable(&mut select, [], |row| time(row, 0))
}

fn insert_line(conn: &Connection, line: &LogLine) -> Result<(), Fault> {
    let occurrence = line.execution.occurrence;
    conn.prepare_cached(INSERT_LINE)?.execute(params![
        occurrence.job.as_bytes(),
        occurrence.number,
        line.execution.attempt,
        line.timestamp.to_stored(),
        line.stream.code(),
        line.message,
    ])?;
    Ok(())
}

fn count_lines(conn: &Connection, execution: ExecutionId) -> Result<ExecutionLogSize, Fault> {
    let occurrence = execution.occurrence;
    let key = params![occurrence.job.as_bytes(), occurrence.number, execution.attempt];
    let kept = one(&mut *conn.prepare_cached(COUNT_LINES)?, key, |row| {
        Ok(ExecutionLogSize { lines: row.get::<_, u32>(0)? as usize, bytes: row.get::<_, u32>(1)? as usize })
    })?;
    Ok(kept.unwrap_or_default())
}
