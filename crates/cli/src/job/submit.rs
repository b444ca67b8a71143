//! `punctual job submit`.

use crate::job::duplicate::DuplicateGuard;
use crate::job::fields::{self, FieldArgs, given};
use crate::job::job_file::{self, JobBatches, JobFile};
use crate::job::outlook;
use crate::job::rows::RowArgs;
use crate::job::upsert;
use crate::job::wait::{self, WaitBound};
use crate::job::which;
use crate::reconnect::Reconnect;
use anyhow::Context;
use clap::ArgGroup;
use punctual_client::{Client, SubmitJob, SubmittedBody};
use punctual_config::args;
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::{CliError, Exit};
use punctual_config::output::{OutputArgs, tell};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
#[command(group = ArgGroup::new("What").args(["name", "shell", "command", "file"]).required(true).multiple(true))]
pub struct SubmitArgs {
    /// The job's name; optional if the job is a command
    #[arg(conflicts_with = "file")]
    name: Option<String>,
    /// Run this command, with its arguments: a job of type process
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["file", "job_type", "payload", "shell"])]
    command: Vec<String>,
    /// Run this script through sh: a job of type shell
    #[arg(long, value_name = "SCRIPT", allow_hyphen_values = true, conflicts_with_all = ["file", "job_type", "payload"])]
    shell: Option<String>,
    /// JSON for the handler, or @FILE to read it from a file (@- for standard input)
    #[arg(long, value_parser = args::payload, allow_hyphen_values = true, value_name = "JSON", conflicts_with = "file")]
    payload: Option<Box<RawValue>>,
    /// Submit the job, the list of jobs, or the {"jobs": […]} in this JSON or YAML file, or a job for each row of an NDJSON or CSV file
    /// (- for standard input)
    #[arg(short = 'f', long, value_name = "FILE", conflicts_with_all = fields::GROUPS, conflicts_with = "LastingArgs")]
    file: Option<PathBuf>,
    #[command(flatten)]
    rows: RowArgs,
    /// Create the job, or change the one that its owner and name identify, finished or not
    #[arg(long, conflicts_with = "request_key")]
    upsert: bool,
    /// Submit a recurring job even if an unfinished recurring job has its name
    #[arg(long, conflicts_with = "upsert")]
    allow_duplicate: bool,
    /// Idempotency key of this request: repeating the request within 24 hours submits nothing twice
    #[arg(long, value_name = "KEY", value_parser = args::request_key)]
    request_key: Option<String>,
    /// Wait until the job is finished; exit code 1 if it did not succeed
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    bound: WaitBound,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    fields: FieldArgs,
    #[command(flatten)]
    lasting: LastingArgs,
}

/// Fixed at submission.
#[derive(clap::Args)]
#[command(next_help_heading = "Fixed at submission")]
struct LastingArgs {
    /// The owner of the job
    #[arg(long, value_name = "OWNER")]
    owner: Option<String>,
    /// Idempotency key of the job: submitting it again returns the existing job
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Reject the job while another job with this key is unfinished
    #[arg(long, value_name = "KEY")]
    unique_key: Option<String>,
    /// Start when this job has succeeded, by id or name; can be given more than once
    #[arg(long, value_name = "JOB")]
    depends_on: Vec<String>,
}

