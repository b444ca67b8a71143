//! Submitting jobs.

use crate::audit::AuditableItem;
use crate::batcher::Batcher;
use crate::poll_registry::ReservedSlots;
use crate::{Engine, EngineContext, Forbidden};
use punctual_core::ids::{JobId, OccurrenceId};
use punctual_core::job::{Expiry, InvalidField, Job, JobSpec, JobStatus, Settings, StoredStatus};
use punctual_core::limits;
use punctual_core::mix::mix;
use punctual_core::ports::{
    AuditEntry, CommitEffects, NewJob, ParentProblem, SlotReservation, StoreError, SubmitOutcome, Write,
    WriteReply,
};
use punctual_core::queue::QueueFull;
use punctual_core::recurrence::Rule;
use punctual_core::schedule::{Schedule, first_run, is_due_at_once};
use punctual_core::time::Timestamp;
use punctual_core::trace_context::TraceContext;
use serde_json::json;
use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

/// A stored job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submitted {
    pub job: JobId,
    /// Its status right after the submit, if that created it.
    pub status: JobStatus,
    pub next_run_time: Option<Timestamp>,
    /// Whether an earlier submit with the same `idempotency_key` had created it.
    pub is_existing: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    #[error("the job is not valid")]
    Invalid(Vec<InvalidField>),
    /// The caller may not store such a job.
    #[error(transparent)]
    Forbidden(Forbidden),
    /// Another unfinished job of the owner has the `unique_key`.
    #[error("job {0} has this unique_key and is not finished")]
    KeyTaken(JobId),
    /// The queue of the job is at its maximum depth.
    #[error("the queue {queue} has depth {} (executions that have not started) and max_depth {}", full.depth, full.max_depth)]
    QueueFull { queue: String, full: QueueFull },
    /// The owner has submitted as many jobs as it may. The job was not stored.
    #[error("the submit quota of the owner {owner} is used up")]
    QuotaReached { owner: String, retry_after: Duration },
    /// A row that the job needs cannot be read. The job was not stored.
    #[error("the job cannot be stored: {0}; `punctual check` names every row that cannot be read")]
    Unreadable(String),
    /// Whether the job was stored is unknown.
    #[error(transparent)]
    Unavailable(StoreError),
}

/// The source of the ids of a submit that may be repeated: the same source gives the same ids, so that no job
/// is stored twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdSource {
    pub at: Timestamp,
    pub seed: u64,
}

impl IdSource {
    fn id(self, place: usize) -> JobId {
        JobId::new(self.at, mix(self.seed ^ mix(place as u64)))
    }
}

/// The request that jobs come from.
#[derive(Debug, Default)]
pub struct SubmitRequest {
    /// The source of the ids; random ones without it.
    pub ids: Option<IdSource>,
    pub audit: Option<AuditEntry>,
    /// The trace of the caller.
    pub trace: Option<TraceContext>,
}

/// The outcome of an accepted job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SubmitResult {
    New { waits_for_limit: bool },
    Existing(JobId),
    KeyTaken(JobId),
    BadParent { parent: JobId, problem: ParentProblem },
    QueueFull { queue: String, full: QueueFull },
    Unreadable(String),
}

impl Engine {
    /// Stores these jobs independently: an invalid one does not affect the others. Returns when they are
    /// durable.
    pub async fn submit(&self, specs: Vec<JobSpec>) -> Vec<Result<Submitted, SubmitError>> {
        let request = SubmitRequest::default();
        self.submit_from(specs.into_iter().map(Ok).collect(), request).await
    }

