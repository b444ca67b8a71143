//! `punctual job submit`.

use crate::connect::ConnectArgs;
use crate::exit::{CliError, Exit};
use crate::job::job_file::{self, JobFile};
use crate::job::wait::{self, WaitBound};
use crate::output::OutputArgs;
use crate::{args, host};
use clap::builder::RangedI64ValueParser;
use punctual_client::{Client, PriorityBody, Seconds, Span, SubmitJob, SubmittedBody};
use punctual_core::limits;
use punctual_core::schedule::MisfirePolicy;
use punctual_core::time::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct SubmitArgs {
    /// The job's name
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    name: Option<String>,
    /// Which handler runs it; the name if left out
    #[arg(long = "type", value_name = "JOB_TYPE", conflicts_with = "file")]
    job_type: Option<String>,
    /// JSON for the handler
    #[arg(long, value_parser = args::json, allow_hyphen_values = true, value_name = "JSON", conflicts_with = "file")]
    payload: Option<Box<RawValue>>,
    #[command(flatten)]
    when: When,
    #[command(flatten)]
    recurring: RecurringArgs,
    /// Which workers may take it: those that serve this queue; `default` if left out
    #[arg(long, conflicts_with = "file")]
    queue: Option<String>,
    /// 1 to 10, or low, medium, high
    #[arg(long, conflicts_with = "file")]
    priority: Option<PriorityBody>,
    /// Retries after the first attempt
    #[arg(long, value_name = "COUNT", conflicts_with = "file", allow_negative_numbers = true, value_parser = retries())]
    max_retries: Option<u32>,
    /// Time limit of one attempt, such as 30s or 2h
    #[arg(long, value_name = "DURATION", conflicts_with = "file", allow_hyphen_values = true)]
    timeout: Option<Span>,
    /// Whose job it is
    #[arg(long, value_name = "OWNER", conflicts_with = "file")]
    owner: Option<String>,
    /// Can be given more than once
    #[arg(long = "tag", value_name = "TAG", conflicts_with = "file")]
    tags: Vec<String>,
    /// Submit the job, the list of jobs, or the {"jobs": […]} in this JSON file (- for standard input)
    #[arg(short = 'f', long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Wait until the job is finished; exit code 1 if it did not succeed
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    bound: WaitBound,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// When the job runs: at once, unless one of these is given.
#[derive(clap::Args)]
#[group(multiple = false, conflicts_with = "file")]
struct When {
    /// Run once, at this time, such as 2026-11-15T08:30:00Z
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    at: Option<Timestamp>,
    /// Run once, after this time, such as 5m
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    delay: Option<Span>,
    /// Run again and again, this far apart, such as 90s, 1h or daily
    #[arg(long, value_name = "INTERVAL", allow_hyphen_values = true)]
    every: Option<String>,
    /// Run again and again, when this cron expression says, such as "30 2 * * MON-FRI"
    #[arg(long, value_name = "EXPRESSION")]
    cron: Option<String>,
}

/// What else a recurring job may have.
#[derive(clap::Args)]
struct RecurringArgs {
    /// The zone whose clocks count, such as Europe/Berlin; UTC if left out
    #[arg(long, value_name = "ZONE", conflicts_with = "file")]
    timezone: Option<String>,
    /// What to do about missed runs: SKIP_MISSED, RUN_ONCE or RUN_ALL
    #[arg(long, value_name = "POLICY", value_parser = word::<MisfirePolicy>, conflicts_with = "file")]
    misfire_policy: Option<MisfirePolicy>,
    /// How late a run may be found and still simply start
    #[arg(long, value_name = "DURATION", conflicts_with = "file")]
    misfire_grace: Option<Span>,
    /// Spread the starts over this time
    #[arg(long, value_name = "DURATION", conflicts_with = "file")]
    jitter: Option<Span>,
    /// End after this many runs
    #[arg(long, value_name = "COUNT", conflicts_with = "file")]
    max_runs: Option<u32>,
    /// No run before this time; an interval counts from it
    #[arg(long, value_name = "TIME", value_parser = args::time, conflicts_with = "file")]
    start_at: Option<Timestamp>,
    /// No run after this time
    #[arg(long, value_name = "TIME", value_parser = args::time, conflicts_with = "file")]
    end_at: Option<Timestamp>,
}

fn retries() -> RangedI64ValueParser<u32> {
    RangedI64ValueParser::new().range(0..=i64::from(limits::MAX_RETRIES_MAX))
}

/// A word as it is spelled in JSON, in any case.
fn word<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    serde_json::from_value(text.to_ascii_uppercase().into())
}

pub async fn run(args: SubmitArgs) -> anyhow::Result<Exit> {
    let client = args.connect.client()?;
    let submitted = match &args.file {
        None => client.submit(&args.job()).await?,
        Some(file) => match job_file::read(file)? {
            JobFile::One(job) => client.submit_json(&job).await?,
            JobFile::Many(jobs) => match jobs.as_slice() {
                [job] if args.wait => client.submit_json(job).await?,
                jobs if args.wait => {
                    let message = format!("--wait takes one job; {} holds {}", file.display(), jobs.len());
                    return Err(CliError { exit: Exit::Misunderstood, message }.into());
                }
                jobs => return job_file::submit(&client, jobs, args.output).await,
            },
        },
    };
    if args.wait {
        eprintln!("submitted job {}", submitted.job_id);
        return wait::until_finished(&client, submitted.job_id, args.bound, args.output).await;
    }
    args.output.print(&submitted, describe)?;
    tell_what_it_waits_for(&client, &submitted).await;
    Ok(Exit::Done)
}

fn describe(submitted: &SubmittedBody) -> String {
    let next = match submitted.next_run_time {
        Some(at) if at > host::wall_time() => format!(", runs at {at}"),
        _ => ", runs at once".to_owned(),
    };
    format!("submitted job {}{next}", submitted.job_id)
}

/// Says what keeps a job that should run at once from doing so. The job is kept in any case, so an error here
/// is none of the submit.
async fn tell_what_it_waits_for(client: &Client, submitted: &SubmittedBody) {
    if submitted.next_run_time.is_some_and(|at| at > host::wall_time()) {
        return;
    }
    if let Ok(job) = client.job(submitted.job_id).await
        && !job.is_finished()
        && let Some(reason) = job.status_reason
    {
        eprintln!("note: it {reason}");
    }
}

impl SubmitArgs {
    fn job(&self) -> SubmitJob {
        SubmitJob {
            name: self.name.clone().unwrap_or_default(),
            job_type: self.job_type.clone(),
            payload: self.payload.clone(),
            queue: self.queue.clone(),
            priority: self.priority,
            execute_at: self.when.at,
            delay: self.when.delay,
            cron_expression: self.when.cron.clone(),
            interval: self.when.every.clone(),
            timezone: self.recurring.timezone.clone(),
            misfire_policy: self.recurring.misfire_policy,
            misfire_grace: self.recurring.misfire_grace,
            jitter: self.recurring.jitter,
            max_runs: self.recurring.max_runs,
            start_at: self.recurring.start_at,
            end_at: self.recurring.end_at,
            max_retries: self.max_retries,
            timeout_secs: self.timeout.map(|timeout| Seconds::from(timeout.get())),
            owner_id: self.owner.clone(),
            tags: (!self.tags.is_empty()).then(|| self.tags.clone()),
            ..SubmitJob::default()
        }
    }
}
