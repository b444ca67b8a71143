//! `punctual workers`: lists connected workers, and pauses, resumes and drains them.

use crate::list_format::{Cut, ListOutput, ListTexts};
use clap::Subcommand;
use punctual_client::{Client, ClientError, Page, WorkerSessionBody};
use punctual_config::args;
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::Exit;
use punctual_config::output::{OutputArgs, table, time_to_millis};
use punctual_core::health::HumanBytes;

#[derive(Subcommand)]
pub enum WorkersCommand {
    /// List connected workers
    List(ListWorkersArgs),
    /// Show workers
    Show(WorkersArgs),
    /// Pause workers: they get no new work and finish what they have
    Pause(WorkersArgs),
    /// Resume paused workers
    Resume(WorkersArgs),
    /// Drain workers: they finish what is running, return the rest, and exit
    Drain(WorkersArgs),
}

#[derive(clap::Args)]
pub struct ListWorkersArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: ListOutput,
}

#[derive(clap::Args)]
pub struct WorkersArgs {
    /// The workers' names or session ids
    #[arg(value_name = "WORKER", required = true, value_parser = args::path_name)]
    workers: Vec<String>,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub async fn run(command: WorkersCommand) -> anyhow::Result<Exit> {
    match command {
        WorkersCommand::List(args) => {
            let workers = args.connect.client()?.workers().await?;
            args.output.print(&workers, &TEXTS)?;
        }
        WorkersCommand::Show(args) => {
            each(args, async |client, worker| client.worker(worker).await).await?;
        }
        WorkersCommand::Pause(args) => {
            each(args, async |client, worker| client.pause_worker(worker).await).await?;
        }
        WorkersCommand::Resume(args) => {
            each(args, async |client, worker| client.resume_worker(worker).await).await?;
        }
        WorkersCommand::Drain(args) => {
            let drained = each(args, async |client, worker| client.drain_worker(worker).await).await?;
            if drained.items.iter().any(|worker| worker.embedded) {
                eprintln!(
                    "note: the server's own worker is drained: the server runs no handlers until it is restarted; \
                     to stop a worker only for a while, use `punctual workers pause`"
                );
            }
        }
    }
    Ok(Exit::Done)
}

/// Applies the same action to each worker and shows their new state.
async fn each(
    args: WorkersArgs,
    act: impl AsyncFn(&Client, &str) -> Result<WorkerSessionBody, ClientError>,
) -> anyhow::Result<Page<WorkerSessionBody>> {
    let client = args.connect.client()?;
    let mut page = Page { items: vec![], next_cursor: None };
    for worker in &args.workers {
        page.items.push(act(&client, worker).await?);
    }
    args.output.print(&page, |page| workers_table(page, Cut::Long))?;
    Ok(page)
}

const TEXTS: ListTexts<Page<WorkerSessionBody>> = ListTexts {
    table: workers_table,
    names: |page| page.items.iter().map(|worker| worker.session_id.to_string()).collect(),
};

fn workers_table(page: &Page<WorkerSessionBody>, cut: Cut) -> String {
    if page.items.is_empty() {
        return "no worker is connected".to_owned();
    }
    let rows = page.items.iter().map(|worker| {
        let queues = if worker.queues.is_empty() { "all".to_owned() } else { worker.queues.join(",") };
        vec![
            worker.session_id.to_string(),
            cut.text(&worker.worker_id, 40),
            worker.state.as_str().to_owned(),
            format!("{}/{}", worker.running, slots(worker)),
            worker.free_slots.map_or_else(|| "-".to_owned(), |free| free.to_string()),
            cut.text(&health(worker), 60),
            cut.text(&queues, 30),
            cut.text(&worker.job_types.join(","), 40),
            worker.version.clone().unwrap_or_else(|| "-".to_owned()),
            worker.host.clone().unwrap_or_else(|| "-".to_owned()),
            time_to_millis(worker.last_heartbeat_at),
        ]
    });
    table(
        &[
            "SESSION",
            "WORKER",
            "STATE",
            "HOLDS/SLOTS",
            "FREE",
            "HEALTH",
            "QUEUES",
            "JOB TYPES",
            "VERSION",
            "HOST",
            "LAST HEARTBEAT",
        ],
        rows,
    )
}

/// Concurrent handlers, with their bounds if the number adapts.
fn slots(worker: &WorkerSessionBody) -> String {
    let bounds = worker.condition.as_ref().and_then(|told| Some((told.slots_min?, told.slots_max?)));
    bounds.map_or(worker.slots.to_string(), |(min, max)| format!("{} ({min}..{max})", worker.slots))
}

/// The health of a worker in short: why it refuses work, or the free resources of its machine.
fn health(worker: &WorkerSessionBody) -> String {
    let Some(told) = &worker.condition else { return "-".to_owned() };
    if !told.refuses.is_empty() {
        return format!("refuses work: {}", told.refuses.join("; "));
    }
    let mut said = Vec::new();
    said.extend(told.cpu_percent.map(|percent| format!("cpu {percent}%")));
    said.extend(told.memory_free_bytes.map(|free| format!("mem {} free", HumanBytes(free))));
    said.extend(told.disk_free_bytes.map(|free| format!("disk {} free", HumanBytes(free))));
    said.extend(told.round_trip_ms.map(|millis| format!("{millis} ms")));
    if said.is_empty() { "-".to_owned() } else { said.join(", ") }
}
