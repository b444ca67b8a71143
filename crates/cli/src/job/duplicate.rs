//! Refuses to submit a recurring job whose name a recurring job already has: the work would run twice.

use crate::job::list::{self, status};
use punctual_client::{Client, ClientError, JobBody, JobFilter, ScheduleType};
use punctual_config::exit::CliError;
use punctual_config::output::{one_line, optional_time};
use punctual_core::job::JobStatus;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeSet;

/// How many jobs with the name are looked at, of each status.
const NAMESAKES_MAX: usize = 100;

/// Checks jobs before they are submitted.
pub struct DuplicateGuard<'a> {
    pub client: &'a Client,
    /// The user wants a second schedule.
    pub is_off: bool,
}

/// The fields that decide. The server rejects other forms.
#[derive(Debug, Clone, Deserialize)]
struct NewSchedule {
    name: String,
    owner_id: Option<String>,
    cron_expression: Option<String>,
    interval: Option<String>,
    rrule: Option<String>,
    schedules: Option<IgnoredAny>,
    idempotency_key: Option<String>,
}

impl DuplicateGuard<'_> {
    /// Fails if the job would double a schedule.
    pub async fn check(&self, job: &(impl Serialize + ?Sized)) -> anyhow::Result<()> {
        let job = serde_json::value::to_raw_value(job)?;
        match self.duplicates(&[job]).await?.into_iter().flatten().next() {
            Some(why) => Err(CliError::refused(why).into()),
            None => Ok(()),
        }
    }

    /// For each job, why it would double a schedule.
    pub async fn duplicates(&self, jobs: &[Box<RawValue>]) -> anyhow::Result<Vec<Option<String>>> {
        let mut found = vec![None; jobs.len()];
        let mut names = BTreeSet::new();
        for (found, job) in found.iter_mut().zip(jobs).filter(|_| !self.is_off) {
            let Some(job) = recurring(job) else { continue };
            let key = (job.owner_id.clone(), job.name.clone(), job.idempotency_key.clone());
            *found = match names.insert(key) {
                true => self.namesake(&job).await?.map(|namesake| told(&namesake)),
                false => Some(format!(
                    "another recurring job in the file is named {}: choose another name, or pass --allow-duplicate",
                    one_line(&job.name)
                )),
            };
        }
        Ok(found)
    }

    /// An unfinished recurring job with the same owner and name. One with the same idempotency key is the job
    /// itself, and the server returns it.
    async fn namesake(&self, job: &NewSchedule) -> anyhow::Result<Option<JobBody>> {
        let mut namesakes = Vec::new();
        for status in [JobStatus::Active, JobStatus::Paused] {
            let filter = JobFilter {
                name: Some(job.name.clone()),
                owner: job.owner_id.clone(),
                schedule_type: Some(ScheduleType::Recurring),
                status: Some(status),
                ..JobFilter::default()
            };
            match list::collect(self.client, filter, NAMESAKES_MAX).await {
                Ok(page) => namesakes.extend(page.items),
                // No job can have this name. The answer to the submit says why.
                Err(error) if is_about_the_filter(&error) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        namesakes
            .retain(|other| job.idempotency_key.is_none() || other.idempotency_key != job.idempotency_key);
        if !namesakes.is_empty() && job.owner_id.is_none() {
            let owner = self.client.me().await?.owner_id;
            namesakes.retain(|other| other.owner_id == owner);
        }
        Ok(namesakes.into_iter().next())
    }
}

fn is_about_the_filter(error: &anyhow::Error) -> bool {
    let problem = error.downcast_ref::<ClientError>().and_then(ClientError::problem);
    problem.is_some_and(|problem| matches!(problem.status, 400 | 422))
}

fn recurring(job: &RawValue) -> Option<NewSchedule> {
    let job: NewSchedule = serde_json::from_str(job.get()).ok()?;
    let is_recurring = job.cron_expression.is_some()
        || job.interval.is_some()
        || job.rrule.is_some()
        || job.schedules.is_some();
    is_recurring.then_some(job)
}

fn told(namesake: &JobBody) -> String {
    format!(
        "a recurring job named {} exists already: {}, {}, next run {}. Change it with --upsert, choose another name, or \
         submit a second schedule with --allow-duplicate",
        one_line(&namesake.name),
        namesake.job_id,
        status(namesake.status),
        optional_time(namesake.next_run_time),
    )
}
