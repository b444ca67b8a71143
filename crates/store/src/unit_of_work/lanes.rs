//! Lanes in a unit of work: their names, which of them are locked, and the counters and queued executions
//! of their queues.

use super::UnitOfWork;
use super::loaded::LoadedRows;
use super::memory::LaneNames;
use super::read_set::ReadSet;
use crate::counters::shown;
use crate::fault::Fault;
use punctual_core::ports::Lane;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub(super) struct UnitLanes {
    /// Names in addition to the remembered ones, which may be discarded at any time.
    names: LaneNames,
    /// Whether the lanes to lock exist.
    held: BTreeMap<i64, bool>,
    /// Queued executions in each lane of these queues; lanes that are missing here have none.
    queued: BTreeMap<String, BTreeMap<i64, i64>>,
    /// Lanes that were found by name and no longer exist.
    gone: BTreeSet<i64>,
}

impl UnitLanes {
    pub fn with(names: LaneNames) -> Self {
        UnitLanes { names, ..UnitLanes::default() }
    }

    pub fn add_loaded(&mut self, read_set: &ReadSet, found: &LoadedRows) {
        self.names.learn(&found.lanes);
        self.held.extend(read_set.held_lanes.iter().map(|lane| (*lane, false)));
        self.held.extend(found.held_lanes.iter().map(|lane| (*lane, true)));
        for queue in &read_set.queued_lanes_of {
            self.queued.insert(queue.clone(), BTreeMap::new());
        }
        for (number, lane, queued) in &found.queued_lanes {
            self.names.learn([&(*number, lane.clone())]);
            self.queued.entry(lane.queue().to_owned()).or_default().insert(*number, *queued);
        }
    }
}

impl UnitOfWork {
    pub(super) fn name_of_lane(&self, number: i64) -> Option<&Lane> {
        self.lanes.names.lane(number).or_else(|| self.remembered.lane(number))
    }

    fn find_lane(&self, queue: &str, job_type: &str) -> Option<(i64, Lane)> {
        self.lanes.names.find(queue, job_type).or_else(|| self.remembered.find(queue, job_type))
    }

    /// The known numbers of these lanes.
    pub(super) fn numbers_of<'l>(
        &self,
        lanes: impl IntoIterator<Item = &'l (String, String)>,
    ) -> BTreeSet<i64> {
        let found = lanes.into_iter().filter_map(|(queue, job_type)| self.find_lane(queue, job_type));
        found.map(|(number, _)| number).collect()
    }

    /// Lanes that were found by name and no longer exist.
    pub(super) fn gone_lanes(&self) -> Vec<i64> {
        self.lanes.gone.iter().copied().collect()
    }

    pub(super) fn held_lane(&mut self, queue: &str, job_type: &str) -> Result<(i64, Lane), Fault> {
        let Some((number, lane)) = self.find_lane(queue, job_type) else {
            self.read_set.lanes.insert((queue.to_owned(), job_type.to_owned()));
            return self.unloaded();
        };
        match self.lanes.held.get(&number) {
            Some(true) => Ok((number, lane)),
            Some(false) => {
                // Another process has deleted it: the restarted transaction creates it again.
                self.lanes.gone.insert(number);
                self.read_set.lanes.insert((queue.to_owned(), job_type.to_owned()));
                self.unloaded()
            }
            None => {
                self.read_set.held_lanes.insert(number);
                self.unloaded()
            }
        }
    }

    /// The unstarted executions of a queue as they were read, plus the changes of this transaction.
    pub(super) fn need_unstarted(&mut self, queue: &str) -> Result<u64, Fault> {
        let Some(before) = self.unstarted.get(queue) else {
            self.read_set.unstarted.insert(queue.to_owned());
            return self.unloaded();
        };
        let before = i64::try_from(*before).unwrap_or(i64::MAX);
        Ok(shown(
            self.changed_lanes_of(queue)
                .fold(before, |sum, lane| sum.saturating_add(self.counters.unstarted(lane))),
        ))
    }

    /// Lanes of a queue whose counters this transaction has changed.
    pub(super) fn changed_lanes_of(&self, queue: &str) -> impl Iterator<Item = i64> {
        let changed: BTreeSet<i64> = self.counters.lanes().collect();
        changed.into_iter().filter(move |lane| self.is_lane_of(*lane, queue))
    }

    pub(super) fn is_lane_of(&self, lane: i64, queue: &str) -> bool {
        self.name_of_lane(lane).is_some_and(|lane| lane.queue() == queue)
    }

    pub(super) fn need_queued_lanes(&mut self, queue: &str) -> Result<Vec<Lane>, Fault> {
        let Some(fetched) = self.lanes.queued.get(queue) else {
            self.read_set.queued_lanes_of.insert(queue.to_owned());
            return self.unloaded();
        };
        let numbers: BTreeSet<i64> = fetched.keys().copied().chain(self.changed_lanes_of(queue)).collect();
        let is_queued = |number: &i64| {
            fetched.get(number).copied().unwrap_or_default() + self.counters.queued(*number) > 0
        };
        let lanes = numbers.into_iter().filter(is_queued).filter_map(|number| self.name_of_lane(number));
        Ok(lanes.cloned().collect::<BTreeSet<Lane>>().into_iter().collect())
    }

    /// The lanes in which this transaction has left queued executions.
    pub(super) fn lanes_queued_in(&self) -> Vec<(i64, Lane)> {
        let numbers: BTreeSet<i64> = self.open.queued_lanes().collect();
        let named =
            numbers.into_iter().filter_map(|number| Some((number, self.name_of_lane(number)?.clone())));
        named.collect()
    }
}
