//! Jobs: submitting, reading, changing and controlling them.

use super::audit::changed_fields;
use super::scope::JobsMatching;
use super::secrets::SecretRules;
use super::{Forbidden, RequestTry, UseCase, UseCaseError, UseCases};
use crate::submit::{SubmitRequest, unknown_parent};
use crate::{ControlError, SubmitError, Submitted};
use punctual_core::access::Permission;
use punctual_core::control::{Refusal, Verb};
use punctual_core::ids::JobId;
use punctual_core::job::{InvalidField, JobSpec, JobStatus};
use punctual_core::job_predicate::JobPredicate;
use punctual_core::notes::Noted;
use punctual_core::occurrence::{Finished, LiveState};
use punctual_core::payloads::payload_problem;
use punctual_core::ports::{
    AuditEntry, Controlled, JobQuery, JobView, OPEN_IN_VIEW_MAX, Page, SessionRow, StoreError,
};
use punctual_core::schedule::SkipReason;
use punctual_core::time::Timestamp;
use punctual_core::trace_context::SubmittedTrace;
use serde_json::Value;

/// How often a change is recomputed because the job was changed concurrently.
const UPDATE_TRIES_MAX: usize = 100;

/// What stands for the name of a job outside of the caller's scope.
const HIDDEN_NAME: &str = "(a job of another owner)";

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
    /// Why the payload cannot be shown: this node cannot decrypt it.
    pub unreadable: Option<UseCaseError>,
}

