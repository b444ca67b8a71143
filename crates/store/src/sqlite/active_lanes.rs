//! The writer's view of lanes in use: the counters of each as last written, and whether executions may be
//! queued there. Claims, full queues and limits need only this. It contains no lane without live
//! executions: the number of such lanes must not matter.
//!
//! The counters are those of `lane_tallies`. Whether executions are queued does not follow from the
//! counters: a lane gets a lower bound of its claim positions when a row becomes queued in it, and loses it
//! when a read of the claim index finds nothing. So a wrong counter delays no work, and a claim reads only
//! the lanes whose bound is among the lowest.

use super::counters::read_counts;
use super::names::LaneNumbers;
use super::rows::{all, one};
use crate::counters::{LaneCounts, StoredCounts};
use crate::fault::Fault;
use crate::layout::each_lane_count;
use crate::malformed::skip_malformed;
use punctual_core::ids::OccurrenceId;
use punctual_core::ports::Lane;
use rusqlite::Connection;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const NEXT_LANE_WITH_WORK: &str =
    "SELECT lane FROM live WHERE state = 1 AND lane > ?1 ORDER BY lane LIMIT 1";
pub(crate) const HAS_WORK: &str = "SELECT 1 FROM live WHERE lane = ?1 AND state = 1 LIMIT 1";
const COUNTED: &str = concat!("SELECT lane, ", each_lane_count!(", ", "", ""), " FROM lane_tallies");

#[derive(Debug, Default)]
pub(crate) struct ActiveLanes {
    lanes: BTreeMap<i64, ActiveLane>,
    by_queue: BTreeMap<String, BTreeSet<i64>>,
    is_loaded: bool,
}

/// Rank and key: claims take the lowest first.
pub(crate) type ClaimPosition = (i64, OccurrenceId);

/// A lower bound of the first claim position of a lane. Lanes of which nothing is known are read first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FirstQueued {
    Unknown,
    NotBefore(ClaimPosition),
}

#[derive(Debug)]
struct ActiveLane {
    lane: Lane,
    /// As written.
    counts: LaneCounts,
    /// `None` if no execution is queued.
    first_queued: Option<FirstQueued>,
}

impl ActiveLanes {
    /// Reads the lanes in use, unless they are known. `changed` are lanes that the current transaction has
    /// changed.
    pub fn load_once(
        &mut self,
        conn: &Connection,
        names: &mut LaneNumbers,
        changed: impl Iterator<Item = i64>,
    ) -> Result<(), Fault> {
        if self.is_loaded {
            return Ok(());
        }
        let counted =
            all(&mut *conn.prepare_cached(COUNTED)?, [], |row| Ok((row.get(0)?, read_counts(row, 1)?)))?;
        for (id, counts) in counted {
            self.insert_named(conn, names, id, counts)?;
        }
        for id in changed {
            if !self.lanes.contains_key(&id) {
                self.insert_named(conn, names, id, LaneCounts::default())?;
            }
        }
        let mut select = conn.prepare_cached(NEXT_LANE_WITH_WORK)?;
        let mut last = i64::MIN;
        while let Some(id) = one(&mut select, [last], |row| Ok(row.get::<_, i64>(0)?))? {
            if !self.lanes.contains_key(&id) {
                self.insert_named(conn, names, id, LaneCounts::default())?;
            }
            if let Some(active) = self.lanes.get_mut(&id) {
                active.first_queued = Some(FirstQueued::Unknown);
            }
            last = id;
        }
        self.is_loaded = true;
        Ok(())
    }

    /// A lane whose name is missing or malformed affects no other lane: `punctual check` reports it.
    fn insert_named(
        &mut self,
        conn: &Connection,
        names: &mut LaneNumbers,
        id: i64,
        counts: LaneCounts,
    ) -> Result<(), Fault> {
        if let Some(lane) = skip_malformed(names.lane(conn, id))? {
            self.insert(id, lane, counts);
        }
        Ok(())
    }

    /// Discards everything; the next lookup reads the tables again.
    pub fn forget(&mut self) {
        *self = ActiveLanes::default();
    }

