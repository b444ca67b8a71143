//! Taking jobs in.

use crate::batcher::Batcher;
use crate::desk::Reservation;
use crate::{Context, Engine};
use punctual_core::ids::JobId;
use punctual_core::job::{InvalidField, Job, JobMark, JobSpec, JobStatus};
use punctual_core::limits;
use punctual_core::ports::{NewJob, StoreError, SubmitOutcome};
use punctual_core::schedule::{Schedule, first_run, is_due_at_once};
use punctual_core::time::Timestamp;
use std::sync::Arc;

/// A job that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submitted {
    pub job: JobId,
    pub status: JobStatus,
    pub next_run_time: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    #[error("the job is not valid")]
    Invalid(Vec<InvalidField>),
    /// Whether the job was kept is unknown.
    #[error("{0}")]
    Unavailable(String),
}

impl Engine {
    /// Keeps these jobs, each for itself: an invalid one does not keep the others out. Answered when they are
    /// durable.
    pub async fn submit(&self, specs: Vec<JobSpec>) -> Vec<Result<Submitted, SubmitError>> {
        let now = self.now();
        let checked: Vec<Result<Job, SubmitError>> =
            specs.into_iter().map(|spec| self.admit(spec, now)).collect();
        let mut answers: Vec<Result<Submitted, SubmitError>> = Vec::with_capacity(checked.len());
        let mut jobs = Vec::with_capacity(checked.len());
        for job in checked {
            answers.push(job.map(|job| {
                let submitted = submitted(&job);
                jobs.push(job);
                submitted
            }));
        }
        if let Err(error) = self.submits.call(jobs).await {
            for answer in answers.iter_mut().filter(|answer| answer.is_ok()) {
                *answer = Err(SubmitError::Unavailable(error.to_string()));
            }
        }
        answers
    }

    fn admit(&self, spec: JobSpec, now: Timestamp) -> Result<Job, SubmitError> {
        spec.check().map_err(SubmitError::Invalid)?;
        let id = JobId::new(now, self.context.host.random.next_u64());
        let job = Job { id, version: 1, mark: JobMark::Active, created_at: now, updated_at: now, spec };
        match first_run(&job) {
            Some(_) => Ok(job),
            None => Err(SubmitError::Invalid(vec![never_runs(&job)])),
        }
    }
}

fn submitted(job: &Job) -> Submitted {
    let next_run_time = first_run(job).map(|(_, due_at)| due_at);
    Submitted { job: job.id, status: JobStatus::Active, next_run_time }
}

fn never_runs(job: &Job) -> InvalidField {
    match &job.spec.settings.schedule {
        Schedule::Recurring(recurring) if recurring.recurrence.spec().end_at.is_some() => {
            InvalidField::new("end_at", "must not be before the first run")
        }
        _ => InvalidField::new("cron_expression", "must name a time that is still to come"),
    }
}

impl Context {
    pub(crate) fn submit_batcher(self: Arc<Self>) -> Batcher<Job, ()> {
        let spawn = self.host.spawn.clone();
        Batcher::new(spawn, limits::STORE_BATCH_MAX, move |jobs| Box::pin(self.clone().submit_batch(jobs)))
    }

    async fn submit_batch(self: Arc<Self>, jobs: Vec<Job>) -> Result<Vec<()>, StoreError> {
        let now = self.time.now();
        let mut reservation = Reservation::default();
        let jobs: Vec<NewJob> = jobs
            .into_iter()
            .map(|job| {
                let due = is_due_at_once(&job.spec.settings.schedule, now);
                let offer =
                    due.then(|| self.desk.reserve(&mut reservation, &job.spec.queue, &job.spec.job_type));
                NewJob { job, offer: offer.flatten() }
            })
            .collect();
        match self.store.submit(now, jobs).await {
            Ok(outcomes) => {
                let count = outcomes.len();
                self.counters.submitted.add(count as u64);
                let begun = outcomes.into_iter().filter_map(|outcome| match outcome {
                    SubmitOutcome::Created(begun) => Some(begun),
                    SubmitOutcome::AlreadyThere => None,
                });
                self.follow_up(begun, reservation);
                Ok(vec![(); count])
            }
            Err(error) => {
                self.counters.store_errors.add(1);
                self.desk.settle_failed(reservation, &error.to_string());
                Err(error)
            }
        }
    }
}
