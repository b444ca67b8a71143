//! `punctual job submit`.

use crate::connect::ConnectArgs;
use crate::exit::{CliError, Exit};
use crate::job::wait::{self, WaitBound};
use crate::output::{OutputArgs, optional_time, table};
use anyhow::Context;
use punctual_client::{
    BatchAnswer, BatchItem, Client, PriorityBody, Seconds, Span, SubmitJob, SubmittedBody,
};
use punctual_core::limits;
use punctual_core::schedule::MisfirePolicy;
use punctual_core::time::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::io::Read;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub struct SubmitArgs {
    /// The job's name
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    name: Option<String>,
    /// Which handler runs it; the name if left out
    #[arg(long = "type", value_name = "JOB_TYPE", conflicts_with = "file")]
    job_type: Option<String>,
    /// JSON for the handler
    #[arg(long, value_parser = parse_json, value_name = "JSON", conflicts_with = "file")]
    payload: Option<Box<RawValue>>,
    #[command(flatten)]
    when: When,
    #[command(flatten)]
    recurring: RecurringArgs,
    #[arg(long, conflicts_with = "file")]
    queue: Option<String>,
    /// 1 to 10, or low, medium, high
    #[arg(long, conflicts_with = "file")]
    priority: Option<PriorityBody>,
    /// Retries after the first attempt
    #[arg(long, value_name = "COUNT", conflicts_with = "file")]
    max_retries: Option<u32>,
    /// Time limit of one attempt, such as 30s or 2h
    #[arg(long, value_name = "DURATION", conflicts_with = "file")]
    timeout: Option<Span>,
    /// Whose job it is
    #[arg(long, value_name = "OWNER", conflicts_with = "file")]
    owner: Option<String>,
    /// Can be given more than once
    #[arg(long = "tag", value_name = "TAG", conflicts_with = "file")]
    tags: Vec<String>,
    /// Submit the job, or list of jobs, in this JSON file (- for standard input)
    #[arg(short = 'f', long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Wait until the job is finished; exit code 1 if it did not succeed
    #[arg(long, conflicts_with = "file")]
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
    #[arg(long, value_name = "TIME")]
    at: Option<Timestamp>,
    /// Run once, after this time, such as 5m
    #[arg(long, value_name = "DURATION")]
    delay: Option<Span>,
    /// Run again and again, this far apart, such as 90s, 1h or daily
    #[arg(long, value_name = "INTERVAL")]
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
    #[arg(long, value_name = "TIME", conflicts_with = "file")]
    start_at: Option<Timestamp>,
    /// No run after this time
    #[arg(long, value_name = "TIME", conflicts_with = "file")]
    end_at: Option<Timestamp>,
}

fn parse_json(text: &str) -> Result<Box<RawValue>, serde_json::Error> {
    serde_json::from_str(text)
}

/// A word as it is spelled in JSON, in any case.
fn word<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    serde_json::from_value(text.to_ascii_uppercase().into())
}

pub async fn run(args: SubmitArgs) -> anyhow::Result<Exit> {
    let client = args.connect.client()?;
    if let Some(file) = &args.file {
        return submit_file(&client, file, args.output).await;
    }
    let submitted = client.submit(&args.job()).await?;
    if args.wait {
        eprintln!("submitted job {}", submitted.job_id);
        return wait::until_finished(&client, submitted.job_id, args.bound, args.output).await;
    }
    args.output.print(&submitted, describe)?;
    Ok(Exit::Done)
}

fn describe(submitted: &SubmittedBody) -> String {
    let next = submitted.next_run_time.map_or_else(String::new, |at| format!(", runs at {at}"));
    format!("submitted job {}{next}", submitted.job_id)
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

/// Submits what the file holds, in as many batches as it takes. One refused job does not keep the others out.
async fn submit_file(client: &Client, file: &Path, output: OutputArgs) -> anyhow::Result<Exit> {
    let jobs = read_jobs(file)?;
    let mut answer = BatchAnswer { items: Vec::with_capacity(jobs.len()) };
    for batch in jobs.chunks(limits::SUBMIT_BATCH_MAX) {
        answer.items.extend(client.submit_batch(batch).await?.items);
    }
    let all_taken = answer.items.iter().all(|item| matches!(item, BatchItem::Submitted(_)));
    output.print(&answer, |answer| batch_table(answer, &jobs))?;
    Ok(if all_taken { Exit::Done } else { Exit::Refused })
}

fn batch_table(answer: &BatchAnswer, jobs: &[SubmitJob]) -> String {
    let rows = answer.items.iter().zip(jobs).map(|(item, job)| match item {
        BatchItem::Submitted(submitted) => {
            vec![job.name.clone(), submitted.job_id.to_string(), optional_time(submitted.next_run_time)]
        }
        BatchItem::Refused { error } => {
            let detail = error.detail.as_deref().unwrap_or(&error.title);
            vec![job.name.clone(), "refused".to_owned(), detail.to_owned()]
        }
    });
    table(&["NAME", "JOB", "NEXT RUN"], rows)
}

fn read_jobs(file: &Path) -> anyhow::Result<Vec<SubmitJob>> {
    let mut text = String::new();
    if file == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
    } else {
        text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    }
    let parsed = if text.trim_start().starts_with('[') {
        serde_json::from_str(&text)
    } else {
        serde_json::from_str(&text).map(|job| vec![job])
    };
    let jobs: Vec<SubmitJob> =
        parsed.map_err(|error| CliError::refused(format!("{}: {error}", file.display())))?;
    if jobs.is_empty() {
        return Err(CliError::refused(format!("{} holds no job", file.display())).into());
    }
    Ok(jobs)
}
