//! Control verbs on jobs, executions and queues: each verb has its effect exactly once, or is refused for a
//! valid reason.

use super::firing::{answers_each, state_behind};
use super::{
    AuditResult, AuditViolation, Auditor, ClaimPlace, JobModel, Occurrence, OccurrenceFate, OccurrenceState,
    rule, start_of,
};
use punctual_core::control::{Refusal, Verb};
use punctual_core::gates::{Gate, Gates};
use punctual_core::ids::{Epoch, ExecutionId, JobId};
use punctual_core::job::{JobStatus, StoredStatus};
use punctual_core::occurrence::Origin;
use punctual_core::ports::{CancelOutcome, CommitEffects, Control, ControlOutcome, Controlled, Pausing};
use punctual_core::schedule::{OverlapPolicy, SkipReason};
use punctual_core::time::Timestamp;

/// The effect of a verb, besides the commit effects.
#[derive(Debug, Default)]
pub(super) struct Effect {
    pub added: Option<ExecutionId>,
    pub skipped: u64,
}

pub(super) type JudgedVerb = Result<Result<Effect, Refusal>, AuditViolation>;

impl Auditor {
    pub fn controlled(
        &mut self,
        now: Timestamp,
        controls: &[Control],
        outcomes: &[ControlOutcome],
    ) -> AuditResult {
        self.not_ahead(now)?;
        answers_each("control", controls.len(), outcomes.len())?;
        for (control, outcome) in controls.iter().zip(outcomes) {
            let id = control.job;
            if !self.is_there(id) {
                self.is_not_there(id, outcome)?;
                continue;
            }
            let effect = match &control.verb {
                Verb::Update(update) => self.update(id, update)?,
                Verb::Pause => self.pause(id)?,
                Verb::Resume => self.resume(id)?,
                Verb::Trigger { despite_overlap, .. } => self.trigger(id, *despite_overlap)?,
                // Only operations use it, and the simulator starts none.
                Verb::TriggerAfter(_) => self.trigger(id, false)?,
                Verb::Retry => self.retry(id)?,
                Verb::Cancel => self.cancel_job(id)?,
                Verb::Delete => self.delete(id)?,
                // The workload does not use them.
                Verb::Reseal(_)
                | Verb::Retime
                | Verb::SkipNext(_)
                | Verb::RunNextAt { .. }
                | Verb::Backfill(_) => Ok(Effect::default()),
            };
            self.acted(id, &format!("{:?}", control.verb), effect, outcome)?;
        }
        Ok(())
    }

    fn is_there(&self, id: JobId) -> bool {
        self.jobs.get(&id).is_some_and(|job| job.mark != StoredStatus::Deleted)
    }

    pub(super) fn is_not_there(&mut self, id: JobId, outcome: &ControlOutcome) -> AuditResult {
        rule!(
            *outcome == ControlOutcome::NotThere,
            "a verb does not apply to a missing job",
            "job {id} does not exist, but {outcome:?}"
        );
        self.count("verbs for missing jobs");
        Ok(())
    }

    /// Compares the answer to a verb with its effect in the model.
    pub(super) fn acted(
        &mut self,
        id: JobId,
        verb: &str,
        effect: Result<Effect, Refusal>,
        outcome: &ControlOutcome,
    ) -> AuditResult {
        match (effect, outcome) {
            (Err(expected), ControlOutcome::Refused(refusal)) => {
                rule!(
                    expected == *refusal,
                    "a verb is refused for a reason that holds",
                    "{verb} of job {id}: expected {expected:?}, got {refusal:?}"
                );
                self.count("verbs refused");
                self.announced(&CommitEffects::default())
            }
            (Ok(expected), ControlOutcome::Done(controlled)) => {
                let Controlled { effects, version, added, asked, skipped } = controlled;
                rule!(
                    *version == self.job(id)?.version()
                        && *added == expected.added
                        && *skipped == expected.skipped,
                    "a verb reports its result",
                    "{verb} of job {id} in version {}: expected {expected:?}, got {controlled:?}",
                    self.job(id)?.version()
                );
                for execution in asked {
                    let state = self.occurrence(execution.occurrence)?.state;
                    rule!(
                        matches!(state, OccurrenceState::Running { is_asked_to_stop: true, .. }),
                        "only a running execution is asked to stop",
                        "{verb} asked {execution}, which is {state:?}"
                    );
                }
                self.announced(effects)
            }
            (expected, outcome) => {
                rule!(
                    false,
                    "a verb applies unless there is a reason to refuse it",
                    "{verb} of job {id}: expected {expected:?}, got {outcome:?}"
                );
                Ok(())
            }
        }
    }

