//! Reads: for users and for the loops that look for work. Every list reads a bounded number of rows and
//! holds a bounded number of bytes, regardless of the size of the database.
//!
//! A verb takes a handful of statements, no matter how many items it is about. If it takes more than one,
//! they see one snapshot. Many keys are sent as one JSON document. If only the first few rows of each key
//! are needed, they become branches of a `UNION ALL`: MariaDB has no `LATERAL`.

mod due;
mod events;
mod executions;
mod jobs;
mod keys;
mod lanes;
mod limiters;
mod listed;
mod logs;
mod notes;
mod overview;
mod page;
mod views;

pub(crate) use lanes::ReaderLanes;
pub(crate) use overview::TOKEN;

#[cfg(test)]
pub(crate) mod statements {
    //! Exports for the tests of query plans.
    pub(crate) use super::due::{due_live, due_schedules};
    pub(crate) use super::events::{
        FINISHED_AFTER, OPEN, RECENT, RUNNING, RUNNING_FIRST, WORKERS_OF_SESSIONS,
    };
    pub(crate) use super::executions::{
        DEAD_LETTERS, DEAD_LETTERS_OF_JOB, HISTORY_OF_JOB, OPEN_OF_JOB_BEFORE, SKIPPED,
    };
    pub(crate) use super::jobs::{
        ACTIVE_LIVE, ACTIVE_SCHEDULES, JOBS_BY_ID, LATEST_JOBS, MARKED_JOBS, TAGGED_JOBS, TAGS_OF_JOBS,
    };
    pub(crate) use super::keys::{branches, keys_of_jobs};
    pub(crate) use super::listed::{FINISHED_BEFORE, NAMES_OF_JOBS, OPEN_BEFORE};
    pub(crate) use super::logs::{LAST_LINES, LINES_OF_EXECUTION};
    pub(crate) use super::notes::NOTES_OF_JOB;
    pub(crate) use super::overview::{AHEAD, heads};
    pub(crate) use super::views::{FINISHED_AT, JOBS, LATEST_OF_JOB, OPEN_OF_JOB, SCHEDULES};
}

use super::lists::numbers;
use super::names::LANES_BY_NUMBER;
use crate::cells::get;
use crate::fault::Fault;
use crate::stored_numbers::StoredNumber;
use futures_util::FutureExt;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Params, Row};
use punctual_core::ports::{Lane, NotedClock};
use punctual_core::time::Timestamp;
use std::sync::Arc;

/// The database's clock, in microseconds. It is independent of the session's time zone and of the year
/// 2038.
const CLOCK: &str = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

/// The reading verbs over one connection of a pool, which is closed unless it is given back.
#[derive(Debug)]
pub(crate) struct Reads {
    /// Always there, except while it is being given back.
    conn: Option<Conn>,
    lanes: Arc<ReaderLanes>,
}

impl Drop for Reads {
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take() {
            // It is marked as closed before anything is sent, so that the pool discards it. Whether the
            // server receives the message or finds the socket closed does not matter.
            let _ = conn.disconnect().now_or_never();
        }
    }
}

impl Reads {
    pub fn new(conn: Conn, lanes: Arc<ReaderLanes>) -> Self {
        Reads { conn: Some(conn), lanes }
    }

    /// Gives the connection back after a verb is complete.
    pub fn give_back(mut self) {
        drop(self.conn.take());
    }

    fn conn(&mut self) -> Result<&mut Conn, Fault> {
        self.conn.as_mut().ok_or_else(|| Fault::Missing("a connection".to_owned()))
    }

    /// The server's id of this connection.
    #[cfg(test)]
    pub async fn connection_number(&mut self) -> Result<u64, Fault> {
        let row = self.one("SELECT CONNECTION_ID()", ()).await?;
        get(&row.ok_or_else(|| Fault::Missing("a connection".to_owned()))?, 0)
    }

    /// The database's clock.
    pub async fn clock(&mut self) -> Result<Timestamp, Fault> {
        let row = self.one(CLOCK, ()).await?.ok_or_else(|| Fault::Missing("the time".to_owned()))?;
        Ok(Timestamp::from_micros(get(&row, 0)?))
    }

    /// The same, with the time at which retention last found the clock steady.
    pub async fn noted_clock(&mut self) -> Result<NotedClock, Fault> {
        let noted = self.stored_number(StoredNumber::SteadyClock).await?;
        Ok(NotedClock { now: self.clock().await?, noted })
    }

    /// Log lines written before this time may have been removed.
    pub async fn logs_removed_until(&mut self) -> Result<Option<Timestamp>, Fault> {
        self.stored_number(StoredNumber::LogsRemoved).await
    }

    async fn stored_number(&mut self, mark: StoredNumber) -> Result<Option<Timestamp>, Fault> {
        let row = self.one("SELECT at FROM probe WHERE id = ?", (mark.id(),)).await?;
        row.map(|row| Ok(Timestamp::from_micros(get(&row, 0)?))).transpose()
    }

    /// All rows of a query that has its own limit.
    async fn all(&mut self, sql: &str, params: impl Into<Params> + Send) -> Result<Vec<Row>, Fault> {
        Ok(self.conn()?.exec(sql, params.into()).await?)
    }

    /// All rows of a statement whose text is hardly ever the same, so that preparing it would be useless.
    async fn every(&mut self, sql: &str) -> Result<Vec<Row>, Fault> {
        Ok(self.conn()?.query(sql).await?)
    }

    /// The first row of a query, if there is one.
    async fn one(&mut self, sql: &str, params: impl Into<Params> + Send) -> Result<Option<Row>, Fault> {
        Ok(self.conn()?.exec_first(sql, params.into()).await?)
    }

    /// All statements up to [`Self::end_snapshot`] see what is committed now.
    async fn begin_snapshot(&mut self) -> Result<(), Fault> {
        Ok(self.conn()?.query_drop("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY").await?)
    }

    /// If a statement before this fails, the connection is closed, and the snapshot with it.
    async fn end_snapshot(&mut self) -> Result<(), Fault> {
        Ok(self.conn()?.query_drop("COMMIT").await?)
    }

    /// Looks up the names of these lanes at once.
    async fn learn_lanes(&mut self, lanes: impl Iterator<Item = i64>) -> Result<(), Fault> {
        let unknown: Vec<i64> = lanes.filter(|lane| self.lanes.get(*lane).is_none()).collect();
        for list in numbers(unknown) {
            for row in self.all(LANES_BY_NUMBER, (list,)).await? {
                self.lanes.learn(get(&row, 0)?, get::<String>(&row, 1)?, get::<String>(&row, 2)?);
            }
        }
        Ok(())
    }

    /// The lane with this number.
    async fn lane(&mut self, number: i64) -> Result<Lane, Fault> {
        if let Some(lane) = self.lanes.get(number) {
            return Ok(lane);
        }
        let rows = self.all(lanes::LANE, (number,)).await?;
        let row = rows.first().ok_or_else(|| Fault::Missing(format!("lane {number}")))?;
        Ok(self.lanes.learn(number, get::<String>(row, 0)?, get::<String>(row, 1)?))
    }
}
