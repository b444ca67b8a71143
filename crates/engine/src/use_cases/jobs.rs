//! Jobs: submitting, reading, changing and controlling them.

use super::{Permission, RequestTry, UseCaseError, UseCases};
use crate::{ControlError, SubmitError, Submitted};
use punctual_core::control::{Refusal, Verb};
use punctual_core::gates::Gate;
use punctual_core::ids::JobId;
use punctual_core::job::{JobSpec, JobStatus};
use punctual_core::notes::Noted;
use punctual_core::occurrence::{Finished, Live, LiveState};
use punctual_core::ports::{Controlled, JobQuery, JobView, OPEN_IN_VIEW_MAX, Page, SessionRow, StoreError};
use punctual_core::schedule::{ScheduleState, SkipReason};
use punctual_core::time::Timestamp;

/// How often a change is recomputed because the job was changed concurrently.
const UPDATE_TRIES_MAX: usize = 100;

/// A job with what explains its status.
#[derive(Debug, Clone)]
pub struct JobDetails {
    pub view: JobView,
    /// The name and current status of the job because of which its latest run was skipped.
    pub blamed: Option<(String, JobStatus)>,
    /// The connected workers, if one of its executions is queued.
    pub sessions: Option<Vec<SessionRow>>,
    /// The progress of its running execution; of several, the latest.
    pub progress: Option<Noted>,
}

impl UseCases {
    /// Stores these jobs independently: an invalid one does not affect the others. Returns when they are
    /// durable.
    pub async fn submit(
        &self,
        specs: Vec<JobSpec>,
        attempt: RequestTry,
    ) -> Result<Vec<Result<Submitted, SubmitError>>, UseCaseError> {
        self.permit(Permission::Change)?;
        // Jobs whose outcome another job or an earlier try may have decided must be read back.
        let undecided: Vec<bool> =
            specs.iter().map(|spec| attempt.is_repeated || !spec.settings.depends_on.is_empty()).collect();
        let mut answers = self.engine.submit_from(specs, attempt.ids).await;
        for (answer, is_undecided) in answers.iter_mut().zip(undecided) {
            if let Ok(submitted) = answer
                && (is_undecided || submitted.is_existing)
                && let Some(view) = self.store().job(submitted.job).await?
            {
                (submitted.status, submitted.next_run_time) = (view.status(), next_run_time(&view));
            }
        }
        Ok(answers)
    }

    pub async fn job(&self, id: JobId) -> Result<JobView, UseCaseError> {
        self.permit(Permission::Read)?;
        self.store().job(id).await?.ok_or(UseCaseError::NoSuchJob(id))
    }

    pub async fn job_details(&self, id: JobId) -> Result<JobDetails, UseCaseError> {
        let view = self.job(id).await?;
        let is_unfinished = matches!(view.status(), JobStatus::Active | JobStatus::Paused);
        let is_queued = view.open.iter().any(|live| matches!(live.state, LiveState::Queued));
        Ok(JobDetails {
            blamed: self.blamed(&view).await?,
            sessions: if is_unfinished && is_queued { Some(self.store().sessions().await?) } else { None },
            progress: self.progress(&view).await?,
            view,
        })
    }

    pub async fn jobs(&self, query: JobQuery) -> Result<Page<JobView, JobId>, UseCaseError> {
        self.permit(Permission::Read)?;
        Ok(self.store().jobs(query).await?)
    }

    pub async fn control(&self, id: JobId, verb: Verb) -> Result<Controlled, UseCaseError> {
        self.permit(Permission::Change)?;
        self.engine.control(id, verb).await.map_err(|error| UseCaseError::of_control(id, error))
    }

    /// Computes a new description from the stored one and applies it to that version. If the job has changed
    /// meanwhile, it computes it again, unless the caller expects a version.
    pub async fn update<E: From<UseCaseError>>(
        &self,
        id: JobId,
        expected: Option<u32>,
        make: impl Fn(&JobSpec) -> Result<JobSpec, E>,
    ) -> Result<(), E> {
        self.permit(Permission::Change).map_err(UseCaseError::from)?;
        for _ in 0..UPDATE_TRIES_MAX {
            let stored = self.job(id).await?.job;
            let version = stored.version;
            if expected.is_some_and(|expected| expected != version) {
                return Err(UseCaseError::Refused { job: id, refusal: Refusal::Stale { version } }.into());
            }
            match self.engine.update(&stored, make(&stored.spec)?).await {
                Ok(_) => return Ok(()),
                Err(ControlError::Refused(Refusal::Stale { .. })) if expected.is_none() => {}
                Err(error) => return Err(UseCaseError::of_control(id, error).into()),
            }
        }
        Err(UseCaseError::Busy.into())
    }

    pub(super) async fn blamed(&self, view: &JobView) -> Result<Option<(String, JobStatus)>, StoreError> {
        let last = view.last_finished.as_ref();
        let Some(parent) = last.and_then(|last| parent_to_blame(last, &view.job.spec)) else {
            return Ok(None);
        };
        Ok(self.store().job(parent).await?.map(|parent| (parent.job.spec.name.clone(), parent.status())))
    }

    async fn progress(&self, view: &JobView) -> Result<Option<Noted>, StoreError> {
        if !view.open.iter().any(|live| live.is_running() && live.flags.noted) {
            return Ok(None);
        }
        let notes = self.store().notes(view.job.id, u32::MAX, OPEN_IN_VIEW_MAX).await?;
        let runs = |noted: &Noted| {
            let execution = noted.occurrence.attempt(noted.attempt);
            view.open.iter().any(|live| live.is_running() && live.execution() == execution)
        };
        Ok(notes.into_iter().find(|noted| runs(noted) && !noted.progress.is_empty()))
    }
}

/// The job because of which an execution was skipped.
pub fn parent_to_blame(last: &Finished, spec: &JobSpec) -> Option<JobId> {
    let why = last.error.as_ref().filter(|_| last.reason == Some(SkipReason::Dependency))?;
    spec.settings.depends_on.iter().find(|parent| why.contains(&parent.to_string())).copied()
}

/// Gates whose opening time is unknown.
const UNTIMED: [Gate; 3] = [Gate::Dependency, Gate::Overlap, Gate::Paused];

/// When the next occurrence runs, if that is known: an occurrence that waits for another job, another
/// occurrence or a resume has no time.
pub fn next_run_time(view: &JobView) -> Option<Timestamp> {
    let has_time = |live: &&Live| {
        live.attempt == 1 && !live.is_running() && !UNTIMED.iter().any(|gate| live.is_closed_by(*gate))
    };
    let open = view.open.iter().filter(has_time).map(|live| live.available_at).min();
    open.or(view.schedule.as_ref().and_then(ScheduleState::runs_at))
}
