//! Open occurrences in a unit of work: by key, by job, by session and in claim order.
//!
//! Whether all rows of a job, session or lane are loaded is tracked separately from the rows: a missing row
//! means something only if all rows of its kind are loaded.

use super::read_set::{ReadSet, RequestedClaims};
use super::table::Table;
use crate::rows::LiveRow;
use punctual_core::ids::{JobId, OccurrenceId, SessionId};
use punctual_core::occurrence::LiveState;
use std::collections::{BTreeMap, BTreeSet};

/// The position of an execution in the claim order. Equal ranks are ordered by key, so that every run has
/// the same order.
type ClaimOrder = (i64, OccurrenceId);

#[derive(Debug, Default)]
pub(super) struct OpenOccurrences {
    pub rows: Table<OccurrenceId, LiveRow>,
    /// Jobs whose open occurrences are all loaded.
    whole_jobs: BTreeSet<JobId>,
    /// Sessions whose leases are all loaded.
    whole_sessions: BTreeSet<SessionId>,
    /// How much of each lane is loaded.
    fronts: BTreeMap<i64, Front>,
    /// Everything that was loaded to be claimed.
    claimable: BTreeSet<OccurrenceId>,
    /// Queued executions in the current state, by lane.
    queued: BTreeMap<i64, BTreeSet<ClaimOrder>>,
}

/// How much of a lane was loaded in claim order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Front {
    /// Everything up to this position.
    UpTo(ClaimOrder),
    /// Everything available: an execution that is missing here does not exist, or another transaction has
    /// locked it.
    Exhausted,
}

impl OpenOccurrences {
    pub fn add_loaded(&mut self, read_set: &ReadSet, found: Vec<LiveRow>, claims: &[Vec<OccurrenceId>]) {
        for (session, count) in &read_set.held_by {
            let held = found.iter().filter(|row| holder(row) == Some(*session)).count();
            if held < *count {
                self.whole_sessions.insert(*session);
            }
        }
        self.rows.add_loaded(&read_set.live, found.into_iter().map(|row| (row.live.id, row)));
        self.whole_jobs.extend(&read_set.open_of_jobs);
        for (wanted, claimable) in read_set.claims.iter().zip(claims) {
            self.advance_fronts(wanted, claimable);
            self.claimable.extend(claimable);
        }
        self.index();
    }

    fn advance_fronts(&mut self, wanted: &RequestedClaims, claimable: &[OccurrenceId]) {
        let last = claimable.iter().filter_map(|id| Some(place(self.rows.before(id)?))).max();
        for lane in &wanted.lanes {
            let front = match (self.fronts.get(lane), last) {
                (Some(Front::Exhausted), _) => continue,
                // Rows that others have locked would not be returned by another query either.
                _ if claimable.len() < wanted.count => Front::Exhausted,
                (Some(Front::UpTo(before)), Some(last)) => Front::UpTo(last.max(*before)),
                (None, Some(last)) => Front::UpTo(last),
                (_, None) => Front::Exhausted,
            };
            self.fronts.insert(*lane, front);
        }
    }

    pub fn undo(&mut self) {
        self.rows.undo();
        self.index();
    }

    fn index(&mut self) {
        self.queued.clear();
        for (_, row) in self.rows.rows() {
            if row.live.state == LiveState::Queued {
                self.queued.entry(row.lane).or_default().insert(place(row));
            }
        }
    }

    pub fn put(&mut self, row: LiveRow) {
        self.leave_queue(row.live.id);
        if row.live.state == LiveState::Queued {
            self.queued.entry(row.lane).or_default().insert(place(&row));
        }
        self.rows.put(row.live.id, row);
    }

    pub fn remove(&mut self, id: OccurrenceId) {
        self.leave_queue(id);
        self.rows.remove(id);
    }

    fn leave_queue(&mut self, id: OccurrenceId) {
        if let Some(row) = self.rows.present(&id)
            && let Some(queued) = self.queued.get_mut(&row.lane)
        {
            queued.remove(&place(row));
        }
    }

    /// Whether it is known if the row exists.
    pub fn is_known(&self, id: OccurrenceId) -> bool {
        self.rows.is_known(&id) || self.whole_jobs.contains(&id.job)
    }

    pub fn is_whole_job(&self, job: JobId) -> bool {
        self.whole_jobs.contains(&job)
    }

    /// The lanes with queued executions in the current state.
    pub fn queued_lanes(&self) -> impl Iterator<Item = i64> {
        self.queued.iter().filter(|(_, places)| !places.is_empty()).map(|(lane, _)| *lane)
    }

    /// The jobs of everything that was loaded to be claimed.
    pub fn claimable_jobs(&self) -> impl Iterator<Item = JobId> {
        self.claimable.iter().map(|id| id.job)
    }

    /// The known open occurrences of a job, ordered by number.
    pub fn of_job(&self, job: JobId) -> Vec<&LiveRow> {
        let range = job.occurrence(0)..=job.occurrence(u32::MAX);
        self.rows.range(range).map(|(_, row)| row).collect()
    }

    /// Up to `count` executions that a session holds, or how many must be loaded to know.
    pub fn held_by(&self, session: SessionId, count: usize) -> Result<Vec<LiveRow>, usize> {
        let held: Vec<_> = self.rows.rows().filter(|(_, row)| holder(row) == Some(session)).collect();
        if held.len() >= count || self.whole_sessions.contains(&session) {
            return Ok(held.into_iter().take(count).map(|(_, row)| row.clone()).collect());
        }
        let before = self.rows.rows_before().filter(|(_, row)| holder(row) == Some(session));
        let gone = before.filter(|(id, _)| self.rows.present(id).and_then(holder) != Some(session)).count();
        Err(count.saturating_add(gone))
    }

    /// The first `count` queued executions over these lanes, or how many must be loaded to know. Executions
    /// that this transaction has claimed are still queued in the database, so they are requested again.
    pub fn lowest(&self, lanes: &[i64], count: usize) -> Result<Vec<OccurrenceId>, Shortfall> {
        let mut places: Vec<ClaimOrder> = lanes
            .iter()
            .filter_map(|lane| self.queued.get(lane))
            .flat_map(|queued| queued.iter().take(count))
            .copied()
            .collect();
        places.sort_unstable();
        places.dedup();
        places.truncate(count);
        let is_behind = |lane: &i64| match self.fronts.get(lane) {
            None => true,
            Some(Front::Exhausted) => false,
            Some(Front::UpTo(known)) => {
                places.len() < count || places.last().is_some_and(|last| last > known)
            }
        };
        if count == 0 || !lanes.iter().any(is_behind) {
            return Ok(places.into_iter().map(|(_, id)| id).collect());
        }
        let was_queued = |row: &LiveRow| row.live.state == LiveState::Queued && lanes.contains(&row.lane);
        let before = self.rows.rows_before().filter(|(_, row)| was_queued(row));
        let taken = before.filter(|(id, _)| !self.rows.present(id).is_some_and(was_queued)).count();
        Err(Shortfall { taken, count })
    }
}

/// How many executions a claim lacks, in addition to those already claimed.
pub(super) struct Shortfall {
    pub taken: usize,
    pub count: usize,
}

fn place(row: &LiveRow) -> ClaimOrder {
    (row.live.rank, row.live.id)
}

fn holder(row: &LiveRow) -> Option<SessionId> {
    match row.live.state {
        LiveState::Running(lease) => Some(lease.session),
        _ => None,
    }
}
