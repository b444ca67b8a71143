//! `punctual queue`: what waits where, and holding all of it.

use crate::args;
use crate::connect::ConnectArgs;
use crate::exit::Exit;
use crate::output::{OutputArgs, optional_time, shortened, table};
use crate::suggest::did_you_mean;
use clap::Subcommand;
use punctual_client::{Client, ClientError, JobFilter, Page, QueueBody};
use punctual_core::limits;

#[derive(Subcommand)]
pub enum QueueCommand {
    /// List queues that have work or are paused
    List(ListArgs),
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

pub async fn run(command: QueueCommand) -> anyhow::Result<Exit> {
    match command {
        QueueCommand::List(args) => {
            let queues = args.connect.client()?.queues().await?;
            args.output.print(&queues, queues_table)?;
        }
        QueueCommand::Pause(args) => {
            each(args, async |client, queue| client.pause_queue(queue).await).await?
        }
        QueueCommand::Resume(args) => {
            each(args, async |client, queue| client.resume_queue(queue).await).await?
        }
    }
    Ok(Exit::Done)
}

/// Does the same to each queue and shows how they stand then.
async fn each(
    args: QueueArgs,
    act: impl AsyncFn(&Client, &str) -> Result<QueueBody, ClientError>,
) -> anyhow::Result<()> {
    let client = args.connect.client()?;
    let mut page = Page { items: vec![], next_cursor: None };
    for queue in &args.queues {
        let body = act(&client, queue).await?;
        if body.waiting + body.queued + body.running == 0
            && let Some(note) = misspelled(&client, queue).await
        {
            eprintln!("note: {note}");
        }
        page.items.push(body);
    }
    args.output.print(&page, queues_table)
}

/// What a queue without work was probably to be called, going by the latest jobs. Any name is good, as jobs may come.
async fn misspelled(client: &Client, queue: &str) -> Option<String> {
    let latest = JobFilter { limit: Some(limits::PAGE_ITEMS_MAX), ..JobFilter::default() };
    let jobs = client.jobs(&latest).await.ok()?.items;
    let meant = did_you_mean(queue, jobs.iter().map(|job| job.queue.as_str()));
    let is_known = jobs.iter().any(|job| job.queue == queue);
    (!is_known && !meant.is_empty()).then(|| format!("no job is in queue {queue}{meant}"))
}

fn queues_table(page: &Page<QueueBody>) -> String {
    if page.items.is_empty() {
        return "no queue has work or is paused".to_owned();
    }
    let rows = page.items.iter().map(|queue| {
        vec![
            shortened(&queue.queue, 40),
            if queue.paused { "PAUSED" } else { "OPEN" }.to_owned(),
            queue.waiting.to_string(),
            queue.queued.to_string(),
            queue.running.to_string(),
            optional_time(queue.oldest_queued_at),
            optional_time(queue.paused_at),
        ]
    });
    table(&["QUEUE", "STATUS", "WAITING", "QUEUED", "RUNNING", "OLDEST QUEUED", "PAUSED SINCE"], rows)
}
