//! The write set of a transaction as statements: those for each list that is not empty, in the order of the
//! fields of [`WriteSet`], so that rows that are not locked yet are always written in the same order.

mod jobs;
mod others;
mod work;

pub(crate) use jobs::{DELETE_KEYS, DELETE_TAGS};
pub(crate) use others::{FORGET_NOTES, FORGET_PARENTS};

use crate::counters::Counts;
use crate::fault::Fault;
use crate::mysql::lists::{Insertion, Statement};
use crate::unit_of_work::WriteSet;
use mysql_async::Value;
use std::borrow::Cow;

pub(crate) struct Writing {
    statements: Vec<Statement>,
}

impl Writing {
    /// The statements for these changes; counters go to this shard.
    pub fn of(write_set: &WriteSet, shard: i64) -> Result<Vec<Statement>, Fault> {
        let mut writing = Writing { statements: Vec::new() };
        writing.sessions(write_set)?;
        writing.jobs(write_set)?;
        writing.tags_and_keys(write_set);
        writing.schedules(write_set)?;
        writing.live(write_set);
        writing.history(write_set);
        writing.skipped(write_set);
        writing.dead_letters(write_set);
        writing.dependencies(write_set);
        writing.notes(write_set);
        writing.queues(write_set)?;
        writing.requests(write_set);
        writing.counts(&write_set.counts, shard);
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