impl UseCases {
    /// Stores these jobs independently: an invalid one does not affect the others. Returns when they are
    /// durable.
    pub async fn submit(
        &self,
        specs: Vec<JobSpec>,
        attempt: RequestTry,
    ) -> Result<Vec<Result<Submitted, SubmitError>>, UseCaseError> {
        self.permit(UseCase::Submit)?;
        let by_name = specs.iter().any(|spec| spec.settings.by_name);
        // Jobs whose outcome another job or an earlier try may have decided must be read back.
        let undecided: Vec<bool> =
            specs.iter().map(|spec| attempt.is_repeated || !spec.settings.depends_on.is_empty()).collect();
        let mut answers = self.submit_in_scope(specs, attempt).await?;
        self.hide_jobs_out_of_scope(&mut answers, if by_name { "name" } else { "idempotency_key" }).await?;
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

    /// Keys belong to an owner, so that a job in a queue that the caller does not see may have one.
    async fn hide_jobs_out_of_scope(
        &self,
        answers: &mut [Result<Submitted, SubmitError>],
        identified_by: &str,
    ) -> Result<(), UseCaseError> {
        let other = |answer: &Result<Submitted, SubmitError>| match answer {
            Ok(submitted) if submitted.is_existing => Some((submitted.job, identified_by)),
            Err(SubmitError::KeyTaken(job)) => Some((*job, "unique_key")),
            _ => None,
        };
        let visible = self.in_scope(answers.iter().filter_map(other).map(|(job, _)| job)).await?;
        for answer in answers {
            if let Some((job, field)) = other(answer)
                && !visible.has(job)
            {
                let fix = "is used by a job of the owner that the token may not see: use another one";
                *answer = Err(SubmitError::Invalid(vec![InvalidField::new(field, fix)]));
            }
        }
        Ok(())
    }

    /// Submits the jobs that the caller may store; the others are refused, each independently.
    async fn submit_in_scope(
        &self,
        specs: Vec<JobSpec>,
        attempt: RequestTry,
    ) -> Result<Vec<Result<Submitted, SubmitError>>, UseCaseError> {
        let parents = specs.iter().flat_map(|spec| spec.settings.depends_on.iter().copied());
        let parents = self.in_scope(parents).await?;
        let in_scope = |spec: JobSpec| {
            let object = format_args!("job named {}", spec.name);
            self.noted(UseCase::Submit, object, self.check_target(&spec)).map_err(SubmitError::Forbidden)?;
            match spec.settings.depends_on.iter().find(|parent| !parents.has(**parent)) {
                Some(hidden) => Err(SubmitError::Invalid(vec![unknown_parent(*hidden)])),
                None => Ok(spec),
            }
        };
        let mut rules = SecretRules::default();
        let mut checked = Vec::with_capacity(specs.len());
        for spec in specs {
            checked.push(match in_scope(spec) {
                Ok(spec) => {
                    let problems = self.content_problems(&spec, &mut rules).await?;
                    match problems.is_empty() {
                        true => Ok(spec),
                        // With all other errors, so that they can be fixed together.
                        false => {
                            let others = spec.check().err().unwrap_or_default();
                            Err(SubmitError::Invalid([problems, others].concat()))
                        }
                    }
                }
                refused => refused,
            });
        }
        let audit = self.audited(UseCase::Submit, "");
        let request = SubmitRequest { ids: attempt.ids, audit, trace: self.trace.clone() };
        Ok(self.engine.submit_from(checked, request).await)
    }

    /// What is wrong with the payload, the channels, the calendars and the large results of a new job.
    pub(super) async fn content_problems(
        &self,
        spec: &JobSpec,
        rules: &mut SecretRules,
    ) -> Result<Vec<InvalidField>, StoreError> {
        let found = [
            self.payload_problem(spec, rules).await?,
            self.notify_problem(spec).await?,
            self.calendar_problem(&spec.settings.schedule).await?,
            self.blob_problem(spec),
        ];
        Ok(found.into_iter().flatten().collect())
    }

    /// What is wrong with a new or changed payload: its handler would refuse it, it does not match the schema of the
    /// job type, or the job may not use a secret in it.
    pub(super) async fn payload_problem(
        &self,
        spec: &JobSpec,
        rules: &mut SecretRules,
    ) -> Result<Option<InvalidField>, StoreError> {
        if let Some(problem) = payload_problem(&spec.job_type, &spec.payload) {
            return Ok(Some(problem));
        }
        match self.schema_problem(&spec.job_type, &spec.payload).await? {
            Some(problem) => Ok(Some(problem)),
            None => self.secret_problem(spec, rules).await,
        }
    }

    pub async fn job(&self, id: JobId) -> Result<JobView, UseCaseError> {
        self.permit_on(UseCase::ReadJobs, format_args!("job {id}"))?;
        Ok(self.shown(self.job_in_scope(id).await?))
    }

    pub async fn job_details(&self, id: JobId) -> Result<JobDetails, UseCaseError> {
        self.permit_on(UseCase::ReadJobs, format_args!("job {id}"))?;
        let stored = self.job_in_scope(id).await?;
        let is_checked = self.may_read_payloads();
        let unreadable = if is_checked { self.check_payload_is_plain(&stored).err() } else { None };
        let view = self.shown(stored);
        let is_unfinished = matches!(view.status(), JobStatus::Active | JobStatus::Paused);
        let is_queued = view.open.iter().any(|live| matches!(live.state, LiveState::Queued));
        Ok(JobDetails {
            blamed: self.blamed(&view).await?,
            sessions: if is_unfinished && is_queued { Some(self.store().sessions().await?) } else { None },
            progress: self.progress(&view).await?,
            unreadable,
            view,
        })
    }

    /// Whether the caller may ask when a schedule would fire.
    pub fn check_preview(&self) -> Result<(), Forbidden> {
        self.permit(UseCase::PreviewSchedule)
    }

    pub async fn jobs(&self, query: JobQuery) -> Result<Page<JobView, JobId>, UseCaseError> {
        self.permit(UseCase::ReadJobs)?;
        let page = self.read_in_scope(query).await?;
        self.shown_page(page).await
    }

    /// The jobs of a list that the predicate selects. Looks at a bounded number of jobs for each page, so a page may
    /// be short or empty although more follow.
    pub async fn jobs_matching(
        &self,
        query: JobQuery,
        predicate: &JobPredicate,
    ) -> Result<Page<JobView, JobId>, UseCaseError> {
        self.permit(UseCase::ReadJobs)?;
        self.check_predicate(predicate)?;
        let page = self.read_in_scope(JobsMatching { query, predicate }).await?;
        self.shown_page(page).await
    }

    pub(super) async fn shown_page(
        &self,
        page: Page<JobView, JobId>,
    ) -> Result<Page<JobView, JobId>, UseCaseError> {
        let mut items = Vec::with_capacity(page.items.len());
        for view in page.items {
            items.push(self.shown(self.under_calendars(view).await?));
        }
        Ok(Page { items, next: page.next })
    }

    /// Refuses a predicate about payloads that the caller may not read, or that are encrypted.
    pub(super) fn check_predicate(&self, predicate: &JobPredicate) -> Result<(), UseCaseError> {
        let Some(parameter) = predicate.payload_parameter() else { return Ok(()) };
        let may_read = self.caller.check_permission(Permission::PayloadRead);
        self.noted(UseCase::ReadJobs, "payloads of jobs", may_read)?;
        if self.engine.context.config.encrypt_payloads {
            let fix = "cannot be used: payloads are encrypted at rest (store.encrypt_payloads)";
            return Err(UseCaseError::invalid(&parameter, fix));
        }
        Ok(())
    }

    pub async fn control(&self, id: JobId, verb: Verb) -> Result<Controlled, UseCaseError> {
        let case = case_of(&verb);
        self.permit_on(case, format_args!("job {id}"))?;
        self.check_in_scope(id).await?;
        let audit = self.audited(case, format_args!("job {id}"));
        self.engine.control(id, verb, audit).await.map_err(|error| UseCaseError::of_control(id, error))
    }

    /// Computes a new description from the stored one and applies it to that version. If the job has changed
    /// meanwhile, it computes it again, unless the caller expects a version.
    pub async fn update<E: From<UseCaseError>>(
        &self,
        id: JobId,
        expected: Option<u32>,
        make: impl Fn(&JobSpec) -> Result<JobSpec, E>,
    ) -> Result<(), E> {
        self.permit_on(UseCase::UpdateJob, format_args!("job {id}")).map_err(UseCaseError::from)?;
        let entry =
            |changes: &Value| self.audited_with(UseCase::UpdateJob, format_args!("job {id}"), changes);
        self.change_job(id, expected, make, entry).await
    }

    /// The same for a caller whose permission was checked. `entry` makes the entry of the audit log from the changes.
    pub(crate) async fn change_job<E: From<UseCaseError>>(
        &self,
        id: JobId,
        expected: Option<u32>,
        make: impl Fn(&JobSpec) -> Result<JobSpec, E>,
        entry: impl Fn(&Value) -> Option<AuditEntry>,
    ) -> Result<(), E> {
        for _ in 0..UPDATE_TRIES_MAX {
            let view = self.job_in_scope(id).await?;
            self.check_payload_is_plain(&view)?;
            let stored = view.job;
            let version = stored.version;
            if expected.is_some_and(|expected| expected != version) {
                return Err(UseCaseError::Refused { job: id, refusal: Refusal::Stale { version } }.into());
            }
            let mut spec = make(&stored.spec)?;
            spec.settings.by_name |= stored.spec.settings.by_name;
            // No part of the definition, and so no change of it.
            spec.settings.trace = stored.spec.settings.trace.clone();
            self.check_change(id, &stored.spec, &spec).await?;
            let audit = entry(&changed_fields(&stored.spec, &spec));
            if let Some(context) = &self.trace {
                spec.settings.trace = Some(SubmittedTrace { context: context.clone(), in_batch: false });
            }
            match self.engine.update(&stored, spec, audit).await {
                Ok(_) => return Ok(()),
                Err(ControlError::Refused(Refusal::Stale { .. })) if expected.is_none() => {}
                Err(error) => return Err(UseCaseError::of_control(id, error).into()),
            }
        }
        Err(UseCaseError::Busy.into())
    }

    /// Refuses a description that would move the job out of the caller's scope, that names a job outside of it or a
    /// secret that it may not use, or whose changed payload the handler would refuse.
    pub(super) async fn check_change(
        &self,
        id: JobId,
        stored: &JobSpec,
        spec: &JobSpec,
    ) -> Result<(), UseCaseError> {
        let is_moved = stored.queue != spec.queue || stored.job_type != spec.job_type;
        if is_moved {
            let object = format_args!("job {id}");
            self.noted(UseCase::UpdateJob, object, self.check_target(spec))?;
        }
        if (is_moved || stored.owner != spec.owner || stored.payload != spec.payload)
            && let Some(problem) = self.payload_problem(spec, &mut SecretRules::default()).await?
        {
            return Err(UseCaseError::Invalid(vec![problem]));
        }
        // A channel that was removed must not prevent other changes.
        if stored.settings.notify != spec.settings.notify
            && let Some(problem) = self.notify_problem(spec).await?
        {
            return Err(UseCaseError::Invalid(vec![problem]));
        }
        if stored.settings.schedule != spec.settings.schedule
            && let Some(problem) = self.calendar_problem(&spec.settings.schedule).await?
        {
            return Err(UseCaseError::Invalid(vec![problem]));
        }
        let overflow = |spec: &JobSpec| spec.settings.result_overflow;
        if (stored.payload != spec.payload || overflow(stored) != overflow(spec))
            && let Some(problem) = self.blob_problem(spec)
        {
            return Err(UseCaseError::Invalid(vec![problem]));
        }
        let (old, new) = (&stored.settings.depends_on, &spec.settings.depends_on);
        let added: Vec<JobId> = new.iter().copied().filter(|parent| !old.contains(parent)).collect();
        let visible = self.in_scope(added.iter().copied()).await?;
        match added.into_iter().find(|parent| !visible.has(*parent)) {
            Some(hidden) => Err(UseCaseError::Invalid(vec![unknown_parent(hidden)])),
            None => Ok(()),
        }
    }

    pub(super) async fn blamed(&self, view: &JobView) -> Result<Option<(String, JobStatus)>, StoreError> {
        let last = view.last_finished.as_ref();
        let Some(parent) = last.and_then(|last| parent_to_blame(last, &view.job.spec)) else {
            return Ok(None);
        };
        Ok(self.store().job(parent).await?.map(|parent| (self.name_of(&parent), parent.status())))
    }

    /// The name of a job that another one refers to.
    pub(super) fn name_of(&self, view: &JobView) -> String {
        let spec = &view.job.spec;
        if self.is_in_scope(spec) { spec.name.clone() } else { HIDDEN_NAME.to_owned() }
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

fn case_of(verb: &Verb) -> UseCase {
    match verb {
        Verb::Update(_) => UseCase::UpdateJob,
        Verb::Pause => UseCase::PauseJob,
        Verb::Resume => UseCase::ResumeJob,
        Verb::Trigger { .. } | Verb::TriggerAfter(_) => UseCase::TriggerJob,
        Verb::SkipNext(_) => UseCase::SkipNext,
        Verb::RunNextAt { .. } => UseCase::RunNextAt,
        Verb::Backfill(_) => UseCase::Backfill,
        Verb::Retry => UseCase::RetryJob,
        Verb::Cancel => UseCase::CancelJob,
        Verb::Delete => UseCase::DeleteJob,
        Verb::Retime => UseCase::UpdateJob,
        Verb::Reseal(_) => UseCase::RotateSecrets,
    }
}

/// The job because of which an execution was skipped.
pub fn parent_to_blame(last: &Finished, spec: &JobSpec) -> Option<JobId> {
    let why = last.error.as_ref().filter(|_| last.reason == Some(SkipReason::Dependency))?;
    spec.settings.depends_on.iter().find(|parent| why.contains(&parent.to_string())).copied()
}

/// When the next occurrence runs, if that is known.
pub fn next_run_time(view: &JobView) -> Option<Timestamp> {
    view.next_run_time()
}
