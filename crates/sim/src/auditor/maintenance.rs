//! Maintenance: finished jobs are deleted after their retention time, deleted jobs are purged when nothing of
//! them is live, and nothing else is removed.

use super::{AuditResult, Auditor, JobModel, rule};
use punctual_core::ids::{JobId, OccurrenceId};
use punctual_core::job::StoredStatus;
use punctual_core::ports::{Horizon, Retained, Retired, Retirement};
use punctual_core::time::Timestamp;
use std::time::Duration;

impl Auditor {
    /// Sets the retention time of history.
    pub fn history_is_kept_for(&mut self, kept: Duration) {
        self.history_kept = kept;
    }

    pub fn retained(&mut self, horizon: Horizon, limit: usize, retained: &Retained) -> AuditResult {
        let kept = self.jobs.values_mut().filter(|job| !job.is_purged);
        let attempts = kept.flat_map(|job| job.occurrences.values_mut()).flat_map(|one| &mut one.finished);
        let (mut rows, mut old, mut young) = (0, 0, 0);
        let kept_since = self.now.minus(self.history_kept);
        for attempt in attempts.filter(|attempt| !attempt.is_forgotten) {
            rows += 1;
            if attempt.completed_at < horizon.history {
                attempt.is_forgotten = true;
                old += 1;
                young += u64::from(attempt.completed_at >= kept_since);
            }
        }
        rule!(
            rows <= limit,
            "a run keeps no more history than one step of retention reads",
            "{rows} rows, {limit} in a step"
        );
        rule!(
            young == 0,
            "nothing that ended within the time that history is kept is deleted, whatever the store's clock shows",
            "{young} executions that ended after {kept_since} went by a horizon of {}",
            horizon.history
        );
        rule!(
            retained.history == old && (retained.logs, retained.requests) == (0, 0),
            "history is deleted exactly when its retention time ends",
            "before {}: {old} are old, {retained:?} went",
            horizon.history
        );
        self.skips_kept_since = self.skips_kept_since.max(Some(horizon.history));
        if old > 0 {
            self.count("rows of history deleted for their age");
        }
        Ok(())
    }

    /// A purged job is submitted again under its id: nothing of the old one is left, so it is new.
    pub(super) fn purged_before(&mut self, id: JobId) {
        self.jobs.remove(&id);
        self.history_forgot(id);
        self.notes.retain(|occurrence, _| occurrence.job != id);
        // Runs that continue on a node which has not learned of the purge keep their lease in the model.
        let (active, is_of) = (&self.active, |occurrence: &OccurrenceId| occurrence.job == id);
        let is_past = |occurrence: &OccurrenceId| {
            is_of(occurrence) && active.get(occurrence).is_none_or(|runs| runs.is_empty())
        };
        self.grants.retain(|(execution, _), _| !is_past(&execution.occurrence));
        self.runs.retain(|(execution, _), _| !is_past(&execution.occurrence));
        self.undelivered.retain(|lease, _| !is_past(&lease.execution.occurrence));
        self.held.retain(|lease, _| !is_of(&lease.execution.occurrence));
        self.returned.retain(|lease, _| !is_of(&lease.execution.occurrence));
        self.saved.retain(|(execution, _), _| !is_past(&execution.occurrence));
        self.handed_over.retain(|(execution, _), _| !is_past(&execution.occurrence));
        self.count("jobs submitted again after they were purged");
    }

    pub fn retired(&mut self, now: Timestamp, step: &Retirement, retired: &Retired) -> AuditResult {
        self.not_ahead(now)?;
        let is_after = |id: &JobId| step.after.is_none_or(|after| *id > after);
        let looked_at = self.jobs.iter().filter(|(id, job)| is_after(id) && !job.is_purged).take(step.limit);
        let over: Vec<JobId> =
            looked_at.filter(|(_, job)| is_over(job, step.finished_before)).map(|(id, _)| *id).collect();
        rule!(
            over.len() as u64 == retired.jobs,
            "jobs are deleted when they have been finished for long enough and have no dead letter",
            "before {}: expected {over:?}, got {retired:?}",
            step.finished_before
        );
        for id in over {
            self.job_mut(id)?.mark = StoredStatus::Deleted;
            self.forget(id)?;
            self.count("jobs retired");
        }
        Ok(())
    }

    pub fn purged(&mut self, jobs: &[JobId]) -> AuditResult {
        for id in jobs {
            let job = self.job_mut(*id)?;
            rule!(
                job.mark == StoredStatus::Deleted && job.is_finished() && !job.is_purged,
                "only a deleted job of which nothing is live is purged",
                "job {id} is {:?} with {:?} open",
                job.mark,
                job.open
            );
            job.is_purged = true;
            self.count("jobs purged");
        }
        Ok(())
    }
}

fn is_over(job: &JobModel, before: Timestamp) -> bool {
    let attempts = job.occurrences.values().rev().flat_map(|occurrence| occurrence.finished.iter().rev());
    let latest = attempts.into_iter().find(|attempt| !attempt.is_forgotten);
    job.mark != StoredStatus::Deleted
        && job.is_finished()
        && job.changed_by_hand_at < before
        && latest.is_none_or(|attempt| attempt.completed_at < before)
        && job.letters().next().is_none()
}
