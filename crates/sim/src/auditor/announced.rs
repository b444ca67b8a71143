//! What a commit tells those who act on it: where work appeared, what is due, what ended unstarted. All that the
//! model knows to have happened is told, and nothing that has not.

use super::{Auditor, OccurrenceState, Verdict, rule};
use punctual_core::gates::Gate;
use punctual_core::ids::{ExecutionId, JobId, OccurrenceId};
use punctual_core::lifecycle::Status;
use punctual_core::limiter::Line;
use punctual_core::ports::{Begun, DueKind, Lane};
use std::collections::BTreeSet;

/// What one item of a verb has brought about.
#[derive(Debug, Default)]
pub(super) struct Fresh {
    /// Executions that can be claimed.
    queued: BTreeSet<OccurrenceId>,
    /// Occurrences that time will change.
    waiting: BTreeSet<OccurrenceId>,
    /// Schedules that are due anew.
    scheduled: BTreeSet<JobId>,
    ended: BTreeSet<(ExecutionId, Status)>,
    /// Lines in which something has come to wait.
    joined: BTreeSet<Line>,
}

impl Auditor {
    /// The occurrence stands differently now: it is claimable, or time will change it.
    pub(super) fn placed(&mut self, id: OccurrenceId) {
        let Some(occurrence) = self.jobs.get_mut(&id.job).and_then(|job| job.occurrences.get_mut(&id.number))
        else {
            return;
        };
        occurrence.changed_at = self.now;
        self.queued.remove(&id);
        self.running.remove(&id);
        match occurrence.state {
            OccurrenceState::Queued => {
                self.queued.insert(id);
                self.fresh.queued.insert(id);
            }
            OccurrenceState::Running { .. } => {
                self.running.insert(id);
            }
            OccurrenceState::Waiting(_) | OccurrenceState::Closed { .. } => {}
        }
        if occurrence.look_at().is_some() {
            self.fresh.waiting.insert(id);
        }
    }

    /// The occurrence is claimable in another lane.
    pub(super) fn moved(&mut self, id: OccurrenceId) {
        let now = self.now;
        if let Ok((occurrence, _)) = self.occurrence_mut(id) {
            occurrence.changed_at = now;
        }
        self.fresh.queued.insert(id);
    }

    pub(super) fn rescheduled(&mut self, job: JobId) {
        let now = self.now;
        if let Some(schedule) = self.jobs.get_mut(&job).and_then(|job| job.schedule.as_mut()) {
            schedule.changed_at = now;
            self.fresh.scheduled.insert(job);
        }
    }

    pub(super) fn ended_unstarted(&mut self, execution: ExecutionId, status: Status) {
        self.fresh.ended.insert((execution, status));
    }

    pub(super) fn joined(&mut self, line: Line) {
        self.fresh.joined.insert(line);
    }

    /// One gate opens; behind the last one it is ready, at the place of the time when it could have started.
    pub(super) fn open_gate(&mut self, id: OccurrenceId, gate: Gate) -> Verdict {
        let at = self.at;
        let (occurrence, spec) = self.occurrence_mut(id)?;
        if let OccurrenceState::Waiting(gates) = occurrence.state
            && gates.contains(gate)
        {
            let left = gates.without(gate);
            if left.is_empty() {
                occurrence.place = super::Place::at(occurrence.available_at.min(at), spec);
                return self.becomes_ready(id);
            }
            occurrence.state = OccurrenceState::Waiting(left);
            self.placed(id);
        }
        Ok(())
    }

    /// The answer to one item says what came of it. Work may have been leased to the offer that came along.
    pub(super) fn announced(&mut self, begun: &Begun) -> Verdict {
        let fresh = std::mem::take(&mut self.fresh);
        for (offer, assignment) in &begun.assigned {
            let id = assignment.execution.occurrence;
            self.granted(offer.session, offer.turn, assignment)?;
            rule!(
                fresh.queued.contains(&id),
                "an offer is given only the work that came with it",
                "{id} was given to {offer:?}, fresh are {fresh:?}"
            );
            self.count("offers taken");
        }
        for id in fresh.queued.iter().filter(|id| self.queued.contains(id)) {
            let lane = self.lane(id.job)?;
            rule!(
                begun.queued.contains(&lane),
                "work that is queued is announced",
                "{id} is queued in {lane:?}, announced was {:?}",
                begun.queued
            );
        }
        for line in &fresh.joined {
            rule!(
                begun.joined.contains(line),
                "what does not fit waits in line, and that is told",
                "{line:?} has been joined, told is {:?}",
                begun.joined
            );
        }
        for id in &fresh.waiting {
            let occurrence = self.occurrence(*id)?;
            let (at, attempt) = (occurrence.look_at(), occurrence.attempt);
            let what = DueKind::Live { occurrence: *id, attempt };
            rule!(
                at.is_none() || begun.due.iter().any(|due| Some(due.at) == at && due.what == what),
                "a commit tells what is due next because of it",
                "{id}.{attempt} is to be looked at by {at:?}, told is {:?}",
                begun.due
            );
        }
        for id in &fresh.scheduled {
            let (at, what) = self.schedule_due(*id)?;
            rule!(
                at.is_none() || begun.due.iter().any(|due| Some(due.at) == at && Some(due.what) == what),
                "a commit tells what is due next because of it",
                "job {id} is due at {at:?} as {what:?}, told is {:?}",
                begun.due
            );
        }
        let ended: BTreeSet<ExecutionId> = begun.ended.iter().map(|(execution, _)| *execution).collect();
        for due in &begun.due {
            let (at, job) = match due.what {
                DueKind::Schedule { job, .. } => {
                    let (at, what) = self.schedule_due(job)?;
                    (at.filter(|_| what == Some(due.what)), job)
                }
                // One commit may let it wait and end it, too.
                DueKind::Live { occurrence: id, attempt } if ended.contains(&id.attempt(attempt)) => continue,
                DueKind::Live { occurrence: id, attempt } => {
                    let occurrence = self.occurrence(id)?;
                    (occurrence.look_at().filter(|_| occurrence.attempt == attempt), id.job)
                }
            };
            let lane = self.lane(job)?;
            rule!(
                at == Some(due.at) && due.lane == lane,
                "what is told to be due is due",
                "told is {due:?}, but it is due at {at:?} in {lane:?}"
            );
        }
        let ended: BTreeSet<(ExecutionId, Status)> = begun.ended.iter().copied().collect();
        rule!(
            ended == fresh.ended && ended.len() == begun.ended.len(),
            "what ends unstarted is told once",
            "told is {:?}, ended have {:?}",
            begun.ended,
            fresh.ended
        );
        Ok(())
    }

    pub(super) fn schedule_due(
        &self,
        id: JobId,
    ) -> Result<(Option<punctual_core::time::Timestamp>, Option<DueKind>), super::Violation> {
        let job = self.job(id)?;
        let version = job.schedule.as_ref().map(|schedule| schedule.version);
        Ok((job.due_at(id), version.map(|version| DueKind::Schedule { job: id, version })))
    }

    pub(super) fn is_paused(&self, lane: &Lane) -> bool {
        self.paused_queues.contains(lane.queue())
    }
}
