//! Jobs that owner and name identify: finding them, and what putting one would do.

use super::secrets::SecretRules;
use super::{UseCase, UseCaseError, UseCases};
use crate::SubmitError;
use punctual_core::control::{LoadedJob, Update, Verb};
use punctual_core::ids::JobId;
use punctual_core::job::{JobSpec, JobStatus};
use punctual_core::limits;
use punctual_core::ports::{JobQuery, JobView};
use std::collections::BTreeMap;

impl UseCases {
    /// The job that owner and name identify: the one that was put by its name, finished or not; otherwise the
    /// only unfinished job with the name.
    pub async fn job_by_name(&self, owner: &str, name: &str) -> Result<Option<JobView>, UseCaseError> {
        self.permit(UseCase::Submit)?;
        if let Some(id) = self.store().named_job(owner.to_owned(), name.to_owned()).await? {
            // One outside of the caller's scope is refused when the job is stored.
            return match self.job_in_scope(id).await {
                Err(UseCaseError::NoSuchJob(_)) => Ok(None),
                found => found.map(Some),
            };
        }
        let mut unfinished = self.unfinished_named(owner, name).await?;
        match unfinished.len() {
            0 | 1 => Ok(unfinished.pop_first().map(|(_, view)| view)),
            _ => Err(UseCaseError::AmbiguousName {
                name: name.to_owned(),
                jobs: unfinished.into_keys().rev().collect(),
            }),
        }
    }

    /// The job that was put by its name, finished or not.
    pub async fn job_put_by_name(&self, owner: &str, name: &str) -> Result<Option<JobId>, UseCaseError> {
        self.permit_on(UseCase::ReadJobs, format_args!("job named {name}"))?;
        let Some(id) = self.store().named_job(owner.to_owned(), name.to_owned()).await? else {
            return Ok(None);
        };
        Ok(self.in_scope([id]).await?.has(id).then_some(id))
    }

    /// All jobs of this name whose schedule has a further run, and those without one among the latest unfinished jobs.
    async fn unfinished_named(
        &self,
        owner: &str,
        name: &str,
    ) -> Result<BTreeMap<JobId, JobView>, UseCaseError> {
        let named = JobQuery {
            owner: Some(owner.to_owned()),
            name: Some(name.to_owned()),
            limit: limits::PAGE_ITEMS_MAX,
            ..JobQuery::default()
        };
        let scheduled = JobQuery { scheduled: true, ..named.clone() };
        let (mut found, are_all) = self.read_pages(scheduled, limits::NAMED_SCHEDULES_PAGES_MAX).await?;
        if !are_all {
            return Err(UseCaseError::NameNotSearched { name: name.to_owned() });
        }
        for status in [JobStatus::Active, JobStatus::Paused] {
            let query = JobQuery { status: Some(status), ..named.clone() };
            found.extend(self.read_pages(query, limits::NAME_SEARCH_PAGES_MAX).await?.0);
        }
        let is_unfinished = |view: &JobView| matches!(view.status(), JobStatus::Active | JobStatus::Paused);
        Ok(found.into_iter().filter(is_unfinished).map(|view| (view.job.id, view)).collect())
    }

    /// The jobs of a list, and whether it has no more pages. Stops early where there are more than a page holds.
    async fn read_pages(
        &self,
        mut query: JobQuery,
        pages_max: usize,
    ) -> Result<(Vec<JobView>, bool), UseCaseError> {
        let mut found = Vec::new();
        for _ in 0..pages_max {
            let page = self.read_in_scope(query.clone()).await?;
            found.extend(page.items);
            query.before = page.next;
            if page.next.is_none() || found.len() >= limits::PAGE_ITEMS_MAX {
                return Ok((found, true));
            }
        }
        Ok((found, false))
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