    /// Like [`Engine::submit`], on behalf of a request. Jobs that were refused already keep their place, because the
    /// ids follow from it.
    pub async fn submit_from(
        &self,
        specs: Vec<Result<JobSpec, SubmitError>>,
        SubmitRequest { ids, audit, trace }: SubmitRequest,
    ) -> Vec<Result<Submitted, SubmitError>> {
        let now = self.now();
        let mut answers: Vec<Result<Submitted, SubmitError>> = Vec::with_capacity(specs.len());
        let mut jobs = Vec::with_capacity(specs.len());
        let mut submission = self.context.submission(trace, specs.len());
        for (place, spec) in specs.into_iter().enumerate() {
            let id = match ids {
                Some(source) => source.id(place),
                None => JobId::new(now, self.context.host.random.next_u64()),
            };
            let admitted = spec.and_then(|spec| admit(id, spec, now)).and_then(|job| self.within_quota(job));
            answers.push(admitted.map(|mut job| {
                submission.stamp(place, &mut job);
                let submitted = submitted(&job);
                jobs.push(job);
                submitted
            }));
        }
        let asked_at = self.context.host.clock.monotonic();
        let audit = audit.map(|entry| about_jobs(entry, &jobs));
        if jobs.is_empty() {
            audit.into_iter().for_each(|entry| self.context.refusals.add(entry.refused("no job is valid")));
            return answers;
        }
        let left_out = answers.len() - jobs.len();
        let kept = self.submits.call(AuditableItem::of_request(jobs, audit, left_out)).await;
        self.context.measures.submit.observe_duration(self.context.host.clock.monotonic().since(asked_at));
        let mut kept = match kept {
            Ok(kept) => Ok(kept.into_iter()),
            Err(error) => Err(SubmitError::Unavailable(error)),
        };
        for (place, answer) in answers.iter_mut().enumerate() {
            let Ok(submitted) = answer else { continue };
            let outcome = match &mut kept {
                Ok(kept) => kept.next().expect("the batcher answers once per item"),
                Err(error) => {
                    *answer = Err(error.clone());
                    continue;
                }
            };
            match outcome {
                SubmitResult::New { waits_for_limit: false } => {}
                SubmitResult::New { waits_for_limit: true } => submission.waits_for_limit(place),
                SubmitResult::Existing(job) => {
                    *submitted = Submitted { job, is_existing: true, ..submitted.clone() };
                }
                SubmitResult::KeyTaken(job) => *answer = Err(SubmitError::KeyTaken(job)),
                SubmitResult::BadParent { parent, problem } => {
                    *answer = Err(SubmitError::Invalid(vec![bad_parent(parent, problem)]));
                }
                SubmitResult::QueueFull { queue, full } => {
                    *answer = Err(SubmitError::QueueFull { queue, full })
                }
                SubmitResult::Unreadable(reason) => *answer = Err(SubmitError::Unreadable(reason)),
            }
        }
        submission.ended(&answers, self.now());
        answers
    }
}

/// Names the jobs in the entry of their submit.
fn about_jobs(entry: AuditEntry, jobs: &[Job]) -> AuditEntry {
    if let [job] = jobs {
        return AuditEntry { object: format!("job {}", job.id), ..entry };
    }
    let ids: Vec<String> = jobs.iter().take(limits::AUDIT_IDS_MAX).map(|job| job.id.to_string()).collect();
    let details = json!({ "jobs": jobs.len(), "first": ids }).to_string();
    AuditEntry { object: format!("{} jobs", jobs.len()), details: Some(details), ..entry }
}

pub(crate) fn admit(id: JobId, spec: JobSpec, now: Timestamp) -> Result<Job, SubmitError> {
    spec.check().map_err(SubmitError::Invalid)?;
    if let Some(problem) = expired(&spec.settings, now) {
        return Err(SubmitError::Invalid(vec![problem]));
    }
    let mark = StoredStatus::Active;
    let job = Job { id, version: 1, mark, numbered: None, fired: 0, created_at: now, updated_at: now, spec };
    match first_run(&job) {
        Some(_) => Ok(job),
        None => Err(SubmitError::Invalid(vec![never_runs(&job)])),
    }
}

fn submitted(job: &Job) -> Submitted {
    let next_run_time = first_run(job).map(|(_, due_at)| due_at);
    Submitted { job: job.id, status: JobStatus::Active, next_run_time, is_existing: false }
}

/// The error of an expiry that has already passed.
pub(crate) fn expired(settings: &Settings, now: Timestamp) -> Option<InvalidField> {
    match settings.expiry {
        Some(Expiry::At(at)) if at <= now => Some(InvalidField::new("expires_at", "must be in the future")),
        _ => None,
    }
}

pub(crate) fn never_runs(job: &Job) -> InvalidField {
    match &job.spec.settings.schedule {
        Schedule::Recurring(recurring) if recurring.recurrence.spec().end_at.is_some() => {
            InvalidField::new("end_at", "must not be before the first run")
        }
        Schedule::Recurring(recurring)
            if matches!(recurring.recurrence.spec().rule, Rule::Interval { .. }) =>
        {
            InvalidField::new("interval", "must lead to a time before 9999-12-30")
        }
        Schedule::Recurring(recurring) if recurring.recurrence.parts().next().is_some() => {
            InvalidField::new("schedules", "must name a time in the future")
        }
        Schedule::Recurring(recurring) if matches!(recurring.recurrence.spec().rule, Rule::Rrule { .. }) => {
            InvalidField::new("rrule", "names no time in the future: move its start or its end")
        }
        _ => InvalidField::new("cron_expression", "must name a time in the future"),
    }
}