    fn pause(&mut self, id: JobId) -> JudgedVerb {
        match self.job(id)?.status() {
            JobStatus::Active => {}
            JobStatus::Paused => return Ok(Ok(Effect::default())),
            finished => return Ok(Err(Refusal::Finished(finished))),
        }
        let job = self.job_mut(id)?;
        job.mark = StoredStatus::Paused;
        if let Some(schedule) = &mut job.schedule {
            schedule.version += 1;
            schedule.is_held = true;
        }
        for number in job.open.clone() {
            let (occurrence, _) = self.occurrence_mut(id.occurrence(number))?;
            occurrence.state = match occurrence.state {
                OccurrenceState::Waiting(gates) => OccurrenceState::Waiting(gates.with(Gate::Paused)),
                OccurrenceState::Queued => OccurrenceState::Waiting(Gates::only(Gate::Paused)),
                state => state,
            };
            self.placed_quietly(id.occurrence(number));
        }
        self.count("jobs paused");
        Ok(Ok(Effect::default()))
    }

    fn resume(&mut self, id: JobId) -> JudgedVerb {
        match self.job(id)?.status() {
            JobStatus::Paused => {}
            JobStatus::Active => return Ok(Ok(Effect::default())),
            finished => return Ok(Err(Refusal::Finished(finished))),
        }
        let at = self.at;
        let job = self.job_mut(id)?;
        job.mark = StoredStatus::Active;
        let skipped = job.release(id, at)?;
        for number in job.open.clone() {
            let (occurrence, _) = self.occurrence_mut(id.occurrence(number))?;
            occurrence.is_exempt = false;
            self.open_gate(id.occurrence(number), Gate::Paused)?;
        }
        self.rescheduled(id);
        if skipped > 0 {
            self.count("resumes that skip missed times");
        }
        self.count("jobs resumed");
        self.follow(id, false)?;
        Ok(Ok(Effect { skipped, added: None }))
    }

    fn cancel_job(&mut self, id: JobId) -> JudgedVerb {
        match self.job(id)?.status() {
            JobStatus::Active | JobStatus::Paused => {}
            JobStatus::Cancelled => return Ok(Ok(Effect::default())),
            finished => return Ok(Err(Refusal::Finished(finished))),
        }
        self.end_job(id, StoredStatus::Cancelled)?;
        self.count("jobs cancelled");
        Ok(Ok(Effect::default()))
    }

    fn delete(&mut self, id: JobId) -> JudgedVerb {
        self.end_job(id, StoredStatus::Deleted)?;
        self.forget(id)?;
        self.count("jobs deleted");
        Ok(Ok(Effect::default()))
    }

    /// The immediate effects of deleting a job: it waits for no other job, and its dead letters are gone.
    pub(super) fn forget(&mut self, id: JobId) -> AuditResult {
        let job = self.job_mut(id)?;
        job.waits_for.clear();
        for number in job.letters().collect::<Vec<_>>() {
            self.set_dead_letter(id, number, false)?;
        }
        Ok(())
    }

    fn end_job(&mut self, id: JobId, mark: StoredStatus) -> AuditResult {
        let at = self.at;
        let job = self.job_mut(id)?;
        job.mark = mark;
        job.changed_by_hand_at = job.changed_at(at);
        job.end_life(true);
        self.stop_open(id)?;
        self.follow(id, false)
    }

