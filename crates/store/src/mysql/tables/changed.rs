//! The write set of a transaction as statements: those for each list that is not empty, in the order of the
//! fields of [`Changes`], so that rows that are not locked yet are always written in the same order.

mod jobs;
mod others;
mod work;

pub(crate) use jobs::{DELETE_KEYS, DELETE_TAGS};
pub(crate) use others::{FORGET_NOTES, FORGET_PARENTS};

use crate::draft::Changes;
use crate::fault::Fault;
use crate::mysql::lists::{Insertion, Statement};
use crate::tally::Counts;
use mysql_async::Value;
use std::borrow::Cow;

pub(crate) struct Writing {
    statements: Vec<Statement>,
}

impl Writing {
    /// The statements for these changes; counters go to this shard.
    pub fn of(changes: &Changes, shard: i64) -> Result<Vec<Statement>, Fault> {
        let mut writing = Writing { statements: Vec::new() };
        writing.sessions(changes)?;
        writing.jobs(changes)?;
        writing.tags_and_keys(changes);
        writing.schedules(changes)?;
        writing.live(changes);
        writing.history(changes);
        writing.skipped(changes);
        writing.dead_letters(changes);
        writing.dependencies(changes);
        writing.notes(changes);
        writing.queues(changes)?;
        writing.requests(changes);
        writing.counts(&changes.counts, shard);
        Ok(writing.statements)
    }

    /// The statements that add to these counters.
    pub fn of_counts(counts: &Counts, shard: i64) -> Vec<Statement> {
        let mut writing = Writing { statements: Vec::new() };
        writing.counts(counts, shard);
        writing.statements
    }

    /// One statement for each list.
    fn add(&mut self, sql: &'static str, lists: Vec<Value>) {
        self.statements
            .extend(lists.into_iter().map(|list| Statement { sql: Cow::Borrowed(sql), values: vec![list] }));
    }

    fn add_once(&mut self, sql: &'static str, values: Vec<Value>) {
        self.statements.push(Statement { sql: Cow::Borrowed(sql), values });
    }

    fn insert(&mut self, insertion: Insertion, rows: Vec<Vec<Value>>) {
        self.statements.extend(insertion.of(rows));
    }
}

/// Text as a driver value.
fn text_or_none(text: Option<&str>) -> Value {
    text.map_or(Value::NULL, Value::from)
}

fn int_or_none(value: Option<i64>) -> Value {
    value.map_or(Value::NULL, Value::Int)
}

#[cfg(test)]
pub(super) mod statements {
    pub(crate) use super::jobs::{
        DELETE_KEYS, DELETE_SCHEDULES, DELETE_TAGS, UPDATE_KEYS, UPDATE_MARKS, UPDATE_SCHEDULES,
    };
    pub(crate) use super::others::{DELETE_DEAD_LETTERS, DELETE_DEPENDENCIES, FORGET_NOTES, FORGET_PARENTS};
    pub(crate) use super::work::{DELETE_LIVE, LEASE, LEASE_ALIKE, LENGTHEN_SKIPPED, UPDATE_SESSIONS};
}