    /// A row was added to this lane, or has changed there: `queued` is its position if it is queued now. Does
    /// nothing before the first read, which will include the row.
    pub fn touch(
        &mut self,
        conn: &Connection,
        names: &mut LaneNumbers,
        id: i64,
        queued: Option<ClaimPosition>,
    ) -> Result<(), Fault> {
        if !self.is_loaded {
            return Ok(());
        }
        if !self.lanes.contains_key(&id) {
            self.insert(id, names.lane(conn, id)?, LaneCounts::default());
        }
        if let Some(active) = self.lanes.get_mut(&id) {
            let queued = queued.map(FirstQueued::NotBefore);
            active.first_queued = [active.first_queued, queued].into_iter().flatten().min();
        }
        Ok(())
    }

    /// The waiting, queued and running executions of this lane as last written.
    pub fn counts(&self, id: i64) -> LaneCounts {
        self.known(id).unwrap_or_default()
    }

    /// The same; `None` for a lane that is not known to be in use.
    pub fn known(&self, id: i64) -> Option<LaneCounts> {
        self.lanes.get(&id).map(|active| active.counts)
    }

    /// Lanes of this queue that have live executions, or had some before the current transaction.
    pub fn through(&self, queue: &str) -> Vec<(i64, Lane)> {
        let ids = self.by_queue.get(queue).into_iter().flatten();
        ids.filter_map(|id| Some((*id, self.lanes.get(id)?.lane.clone()))).collect()
    }

    /// The numbers, in order, of lanes with these queues (all queues if none is named) and these job types
    /// in which executions may be queued.
    pub fn matching(&self, queues: &[String], job_types: &[String]) -> Vec<i64> {
        let is_served = |active: &ActiveLane| {
            active.first_queued.is_some() && job_types.iter().any(|served| served == active.lane.job_type())
        };
        if queues.is_empty() {
            return self.lanes.iter().filter(|(_, active)| is_served(active)).map(|(id, _)| *id).collect();
        }
        let ids = queues.iter().filter_map(|queue| self.by_queue.get(queue)).flatten();
        let served = ids.filter(|id| self.lanes.get(id).is_some_and(is_served));
        // In order, and each once even if a queue is named twice.
        served.copied().collect::<BTreeSet<i64>>().into_iter().collect()
    }

    /// `None` if no execution is queued in this lane.
    pub fn first_queued(&self, id: i64) -> Option<FirstQueued> {
        self.lanes.get(&id)?.first_queued
    }

    /// Records the first position of this lane that the claim index shows to the current transaction.
    pub fn set_first_queued(&mut self, id: i64, position: Option<ClaimPosition>) {
        if let Some(active) = self.lanes.get_mut(&id) {
            active.first_queued = position.map(FirstQueued::NotBefore);
        }
    }

    /// These counters were written. A lane without live executions is removed.
    pub fn written(
        &mut self,
        conn: &Connection,
        names: &mut LaneNumbers,
        id: i64,
        counts: LaneCounts,
    ) -> Result<(), Fault> {
        match self.lanes.get_mut(&id) {
            Some(active) => active.counts = counts,
            None if counts.is_zero() => return Ok(()),
            None => self.insert_named(conn, names, id, counts)?,
        }
        if counts.is_zero() && !self.has_work(conn, id)? {
            self.remove(id);
        }
        Ok(())
    }

    /// The name of a lane in use.
    pub fn lane(&self, id: i64) -> Option<&Lane> {
        self.lanes.get(&id).map(|active| &active.lane)
    }

    /// How many lanes are known.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.lanes.len()
    }

    /// Whether the rows show queued executions in a lane.
    pub fn has_work(&mut self, conn: &Connection, id: i64) -> Result<bool, Fault> {
        let Some(active) = self.lanes.get_mut(&id).filter(|active| active.first_queued.is_some()) else {
            return Ok(false);
        };
        let has_work = conn.prepare_cached(HAS_WORK)?.exists([id])?;
        if !has_work {
            active.first_queued = None;
        }
        Ok(has_work)
    }

    fn insert(&mut self, id: i64, lane: Lane, counts: LaneCounts) {
        self.by_queue.entry(lane.queue().to_owned()).or_default().insert(id);
        self.lanes.insert(id, ActiveLane { lane, counts, first_queued: None });
    }

    fn remove(&mut self, id: i64) {
        let Some(active) = self.lanes.remove(&id) else { return };
        if let Some(ids) = self.by_queue.get_mut(active.lane.queue()) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_queue.remove(active.lane.queue());
            }
        }
    }
}
