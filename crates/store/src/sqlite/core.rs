//! The synchronous core: one connection, one transaction per batch, and the rules of `punctual_core`
//! between the reads and the writes. It must not know threads, clocks or randomness, so that the simulator
//! runs exactly the SQL that users run.

use super::active_lanes::ActiveLanes;
use super::connection::{self, Durability};
use super::counters::CounterCache;
use super::names::{HistoryNumbers, LaneNumbers, QueueTable, SessionWorkers};
use super::open::is_unfinished;
use super::reads::{SqliteReads, finished};
use super::statements::SqliteStatements;
use super::tx::Tx;
use super::unused::UnusedCursors;
use super::write::{SqliteCall, SqliteReply, Upkeep};
use super::{maintenance, membership, migrate};
use crate::counters::{CounterChanges, Counters};
use crate::fault::Fault;
use crate::reads::ReaderLanes;
use crate::server::connection::StatementVerb;
use crate::unfinished::UNFINISHED;
use crate::verbs;
use punctual_core::occurrence::{Live, LiveState};
use punctual_core::ports::{Lane, StoreError, Write, WriteReply};
use punctual_core::rank::Shares;
use rusqlite::Connection;
use std::path::Path;

/// The main database with its one writing connection.
#[derive(Debug)]
pub struct SqliteCore {
    conn: Connection,
    memory: CoreMemory,
    /// Names of lanes that were committed.
    lanes: ReaderLanes,
    /// Whether all rows were readable and all counters correct when it was opened: then they must be after
    /// every transaction.
    #[cfg(test)]
    is_sound: bool,
}

/// The core's state between transactions. Losing it costs a few reads and a moment of fairness.
#[derive(Debug, Default)]
pub(crate) struct CoreMemory {
    pub lanes: LaneNumbers,
    pub active: ActiveLanes,
    pub workers: SessionWorkers,
    pub queues: QueueTable,
    pub history: HistoryNumbers,
    pub shares: Shares,
    pub written: CounterCache,
    pub unused: UnusedCursors,
    /// Written before the transaction commits.
    pub counters: Counters,
}

impl CoreMemory {
    /// Discards what may have been learned in a transaction that did not commit.
    fn forget(&mut self) {
        self.lanes.forget();
        self.active.forget();
        self.workers.forget();
        self.queues.forget();
        self.history.forget();
        self.written.forget();
    }

    /// The lanes in use.
    pub fn active(&mut self, conn: &Connection) -> Result<&mut ActiveLanes, Fault> {
        self.active.load_once(conn, &mut self.lanes, self.counters.lanes())?;
        Ok(&mut self.active)
    }

    /// The name of a lane. Those in use are all remembered, others only up to a limit.
    pub fn lane(&mut self, conn: &Connection, number: i64) -> Result<Lane, Fault> {
        match self.active.lane(number) {
            Some(lane) => Ok(lane.clone()),
            None => self.lanes.lane(conn, number),
        }
    }

    /// Records that a row was added to this lane or has changed there.
    pub fn touch_lane(&mut self, conn: &Connection, lane: i64, live: &Live) -> Result<(), Fault> {
        let queued = (live.state == LiveState::Queued).then_some((live.rank, live.id));
        self.active.touch(conn, &mut self.lanes, lane, queued)
    }

    /// Writes the counters that have changed.
    pub fn write_counts(&mut self, conn: &Connection) -> Result<(), Fault> {
        let counts = self.counters.take();
        self.add_counts(conn, counts)
    }

    /// Adds to the counters.
    pub fn add_counts(&mut self, conn: &Connection, counts: CounterChanges) -> Result<(), Fault> {
        if !counts.lanes.is_empty() {
            self.active(conn)?;
        }
        self.written.add(conn, &mut self.lanes, &mut self.active, counts)
    }
}

impl SqliteCore {
    /// Opens or creates the database file and migrates it to this binary's version.
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

    /// Migrates an open database to this binary's version.
    pub(crate) fn migrated(mut conn: Connection) -> Result<Self, StoreError> {
        if is_unfinished(&conn)? {
            return Err(StoreError::Broken(UNFINISHED.to_owned()));
        }
        migrate::migrate(&mut conn, migrate::MAIN)?;
        Ok(SqliteCore {
            #[cfg(test)]
            is_sound: super::integrity::counter_problems(&conn)?.is_empty()
                && super::malformed::malformed_rows(&conn)?.is_empty(),
            conn,
            memory: CoreMemory::default(),
            lanes: ReaderLanes::default(),
        })
    }

    /// Executes all calls in one transaction and returns a reply for each.
    ///
    /// A call that fails on its own is rolled back alone. If the disk or the machine fails, none of the
    /// calls takes effect and all replies say so.
    pub fn apply(&mut self, calls: &[SqliteCall]) -> Vec<Result<SqliteReply, StoreError>> {
        let count = calls.len();
        match self.try_apply(calls) {
            Ok(replies) => replies,
            Err(fault) => {
                self.abandon();
                let error = StoreError::from(fault);
                vec![Err(error); count]
            }
        }
    }

    /// Discards everything held in memory, as the end of a process does.
    pub fn restart(&mut self) {
        self.memory = CoreMemory::default();
        self.lanes = ReaderLanes::default();
    }

