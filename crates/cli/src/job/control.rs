//! `punctual job pause|resume|cancel|retry|delete`: one verb, any number of jobs.
//!
//! A refusal for one job does not affect the others.

use crate::job::bulk::{BulkArgs, BulkFilterArgs};
use crate::job::wait::WaitBound;
use crate::job::{next, trigger, which};
use crate::reconnect::Reconnect;
use punctual_client::{Client, ClientError, ExecutionBody, ExecutionStatus, JobBody, Problem};
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::{self, CliError, Exit};
use punctual_config::hints;
use punctual_config::output::{OutputArgs, one_line, shortened, tell};
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::operation::BulkAction;
use serde::Serialize;

#[derive(clap::Args)]
pub struct ControlArgs {
    /// The jobs' ids, prefixes of them (at least 8 characters), or names that are unique among all or among unfinished jobs
    #[arg(value_name = "JOB", required_unless_present = "all", conflicts_with = "all")]
    jobs: Vec<String>,
    #[command(flatten)]
    bulk: BulkArgs,
    #[command(flatten)]
    filters: BulkFilterArgs,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
pub struct CancelArgs {
    /// The jobs' ids or names, or the ids of single executions
    #[arg(value_name = "JOB|EXECUTION", required_unless_present = "all", conflicts_with = "all")]
    jobs: Vec<String>,
    #[command(flatten)]
    bulk: BulkArgs,
    #[command(flatten)]
    filters: BulkFilterArgs,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
pub struct RetryArgs {
    #[command(flatten)]
    control: ControlArgs,
    /// Wait until the runs are finished; exit code 1 if one did not succeed
    #[arg(long, conflicts_with = "all")]
    wait: bool,
    #[command(flatten)]
    bound: WaitBound,
}

impl From<CancelArgs> for ControlArgs {
    fn from(CancelArgs { jobs, bulk, filters, connect, output }: CancelArgs) -> Self {
        ControlArgs { jobs, bulk, filters, connect, output }
    }
}

#[derive(Debug, Clone, Copy)]
pub enum ControlCommand {
    Pause,
    Resume,
    Cancel,
    Retry,
    Delete,
}

impl ControlCommand {
    fn in_bulk(self) -> BulkAction {
        match self {
            ControlCommand::Pause => BulkAction::Pause,
            ControlCommand::Resume => BulkAction::Resume,
            ControlCommand::Cancel => BulkAction::Cancel,
            ControlCommand::Retry => BulkAction::Retry,
            ControlCommand::Delete => BulkAction::Delete,
        }
    }
}

/// The outcome for each, in the order of the command line.
#[derive(Serialize)]
struct ControlReport {
    items: Vec<ControlledItem>,
}

#[derive(Serialize)]
#[serde(untagged)]
#[expect(clippy::large_enum_variant, reason = "a handful, printed at once")]
enum ControlledItem {
    Job(JobBody),
    Execution(ExecutionBody),
    Deleted { job_id: JobId },
    Refused { job: String, error: Problem },
}

pub async fn run(verb: ControlCommand, args: ControlArgs) -> anyhow::Result<Exit> {
    if args.bulk.is_meant() {
        return args.bulk.run_of(verb.in_bulk(), args.filters.fields()).run(&args.connect, args.output).await;
    }
    let client = args.connect.client()?;
    let (answer, exit) = each(&client, verb, &args.jobs).await?;
    print(&client, verb, &answer, args.output).await?;
    Ok(exit)
}

pub async fn retry(args: RetryArgs) -> anyhow::Result<Exit> {
    let RetryArgs { control, wait, bound } = args;
    if !wait {
        return run(ControlCommand::Retry, control).await;
    }
    let client = control.connect.client()?;
    let (mut answer, mut exit) = each(&client, ControlCommand::Retry, &control.jobs).await?;
    let mut server = bound.patient(Reconnect::with(&control.connect, client.clone()));
    for item in &mut answer.items {
        let ControlledItem::Job(JobBody { execution_id: Some(added), .. }) = item else { continue };
        eprintln!("retrying with execution {added}");
        let last = trigger::until_ended(&mut server, client.execution(*added).await?, bound).await?;
        if last.status != ExecutionStatus::Succeeded {
            exit = Exit::Failed;
        }
        *item = ControlledItem::Execution(last);
    }
    print(&client, ControlCommand::Retry, &answer, control.output).await?;
    Ok(exit)
}

/// Applies the verb to each job.
async fn each(
    client: &Client,
    verb: ControlCommand,
    jobs: &[String],
) -> anyhow::Result<(ControlReport, Exit)> {
    let mut answer = ControlReport { items: Vec::with_capacity(jobs.len()) };
    let mut worst = Exit::Done;
    for given in jobs {
        let item = match applied(client, verb, given).await {
            Ok(item) => item,
            Err(error) => {
                let (problem, exit) = refusal(error)?;
                if worst == Exit::Done {
                    worst = exit;
                }
                tell(&format!("error: {}: {problem}{}", one_line(given), hints::lines(&problem.advice)));
                ControlledItem::Refused { job: given.clone(), error: problem }
            }
        };
        answer.items.push(item);
    }
    Ok((answer, worst))
}

async fn print(
    client: &Client,
    verb: ControlCommand,
    answer: &ControlReport,
    output: OutputArgs,
) -> anyhow::Result<()> {
    let mut lines = Vec::with_capacity(answer.items.len());
    if output.is_table() {
        for item in &answer.items {
            lines.extend(told(client, verb, item).await);
        }
        if lines.is_empty() {
            return Ok(());
        }
    }
    output.print(answer, |_| lines.join("\n"))
}

async fn applied(client: &Client, verb: ControlCommand, given: &str) -> anyhow::Result<ControlledItem> {
    if let (ControlCommand::Cancel, Ok(execution)) = (verb, given.parse::<ExecutionId>()) {
        return Ok(ControlledItem::Execution(client.cancel_execution(execution).await?));
    }
    let id = which::find(client, given).await?;
    let job = match verb {
        ControlCommand::Pause => client.pause(id).await?,
        ControlCommand::Resume => client.resume(id).await?,
        ControlCommand::Cancel => client.cancel(id).await?,
        ControlCommand::Retry => client.retry(id).await?,
        ControlCommand::Delete => {
            client.delete(id).await?;
            return Ok(ControlledItem::Deleted { job_id: id });
        }
    };
    Ok(ControlledItem::Job(job))
}

/// Why the verb was refused for one job. Anything that would affect all other jobs as well is an error.
pub fn refusal(error: anyhow::Error) -> anyhow::Result<(Problem, Exit)> {
    match error.downcast_ref::<ClientError>() {
        Some(ClientError::Refused(problem)) if matches!(problem.status, 404 | 409 | 412 | 422) => {
            Ok(((**problem).clone(), exit::of_problem(problem)))
        }
        Some(_) => Err(error),
        None => match error.downcast_ref::<CliError>() {
            Some(CliError { exit, message }) => {
                let status = if *exit == Exit::NotFound { 404 } else { 400 };
                Ok((Problem::new(status, message.clone()), *exit))
            }
            None => Err(error),
        },
    }
}

async fn told(client: &Client, verb: ControlCommand, item: &ControlledItem) -> Option<String> {
    let text = match item {
        ControlledItem::Job(job) => {
            let named = format!("job {} ({})", job.job_id, shortened(&job.name, 40));
            match verb {
                ControlCommand::Pause => format!("paused {named}"),
                ControlCommand::Resume => match next::told(client, job).await {
                    Some(next) => format!("resumed {named}, {next}"),
                    None => format!("resumed {named}"),
                },
                ControlCommand::Cancel => format!("cancelled {named}{}", note(job.status_reason.as_deref())),
                ControlCommand::Retry => match job.execution_id {
                    Some(execution) => format!("retrying {named} with execution {execution}"),
                    None => format!("retrying {named}"),
                },
                ControlCommand::Delete => format!("deleted {named}"),
            }
        }
        ControlledItem::Execution(execution) if execution.cancel_requested => {
            format!("execution {} is running and was asked to stop", execution.execution_id)
        }
        ControlledItem::Execution(execution) => {
            format!("execution {} is {}", execution.execution_id, execution.status)
        }
        ControlledItem::Deleted { job_id } => format!("deleted job {job_id}"),
        ControlledItem::Refused { .. } => return None,
    };
    Some(text)
}

fn note(reason: Option<&str>) -> String {
    reason.map_or_else(String::new, |reason| format!(": {reason}"))
}
