//! Jobs that owner and name identify: finding them, and what putting one would do.

use super::secrets::SecretRules;
use super::{UseCase, UseCaseError, UseCases};
use crate::SubmitError;
use punctual_core::control::{LoadedJob, Update, Verb};
use punctual_core::ids::JobId;
use punctual_core::job::{JobSpec, JobStatus};
use punctual_core::limits;
use punctual_core::ports::{JobQuery, JobView};

impl UseCases {
    /// The job that owner and name identify: the one that was put by its name, finished or not; otherwise the
    /// only unfinished job with the name, if the search for it, which is
    /// limited to [`limits::NAME_SEARCH_PAGES_MAX`] pages, finds one.
    pub async fn job_by_name(&self, owner: &str, name: &str) -> Result<Option<JobView>, UseCaseError> {
        self.permit(UseCase::Submit)?;
        if let Some(id) = self.store().named_job(owner.to_owned(), name.to_owned()).await? {
            // One outside of the caller's scope is refused when the job is stored.
            return match self.job_in_scope(id).await {
                Err(UseCaseError::NoSuchJob(_)) => Ok(None),
                found => found.map(Some),
            };
        }
        let mut unfinished = Vec::new();
        for status in [JobStatus::Active, JobStatus::Paused] {
            unfinished.extend(self.unfinished_named(owner, name, status).await?);
        }
        match unfinished.len() {
            0 | 1 => Ok(unfinished.pop()),
            _ => {
                let jobs = unfinished.iter().map(|view| view.job.id).collect();
                Err(UseCaseError::AmbiguousName { name: name.to_owned(), jobs })
            }
        }
    }

    async fn unfinished_named(
        &self,
        owner: &str,
        name: &str,
        status: JobStatus,
    ) -> Result<Vec<JobView>, UseCaseError> {
        let mut query = JobQuery {
            owner: Some(owner.to_owned()),
            name: Some(name.to_owned()),
            status: Some(status),
            limit: limits::PAGE_ITEMS_MAX,
            ..JobQuery::default()
        };
        let mut found = Vec::new();
        for _ in 0..limits::NAME_SEARCH_PAGES_MAX {
            let page = self.read_in_scope(query.clone()).await?;
            found.extend(page.items);
            query.before = page.next;
            if page.next.is_none() || found.len() >= limits::PAGE_ITEMS_MAX {
                break;
            }
        }
        Ok(found)
    }

    /// Refuses a job that [`UseCases::submit`] would refuse. Stores nothing.
    pub async fn check_submit(&self, spec: &JobSpec) -> Result<(), UseCaseError> {
        self.permit(UseCase::Submit)?;
        self.check_target(spec)?;
        let problems = self.content_problems(spec, &mut SecretRules::default()).await?;
        if !problems.is_empty() {
            let others = spec.check().err().unwrap_or_default();
            return Err(UseCaseError::Invalid([problems, others].concat()));
        }
        match crate::submit::admit(JobId::new(self.now(), 0), spec.clone(), self.now()) {
            Ok(_) => Ok(()),
            Err(SubmitError::Invalid(problems)) => Err(UseCaseError::Invalid(problems)),
            Err(other) => Err(UseCaseError::invalid("job", other.to_string())),
        }
    }

    /// Refuses a change that [`UseCases::update`] would refuse. Changes nothing.
    pub async fn check_update(&self, view: &JobView, spec: &JobSpec) -> Result<(), UseCaseError> {
        let job = &view.job;
        self.permit_on(UseCase::UpdateJob, format_args!("job {}", job.id))?;
        self.check_payload_is_plain(view)?;
        self.check_change(job.id, &job.spec, spec).await?;
        let refused = |error| UseCaseError::of_control(job.id, error);
        self.engine.check_update(job, spec).map_err(refused)?;
        let open = view.open.iter().rev().cloned().collect();
        let loaded = LoadedJob { job: job.clone(), schedule: view.schedule.clone(), open };
        let update = Update { spec: spec.clone(), expected_version: None };
        let changed = loaded.apply(&Verb::Update(Box::new(update)), None, self.now());
        changed.map(|_| ()).map_err(|refusal| UseCaseError::Refused { job: job.id, refusal })
    }
}
