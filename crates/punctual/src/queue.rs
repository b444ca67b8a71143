//! `punctual queue`: what waits where, how much may, and holding all of it.

use crate::args;
use crate::connect::ConnectArgs;
use crate::exit::Exit;
use crate::output::{OutputArgs, one_line, optional_time, shortened, table, tell};
use crate::suggest::did_you_mean;
use clap::Subcommand;
use punctual_client::{Client, ClientError, JobFilter, Page, QueueBody, SetQueue};
use punctual_core::limits;

#[derive(Subcommand)]
pub enum QueueCommand {
    /// List queues that have work, are paused or have settings
    List(ListArgs),
    /// Show queues: what is in them and what is set for them
    Show(QueueArgs),
    /// Limit how much a queue takes in
    Set(SetArgs),
    /// Keep everything of queues waiting; what runs finishes
    Pause(QueueArgs),
    /// Let paused queues go on: all that waited runs, late
    Resume(QueueArgs),
}

#[derive(clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
pub struct QueueArgs {
    /// The queues' names
    #[arg(value_name = "QUEUE", required = true, value_parser = args::queue)]
    queues: Vec<String>,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
pub struct SetArgs {
    /// The queue's name
    #[arg(value_name = "QUEUE", value_parser = args::queue)]
    queue: String,
    /// How many executions may wait or be queued before submits are refused, or none for any number
    #[arg(long, value_name = "N|none", required = true, value_parser = depth)]
    max_depth: Depth,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// A limit of a queue, or that it has none.
#[derive(Clone, Copy)]
struct Depth(Option<u64>);

fn depth(text: &str) -> Result<Depth, String> {
    if text.eq_ignore_ascii_case("none") {
        return Ok(Depth(None));
    }
    text.parse().map(|depth| Depth(Some(depth))).map_err(|_| "must be a number from 0, or none".to_owned())
}

pub async fn run(command: QueueCommand) -> anyhow::Result<Exit> {
    match command {
        QueueCommand::List(args) => {
            let queues = args.connect.client()?.queues().await?;
            args.output.print(&queues, queues_table)?;
        }
        QueueCommand::Show(args) => {
            each(args, Noted::Unused, async |client, queue| client.queue(queue).await).await?
        }
        QueueCommand::Set(args) => {
            let settings = SetQueue { max_depth: args.max_depth.0 };
            let queue = args.connect.client()?.set_queue(&args.queue, &settings).await?;
            args.output.print(&Page { items: vec![queue], next_cursor: None }, queues_table)?;
        }
        QueueCommand::Pause(args) => {
            each(args, Noted::Misspelled, async |client, queue| client.pause_queue(queue).await).await?
        }
        QueueCommand::Resume(args) => {
            each(args, Noted::Misspelled, async |client, queue| client.resume_queue(queue).await).await?
        }
    }
    Ok(Exit::Done)
}

/// What is said of a queue that no job is in: jobs may come, so only whoever looks must hear of every such queue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Noted {
    Unused,
    Misspelled,
}

/// Does the same to each queue and shows how they stand then.
async fn each(
    args: QueueArgs,
    noted: Noted,
    act: impl AsyncFn(&Client, &str) -> Result<QueueBody, ClientError>,
) -> anyhow::Result<()> {
    let client = args.connect.client()?;
    let mut page = Page { items: vec![], next_cursor: None };
    for queue in &args.queues {
        let body = act(&client, queue).await?;
        if body.waiting + body.queued + body.running == 0
            && let Some(note) = unused(&client, queue, noted).await
        {
            tell(&format!("note: {note}"));
        }
        page.items.push(body);
    }
    args.output.print(&page, queues_table)
}

/// That a queue without work has no job either, and what it was probably to be called, going by the latest jobs. Any
/// name is good, as jobs may come.
async fn unused(client: &Client, queue: &str, noted: Noted) -> Option<String> {
    let latest = JobFilter { limit: Some(limits::PAGE_ITEMS_MAX), ..JobFilter::default() };
    let jobs = client.jobs(&latest).await.ok()?;
    if jobs.items.iter().any(|job| job.queue == queue) {
        return None;
    }
    let meant = did_you_mean(queue, jobs.items.iter().map(|job| job.queue.as_str()));
    if meant.is_empty() && noted == Noted::Misspelled {
        return None;
    }
    let whose = match jobs.next_cursor {
        None => "no job".to_owned(),
        Some(_) => format!("none of the latest {} jobs", jobs.items.len()),
    };
    Some(format!("{whose} is in queue {}{meant}", one_line(queue)))
}

fn queues_table(page: &Page<QueueBody>) -> String {
    if page.items.is_empty() {
        return "no queue has work, is paused or has settings".to_owned();
    }
    let rows = page.items.iter().map(|queue| {
        vec![
            shortened(&queue.queue, 40),
            if queue.paused { "PAUSED" } else { "OPEN" }.to_owned(),
            queue.waiting.to_string(),
            queue.queued.to_string(),
            queue.running.to_string(),
            queue.max_depth.map_or_else(|| "-".to_owned(), |depth| depth.to_string()),
            optional_time(queue.oldest_queued_at),
            optional_time(queue.paused_at),
        ]
    });
    table(
        &["QUEUE", "STATUS", "WAITING", "QUEUED", "RUNNING", "MAX DEPTH", "OLDEST QUEUED", "PAUSED SINCE"],
        rows,
    )
}
