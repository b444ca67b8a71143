//! The verbs of users for jobs, forwarded to the store. Their commit effects are processed as after any
//! commit.

use crate::Engine;
use crate::audit::audited;
use crate::poll_registry::ReservedSlots;
use crate::submit::{expired, never_runs};
use crate::traces::TriggerSpan;
use crate::use_cases::UseCaseError;
use punctual_core::control::{Refusal, Update, Verb};
use punctual_core::ids::{ExecutionId, JobId, OccurrenceId, SessionId};
use punctual_core::job::{InvalidField, Job, JobSpec};
use punctual_core::ports::{
    AuditEntry, CancelOutcome, Control, ControlOutcome, Controlled, Pausing, StoreError, Write, WriteReply,
};
use punctual_core::queue::QueueChange;
use punctual_core::schedule::first_run;
use punctual_core::session::{Pulse, SessionDraining, SessionMode, SessionOrder};

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ControlError {
    #[error("there is no such job or dead letter")]
    NotThere,
    #[error("{0}")]
    Refused(Refusal),
    #[error("the job is not valid")]
    Invalid(Vec<InvalidField>),
    /// The store failed. Whether the verb took effect is unknown, unless a malformed row is the cause.
    #[error(transparent)]
    Unavailable(#[from] StoreError),
}

impl Engine {
    /// Replaces the description of a job that was read. The new one is validated as for a submit, with two
    /// exceptions: an unchanged schedule or expiry may have ended, and an unchanged name may be one that
    /// today's rules reject.
    pub async fn update(
        &self,
        read: &Job,
        spec: JobSpec,
        audit: Option<AuditEntry>,
    ) -> Result<Controlled, ControlError> {
        self.check_update(read, &spec)?;
        let update = Update { spec, expected_version: Some(read.version) };
        self.control(read.id, Verb::Update(Box::new(update)), audit).await
    }

    /// Refuses an invalid description of a stored job.
    pub(crate) fn check_update(&self, read: &Job, spec: &JobSpec) -> Result<(), ControlError> {
        let now = self.now();
        spec.check_update(&read.spec).map_err(ControlError::Invalid)?;
        let invalid = |problem| Err(ControlError::Invalid(vec![problem]));
        let (before, after) = (&read.spec.settings, &spec.settings);
        if before.expiry != after.expiry
            && let Some(problem) = expired(after, now)
        {
            return invalid(problem);
        }
        if before.schedule != after.schedule {
            let renewed = Job { created_at: now, spec: spec.clone(), ..read.clone() };
            if first_run(&renewed).is_none() {
                return invalid(never_runs(&renewed));
            }
        }
        Ok(())
    }

    pub async fn control(
        &self,
        job: JobId,
        mut verb: Verb,
        audit: Option<AuditEntry>,
    ) -> Result<Controlled, ControlError> {
        let trigger = self.trigger_span(&mut verb);
        let write = Write::Control { now: self.now(), controls: vec![Control { job, verb }] };
        let outcomes =
            audited!(self.context.store, write, audit, WriteReply::Controlled(outcomes) => outcomes);
        let outcome = self.controlled(outcomes).pop().unwrap_or(Err(ControlError::NotThere));
        self.triggered(trigger, &outcome);
        outcome
    }

    /// The span of a verb that asks for a run, if this node records spans.
    fn trigger_span(&self, verb: &mut Verb) -> Option<TriggerSpan> {
        self.context.traces.as_ref()?.trigger(verb, self.now())
    }

    fn triggered(&self, trigger: Option<TriggerSpan>, outcome: &Result<Controlled, ControlError>) {
        if let (Some(traces), Some(trigger), Ok(controlled)) = (&self.context.traces, trigger, outcome) {
            traces.triggered(trigger, controlled.added, self.now());
        }
    }

    /// Applies verbs to jobs, each independently.
    pub(crate) async fn control_many(
        &self,
        mut verbs: Vec<(JobId, Verb)>,
    ) -> Result<Vec<Result<Controlled, ControlError>>, StoreError> {
        if verbs.is_empty() {
            return Ok(vec![]);
        }
        let triggers: Vec<Option<TriggerSpan>> =
            verbs.iter_mut().map(|(_, verb)| self.trigger_span(verb)).collect();
        let controls = verbs.into_iter().map(|(job, verb)| Control { job, verb }).collect();
        let outcomes = self.context.store.control(self.now(), controls).await?;
        let outcomes = self.controlled(outcomes);
        triggers.into_iter().zip(&outcomes).for_each(|(trigger, outcome)| self.triggered(trigger, outcome));
        Ok(outcomes)
    }

    /// Redrives dead-lettered occurrences, each independently.
    pub async fn redrive(
        &self,
        dead: Vec<OccurrenceId>,
        audit: Option<AuditEntry>,
    ) -> Result<Vec<Result<Controlled, ControlError>>, StoreError> {
        let write = Write::Redrive { now: self.now(), dead };
        let outcomes = audited!(self.context.store, write, audit, WriteReply::Redriven(outcomes) => outcomes);
        Ok(self.controlled(outcomes))
    }

    /// Deletes dead letters; per item whether it existed.
    pub async fn discard(
        &self,
        dead: Vec<OccurrenceId>,
        audit: Option<AuditEntry>,
    ) -> Result<Vec<bool>, StoreError> {
        let write = Write::Discard { dead };
        Ok(audited!(self.context.store, write, audit, WriteReply::Discarded(existed) => existed))
    }

    pub async fn cancel_execution(
        &self,
        execution: ExecutionId,
        audit: Option<AuditEntry>,
    ) -> Result<CancelOutcome, StoreError> {
        let mut outcomes = self.cancel_executions(vec![execution], audit).await?;
        Ok(outcomes.pop().unwrap_or(CancelOutcome::NotThere))
    }

    /// Cancels executions, each independently.
    pub(crate) async fn cancel_executions(
        &self,
        executions: Vec<ExecutionId>,
        audit: Option<AuditEntry>,
    ) -> Result<Vec<CancelOutcome>, StoreError> {
        let write = Write::Cancel { now: self.now(), executions: executions.clone() };
        let outcomes =
            audited!(self.context.store, write, audit, WriteReply::Cancelled(outcomes) => outcomes);
        self.context.events.touched(executions.into_iter().map(|execution| execution.occurrence));
        let effects = outcomes.iter().filter_map(|outcome| match outcome {
            CancelOutcome::Cancelled(effects) => Some(effects.clone()),
            _ => None,
        });
        self.context.follow_up(effects, ReservedSlots::default());
        Ok(outcomes)
    }

    pub async fn pause_queue(
        &self,
        queue: String,
        pausing: Pausing,
        audit: Option<AuditEntry>,
    ) -> Result<(), StoreError> {
        let write = Write::PauseQueue { now: self.now(), queue, pausing };
        let effects = audited!(self.context.store, write, audit, WriteReply::QueuePaused(effects) => effects);
        self.context.follow_up([effects], ReservedSlots::default());
        if pausing == Pausing::Resume {
            // Executions on its wait lists may proceed.
            self.context.lines.look();
        }
        Ok(())
    }

    /// Declares sessions lost that have not sent a heartbeat since they were read.
    pub async fn lose_sessions(&self, sessions: Vec<Pulse>) -> Result<(), StoreError> {
        let lost = self.context.store.lose_sessions(self.now(), sessions).await?;
        self.context.counters.sessions_lost.add(lost.into_iter().filter(|lost| *lost).count() as u64);
        Ok(())
    }

    /// Pauses, resumes or drains a worker's session. `None` if it does not exist.
    pub async fn order_session(
        &self,
        session: SessionId,
        order: SessionOrder,
        audit: Option<AuditEntry>,
    ) -> Result<Option<Result<SessionMode, SessionDraining>>, StoreError> {
        let write = Write::OrderSession { session, order };
        let mode = audited!(self.context.store, write, audit, WriteReply::SessionOrdered(mode) => mode);
        if order == SessionOrder::Resume {
            // Its poll may be waiting, and there may be work.
            self.context.poll_registry.wake_all();
        }
        Ok(mode)
    }

    /// Stores the settings of a queue. They apply to submits from now on, and executions that wait for a
    /// limit that was removed or raised proceed.
    pub async fn set_queue(
        &self,
        queue: String,
        change: QueueChange,
        audit: Option<AuditEntry>,
    ) -> Result<(), UseCaseError> {
        let write = Write::SetQueue { queue, change };
        audited!(self.context.store, write, audit, WriteReply::QueueSet => ());
        self.context.lines.look();
        Ok(())
    }

    fn controlled(&self, outcomes: Vec<ControlOutcome>) -> Vec<Result<Controlled, ControlError>> {
        let answer = |outcome| match outcome {
            ControlOutcome::Done(controlled) => {
                self.context.counters.skipped.add(controlled.skipped);
                let moved = controlled.added.iter().chain(&controlled.asked);
                self.context.events.touched(moved.map(|execution| execution.occurrence));
                self.context.follow_up([controlled.effects.clone()], ReservedSlots::default());
                Ok(controlled)
            }
            ControlOutcome::Refused(refusal) => Err(ControlError::Refused(refusal)),
            ControlOutcome::NotThere => Err(ControlError::NotThere),
        };
        outcomes.into_iter().map(answer).collect()
    }
}