    fn trigger(&mut self, id: JobId, despite_overlap: bool) -> JudgedVerb {
        let (at, job) = (self.at, self.job(id)?);
        let status = job.status();
        if status == JobStatus::Cancelled {
            return Ok(Err(Refusal::Cancelled));
        }
        let settings = &job.spec().settings;
        let open: Vec<&Occurrence> = job.open.iter().map(|number| &job.occurrences[number]).collect();
        let behind = open.iter().filter(|one| one.is_behind(Gate::Overlap)).count();
        let is_full = open.len() >= settings.max_open as usize;
        let is_running = open.iter().any(|one| one.is_running());
        let policy = if despite_overlap || open.is_empty() { OverlapPolicy::Allow } else { settings.overlap };
        let is_behind = match policy {
            OverlapPolicy::Skip => return Ok(Err(Refusal::Overlap)),
            OverlapPolicy::Queue if behind >= settings.overlap_limit as usize => {
                return Ok(Err(Refusal::QueueFull));
            }
            OverlapPolicy::Replace => is_running,
            _ if is_full => return Ok(Err(Refusal::Backlog)),
            policy => policy == OverlapPolicy::Queue,
        };
        if let Some(refusal) = self.revival_refusal(id)? {
            return Ok(Err(refusal));
        }
        let is_beside = despite_overlap || self.job(id)?.spec().settings.overlap == OverlapPolicy::Allow;
        let is_awaited = self.job(id)?.is_awaited();
        if policy == OverlapPolicy::Replace {
            self.count("triggers that replace");
            self.stop_open(id)?;
        }
        let job = self.job(id)?;
        let occurrence = Occurrence {
            origin: Origin::Trigger,
            scheduled_time: at,
            expires_at: job.expires_at(at).filter(|expiry| *expiry > at),
            is_exempt: status == JobStatus::Paused,
            is_beside,
            is_awaited,
            ..job.another(at, self.now)
        };
        if occurrence.is_exempt {
            self.count("triggers while paused");
        }
        let job = self.job_mut(id)?;
        job.numbered += 1;
        let number = job.numbered;
        let gates = if is_behind { Gates::only(Gate::Overlap) } else { Gates::NONE };
        self.add(id, number, Occurrence { state: state_behind(gates), ..occurrence }, status)?;
        self.count("triggers");
        Ok(Ok(Effect { added: Some(id.occurrence(number).attempt(1)), skipped: 0 }))
    }

    /// Adds an occurrence; a finished job becomes active again.
    pub(super) fn add(
        &mut self,
        id: JobId,
        number: u32,
        occurrence: Occurrence,
        status: JobStatus,
    ) -> AuditResult {
        let job = self.job_mut(id)?;
        job.revive(status);
        let earlier = job.occurrences.insert(number, occurrence);
        rule!(
            earlier.is_none(),
            "a number is given to one occurrence",
            "{}.{number} was {earlier:?} before",
            id
        );
        job.open.insert(number);
        match job.occurrences[&number].state {
            OccurrenceState::Queued => self.becomes_ready(id.occurrence(number)),
            _ => {
                self.placed(id.occurrence(number));
                Ok(())
            }
        }
    }

    /// A pause or a resume does not change the due time of the occurrence, so it is not part of the commit
    /// effects.
    fn placed_quietly(&mut self, id: punctual_core::ids::OccurrenceId) {
        self.queued.remove(&id);
    }

    pub fn cancelled(
        &mut self,
        now: Timestamp,
        executions: &[ExecutionId],
        outcomes: &[CancelOutcome],
    ) -> AuditResult {
        self.not_ahead(now)?;
        answers_each("cancel", executions.len(), outcomes.len())?;
        for (execution, outcome) in executions.iter().zip(outcomes) {
            self.cancelled_one(*execution, outcome)?;
        }
        Ok(())
    }

    fn cancelled_one(&mut self, execution: ExecutionId, outcome: &CancelOutcome) -> AuditResult {
        let id = execution.occurrence;
        let job = self.job(id.job)?;
        let occurrence = job.occurrences.get(&id.number).filter(|_| job.mark != StoredStatus::Deleted);
        let is_open = occurrence.is_some_and(|one| one.attempt == execution.attempt && !one.is_closed());
        let attempt = occurrence.and_then(|one| one.finished.get(execution.attempt as usize - 1));
        let is_past = attempt.is_some_and(|attempt| !attempt.is_forgotten);
        let is_running = is_open && occurrence.is_some_and(Occurrence::is_running);
        let is_right = match outcome {
            CancelOutcome::Cancelled(_) => is_open && !is_running,
            CancelOutcome::Asked => is_running,
            CancelOutcome::Finished => !is_open && is_past,
            CancelOutcome::NotThere => !is_open && !is_past,
        };
        rule!(
            is_right,
            "cancelling an execution depends on its state",
            "{execution} was answered {outcome:?}, it is {occurrence:?}"
        );
        if !is_open {
            return Ok(());
        }
        self.count(if is_running { "running executions asked to stop" } else { "executions cancelled" });
        self.stop(id, Some(StoredStatus::Cancelled))?;
        if let CancelOutcome::Cancelled(effects) = outcome {
            self.follow(id.job, false)?;
            self.wake_replay(id.job)?;
            self.announced(effects)?;
        }
        Ok(())
    }

