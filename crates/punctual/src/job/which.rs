//! Which job a command is about.

use crate::exit::{CliError, Exit};
use crate::job::list::{self, status};
use crate::output::{quoted, time};
use punctual_client::{Client, JobBody, JobFilter};
use punctual_core::ids::{ExecutionId, JobId, OccurrenceId};
use punctual_core::job::JobStatus;

/// How many jobs of one name are told apart.
const TOLD_MAX: usize = 5;

#[derive(Debug, clap::Args)]
pub struct WhichJob {
    /// The job's id, or its name if only one job has it, or only one that is not finished
    #[arg(value_name = "JOB")]
    job: String,
}

impl WhichJob {
    /// The job's id, looked up where a name was given.
    pub async fn id(&self, client: &Client) -> anyhow::Result<JobId> {
        find(client, &self.job).await
    }
}

/// The id of the job with this id, or of the only one with this name, or of the only unfinished one with it.
pub async fn find(client: &Client, name: &str) -> anyhow::Result<JobId> {
    if let Ok(id) = name.parse() {
        return Ok(id);
    }
    if let Some(message) = part_of_a_job(name) {
        return Err(CliError { exit: Exit::Misunderstood, message }.into());
    }
    let all = named(client, name, None).await?;
    match all.as_slice() {
        [] => return Err(CliError::not_found(format!("there is no job with the id or name {name}")).into()),
        [job] => return Ok(job.job_id),
        _ => {}
    }
    let mut unfinished = named(client, name, Some(JobStatus::Active)).await?;
    unfinished.extend(named(client, name, Some(JobStatus::Paused)).await?);
    match unfinished.as_slice() {
        [] => Err(ambiguous(name, "jobs are named", &all)),
        [job] => Ok(job.job_id),
        _ => Err(ambiguous(name, "unfinished jobs are named", &unfinished)),
    }
}

/// The latest jobs of this name, one more than are told apart.
async fn named(client: &Client, name: &str, status: Option<JobStatus>) -> anyhow::Result<Vec<JobBody>> {
    let filter = JobFilter { name: Some(name.to_owned()), status, ..JobFilter::default() };
    Ok(list::collect(client, filter, TOLD_MAX + 1).await?.items)
}

/// What to give instead of the id of something that belongs to a job.
fn part_of_a_job(id: &str) -> Option<String> {
    let (kind, job) = match (id.parse::<ExecutionId>(), id.parse::<OccurrenceId>()) {
        (Ok(execution), _) => ("an execution", execution.occurrence.job),
        (_, Ok(occurrence)) => ("one run of a job", occurrence.job),
        _ => return None,
    };
    Some(format!("{id} is the id of {kind}; give that of its job, {job}"))
}

fn ambiguous(name: &str, are_named: &str, jobs: &[JobBody]) -> anyhow::Error {
    let count = match jobs.len() {
        ..=TOLD_MAX => jobs.len().to_string(),
        _ => format!("more than {TOLD_MAX}"),
    };
    let mut message = format!("{count} {are_named} {name}: give the id of one");
    for job in jobs.iter().take(TOLD_MAX) {
        message += &format!("\n  {} {}, created {}", job.job_id, status(job.status), time(job.created_at));
    }
    if jobs.len() > TOLD_MAX {
        message += &format!("\n  and more: see `punctual job list --name {}`", quoted(name));
    }
    CliError { exit: Exit::Misunderstood, message }.into()
}
