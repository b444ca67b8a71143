//! Code that several answers of a unit of work share.

use super::loaded::LoadedSession;
use super::{NewSession, NoteChange, Numbered, UnitOfWork};
use crate::fault::Fault;
use crate::rows::{LiveRow, OpenCount, Rows, SessionPlace, Spent};
use punctual_core::gates::Gate;
use punctual_core::ids::{ExecutionId, JobId, OccurrenceId, SessionId};
use punctual_core::limits;
use punctual_core::notes::{LastNote, Note};
use punctual_core::occurrence::{Finished, LiveState, OccurrenceFlags};
use punctual_core::ports::{DeadLetter, LeaseRef, SessionOpening};
use punctual_core::schedule::ScheduleState;
use punctual_core::session::SessionMode;
use punctual_core::time::Timestamp;

impl UnitOfWork {
    pub(super) fn number(&mut self, job: JobId, numbered: u32, spent: Option<Spent>) {
        if let Some(mut row) = self.jobs.present(&job).cloned() {
            row.job.numbered = Some(numbered);
            if let Some(spent) = spent {
                row.job.fired = spent.fired;
                row.job.updated_at = row.job.updated_at.max(spent.at);
            }
            self.jobs.put(job, row);
            return;
        }
        let change = self.numbered.entry(job).or_insert(Numbered { job, numbered, spent: None });
        change.numbered = numbered;
        change.spent = spent.or(change.spent);
    }

    pub(super) fn open_session(
        &mut self,
        opening: &SessionOpening,
        now: Timestamp,
    ) -> Result<SessionId, Fault> {
        let Some(worker) = self.worker_numbers.get(&opening.worker).copied() else {
            self.read_set.workers.insert(opening.worker.clone());
            return self.unloaded();
        };
        let Some(id) = self.new_sessions.get(self.opened.len()).copied() else {
            self.read_set.new_sessions = self.opened.len() + 1;
            return self.unloaded();
        };
        let place = SessionPlace { turn: 0, mode: SessionMode::Open, beat: 0, attention: false };
        let embedded = opening.embedded;
        self.sessions.put(id, LoadedSession { id, worker, place, beaten_at: now, lost: false, embedded });
        self.opened.insert(id, NewSession { id, worker, opening: opening.clone(), opened_at: now });
        Ok(id)
    }

    pub(super) fn advance(&mut self, next: &ScheduleState) -> Result<(), Fault> {
        let Some(mut row) = self.need_schedule(next.job)?.cloned() else { return Ok(()) };
        row.state.version = next.version;
        row.state.due_at = next.due_at;
        row.state.nominal = next.nominal;
        row.state.fired = next.fired;
        row.state.replay = next.replay.clone();
        row.state.numbered = next.numbered;
        self.schedules.put(next.job, row);
        Ok(())
    }

    pub(super) fn latest_of(&mut self, job: JobId) -> Result<Option<DeadLetter>, Fault> {
        let Some(fetched) = self.latest_dead.get(&job).copied().filter(|_| self.has_lock(job)) else {
            self.read_set.latest_dead_letters.insert(job);
            self.lock(job)?;
            return self.unloaded();
        };
        let new = self
            .new_dead_letters
            .range(job.occurrence(0)..=job.occurrence(u32::MAX))
            .next_back()
            .map(|(id, _)| *id);
        let latest = match fetched {
            Some(id) if self.dead.present(&id).is_none() => self.latest_left(job)?,
            kept => kept,
        };
        match latest.max(new) {
            Some(id) => self.dead_letter(id),
            None => Ok(None),
        }
    }

    /// Stores the contents of a note.
    pub(super) fn note(&mut self, note: &Note, last: LastNote, now: Timestamp) {
        let ExecutionId { occurrence: id, attempt } = note.lease.execution;
        // Bulk deletes of notes are written last.
        self.is_tangled |= self.notes_forgotten.contains(&id);
        self.notes.put(id, last);
        let fresh = NoteChange { id, attempt, last, noted_at: now, progress: None };
        let change = self.note_changes.entry(id).or_insert(fresh);
        (change.last, change.noted_at) = (last, now);
        if let Some(progress) = &note.progress {
            (change.attempt, change.progress) = (attempt, Some(progress.clone()));
        }
        match &note.checkpoint {
            None => {}
            Some(checkpoint) if checkpoint.is_null() => self.checkpoints.remove(id),
            Some(checkpoint) => self.checkpoints.put(id, checkpoint.clone()),
        }
    }

