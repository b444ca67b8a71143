//! The write set of a transaction as statements: one for each list that is not empty, in the order of the
//! fields of [`Changes`], so that rows that are not locked yet are always written in the same order.

mod jobs;
pub(crate) mod others;
mod work;

use crate::draft::Changes;
use crate::fault::Fault;
use crate::postgres::wire::{Call, Parameter};
use crate::tally::Counts;

#[cfg(test)]
pub(crate) use work::{DELETE_LIVE, LEASE, UPDATE_LIVE};

pub(crate) struct Writing<'a> {
    calls: Vec<Call<'a>>,
}

impl<'a> Writing<'a> {
    /// The statements for these changes; counters go to this shard.
    pub fn of(changes: &'a Changes, shard: i16) -> Result<Vec<Call<'a>>, Fault> {
        let mut writing = Writing { calls: Vec::new() };
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
