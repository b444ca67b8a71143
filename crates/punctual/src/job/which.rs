//! Which job a command is about.

use crate::exit::{CliError, Exit};
use crate::job::list;
use punctual_client::{Client, JobFilter};
use punctual_core::ids::JobId;

#[derive(Debug, clap::Args)]
pub struct WhichJob {
    /// The job's id, or its name if only one job has it
    #[arg(value_name = "JOB")]
    job: String,
}

impl WhichJob {
    /// The job's id, looked up where a name was given.
    pub async fn id(&self, client: &Client) -> anyhow::Result<JobId> {
        find(client, &self.job).await
    }
}

/// The id of the job with this id, or of the only one with this name.
pub async fn find(client: &Client, name: &str) -> anyhow::Result<JobId> {
    if let Ok(id) = name.parse() {
        return Ok(id);
    }
    let filter = JobFilter { name: Some(name.to_owned()), ..JobFilter::default() };
    // Two are enough to know that the name does not say which.
    match list::collect(client, filter, 2).await?.items.as_slice() {
        [] => Err(CliError::not_found(format!("there is no job with the id or name {name}")).into()),
        [job] => Ok(job.job_id),
        _ => {
            let message = format!(
                "more than one job is named {name}: give an id, see `punctual job list --name {name}`"
            );
            Err(CliError { exit: Exit::Misunderstood, message }.into())
        }
    }
}