    pub(super) fn change_session(
        &mut self,
        session: SessionId,
        change: impl FnOnce(&mut LoadedSession),
    ) -> Result<(), Fault> {
        let Some(mut found) = self.need_session(session)?.cloned() else { return Ok(()) };
        change(&mut found);
        self.sessions.put(session, found);
        Ok(())
    }

    /// The current dead letters of a job.
    pub(super) fn dead_left(&mut self, job: JobId) -> Result<Vec<OccurrenceId>, Fault> {
        let Some(fetched) = self.dead_of_jobs.get(&job).filter(|_| self.has_lock(job)) else {
            self.read_set.dead_of_jobs.insert(job);
            self.lock(job)?;
            return self.unloaded();
        };
        let is_gone = |id: &&OccurrenceId| matches!(self.dead.get(id), Some(None));
        let mut left: Vec<OccurrenceId> = fetched.iter().filter(|id| !is_gone(id)).copied().collect();
        left.extend(self.new_dead_letters.keys().filter(|id| id.job == job && !fetched.contains(id)));
        left.sort_unstable();
        Ok(left)
    }

    pub(super) fn latest_left(&mut self, job: JobId) -> Result<Option<OccurrenceId>, Fault> {
        Ok(self.dead_left(job)?.into_iter().max())
    }
}

pub(super) fn is_behind(row: &LiveRow, gate: Gate) -> bool {
    matches!(row.live.state, LiveState::Waiting(gates) if gates.contains(gate))
}

/// Counts the open occurrences of a job, at most as many as a transaction reads.
pub(super) fn counted(open: &[&LiveRow]) -> OpenCount {
    let mut count = OpenCount::default();
    for row in open.iter().take(limits::OPEN_OF_JOB_MAX) {
        let (behind, replayed) = (is_behind(row, Gate::Overlap), row.live.flags.replayed);
        count.open += 1;
        count.behind += usize::from(behind);
        count.replayed += usize::from(replayed);
        count.replayed_behind += usize::from(behind && replayed);
    }
    count
}

pub(super) fn is_held_by(row: &LiveRow, session: SessionId) -> bool {
    matches!(row.live.state, LiveState::Running(lease) if lease.session == session)
}

/// The lease of a row whose session is asked to stop it.
pub(super) fn cancel_of(row: &LiveRow, session: SessionId) -> Option<LeaseRef> {
    match row.live.state {
        LiveState::Running(lease) if lease.session == session && lease.cancel_requested => {
            Some(LeaseRef { execution: row.live.execution(), epoch: row.live.epoch })
        }
        _ => None,
    }
}

pub(super) fn tied(mut row: LiveRow, flags: OccurrenceFlags) -> LiveRow {
    let before = &mut row.live.flags;
    before.followed |= flags.followed;
    before.awaited |= flags.awaited;
    before.exempt |= flags.exempt;
    before.noted |= flags.noted;
    before.replayed |= flags.replayed;
    row
}

pub(super) fn cloned(rows: Vec<&LiveRow>) -> Vec<LiveRow> {
    rows.into_iter().cloned().collect()
}

/// A dead letter with what another attempt needs. Its number and its job's names are for users, who see it
/// only after it is read from the database.
pub(super) fn dead_letter_of(finished: &Finished, noted: bool, died_at: Timestamp) -> DeadLetter {
    DeadLetter {
        number: 0,
        occurrence: finished.id.occurrence,
        job_name: String::new(),
        job_type: String::new(),
        queue: String::new(),
        attempts: finished.id.attempt,
        epoch: finished.epoch,
        scheduled_time: finished.scheduled_time,
        origin: finished.origin,
        died_at,
        error: finished.error.clone(),
        noted,
        input: finished.input.clone(),
    }
}