/// The error about a job in `depends_on` that does not exist, or that the caller may not see.
pub(crate) fn unknown_parent(parent: JobId) -> InvalidField {
    bad_parent(parent, ParentProblem::NotThere)
}

fn bad_parent(parent: JobId, problem: ParentProblem) -> InvalidField {
    let fix = match problem {
        ParentProblem::NotThere => format!("names job {parent}, which does not exist"),
        ParentProblem::Recurring => {
            format!("names job {parent}, which is recurring: name jobs that run once")
        }
    };
    InvalidField::new("depends_on", fix)
}

impl EngineContext {
    pub(crate) fn submit_batcher(self: Arc<Self>) -> Batcher<AuditableItem<Job>, SubmitResult> {
        let spawn = self.host.spawn.clone();
        Batcher::new(spawn, limits::STORE_BATCH_MAX, move |jobs| Box::pin(self.clone().submit_batch(jobs)))
    }

    async fn submit_batch(
        self: Arc<Self>,
        batch: Vec<AuditableItem<Job>>,
    ) -> Result<Vec<SubmitResult>, StoreError> {
        let (jobs, entries) = AuditableItem::of_batch(batch);
        let now = self.time.now();
        let mut reservation = ReservedSlots::default();
        let reservations = self.reservations(&mut reservation, &jobs, now);
        let jobs: Vec<NewJob> = jobs
            .into_iter()
            .zip(reservations)
            .map(|(job, reservation)| NewJob { job, reservation })
            .collect();
        let begins: Vec<OccurrenceId> = if self.events.has_listeners() {
            let due = jobs.iter().filter(|new| is_due_at_once(&new.job.spec.settings.schedule, now));
            due.map(|new| new.job.id.occurrence(1)).collect()
        } else {
            vec![]
        };
        self.measures.batches.submit.observe(jobs.len() as u64);
        match self.store.write(Write::Submit { now, jobs }.audited_in_parts(entries)).await {
            Ok(WriteReply::Submitted(outcomes)) => {
                self.events.touched(begins);
                let (kept, effects): (Vec<SubmitResult>, Vec<CommitEffects>) =
                    outcomes.into_iter().map(kept).unzip();
                let new = kept.iter().filter(|kept| matches!(kept, SubmitResult::New { .. })).count();
                self.counters.submitted.add(new as u64);
                self.follow_up(effects, reservation);
                Ok(kept)
            }
            reply => {
                let unexpected = |reply| StoreError::Broken(format!("a write was answered with {reply:?}"));
                let error = reply.map_or_else(|error| error, unexpected);
                self.counters.store_errors.add(1);
                self.poll_registry.settle_failed(reservation, &error.to_string());
                Err(error)
            }
        }
    }
}

impl EngineContext {
    /// Reserves slots for those of the jobs that are due at once: the highest priority first, regardless of
    /// their order.
    fn reservations(
        &self,
        reservation: &mut ReservedSlots,
        jobs: &[Job],
        now: Timestamp,
    ) -> Vec<Option<SlotReservation>> {
        let is_due = |job: &Job| {
            let settings = &job.spec.settings;
            is_due_at_once(&settings.schedule, now) && settings.depends_on.is_empty()
        };
        let mut due: Vec<usize> = (0..jobs.len()).filter(|place| is_due(&jobs[*place])).collect();
        due.sort_by_key(|place| Reverse(jobs[*place].spec.priority));
        let mut reservations = vec![None; jobs.len()];
        for place in due {
            let spec = &jobs[place].spec;
            reservations[place] = self.poll_registry.reserve(reservation, &spec.queue, &spec.job_type);
        }
        reservations
    }
}

fn kept(outcome: SubmitOutcome) -> (SubmitResult, CommitEffects) {
    let kept = match outcome {
        SubmitOutcome::Created(effects) => {
            return (SubmitResult::New { waits_for_limit: !effects.joined.is_empty() }, effects);
        }
        SubmitOutcome::AlreadyThere => SubmitResult::New { waits_for_limit: false },
        SubmitOutcome::Existing(job) => SubmitResult::Existing(job),
        SubmitOutcome::KeyTaken(job) => SubmitResult::KeyTaken(job),
        SubmitOutcome::BadParent { parent, problem } => SubmitResult::BadParent { parent, problem },
        SubmitOutcome::QueueFull { queue, full } => SubmitResult::QueueFull { queue, full },
        SubmitOutcome::Unreadable(reason) => SubmitResult::Unreadable(reason),
    };
    (kept, CommitEffects::default())
}
