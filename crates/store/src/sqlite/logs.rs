//! Log lines: a database of their own, so that chatty handlers neither slow down commits of jobs nor share
//! their file. Synchronous like [`super::SqliteCore`].

use super::connection::{self, Durability};
use super::fault::Fault;
use super::migrate;
use super::reads::cut;
use super::rows::{Code, all, count, counter, decode, job_id, limit, time};
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::limits;
use punctual_core::ports::{LogLine, Page, StoreError};
use punctual_core::time::Timestamp;
use rusqlite::{Connection, params};
use std::path::Path;

const INSERT_LINE: &str = "INSERT INTO lines (job, occurrence, attempt, timestamp, stream, message) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
pub(crate) const LINES_OF_EXECUTION: &str = "SELECT number, job, occurrence, attempt, timestamp, stream, message FROM lines \
     WHERE job = ?1 AND occurrence = ?2 AND attempt = ?3 AND number > ?4 ORDER BY number LIMIT ?5";
const RETAIN_LINES: &str = "DELETE FROM lines WHERE timestamp < ?1 \
     AND number IN (SELECT number FROM lines ORDER BY number LIMIT ?2)";

/// The database of log lines with its one writing connection.
#[derive(Debug)]
pub struct LogCore {
    conn: Connection,
}

impl LogCore {
    /// Opens or creates the database file and brings it to this binary's version.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::migrated(connection::open_for_writing(path, Durability::ProcessDeath)?)
    }

    /// A database that lives as long as this value.
    pub fn open_in_memory() -> Result<Self, StoreError> {
        let conn = Connection::open_in_memory().map_err(Fault::from)?;
        connection::prepare_for_use(&conn)?;
        Self::migrated(conn)
    }

    fn migrated(mut conn: Connection) -> Result<Self, StoreError> {
        migrate::migrate(&mut conn, migrate::LOGS)?;
        Ok(LogCore { conn })
    }

    /// Appends lines in one transaction; the store numbers them.
    pub fn append(&mut self, lines: &[LogLine]) -> Result<(), StoreError> {
        Ok(self.try_append(lines)?)
    }

    /// The lines of one execution in the order of their numbers.
    pub fn lines(
        &self,
        execution: ExecutionId,
        after: Option<u64>,
        wanted: usize,
    ) -> Result<Page<LogLine, u64>, StoreError> {
        read_lines(&self.conn, execution, after, wanted)
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

    /// Deletes up to `wanted` of the oldest lines, if they are older than `before`; says how many.
    pub fn retain(&mut self, before: Timestamp, wanted: usize) -> Result<u64, StoreError> {
        let mut delete = self.conn.prepare_cached(RETAIN_LINES).map_err(Fault::from)?;
        let deleted = delete.execute(params![before.as_micros(), limit(wanted)]).map_err(Fault::from)?;
        Ok(deleted as u64)
    }

    /// Undoes whatever a panic left behind.
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
        let transaction = self.conn.transaction()?;
        let mut insert = transaction.prepare_cached(INSERT_LINE)?;
        for line in lines {
            let occurrence = line.execution.occurrence;
            insert.execute(params![
                occurrence.job.as_bytes(),
                occurrence.number,
                line.execution.attempt,
                line.timestamp.as_micros(),
                line.stream.code(),
                line.message,
            ])?;
        }
        drop(insert);
        transaction.commit()?;
        Ok(())
    }
}

/// The lines of one execution, read through any connection to the database.
pub(crate) fn read_lines(
    conn: &Connection,
    execution: ExecutionId,
    after: Option<u64>,
    wanted: usize,
) -> Result<Page<LogLine, u64>, StoreError> {
    let wanted = wanted.clamp(1, limits::PAGE_ITEMS_MAX);
    let mut items = try_read_lines(conn, execution, after, wanted + 1)?;
    let next = cut(&mut items, wanted, |last| last.number);
    Ok(Page { items, next })
}

fn try_read_lines(
    conn: &Connection,
    execution: ExecutionId,
    after: Option<u64>,
    wanted: usize,
) -> Result<Vec<LogLine>, Fault> {
    let occurrence = execution.occurrence;
    let bounds = params![
        occurrence.job.as_bytes(),
        occurrence.number,
        execution.attempt,
        after.map_or(0, counter),
        limit(wanted)
    ];
    all(&mut *conn.prepare_cached(LINES_OF_EXECUTION)?, bounds, |row| {
        Ok(LogLine {
            number: count(row, 0, "lines.number")?,
            execution: job_id(row, 1)?.occurrence(row.get(2)?).attempt(row.get(3)?),
            timestamp: time(row, 4)?,
            stream: decode(row, 5, "lines.stream")?,
            message: row.get(6)?,
        })
    })
}
