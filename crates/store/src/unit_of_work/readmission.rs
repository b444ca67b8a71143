//! The last queued executions by rank, as loaded without locks: a verb must check the row of a position
//! before it uses it.

use super::UnitOfWork;
use super::read_set::ReadSet;
use crate::fault::Fault;
use punctual_core::occurrence::LiveState;
use punctual_core::readmission::QueuePosition;
use std::collections::BTreeMap;

/// By queue and upper bound: how many were requested, and the positions that were found.
#[derive(Debug, Default)]
pub(super) struct LastQueued(BTreeMap<(String, QueuePosition), (usize, Vec<QueuePosition>)>);

impl LastQueued {
    pub fn add_loaded(&mut self, read_set: &ReadSet, found: Vec<Vec<QueuePosition>>) {
        for ((wanted, count), places) in read_set.last_queued.iter().zip(found) {
            self.0.insert(wanted.clone(), (*count, places));
        }
    }
}

impl UnitOfWork {
    pub(super) fn last_of_queue(
        &mut self,
        queue: &str,
        before: QueuePosition,
        count: usize,
    ) -> Result<Vec<QueuePosition>, Fault> {
        let wanted = (queue.to_owned(), before);
        let Some((_, fetched)) = self.last_queued.0.get(&wanted).filter(|(asked, _)| *asked >= count) else {
            self.read_set.last_queued.insert(wanted, count);
            return self.unloaded();
        };
        // Executions that this transaction has queued are not in the database.
        let is_there = |lane: i64| self.is_lane_of(lane, queue);
        let here = self.open.rows.rows().map(|(_, row)| row);
        let here = here.filter(|row| row.live.state == LiveState::Queued && is_there(row.lane));
        let here = here.map(|row| QueuePosition { rank: row.live.rank, occurrence: row.live.id });
        let mut places: Vec<QueuePosition> =
            here.filter(|place| *place < before).chain(fetched.iter().copied()).collect();
        places.sort_unstable_by(|one, other| other.cmp(one));
        places.dedup();
        places.truncate(count);
        Ok(places)
    }
}
