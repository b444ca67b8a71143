//! Reads: for users, and for the loops that look for work. Every list reads a bounded number of rows and
//! holds a bounded number of bytes, regardless of the size of the database.
//!
//! Statements are prepared once for each connection. They look up referenced rows one by one (`LATERAL …
//! LIMIT 1`): with a plain join the planner may scan a whole table, once its statistics make it expect many
//! rows.

mod due;
mod events;
mod executions;
mod figures;
mod jobs;
mod lanes;
mod limiters;
mod listed;
mod logs;
mod notes;
mod overview;
mod views;

pub(crate) use lanes::Lanes;
pub(crate) use overview::TOKEN;

#[cfg(test)]
pub(crate) use {
    due::{DUE_LIVE, DUE_SCHEDULES},
    events::{FINISHED_AFTER, LAST_PLACE, OPEN, RUNNING},
    executions::{
        DEAD_LETTERS, DEAD_LETTERS_NUMBERED, DEAD_LETTERS_OF_JOB, EXECUTION, HISTORY_OF_JOB,
        OPEN_OF_JOB_BEFORE, SKIPPED,
    },
    jobs::{ACTIVE_JOBS, LATEST_JOBS, MARKED_JOBS, ONE_JOB, STANDING_OF_JOBS, TAGGED_JOBS, TAGS_OF_JOBS},
    limiters::LINES,
    listed::{FINISHED_AT, FINISHED_BEFORE, NAMES_OF_JOBS, OPEN_BEFORE},
    logs::{LAST_LINES, LINES_OF_EXECUTION},
    notes::{CHECKPOINT, NOTES_OF_JOB},
    overview::{AHEAD, DEPTHS, HOLDINGS, SESSIONS},
    views::{JOBS, LAST_FINISHED, OPEN_OF_JOBS, SCHEDULES},
};

use crate::cells::get;
use crate::fault::Fault;
use crate::stored_numbers::StoredNumber;
use deadpool_postgres::GenericClient;
use punctual_core::limits;
use punctual_core::ports::{NotedClock, StoreError};
use punctual_core::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// The worker of a row of `history`, by its number.
macro_rules! worker_of_history {
    () => {
        " LEFT JOIN LATERAL (SELECT name FROM workers WHERE workers.id = history.worker LIMIT 1) AS workers ON true "
    };
}
use worker_of_history;

/// Values of a statement's parameters.
type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// The reading verbs over one connection, or over one transaction if several statements must see the same
/// state.
#[derive(Debug)]
pub(crate) struct Reads<'a, C> {
    client: &'a C,
    lanes: &'a Lanes,
}

impl<'a, C: GenericClient> Reads<'a, C> {
    pub fn new(client: &'a C, lanes: &'a Lanes) -> Self {
        Reads { client, lanes }
    }

    /// The time by the database's clock.
    pub async fn clock(&self) -> Result<Timestamp, StoreError> {
        Ok(self.time_of_database().await?)
    }

    /// The same, with the time at which retention last found the clock steady.
    pub async fn noted_clock(&self) -> Result<NotedClock, StoreError> {
        let noted = self.stored_number(StoredNumber::SteadyClock).await?;
        Ok(NotedClock { now: self.time_of_database().await?, noted })
    }

    /// Log lines written before this time may have been removed.
    pub async fn logs_removed_until(&self) -> Result<Option<Timestamp>, StoreError> {
        Ok(self.stored_number(StoredNumber::LogsRemoved).await?)
    }

    async fn stored_number(&self, mark: StoredNumber) -> Result<Option<Timestamp>, Fault> {
        let row = self.one("SELECT at FROM probe WHERE id = $1", &[&mark.id()]).await?;
        row.map(|row| Ok(Timestamp::from_micros(get(&row, 0)?))).transpose()
    }

    async fn time_of_database(&self) -> Result<Timestamp, Fault> {
        let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
        let row = self.one(sql, &[]).await?.ok_or_else(|| Fault::Missing("the time".to_owned()))?;
        Ok(Timestamp::from_micros(get(&row, 0)?))
    }

    /// All rows of a statement that has its own limit.
    async fn all(&self, sql: &str, params: Params<'_>) -> Result<Vec<Row>, Fault> {
        let statement = self.client.prepare_cached(sql).await?;
        Ok(self.client.query(&statement, params).await?)
    }

    /// The row of a statement that returns at most one.
    async fn one(&self, sql: &str, params: Params<'_>) -> Result<Option<Row>, Fault> {
        let statement = self.client.prepare_cached(sql).await?;
        Ok(self.client.query_opt(&statement, params).await?)
    }
}

/// The bytes that fit into a page, for statements that omit what would not fit.
const PAGE_BYTES: i64 = limits::PAGE_BYTES_MAX as i64;
