//! `punctual job wait`: waits until a job is finished.

use crate::job::list::status;
use crate::job::live::LiveJobView;
use crate::job::next;
use crate::job::show::print_job;
use crate::job::which::WhichJob;
use crate::reconnect::Reconnect;
use punctual_client::{Client, ClientError, JobBody, ScheduleType, Span};
use punctual_config::args;
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::{CliError, Exit};
use punctual_config::output::{OutputArgs, tell, time};
use punctual_core::ids::JobId;
use punctual_core::job::JobStatus;
use std::fmt;
use std::time::Duration;

/// The first and the longest pause between two reads while waiting.
pub const LOOK_PAUSE_MIN: Duration = Duration::from_millis(20);
pub const LOOK_PAUSE_MAX: Duration = Duration::from_secs(1);

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
    /// Stop waiting after this time (exit code 8); the job continues
    #[arg(long, value_name = "DURATION", value_parser = args::span)]
    wait_timeout: Option<Span>,
}

impl WaitBound {
    /// The result, unless the time ran out first.
    pub async fn limit<T>(self, waiting: impl Future<Output = T>) -> Option<T> {
        match self.wait_timeout {
            None => Some(waiting.await),
            Some(limit) => tokio::time::timeout(limit.get(), waiting).await.ok(),
        }
    }

    /// An explicit wait timeout also applies while the server is unavailable.
    pub fn patient(self, server: Reconnect<'_>) -> Reconnect<'_> {
        match self.wait_timeout {
            None => server,
            Some(_) => server.without_limit(),
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
    client.job(id).await?;
    until_finished(Reconnect::with(&args.connect, client), id, args.bound, args.output).await
}

/// Prints the job once it is finished. Only a completed one counts as done. Waits while the server is
/// unavailable.
pub async fn until_finished(
    server: Reconnect<'_>,
    id: JobId,
    bound: WaitBound,
    output: OutputArgs,
) -> anyhow::Result<Exit> {
    let mut server = bound.patient(server);
    let mut watched = AwaitedJob::default();
    let waiting = async {
        let mut live = LiveJobView::start(server.client()).await;
        let first = server.ask(&live, async |client| client.job(id).await).await?;
        tell_what_is_waited_for(server.client(), &first).await;
        let mut pause = LOOK_PAUSE_MIN;
        loop {
            let job = server.ask(&live, async |client| client.job(id).await).await?;
            watched.look(&job, &live);
            if server.ask(&live, async |client| is_over(client, &job).await).await? {
                return Ok::<JobBody, ClientError>(job);
            }
            live.look(server.client(), &job).await;
            live.pause(pause).await;
            pause = (pause * 2).min(LOOK_PAUSE_MAX);
        }
    };
    let Some(finished) = bound.limit(waiting).await else {
        let state = watched.state(server.client()).await;
        let message = format!("job {id} did not finish within {bound}{state}");
        return Err(CliError { exit: Exit::TimedOut, message }.into());
    };
    let job = finished?;
    print_job(server.client(), &job, output).await?;
    if output.is_table() && COMMANDS.contains(&job.job_type.as_str()) {
        eprintln!("show its output with `punctual job logs {id}`");
    }
    Ok(if job.status == JobStatus::Completed { Exit::Done } else { Exit::Failed })
}

/// The job types that are commands, which write more than an outcome.
const COMMANDS: [&str; 2] = ["process", "shell"];

/// Prints what it waits for, before a wait that may take long.
async fn tell_what_is_waited_for(client: &Client, job: &JobBody) {
    if job.is_finished() {
        return;
    }
    if job.schedule_type == ScheduleType::Recurring {
        let end = match (job.max_runs, job.end_at) {
            (None, None) => "and it has no end",
            _ => "with its last run",
        };
        let trigger = format!("`punctual job trigger {} --wait`", job.job_id);
        eprintln!("note: this waits until the schedule ends, {end}; {trigger} waits for one run");
    }
    // A missing handler may appear in a moment; it is reported only if it does not.
    if job.status_reason.is_none()
        && let Some(held) = next::held(client, job).await
    {
        tell(&format!("note: it {held}"));
    }
}

/// Whether nothing more will happen to the job: a cancelled one may still have running executions.
async fn is_over(client: &Client, job: &JobBody) -> Result<bool, ClientError> {
    if job.status != JobStatus::Cancelled {
        return Ok(job.is_finished());
    }
    // Open executions come first.
    let executions = client.executions(job.job_id, Some(1), None).await?.items;
    Ok(executions.iter().all(|first| first.status.is_finished()))
}

/// Consecutive reads that must show the same reason before it is printed: the worker of a server that has
/// just started takes a moment to connect.
const LOOKS_BEFORE_TOLD: u32 = 3;

/// The state of a job while waiting for it.
#[derive(Default)]
struct AwaitedJob {
    last: Option<JobBody>,
    looks_with_reason: u32,
}

impl AwaitedJob {
    /// Prints once what prevents an unfinished job from running.
    fn look(&mut self, job: &JobBody, live: &LiveJobView) {
        match &job.status_reason {
            Some(reason) if !job.is_finished() => {
                self.looks_with_reason += 1;
                if self.looks_with_reason == LOOKS_BEFORE_TOLD {
                    live.say(&format!("note: it {reason}"));
                }
            }
            _ => self.looks_with_reason = 0,
        }
        self.last = Some(job.clone());
    }

    /// The last known state of the job, as the end of a sentence.
    async fn state(&self, client: &Client) -> String {
        let Some(job) = &self.last else { return "; its state is not known".to_owned() };
        let next = match (&job.status_reason, job.next_retry_time) {
            (Some(reason), _) => Some(reason.clone()),
            (None, Some(at)) => Some(format!("retries at {}", time(at))),
            (None, None) => next::told(client, job).await,
        };
        let next = next.map_or_else(String::new, |next| format!(" and {next}"));
        format!("; it is {}{next}", status(job.status))
    }
}
