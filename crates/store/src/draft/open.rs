//! Open occurrences in a draft: by key, by job, by session and in the order of claims.
//!
//! What is known of a job, a session or a lane as a whole is noted apart from the rows: that a row is not here says
//! nothing unless all rows of its kind are.

use super::table::Table;
use super::wants::{WantedClaims, Wants};
use crate::rows::LiveRow;
use punctual_core::ids::{JobId, OccurrenceId, SessionId};
use punctual_core::occurrence::LiveState;
use std::collections::{BTreeMap, BTreeSet};

/// The place of an execution in the claim order. Equal ranks go by key, so that every run agrees.
type Place = (i64, OccurrenceId);

#[derive(Debug, Default)]
pub(super) struct Open {
    pub rows: Table<OccurrenceId, LiveRow>,
    /// Jobs of which all that is open was fetched.
    whole_jobs: BTreeSet<JobId>,
    /// Sessions of which all that they hold was fetched.
    whole_sessions: BTreeSet<SessionId>,
    /// How far each lane is known.
    fronts: BTreeMap<i64, Front>,
    /// All that was fetched to be claimed.
    claimable: BTreeSet<OccurrenceId>,
    /// What is queued as the draft stands, by lane.
    queued: BTreeMap<i64, BTreeSet<Place>>,
}

/// How much of a lane was fetched in the order of claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Front {
    /// All up to this place.
    UpTo(Place),
    /// All that may be had: what is not here is not there, or another transaction has it.
    Exhausted,
}

impl Open {
    pub fn take_in(&mut self, wants: &Wants, found: Vec<LiveRow>, claims: &[Vec<OccurrenceId>]) {
        for (session, count) in &wants.held_by {
            let held = found.iter().filter(|row| holder(row) == Some(*session)).count();
            if held < *count {
                self.whole_sessions.insert(*session);
            }
        }
        self.rows.take_in(&wants.live, found.into_iter().map(|row| (row.live.id, row)));
        self.whole_jobs.extend(&wants.open_of_jobs);
        for (wanted, claimable) in wants.claims.iter().zip(claims) {
            self.advance_fronts(wanted, claimable);
            self.claimable.extend(claimable);
        }
        self.index();
    }

    fn advance_fronts(&mut self, wanted: &WantedClaims, claimable: &[OccurrenceId]) {
        let last = claimable.iter().filter_map(|id| Some(place(self.rows.before(id)?))).max();
        for lane in &wanted.lanes {
            let front = match (self.fronts.get(lane), last) {
                (Some(Front::Exhausted), _) => continue,
                // What others have locked does not come back for asking again.
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

    /// Whether it is known if the row is there.
    pub fn is_known(&self, id: OccurrenceId) -> bool {
        self.rows.is_known(&id) || self.whole_jobs.contains(&id.job)
    }

    pub fn is_whole_job(&self, job: JobId) -> bool {
        self.whole_jobs.contains(&job)
    }

    /// The lanes in which something is queued as the draft stands.
    pub fn queued_lanes(&self) -> impl Iterator<Item = i64> {
        self.queued.iter().filter(|(_, places)| !places.is_empty()).map(|(lane, _)| *lane)
    }

    /// The jobs of all that was fetched to be claimed.
    pub fn claimable_jobs(&self) -> impl Iterator<Item = JobId> {
        self.claimable.iter().map(|id| id.job)
    }

    /// What is known to be open of a job, in the order of the occurrences' numbers.
    pub fn of_job(&self, job: JobId) -> Vec<&LiveRow> {
        let range = job.occurrence(0)..=job.occurrence(u32::MAX);
        self.rows.range(range).map(|(_, row)| row).collect()
    }

    /// Up to `count` executions that a session holds, or how many of them have to be fetched to know.
    pub fn held_by(&self, session: SessionId, count: usize) -> Result<Vec<LiveRow>, usize> {
        let held: Vec<_> = self.rows.rows().filter(|(_, row)| holder(row) == Some(session)).collect();
        if held.len() >= count || self.whole_sessions.contains(&session) {
            return Ok(held.into_iter().take(count).map(|(_, row)| row.clone()).collect());
        }
        let before = self.rows.rows_before().filter(|(_, row)| holder(row) == Some(session));
        let gone = before.filter(|(id, _)| self.rows.present(id).and_then(holder) != Some(session)).count();
        Err(count.saturating_add(gone))
    }

    /// The first `count` queued executions over these lanes, or how many have to be fetched to know. Those which this
    /// transaction has taken are still queued to the database, so they are asked for once more.
    pub fn lowest(&self, lanes: &[i64], count: usize) -> Result<Vec<OccurrenceId>, Shortfall> {
        let mut places: Vec<Place> = lanes
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

/// How many executions a claim lacks, beside those that are taken.
pub(super) struct Shortfall {
    pub taken: usize,
    pub count: usize,
}

fn place(row: &LiveRow) -> Place {
    (row.live.rank, row.live.id)
}

fn holder(row: &LiveRow) -> Option<SessionId> {
    match row.live.state {
        LiveState::Running(lease) => Some(lease.session),
        _ => None,
    }
}
