//! The synchronous core: one connection, one transaction per batch, the rules of `punctual_core` between the
//! reads and the writes. It must know no thread, clock or randomness, so that the simulator runs the very SQL
//! that users run.

use super::connection::{self, Durability};
use super::fault::Fault;
use super::migrate;
use super::names::{HistoryNumbers, Lanes, QueueTable, SessionWorkers};
use super::reads::Reads;
use super::tally::Tally;
use super::verbs;
use super::write::{Write, WriteReply};
use punctual_core::ports::StoreError;
use punctual_core::rank::Shares;
use rusqlite::Connection;
use std::path::Path;

/// The main database with its one writing connection.
#[derive(Debug)]
pub struct SqliteCore {
    conn: Connection,
    memory: Memory,
}

/// What the core remembers between transactions. Losing it costs a few reads and a moment of fairness.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub lanes: Lanes,
    pub workers: SessionWorkers,
    pub queues: QueueTable,
    pub history: HistoryNumbers,
    pub shares: Shares,
    /// Written before the transaction commits.
    pub tally: Tally,
}

impl Memory {
    /// Forgets what may have been learned in a transaction that did not commit.
    fn forget(&mut self) {
        self.lanes.forget();
        self.workers.forget();
        self.queues.forget();
        self.history.forget();
    }
}

/// A write under way: inside a transaction, with what the core remembers.
pub(crate) struct Tx<'a> {
    pub conn: &'a Connection,
    pub memory: &'a mut Memory,
}

impl SqliteCore {
    /// Opens or creates the database file and brings it to this binary's version.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let conn = connection::open_for_writing(path, Durability::PowerLoss)?;
        Self::migrated(conn)
    }

    /// A database that lives as long as this value.
    pub fn open_in_memory() -> Result<Self, StoreError> {
        let conn = Connection::open_in_memory().map_err(Fault::from)?;
        connection::prepare_for_use(&conn, Durability::PowerLoss.cache_kib())?;
        Self::migrated(conn)
    }

    fn migrated(mut conn: Connection) -> Result<Self, StoreError> {
        migrate::migrate(&mut conn, migrate::MAIN)?;
        Ok(SqliteCore { conn, memory: Memory::default() })
    }

    /// Applies all writes in one transaction and answers each in its place.
    ///
    /// A write that fails by itself is undone alone. When the disk or the machine fails, none of them took
    /// effect and all answers say so.
    pub fn apply(&mut self, writes: Vec<Write>) -> Vec<Result<WriteReply, StoreError>> {
        let count = writes.len();
        match self.try_apply(writes) {
            Ok(replies) => replies,
            Err(fault) => {
                self.abandon();
                let error = StoreError::from(fault);
                vec![Err(error); count]
            }
        }
    }

    /// Forgets all that is held in memory beside the tables, as the end of a process does.
    pub fn restart(&mut self) {
        self.memory = Memory::default();
    }

    /// Reads of what is committed.
    pub fn reads(&mut self) -> Reads<'_> {
        Reads::new(&self.conn, &mut self.memory.lanes)
    }

    /// Everything that is wrong with the file or between its tables; empty when all is well.
    pub fn integrity_check(&self) -> Result<Vec<String>, StoreError> {
        Ok(super::integrity::problems(&self.conn)?)
    }

    /// What is wrong with the counts that are kept; empty when all is well. A part of [`Self::integrity_check`] that
    /// is cheap enough to be asked again and again.
    pub fn tally_check(&self) -> Result<Vec<String>, StoreError> {
        Ok(super::integrity::tally_problems(&self.conn)?)
    }

    /// Rows written since the database was opened.
    pub fn total_changes(&self) -> u64 {
        self.conn.total_changes()
    }

    /// Undoes whatever a panic or an outage left behind.
    pub(crate) fn abandon(&mut self) {
        if !self.conn.is_autocommit()
            && let Err(error) = self.conn.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "a transaction could not be rolled back");
        }
        self.memory.forget();
        self.memory.tally.forget();
    }

    /// The bare connection, set and migrated.
    pub(crate) fn into_connection(self) -> Connection {
        self.conn
    }

    #[cfg(test)]
    pub(crate) fn connection(&self) -> &Connection {
        &self.conn
    }

    fn try_apply(&mut self, writes: Vec<Write>) -> Result<Vec<Result<WriteReply, StoreError>>, Fault> {
        self.run("BEGIN IMMEDIATE")?;
        let mut replies = Vec::with_capacity(writes.len());
        for write in writes {
            replies.push(self.apply_one(write)?);
        }
        self.memory.tally.write(&self.conn)?;
        #[cfg(test)]
        assert_eq!(super::integrity::tally_problems(&self.conn)?, Vec::<String>::new());
        self.run("COMMIT")?;
        Ok(replies)
    }

    /// One write within its own savepoint. The outer error is an outage, which ends the whole transaction.
    fn apply_one(&mut self, write: Write) -> Result<Result<WriteReply, StoreError>, Fault> {
        self.run("SAVEPOINT one")?;
        let result = verbs::perform(&mut Tx { conn: &self.conn, memory: &mut self.memory }, write);
        match result {
            Ok(reply) => {
                self.run("RELEASE one")?;
                self.memory.tally.keep();
                Ok(Ok(reply))
            }
            Err(fault) if fault.is_outage() => Err(fault),
            Err(fault) => {
                self.run("ROLLBACK TO one")?;
                self.run("RELEASE one")?;
                self.memory.forget();
                self.memory.tally.undo();
                Ok(Err(fault.into()))
            }
        }
    }

    fn run(&self, sql: &str) -> Result<(), Fault> {
        self.conn.prepare_cached(sql)?.execute([])?;
        Ok(())
    }
}
