//! The write set of a transaction as statements: one for each list that is not empty, in the order of the
//! fields of [`WriteSet`], so that rows that are not locked yet are always written in the same order.

mod jobs;
pub(crate) mod others;
mod work;

use crate::counters::Counts;
use crate::fault::Fault;
use crate::postgres::wire::{Call, Parameter};
use crate::unit_of_work::WriteSet;

#[cfg(test)]
pub(crate) use work::{DELETE_LIVE, LEASE, UPDATE_LIVE};

pub(crate) struct Writing<'a> {
    calls: Vec<Call<'a>>,
}

impl<'a> Writing<'a> {
    /// The statements for these changes; counters go to this shard.
    pub fn of(write_set: &'a WriteSet, shard: i16) -> Result<Vec<Call<'a>>, Fault> {
        let mut writing = Writing { calls: Vec::new() };
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
        Ok(writing.calls)
    }

    /// The statements for these counters alone.
    pub fn of_counts(counts: &Counts, shard: i16) -> Vec<Call<'a>> {
        let mut writing = Writing { calls: Vec::new() };
        writing.counts(counts, shard);
        writing.calls
    }

    fn add<const N: usize>(&mut self, sql: &'static str, parameters: [Parameter<'a>; N]) {
        self.calls.push(Call::new(sql, parameters));
    }
}