    pub fn queue_paused(
        &mut self,
        now: Timestamp,
        queue: &str,
        pausing: Pausing,
        effects: &CommitEffects,
    ) -> AuditResult {
        self.not_ahead(now)?;
        match pausing {
            Pausing::Pause => {
                self.paused_queues.insert(queue.to_owned());
                self.paused_at.insert(queue.to_owned(), self.now);
                self.count("queues paused");
            }
            Pausing::Resume => {
                self.paused_queues.remove(queue);
                self.resumed_queues.insert(queue.to_owned(), self.now);
                // Other transactions may queue work meanwhile; they announce it.
                for id in self.queued.iter().filter(|_| !self.is_overlapping) {
                    let lane = self.lane(id.job)?;
                    rule!(
                        lane.queue() != queue || effects.queued.contains(&lane),
                        "work that can be claimed again is announced",
                        "{id} is queued in {lane:?}, announced was {:?}",
                        effects.queued
                    );
                }
                self.count("queues resumed");
            }
        }
        self.announced(effects)
    }

    /// A client got the response that its verb took effect.
    pub fn acknowledged_verb(&mut self, id: JobId, verb: &Verb, controlled: &Controlled) -> AuditResult {
        let job = self.job(id)?;
        if let Verb::Update(update) = verb {
            let described = job.versions.get(controlled.version as usize - 1);
            rule!(
                described == Some(&update.spec),
                "an acknowledged update took effect",
                "job {id} in version {} is {described:?}, not {:?}",
                controlled.version,
                update.spec
            );
        }
        if let Some(added) = controlled.added {
            let occurrence = self.occurrence(added.occurrence)?;
            rule!(
                occurrence.attempt >= added.attempt,
                "an acknowledged trigger or redrive exists",
                "{added}: {occurrence:?}"
            );
        }
        self.count("verbs acknowledged");
        Ok(())
    }

    pub fn paused_queues(&self) -> Vec<String> {
        self.paused_queues.iter().cloned().collect()
    }

    /// The executions that have not ended.
    pub fn open_executions(&self) -> Vec<ExecutionId> {
        let open = |(id, job): (&JobId, &JobModel)| {
            let execution = |number: &u32| id.occurrence(*number).attempt(job.occurrences[number].attempt);
            job.open.iter().map(execution).collect::<Vec<_>>()
        };
        self.jobs.iter().flat_map(open).collect()
    }

    /// Paused jobs, which would stay paused.
    pub fn paused_jobs(&self) -> Vec<JobId> {
        let paused = self.jobs.iter().filter(|(_, job)| job.status() == JobStatus::Paused);
        paused.map(|(id, _)| *id).collect()
    }
}

impl JobModel {
    /// A job with this status has something to do again.
    pub(super) fn revive(&mut self, status: JobStatus) {
        if matches!(status, JobStatus::Failed | JobStatus::Completed) {
            self.mark = StoredStatus::Active;
        }
    }

    /// A new occurrence that can start now.
    pub(super) fn another(&self, at: Timestamp, now: Timestamp) -> Occurrence {
        Occurrence {
            origin: Origin::Schedule,
            scheduled_time: at,
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
            is_awaited: self.is_awaited(),
            changed_at: now,
            finished: vec![],
        }
    }

    /// Resumes the schedule after a pause: times that fell due meanwhile are skipped, except for a one-time
    /// schedule. Returns how many.
    fn release(&mut self, id: JobId, at: Timestamp) -> Result<u64, AuditViolation> {
        let changed_at = self.changed_at(at);
        let Some(schedule) = &mut self.schedule else { return Ok(0) };
        let life = self.lives.last_mut().expect("a schedule has a life");
        schedule.version += 1;
        schedule.is_held = false;
        let Some(clockwork) = &life.clockwork else { return Ok(0) };
        let cursors = &mut schedule.cursors;
        cursors.replay_due = cursors.replay_at(if cursors.waits { at } else { cursors.replay_due.max(at) });
        let mut skipped = 0;
        while let Some(nominal) = schedule.cursors.regular
            && start_of(id, &life.schedule, nominal) <= at
        {
            let earlier = life.fates.insert(nominal, OccurrenceFate::Skipped(SkipReason::Paused));
            rule!(
                earlier.is_none(),
                "no nominal time is accounted for twice",
                "{nominal} of job {id} was {earlier:?} before"
            );
            skipped += 1;
            schedule.cursors.regular = clockwork.next_after(nominal);
        }
        if schedule.cursors.is_at_end() {
            self.end_life(false);
            self.changed_by_hand_at = changed_at;
        }
        Ok(skipped)
    }
}
