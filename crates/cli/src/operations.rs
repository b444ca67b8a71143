//! `punctual operations`: actions on many jobs, while they run and afterwards.

use crate::pages;
use clap::Subcommand;
use punctual_client::{OperationBody, Page};
use punctual_config::args;
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::Exit;
use punctual_config::output::{OutputArgs, details, optional_time, shortened, table, time};
use punctual_core::ids::OperationId;

#[derive(Subcommand)]
pub enum OperationsCommand {
    /// List operations: running ones first, the latest first
    List(ListArgs),
    /// Show the progress of an operation, and what it was refused
    Show(OperationArgs),
    /// Stop an operation after its current step; changes already made are kept
    Cancel(OperationArgs),
}

#[derive(clap::Args)]
pub struct ListArgs {
    /// How many to show
    #[arg(long, default_value_t = 100, value_parser = args::limit)]
    limit: usize,
    /// Continue where an earlier list ended
    #[arg(long)]
    cursor: Option<String>,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
pub struct OperationArgs {
    /// The operation's id
    #[arg(value_name = "OPERATION")]
    operation: OperationId,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub async fn run(command: OperationsCommand) -> anyhow::Result<Exit> {
    match command {
        OperationsCommand::List(args) => {
            let client = args.connect.client()?;
            let read =
                async |limit, cursor: Option<String>| client.operations(Some(limit), cursor.as_deref()).await;
            let page = pages::collect(args.limit, args.cursor.clone(), read).await?;
            args.output.print(&page, listed)?;
            pages::tell_more(args.output, page.next_cursor.as_deref());
        }
        OperationsCommand::Show(args) => {
            let operation = args.connect.client()?.operation(args.operation).await?;
            args.output.print(&operation, details_of)?;
        }
        OperationsCommand::Cancel(args) => {
            let operation = args.connect.client()?.cancel_operation(args.operation).await?;
            args.output.print(&operation, details_of)?;
        }
    }
    Ok(Exit::Done)
}

fn listed(page: &Page<OperationBody>) -> String {
    if page.items.is_empty() {
        return "no operations".to_owned();
    }
    let rows = page.items.iter().map(|operation| {
        vec![
            operation.operation_id.to_string(),
            operation.action.to_string(),
            shortened(&operation.filter.to_string(), 50),
            operation.status.as_str().to_owned(),
            progress(operation),
            operation.refused.to_string(),
            shortened(&operation.requested_by, 30),
            time(operation.created_at),
        ]
    });
    table(&["OPERATION", "ACTION", "FILTER", "STATUS", "DONE", "REFUSED", "BY", "STARTED"], rows)
}

fn progress(operation: &OperationBody) -> String {
    let at_least = if operation.matched_is_exact { "" } else { "≥" };
    format!("{}/{at_least}{}", operation.done, operation.matched)
}

/// One operation, with the first refusals.
pub fn details_of(operation: &OperationBody) -> String {
    let status = match (operation.cancelling, &operation.failure) {
        (true, _) => format!("{} (is being cancelled)", operation.status.as_str()),
        (false, Some(failure)) => format!("{}: {failure}", operation.status.as_str()),
        (false, None) => operation.status.as_str().to_owned(),
    };
    let mut text = details([
        ("operation", Some(operation.operation_id.to_string())),
        ("action", Some(operation.action.to_string())),
        ("filter", Some(operation.filter.to_string())),
        ("patch", operation.patch.as_ref().map(ToString::to_string)),
        ("status", Some(status)),
        ("done", Some(progress(operation))),
        ("refused", Some(operation.refused.to_string())),
        ("requested by", Some(operation.requested_by.clone())),
        ("started", Some(time(operation.created_at))),
        ("finished", Some(optional_time(operation.finished_at))),
    ]);
    if !operation.refusals.is_empty() {
        let rows = operation.refusals.iter().map(|refusal| vec![refusal.id.clone(), refusal.reason.clone()]);
        text += &format!("\n\n{}", table(&["REFUSED", "REASON"], rows));
    }
    text
}
