//! Limiters in a unit of work: their use while this transaction holds the locks of their queues, and the
//! executions on their wait lists.

use super::UnitOfWork;
use super::loaded::LoadedRows;
use super::read_set::ReadSet;
use crate::counters::{LimiterCounts, shown};
use crate::fault::Fault;
use crate::rows::LiveRow;
use punctual_core::limiter::{LimiterId, LimiterUse, WaitList};
use punctual_core::time::Timestamp;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct Limiters {
    /// Queued and running executions of these queues at the time of the lock.
    started: BTreeMap<String, i64>,
    counts: BTreeMap<LimiterId, LimiterCounts>,
    last_starts: BTreeMap<LimiterId, Timestamp>,
    heads: BTreeMap<LimiterId, WaitListHead>,
}

/// How much of a wait list was loaded.
#[derive(Debug, Clone, Copy)]
struct WaitListHead {
    asked: usize,
    /// An execution that is missing here does not exist, or another transaction has locked it.
    is_all: bool,
}

impl Limiters {
    pub fn add_loaded(&mut self, read_set: &ReadSet, found: &LoadedRows) {
        self.started.extend(read_set.limited_queues.iter().map(|queue| (queue.clone(), 0)));
        self.started.extend(found.started.iter().cloned());
        self.counts.extend(read_set.limiters.iter().map(|limiter| (*limiter, LimiterCounts::default())));
        self.counts.extend(found.limiters.iter().map(|found| (found.id, found.counts)));
        self.last_starts.retain(|limiter, _| !read_set.limiters.contains(limiter));
        self.last_starts.extend(found.limiters.iter().filter_map(|found| Some((found.id, found.last_at?))));
        for (line, asked) in &read_set.lines {
            let waiting = found.live.iter().filter(|row| row.live.line == Some(*line)).count();
            self.heads.insert(*line, WaitListHead { asked: *asked, is_all: waiting < *asked });
        }
    }
}

impl UnitOfWork {
    pub(super) fn use_of_limiter(&mut self, line: &WaitList) -> Result<LimiterUse, Fault> {
        let id = line.id();
        let known = (self.limiters.started.get(&line.queue), self.limiters.counts.get(&id));
        let (Some(started), Some(counts)) = known else {
            self.read_set.add_limiter(line);
            return self.unloaded();
        };
        let LimiterCounts { waiting, in_use } = self.counters.of_limiter(id, *counts);
        let in_use = if line.key.is_some() {
            in_use
        } else {
            self.changed_lanes_of(&line.queue)
                .fold(*started, |sum, lane| sum.saturating_add(self.counters.started(lane)))
        };
        let last_at = self.counters.last_start(id, self.limiters.last_starts.get(&id).copied());
        Ok(LimiterUse { waiting: shown(waiting), in_use: shown(in_use), last_at })
    }

    pub(super) fn heads_of_line(&mut self, line: LimiterId, count: usize) -> Result<Vec<LiveRow>, Fault> {
        let is_in_line = |row: &LiveRow| row.live.line == Some(line);
        let before = self.open.rows.rows_before().filter(|(_, row)| is_in_line(row));
        let gone = before.filter(|(id, _)| !self.open.rows.present(id).is_some_and(is_in_line)).count();
        let wanted = count.saturating_add(gone);
        if !self.limiters.heads.get(&line).is_some_and(|heads| heads.is_all || heads.asked >= wanted) {
            self.read_set.lines.insert(line, wanted);
            return self.unloaded();
        }
        let mut waiting: Vec<&LiveRow> =
            self.open.rows.rows().map(|(_, row)| row).filter(|row| is_in_line(row)).collect();
        waiting.sort_unstable_by_key(|row| (row.live.rank, row.live.id));
        Ok(waiting.into_iter().take(count).cloned().collect())
    }
}
