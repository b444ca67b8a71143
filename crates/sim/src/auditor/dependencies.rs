//! Jobs that depend on others: a child waits until all its parents have succeeded, and is skipped as soon as one
//! has not.

use super::attempts::AttemptEnd;
use super::{AuditResult, Auditor, ClaimPlace, JobModel, Occurrence, OccurrenceState, rule};
use punctual_core::gates::Gate;
use punctual_core::ids::{Epoch, JobId};
use punctual_core::job::StoredStatus;
use punctual_core::lifecycle::Status;
use punctual_core::occurrence::Origin;
use punctual_core::ports::{ParentProblem, Resolved};
use punctual_core::schedule::SkipReason;
use punctual_core::time::Timestamp;
use std::collections::BTreeSet;

/// The state of the jobs that a new one depends on.
#[derive(Debug)]
pub(super) enum ParentsModel {
    Unfinished(BTreeSet<JobId>),
    Failed,
    Bad { parent: JobId, problem: ParentProblem },
}

impl Auditor {
    pub(super) fn parents(&self, depends_on: &[JobId]) -> ParentsModel {
        let (mut unfinished, mut failed) = (BTreeSet::new(), false);
        for parent in depends_on {
            let bad = |problem| ParentsModel::Bad { parent: *parent, problem };
            let there = |job: &&JobModel| !job.is_purged && job.mark != StoredStatus::Deleted;
            match self.jobs.get(parent).filter(there) {
                None => return bad(ParentProblem::NotThere),
                Some(job) if !job.is_one_shot() => return bad(ParentProblem::Recurring),
                Some(job) if !job.is_finished() => {
                    unfinished.insert(*parent);
                }
                Some(job) => failed |= !has_succeeded(job),
            }
        }
        if failed { ParentsModel::Failed } else { ParentsModel::Unfinished(unfinished) }
    }

    /// Something of a job has ended: its next occurrence may start, and its children learn of a success, or
    /// that none will come.
    pub(super) fn follow(&mut self, id: JobId, succeeded: bool) -> AuditResult {
        self.start_next_waiting(id)?;
        if !succeeded && !self.job(id)?.is_finished() {
            return Ok(());
        }
        let waits = |(_, child): &(&JobId, &JobModel)| child.waits_for.contains(&id);
        let children: Vec<JobId> = self.jobs.iter().filter(waits).map(|(child, _)| *child).collect();
        for child in children {
            let model = self.job_mut(child)?;
            model.waits_for.remove(&id);
            let is_released = succeeded && model.waits_for.is_empty();
            if !succeeded {
                self.skip_child(child)?;
            } else if is_released {
                let job = self.job(child)?;
                let first =
                    job.open.iter().find(|number| job.occurrences[number].is_behind(Gate::Dependency));
                if let Some(number) = first.copied() {
                    self.open_gate(child.occurrence(number), Gate::Dependency)?;
                    self.count("dependents released");
                }
            }
        }
        Ok(())
    }

    /// From now on another job depends on how this one ends.
    pub(super) fn await_parent(&mut self, id: JobId) -> AuditResult {
        let job = self.job_mut(id)?;
        if let Some(schedule) = &mut job.schedule {
            schedule.is_awaited = true;
        }
        for number in &job.open {
            job.occurrences.get_mut(number).expect("an open occurrence exists").is_awaited = true;
        }
        Ok(())
    }

    /// Skips the child of a job that did not succeed.
    pub(super) fn skip_child(&mut self, id: JobId) -> AuditResult {
        let (at, now) = (self.at, self.now);
        let job = self.job_mut(id)?;
        job.waits_for.clear();
        let behind = job.open.iter().find(|number| job.occurrences[number].is_behind(Gate::Dependency));
        let number = match (behind, &job.schedule) {
            (Some(number), _) => *number,
            (None, None) => return Ok(()),
            (None, Some(schedule)) => {
                let nominal = schedule.cursors.regular.unwrap_or(at);
                job.numbered += 1;
                job.end_life(true);
                let occurrence = job.unfired(nominal, at, now);
                job.occurrences.insert(job.numbered, occurrence);
                job.open.insert(job.numbered);
                job.numbered
            }
        };
        let occurrence = &job.occurrences[&number];
        let (dead, attempt) = (occurrence.charged > 0, occurrence.attempt);
        self.ended_unstarted(id.occurrence(number).attempt(attempt), Status::Skipped);
        let ended = AttemptEnd {
            reason: Some(SkipReason::Dependency),
            dead,
            ..AttemptEnd::unstarted(Status::Skipped, at)
        };
        self.close(id.occurrence(number), ended, Some(StoredStatus::Failed))?;
        self.count("dependents skipped");
        self.follow(id, false)
    }

    /// The loop that resolves dependents which were not notified in the same transaction: a run never has
    /// that many.
    pub fn resolved(&mut self, now: Timestamp, resolved: &Resolved) -> AuditResult {
        self.not_ahead(now)?;
        rule!(
            resolved.dependents == 0 && !resolved.more,
            "the commit that finishes a job resolves its dependents",
            "{resolved:?}"
        );
        self.announced(&resolved.effects)
    }

    /// Checked when an execution is leased: everything that it depends on has succeeded.
    pub(super) fn parents_have_succeeded(&self, id: JobId, origin: Origin) -> AuditResult {
        let job = self.job(id)?;
        if origin == Origin::Trigger || job.spec().settings.depends_on.is_empty() {
            return Ok(());
        }
        rule!(
            job.waits_for.is_empty(),
            "a child starts only after all its parents have succeeded",
            "job {id} starts while {:?} have not",
            job.waits_for
        );
        Ok(())
    }
}

fn has_succeeded(job: &JobModel) -> bool {
    matches!(job.mark, StoredStatus::Active | StoredStatus::Paused)
}

impl JobModel {
    /// The next occurrence of a schedule that will not fire it itself.
    fn unfired(&self, nominal: Timestamp, at: Timestamp, now: Timestamp) -> Occurrence {
        Occurrence {
            origin: Origin::Schedule,
            scheduled_time: nominal,
            available_at: at,
            expires_at: None,
            attempt: 1,
            first_of_drive: 1,
            charged: 0,
            epoch: Epoch(0),
            state: OccurrenceState::Queued,
            place: ClaimPlace::at(at, self.spec()),
            limiter: None,
            wait_list: None,
            job_version: self.version(),
            is_beside: false,
            is_replayed: false,
            is_exempt: false,
            is_awaited: false,
            changed_at: now,
            finished: vec![],
        }
    }

    /// Ends the current schedule: nothing more will be fired by it.
    pub(super) fn end_life(&mut self, is_cut_short: bool) {
        let Some(schedule) = self.schedule.take() else { return };
        if let Some(life) = self.lives.last_mut() {
            life.undone = schedule.cursors.replay.into_iter().flatten().collect();
            life.is_cut_short = is_cut_short;
            life.fired = schedule.fired;
        }
    }
}
