//! `punctual job wait`: until a job is finished.

use crate::connect::ConnectArgs;
use crate::exit::{CliError, Exit};
use crate::job::show::job_details;
use crate::output::OutputArgs;
use punctual_client::{Client, Span};
use punctual_core::ids::JobId;
use punctual_core::job::JobStatus;

#[derive(clap::Args)]
pub struct WaitArgs {
    job: JobId,
    #[command(flatten)]
    bound: WaitBound,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Clone, Copy, clap::Args)]
pub struct WaitBound {
    /// Stop waiting after this time (exit code 8); the job goes on
    #[arg(long, value_name = "DURATION")]
    wait_timeout: Option<Span>,
}

pub async fn run(args: WaitArgs) -> anyhow::Result<Exit> {
    let client = args.connect.client()?;
    until_finished(&client, args.job, args.bound, args.output).await
}

/// Prints the job once it is finished. Only a completed one counts as done.
pub async fn until_finished(
    client: &Client,
    id: JobId,
    bound: WaitBound,
    output: OutputArgs,
) -> anyhow::Result<Exit> {
    let finished = match bound.wait_timeout {
        None => client.wait(id).await,
        Some(limit) => match tokio::time::timeout(limit.get(), client.wait(id)).await {
            Ok(finished) => finished,
            Err(_) => {
                let message = format!("job {id} was not finished within {limit}");
                return Err(CliError { exit: Exit::TimedOut, message }.into());
            }
        },
    };
    let job = finished?;
    output.print(&job, job_details)?;
    Ok(if job.status == JobStatus::Completed { Exit::Done } else { Exit::Failed })
}
