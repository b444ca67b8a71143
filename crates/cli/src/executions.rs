//! `punctual executions`: running, waiting and ended executions of all jobs.

use crate::job::bulk::BulkArgs;
use crate::job::progress;
use crate::job::trigger::RunArgs;
use crate::list_format::{Cut, ListOutput, ListTexts};
use crate::pages;
use clap::Subcommand;
use punctual_client::{ExecutionBody, ExecutionFilter, ExecutionStatus, Page};
use punctual_config::args;
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::{CliError, Exit};
use punctual_config::output::{OutputArgs, optional_time, table, time};
use punctual_core::ids::ExecutionId;
use punctual_core::occurrence::Origin;
use punctual_core::operation::BulkAction;

#[derive(Subcommand)]
pub enum ExecutionsCommand {
    /// List executions of all jobs: running ones by default, or those with another status
    List(ListArgs),
    /// Cancel an execution, or all that match
    Cancel(CancelExecutionsArgs),
    /// Retry dead letters: all failed occurrences that match
    Retry(RetryExecutionsArgs),
    /// Run a finished occurrence again, with the same or another payload
    Rerun(RerunArgs),
}

#[derive(clap::Args)]
pub struct CancelExecutionsArgs {
    /// An execution, such as 019fcb1e-5f00-7000-8000-000000000001.3.1
    #[arg(value_name = "EXECUTION_ID", required_unless_present = "all", conflicts_with = "all")]
    execution: Option<ExecutionId>,
    #[command(flatten)]
    bulk: BulkArgs,
    /// With --all: only executions with this status: RUNNING, QUEUED or WAITING
    #[arg(long, requires = "all", value_parser = parse_status)]
    status: Option<ExecutionStatus>,
    /// With --all: only executions of jobs of this queue
    #[arg(long, requires = "all")]
    queue: Option<String>,
    /// With --all: only executions of jobs that this handler runs
    #[arg(long = "type", requires = "all", value_name = "JOB_TYPE")]
    job_type: Option<String>,
    /// With --all: only executions of jobs of this owner
    #[arg(long, requires = "all")]
    owner: Option<String>,
    /// With --all: only executions that run on the worker of this name
    #[arg(long, requires = "all")]
    worker: Option<String>,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
pub struct RetryExecutionsArgs {
    #[command(flatten)]
    bulk: BulkArgs,
    /// Only dead letters of jobs of this queue
    #[arg(long, requires = "all")]
    queue: Option<String>,
    /// Only dead letters of jobs that this handler runs
    #[arg(long = "type", requires = "all", value_name = "JOB_TYPE")]
    job_type: Option<String>,
    /// Only dead letters of jobs of this owner
    #[arg(long, requires = "all")]
    owner: Option<String>,
    /// Only dead letters whose error contains this text
    #[arg(long, requires = "all")]
    error: Option<String>,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
pub struct RerunArgs {
    /// A finished execution, such as 019fcb1e-5f00-7000-8000-000000000001-3-1
    #[arg(value_name = "EXECUTION_ID")]
    execution: ExecutionId,
    #[command(flatten)]
    how: RunArgs,
}

#[derive(clap::Args)]
pub struct ListArgs {
    /// Only executions with this status: RUNNING, QUEUED, WAITING, SUCCEEDED, FAILED, TIMED_OUT, CANCELLED, LOST, SKIPPED, EXPIRED or SNOOZED
    #[arg(long, default_value = "RUNNING", value_parser = parse_status)]
    status: ExecutionStatus,
    /// Only executions of jobs of this queue
    #[arg(long)]
    queue: Option<String>,
    /// Only executions of jobs that this handler runs
    #[arg(long = "type", value_name = "JOB_TYPE")]
    job_type: Option<String>,
    /// Only executions of jobs of this owner
    #[arg(long)]
    owner: Option<String>,
    /// Only executions that run or ran on the worker of this name
    #[arg(long)]
    worker: Option<String>,
    /// How many to show
    #[arg(long, default_value_t = 100, value_parser = args::limit)]
    limit: usize,
    /// Continue where an earlier list ended
    #[arg(long)]
    cursor: Option<String>,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: ListOutput,
}

fn parse_status(text: &str) -> Result<ExecutionStatus, String> {
    args::word(text).map_err(|_| {
        "must be RUNNING, QUEUED, WAITING, SUCCEEDED, FAILED, TIMED_OUT, CANCELLED, LOST, SKIPPED, EXPIRED or \
         SNOOZED"
            .to_owned()
    })
}

pub async fn run(command: ExecutionsCommand) -> anyhow::Result<Exit> {
    match command {
        ExecutionsCommand::List(args) => list(args).await,
        ExecutionsCommand::Cancel(args) => cancel(args).await,
        ExecutionsCommand::Retry(args) => retry(args).await,
        ExecutionsCommand::Rerun(RerunArgs { execution, how }) => {
            how.run(async |client, request| Ok(client.rerun(execution, request).await?)).await
        }
    }
}

async fn cancel(args: CancelExecutionsArgs) -> anyhow::Result<Exit> {
    if let Some(id) = args.execution {
        let execution = args.connect.client()?.cancel_execution(id).await?;
        args.output.print(&execution, |execution| match execution.status {
            ExecutionStatus::Running => format!("asked {id} to stop"),
            status => format!("{id} is {status}"),
        })?;
        return Ok(Exit::Done);
    }
    let filters = [
        ("status", args.status.map(|status| status.as_str().to_owned())),
        ("queue", args.queue),
        ("job_type", args.job_type),
        ("owner", args.owner),
        ("worker", args.worker),
    ];
    args.bulk.run_of(BulkAction::Cancel, vec![]).on_executions(filters).run(&args.connect, args.output).await
}

async fn retry(args: RetryExecutionsArgs) -> anyhow::Result<Exit> {
    if !args.bulk.is_meant() {
        let message =
            "add --all to retry all dead letters that match; to retry one, use `punctual dlq redrive`"
                .to_owned();
        return Err(CliError { exit: Exit::Misunderstood, message }.into());
    }
    let filters =
        [("queue", args.queue), ("job_type", args.job_type), ("owner", args.owner), ("error", args.error)];
    args.bulk.run_of(BulkAction::Retry, vec![]).on_executions(filters).run(&args.connect, args.output).await
}

async fn list(args: ListArgs) -> anyhow::Result<Exit> {
    let filter = ExecutionFilter {
        status: Some(args.status),
        queue: args.queue,
        job_type: args.job_type,
        owner: args.owner,
        worker: args.worker,
        limit: None,
        cursor: args.cursor,
    };
    let client = args.connect.client()?;
    let read = async |limit, cursor| {
        client.all_executions(&ExecutionFilter { limit: Some(limit), cursor, ..filter.clone() }).await
    };
    let page = pages::collect(args.limit, filter.cursor.clone(), read).await?;
    args.output.print(&page, &TEXTS)?;
    args.output.tell_more(page.next_cursor.as_deref());
    Ok(Exit::Done)
}

const TEXTS: ListTexts<Page<ExecutionBody>> = ListTexts {
    table: executions_table,
    names: |page| page.items.iter().map(|execution| execution.execution_id.to_string()).collect(),
};

fn executions_table(page: &Page<ExecutionBody>, cut: Cut) -> String {
    if page.items.is_empty() {
        return "no executions".to_owned();
    }
    let mut header = vec!["EXECUTION", "NAME", "TYPE", "QUEUE", "STATUS", "WORKER", "SINCE", "DETAIL"];
    if cut == Cut::Nothing {
        header.extend(["SCHEDULED", "ORIGIN", "STARTED", "COMPLETED"]);
    }
    table(&header, page.items.iter().map(|execution| row(execution, cut)))
}

fn row(execution: &ExecutionBody, cut: Cut) -> Vec<String> {
    let word =
        |text: &Option<String>| text.as_ref().map_or_else(|| "-".to_owned(), |text| cut.text(text, 40));
    let since = execution.completed_at.or(execution.started_at).unwrap_or(execution.available_at);
    let mut row = vec![
        execution.execution_id.to_string(),
        word(&execution.name),
        word(&execution.job_type),
        word(&execution.queue),
        execution.status.to_string(),
        word(&execution.worker_id),
        optional_time(Some(since)),
        detail(execution, cut),
    ];
    if cut == Cut::Nothing {
        row.extend([
            time(execution.scheduled_time),
            origin(execution.origin).to_owned(),
            optional_time(execution.started_at),
            optional_time(execution.completed_at),
        ]);
    }
    row
}

fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Schedule => "schedule",
        Origin::Trigger => "trigger",
        Origin::Backfill => "backfill",
    }
}

/// Details of an execution, depending on its state.
fn detail(execution: &ExecutionBody, cut: Cut) -> String {
    let gates: Vec<&str> = execution.gates.iter().map(|gate| gate.name()).collect();
    let said = match execution.status {
        ExecutionStatus::Waiting => Some(format!("waits for {}", gates.join(", "))),
        ExecutionStatus::Running if execution.cancel_requested => Some("asked to stop".to_owned()),
        ExecutionStatus::Running => execution.progress.as_ref().map(progress::told),
        _ => execution.error_message.clone().or_else(|| execution.reason.clone()),
    };
    said.map_or_else(|| "-".to_owned(), |said| cut.text(&said, 60))
}
