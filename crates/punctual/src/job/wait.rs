//! `punctual job wait`: until a job is finished.

use crate::connect::ConnectArgs;
use crate::exit::{CliError, Exit};
use crate::job::list::status;
use crate::job::show::job_details;
use crate::job::which::WhichJob;
use crate::output::{OutputArgs, time};
use punctual_client::{Client, JobBody, Span};
use punctual_core::ids::JobId;
use punctual_core::job::JobStatus;
use std::fmt;

#[derive(clap::Args)]
pub struct WaitArgs {
    #[command(flatten)]
    which: WhichJob,
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

impl WaitBound {
    /// What was waited for, unless the time ran out first.
    pub async fn limit<T>(self, waiting: impl Future<Output = T>) -> Option<T> {
        match self.wait_timeout {
            None => Some(waiting.await),
            Some(limit) => tokio::time::timeout(limit.get(), waiting).await.ok(),
        }
    }
}

impl fmt::Display for WaitBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.wait_timeout {
            None => f.write_str("any time"),
            Some(limit) => limit.fmt(f),
        }
    }
}

pub async fn run(args: WaitArgs) -> anyhow::Result<Exit> {
    let client = args.connect.client()?;
    let id = args.which.id(&client).await?;
    until_finished(&client, id, args.bound, args.output).await
}

/// Prints the job once it is finished. Only a completed one counts as done.
pub async fn until_finished(
    client: &Client,
    id: JobId,
    bound: WaitBound,
    output: OutputArgs,
) -> anyhow::Result<Exit> {
    let mut watched = Watched::default();
    let waiting = client.wait_watching(id, |job| watched.look(job));
    let Some(finished) = bound.limit(waiting).await else {
        let message = format!("job {id} was not finished within {bound}{}", watched.state());
        return Err(CliError { exit: Exit::TimedOut, message }.into());
    };
    let job = finished?;
    output.print(&job, job_details)?;
    Ok(if job.status == JobStatus::Completed { Exit::Done } else { Exit::Failed })
}

/// Looks in a row that must show the same reason before it is told: the worker of a server that has just started
/// takes a moment to connect.
const LOOKS_BEFORE_TOLD: u32 = 3;

/// What was seen of a job while waiting for it.
#[derive(Default)]
struct Watched {
    last: Option<JobBody>,
    looks_with_reason: u32,
}

impl Watched {
    /// Says once what keeps an unfinished job from running.
    fn look(&mut self, job: &JobBody) {
        match &job.status_reason {
            Some(reason) if !job.is_finished() => {
                self.looks_with_reason += 1;
                if self.looks_with_reason == LOOKS_BEFORE_TOLD {
                    eprintln!("note: it {reason}");
                }
            }
            _ => self.looks_with_reason = 0,
        }
        self.last = Some(job.clone());
    }

    /// The last known state of the job, to end a sentence with.
    fn state(&self) -> String {
        let Some(job) = &self.last else { return "; its state is not known".to_owned() };
        let next = match (&job.status_reason, job.next_retry_time, job.next_run_time) {
            (Some(reason), _, _) => format!(" and {reason}"),
            (None, Some(at), _) => format!(" and retries at {}", time(at)),
            (None, None, Some(at)) => format!(" and runs next at {}", time(at)),
            (None, None, None) => String::new(),
        };
        format!("; it is {}{next}", status(job.status))
    }
}
