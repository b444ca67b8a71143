//! Commit effects: queued work, due times, and executions that ended unstarted. They must contain everything that
//! happened in the model, and nothing else.

use super::{AuditResult, Auditor, OccurrenceState, rule};
use punctual_core::gates::Gate;
use punctual_core::ids::{ExecutionId, JobId, OccurrenceId};
use punctual_core::lifecycle::Status;
use punctual_core::limiter::WaitList;
use punctual_core::ports::{CommitEffects, DueKind, Lane};
use std::collections::BTreeSet;

/// The expected effects of one item of a verb.
#[derive(Debug, Default)]
pub(super) struct ExpectedEffects {
    /// Executions that became claimable.
    queued: BTreeSet<OccurrenceId>,
    /// Occurrences with a new time at which they change.
    waiting: BTreeSet<OccurrenceId>,
    /// Schedules with a new due time.
    scheduled: BTreeSet<JobId>,
    ended: BTreeSet<(ExecutionId, Status)>,
    /// Wait lists that something has joined.
    joined: BTreeSet<WaitList>,
}

impl Auditor {
    /// The occurrence has changed: it is claimable, or has a new time at which it changes.
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

    pub(super) fn joined(&mut self, wait_list: WaitList) {
        self.fresh.joined.insert(wait_list);
    }

    /// Opens one gate. After the last one the occurrence is ready, ranked by the time at which it could have
    /// started.
    pub(super) fn open_gate(&mut self, id: OccurrenceId, gate: Gate) -> AuditResult {
        let at = self.at;
        let (occurrence, spec) = self.occurrence_mut(id)?;
        if let OccurrenceState::Waiting(gates) = occurrence.state
            && gates.contains(gate)
        {
            let left = gates.without(gate);
            if left.is_empty() {
                occurrence.place = super::ClaimPlace::at(occurrence.available_at.min(at), spec);
                return self.becomes_ready(id);
            }
            occurrence.state = OccurrenceState::Waiting(left);
            self.placed(id);
        }
        Ok(())
    }

    /// Compares the commit effects of one item with the model. Work may have been leased to the slot
    /// reservation that was passed along.
    pub(super) fn announced(&mut self, effects: &CommitEffects) -> AuditResult {
        let fresh = std::mem::take(&mut self.fresh);
        for (reservation, assignment) in &effects.assigned {
            let id = assignment.execution.occurrence;
            self.granted(reservation.session, reservation.turn, assignment)?;
            rule!(
                fresh.queued.contains(&id),
                "a slot reservation gets only the work that was committed with it",
                "{id} was given to {reservation:?}, fresh are {fresh:?}"
            );
            self.count("slot reservations used");
        }
        for id in fresh.queued.iter().filter(|id| self.queued.contains(id)) {
            let lane = self.lane(id.job)?;
            rule!(
                effects.queued.contains(&lane),
                "work that is queued is announced",
                "{id} is queued in {lane:?}, announced was {:?}",
                effects.queued
            );
        }
        for wait_list in &fresh.joined {
            rule!(
                effects.joined.contains(wait_list),
                "an execution over a limit joins its wait list, and the commit reports it",
                "{wait_list:?} has been joined, reported is {:?}",
                effects.joined
            );
        }
        for id in &fresh.waiting {
            let occurrence = self.occurrence(*id)?;
            let (at, attempt) = (occurrence.look_at(), occurrence.attempt);
            let what = DueKind::Live { occurrence: *id, attempt };
            rule!(
                at.is_none() || effects.due.iter().any(|due| Some(due.at) == at && due.what == what),
                "a commit reports the due times that it sets",
                "{id}.{attempt} is to be checked by {at:?}, reported is {:?}",
                effects.due
            );
        }
        for id in &fresh.scheduled {
            let (at, what) = self.schedule_due(*id)?;
            rule!(
                at.is_none() || effects.due.iter().any(|due| Some(due.at) == at && Some(due.what) == what),
                "a commit reports the due times that it sets",
                "job {id} is due at {at:?} as {what:?}, reported is {:?}",
                effects.due
            );
        }
        let ended: BTreeSet<ExecutionId> = effects.ended.iter().map(|(execution, _)| *execution).collect();
        for due in &effects.due {
            let (at, job) = match due.what {
                DueKind::Schedule { job, .. } => {
                    let (at, what) = self.schedule_due(job)?;
                    (at.filter(|_| what == Some(due.what)), job)
                }
                // One commit may both make it wait and end it.
                DueKind::Live { occurrence: id, attempt } if ended.contains(&id.attempt(attempt)) => continue,
                DueKind::Live { occurrence: id, attempt } => {
                    let occurrence = self.occurrence(id)?;
                    (occurrence.look_at().filter(|_| occurrence.attempt == attempt), id.job)
                }
            };
            let lane = self.lane(job)?;
            rule!(
                at == Some(due.at) && due.lane == lane,
                "a reported due time is correct",
                "reported is {due:?}, but it is due at {at:?} in {lane:?}"
            );
        }
        let ended: BTreeSet<(ExecutionId, Status)> = effects.ended.iter().copied().collect();
        rule!(
            ended == fresh.ended && ended.len() == effects.ended.len(),
            "an execution that ends unstarted is reported once",
            "reported are {:?}, ended have {:?}",
            effects.ended,
            fresh.ended
        );
        Ok(())
    }

    pub(super) fn schedule_due(
        &self,
        id: JobId,
    ) -> Result<(Option<punctual_core::time::Timestamp>, Option<DueKind>), super::AuditViolation> {
        let job = self.job(id)?;
        let version = job.schedule.as_ref().map(|schedule| schedule.version);
        Ok((job.due_at(id), version.map(|version| DueKind::Schedule { job: id, version })))
    }

    pub(super) fn is_paused(&self, lane: &Lane) -> bool {
        self.paused_queues.contains(lane.queue())
    }

    /// Whether the current transaction may not have seen that the queue of this lane is paused.
    pub(super) fn may_miss_pause(&self, lane: &Lane) -> bool {
        let paused_at = self.paused_at.get(lane.queue());
        self.is_overlapping && paused_at.is_some_and(|at| self.seen_until.is_none_or(|seen| *at >= seen))
    }
}