    /// Reads of committed data.
    pub fn reads(&mut self) -> SqliteReads<'_> {
        SqliteReads::new(&mut self.conn, &self.lanes)
    }

    /// Every problem in the file or between its tables; empty if there are none.
    pub fn integrity_check(&self) -> Result<Vec<String>, StoreError> {
        Ok(super::integrity::problems(&self.conn)?)
    }

    /// The problems of the stored counters; empty if there are none. A part of [`Self::integrity_check`]
    /// that is cheap enough to run often.
    pub fn counter_check(&self) -> Result<Vec<String>, StoreError> {
        Ok(super::integrity::counter_problems(&self.conn)?)
    }

    /// Rows written since the database was opened.
    pub fn total_changes(&self) -> u64 {
        self.conn.total_changes()
    }

    /// Rolls back what a panic or an outage left open.
    pub(crate) fn abandon(&mut self) {
        if !self.conn.is_autocommit()
            && let Err(error) = self.conn.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "a transaction could not be rolled back");
        }
        self.memory.forget();
        self.memory.counters.forget();
    }

    /// The connection, configured and migrated.
    pub(crate) fn into_connection(self) -> Connection {
        self.conn
    }

    #[cfg(test)]
    pub(crate) fn memory(&self) -> &CoreMemory {
        &self.memory
    }

    #[cfg(test)]
    pub(crate) fn connection(&self) -> &Connection {
        &self.conn
    }

    fn try_apply(&mut self, calls: &[SqliteCall]) -> Result<Vec<Result<SqliteReply, StoreError>>, Fault> {
        run(&self.conn, "BEGIN IMMEDIATE")?;
        let mut replies = Vec::with_capacity(calls.len());
        for call in calls {
            if *call == SqliteCall::Upkeep(Upkeep::RepairCounters) {
                // The check compares rows with the written counters.
                self.memory.write_counts(&self.conn)?;
            }
            replies.push(self.apply_one(call)?);
        }
        self.memory.write_counts(&self.conn)?;
        #[cfg(test)]
        if self.is_sound {
            assert_eq!(super::integrity::counter_problems(&self.conn)?, Vec::<String>::new());
        }
        run(&self.conn, "COMMIT")?;
        Ok(replies)
    }

    /// Executes one call. The outer error is an outage, which ends the whole transaction.
    fn apply_one(&mut self, call: &SqliteCall) -> Result<Result<SqliteReply, StoreError>, Fault> {
        Ok(match call {
            SqliteCall::Write(write) => apply_write(&mut self.tx(), write)?.map(SqliteReply::Write),
            SqliteCall::Upkeep(upkeep) => {
                within_savepoint(&mut self.tx(), |tx| maintenance::perform(tx, upkeep))?
                    .map(SqliteReply::Upkeep)
            }
            SqliteCall::Membership(call) => {
                let perform = |tx: &mut Tx<'_>| membership::perform(tx.conn, call);
                within_savepoint(&mut self.tx(), perform)?.map(SqliteReply::Membership)
            }
            SqliteCall::Directory(call) => self.apply_verb(&**call)?.map(SqliteReply::Directory),
            SqliteCall::Audit(call) => self.apply_verb(call)?.map(SqliteReply::Audited),
        })
    }

    /// The rows of the open transaction.
    fn tx(&mut self) -> Tx<'_> {
        Tx::new(&self.conn, &mut self.memory)
    }

    /// Executes a verb that all databases share.
    fn apply_verb<R: Send>(
        &mut self,
        verb: &impl for<'c> StatementVerb<SqliteStatements<'c>, Reply = R>,
    ) -> Result<Result<R, StoreError>, Fault> {
        run(&self.conn, "SAVEPOINT one")?;
        let done = finished(verb.perform(&mut SqliteStatements { conn: &mut self.conn }));
        settled(&self.conn, &mut self.memory, done)
    }
}

/// Runs a write again in parts if one item fails, so that only that item fails.
fn apply_write(tx: &mut Tx<'_>, write: &Write) -> Result<Result<WriteReply, StoreError>, Fault> {
    let error = match within_savepoint(tx, |tx| verbs::perform(tx, write))? {
        Ok(reply) => return Ok(Ok(reply)),
        Err(error) => error,
    };
    let Some((left, right)) = write.halves() else {
        return Ok(write.refused(&error.to_string()).ok_or(error));
    };
    Ok(match (apply_write(tx, &left)?, apply_write(tx, &right)?) {
        (Ok(left), Ok(right)) => left.joined(right).ok_or(error),
        (Err(error), _) | (_, Err(error)) => Err(error),
    })
}

/// Rolls back only the part that fails.
fn within_savepoint<T>(
    tx: &mut Tx<'_>,
    act: impl FnOnce(&mut Tx<'_>) -> Result<T, Fault>,
) -> Result<Result<T, StoreError>, Fault> {
    run(tx.conn, "SAVEPOINT one")?;
    let done = act(tx);
    settled(tx.conn, tx.memory, done)
}

/// Ends the savepoint of a part.
fn settled<T>(
    conn: &Connection,
    memory: &mut CoreMemory,
    done: Result<T, Fault>,
) -> Result<Result<T, StoreError>, Fault> {
    match done {
        Ok(reply) => {
            run(conn, "RELEASE one")?;
            memory.counters.keep();
            Ok(Ok(reply))
        }
        Err(fault) if fault.is_outage() => Err(fault),
        Err(fault) => {
            run(conn, "ROLLBACK TO one")?;
            run(conn, "RELEASE one")?;
            memory.forget();
            memory.counters.undo();
            tracing::warn!(%fault, "a write failed and was undone");
            Ok(Err(fault.into()))
        }
    }
}

fn run(conn: &Connection, sql: &str) -> Result<(), Fault> {
    conn.prepare_cached(sql)?.execute([])?;
    Ok(())
}
