//! Reads: for users, for the loops that look for work, and for the simulator. Every list reads a bounded
//! number of rows and holds a bounded number of bytes, regardless of the size of the database.

mod due;
mod events;
mod executions;
mod jobs;
mod limiters;
mod listed;
mod notes;
mod overview;
mod page;

pub(crate) use executions::{DEAD_LETTER, LATEST_DEAD_LETTER, read_dead_letter};
pub(crate) use jobs::{JOB, OPEN_OF_JOB};
pub(crate) use page::{PageItem, page};

use super::names::LaneNumbers;
use rusqlite::Connection;

#[cfg(test)]
pub(crate) use {
    due::DUE_LIVE, due::DUE_SCHEDULES, events::FINISHED_AFTER, events::RUNNING, events::WORKER_OF_SESSION,
    executions::DEAD_LETTERS, executions::DEAD_LETTERS_OF_JOB, executions::HISTORY_OF_JOB,
    executions::OPEN_OF_JOB_BEFORE, jobs::ACTIVE_LIVE, jobs::ACTIVE_SCHEDULES, jobs::LATEST_JOBS,
    jobs::MARKED_JOBS, jobs::OWNER_OF_JOB, jobs::TAGGED_JOBS, jobs::TAGS_OF_JOB, listed::FINISHED_AT,
    listed::FINISHED_BEFORE, listed::NAME_OF_JOB, listed::OPEN_BEFORE, notes::NOTES_OF_JOB, overview::AHEAD,
    overview::OLDEST_OF_HEAD, overview::TOKEN_OF_SESSION,
};

/// The reading verbs over one connection.
#[derive(Debug)]
pub struct Reads<'a> {
    conn: &'a Connection,
    lanes: &'a mut LaneNumbers,
}

impl<'a> Reads<'a> {
    pub(crate) fn new(conn: &'a Connection, lanes: &'a mut LaneNumbers) -> Self {
        Reads { conn, lanes }
    }

    pub(crate) fn conn(&self) -> &'a Connection {
        self.conn
    }
}