pub async fn run(args: SubmitArgs) -> anyhow::Result<Exit> {
    let mut client = args.connect.client()?;
    if let Some(key) = &args.request_key {
        client = client.with_request_key(key);
    }
    let guard = DuplicateGuard { client: &client, is_off: args.allow_duplicate };
    if let Some(file) = args.file.as_deref().filter(|file| args.rows.has_rows(file)) {
        return args.submit_rows(&client, file, guard).await;
    }
    let jobs = match &args.file {
        None => JobFile::One(to_raw_value(&args.job(&client).await?)?),
        Some(file) => args.single_if_awaited(job_file::read(file)?, file)?,
    };
    let job = match jobs {
        JobFile::One(job) => job_file::with_parents(&client, job).await?,
        JobFile::Many(jobs) if args.upsert => return upsert::put_all(&client, &jobs, args.output).await,
        JobFile::Many(jobs) => {
            let request_key = args.request_key.as_deref();
            let lines = None;
            return JobBatches { client: &client, request_key, guard, lines }
                .submit(&jobs, args.output)
                .await;
        }
    };
    if args.upsert {
        let upserted = upsert::put(&client, &job_file::name_of(&job), &job).await?;
        if !args.wait {
            upsert::print(&client, &upserted, args.output).await?;
            return Ok(Exit::Done);
        }
        let server = Reconnect::with(&args.connect, client);
        return wait::until_finished(server, upserted.job.job_id, args.bound, args.output).await;
    }
    guard.check(&job).await?;
    let submitted = client.submit_json(&job).await?;
    if args.wait {
        eprintln!("{}", begun(&submitted));
        let server = Reconnect::with(&args.connect, client);
        return wait::until_finished(server, submitted.job_id, args.bound, args.output).await;
    }
    // The job is stored in any case, so later errors do not concern the submit.
    let job = client.job(submitted.job_id).await.ok();
    let outlook = outlook::outlook(&client, &submitted, job.as_ref()).await;
    args.output.print(&submitted, |submitted| format!("{}, {}", begun(submitted), outlook.text))?;
    if !args.output.is_table() && outlook.is_note {
        tell(&format!("note: it {}", outlook.text));
    }
    if let Some(past) = outlook::past(&submitted, args.fields.at()) {
        eprintln!("note: {past}");
    }
    if let Some(job) = job
        && !job.is_finished()
        && let Some(lack) = outlook::lacks_worker(&client, &job.job_type).await
    {
        tell(&format!("warning: {lack}"));
    }
    Ok(Exit::Done)
}

fn begun(submitted: &SubmittedBody) -> String {
    if submitted.existing {
        return format!("job {} was submitted before with this idempotency key", submitted.job_id);
    }
    format!("submitted job {}", submitted.job_id)
}

impl SubmitArgs {
    /// Submits a job for each row of a file.
    async fn submit_rows(
        &self,
        client: &Client,
        file: &Path,
        guard: DuplicateGuard<'_>,
    ) -> anyhow::Result<Exit> {
        if self.wait || self.upsert {
            let message = "--wait and --upsert are for files of jobs, not for rows".to_owned();
            return Err(CliError { exit: Exit::Misunderstood, message }.into());
        }
        let (lines, jobs): (Vec<u64>, Vec<Box<RawValue>>) =
            self.rows.read(file)?.into_iter().map(|row| (row.line, row.job)).unzip();
        let request_key = self.request_key.as_deref();
        JobBatches { client, request_key, guard, lines: Some(&lines) }.submit(&jobs, self.output).await
    }

    /// The jobs of a file; a list of one as a single job if it is awaited.
    fn single_if_awaited(&self, jobs: JobFile, file: &Path) -> Result<JobFile, CliError> {
        match jobs {
            JobFile::Many(mut jobs) if self.wait && jobs.len() == 1 => Ok(JobFile::One(jobs.remove(0))),
            JobFile::Many(jobs) if self.wait => {
                let message =
                    format!("--wait needs a single job; {} contains {}", file.display(), jobs.len());
                Err(CliError { exit: Exit::Misunderstood, message })
            }
            jobs => Ok(jobs),
        }
    }

    async fn job(&self, client: &Client) -> anyhow::Result<SubmitJob> {
        let lasting = &self.lasting;
        let mut depends_on = Vec::with_capacity(lasting.depends_on.len());
        for parent in &lasting.depends_on {
            depends_on.push(which::find(client, parent).await.context("--depends-on")?);
        }
        let fields = self.fields.job();
        let (job_type, payload) = self.handler(fields.job_type.clone());
        Ok(SubmitJob {
            name: self.name.clone().or_else(|| self.name_of_command()).unwrap_or_default(),
            job_type,
            payload,
            owner_id: lasting.owner.clone(),
            idempotency_key: lasting.idempotency_key.clone(),
            unique_key: lasting.unique_key.clone(),
            depends_on: given(&depends_on),
            ..fields
        })
    }

    /// The job type and its payload.
    fn handler(&self, job_type: Option<String>) -> (Option<String>, Option<Box<RawValue>>) {
        let (own_type, payload) = match &self.shell {
            Some(script) => ("shell", json!({ "script": script })),
            None if !self.command.is_empty() => ("process", json!({ "command": self.command })),
            None => return (job_type, self.payload.clone()),
        };
        (Some(own_type.to_owned()), to_raw_value(&payload).ok())
    }

    /// A name for a command without one.
    fn name_of_command(&self) -> Option<String> {
        match self.command.first() {
            Some(program) => Some(Path::new(program).file_name()?.to_string_lossy().into_owned()),
            None => self.shell.is_some().then(|| "shell".to_owned()),
        }
    }
}
