//! `punctual demo`: a few example jobs on a running server, shown while they run and explained afterwards. The binary has the
//! demo of alerts, which starts a server.

mod examples;

use crate::job::list::{self, status};
use crate::job::live::{self, SeenRun};
use anyhow::Context;
use examples::{Example, TAG, TICK};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use punctual_client::{Client, ClientError, ClockMode, JobBody, JobFilter, Span};
use punctual_config::args;
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::Exit;
use punctual_config::output::{OutputArgs, table, visible};
use punctual_core::ids::JobId;
use punctual_core::job::JobStatus;
use punctual_core::limits;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The maximum time to watch the examples: on a busy server they may take much longer than they need.
const WATCH_TIME_MAX: Duration = Duration::from_secs(60);
/// Pause between two reads of them.
const LOOK_PAUSE: Duration = Duration::from_millis(500);

#[derive(clap::Args)]
pub struct DemoArgs {
    /// Remove the jobs of an earlier demo, and submit nothing
    #[arg(long)]
    clean: bool,
    /// Submit the examples and explain them, without watching them first
    #[arg(long, conflicts_with = "clean")]
    no_watch: bool,
    /// Show alerts from end to end instead, on a private server that is removed at the end, until Ctrl-C
    #[arg(long, conflicts_with_all = ["clean", "no_watch"])]
    alerts: bool,
    /// End the demo of alerts after this time
    #[arg(long = "for", value_name = "DURATION", value_parser = args::span, requires = "alerts")]
    length: Option<Span>,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// The demo of alerts.
#[derive(Debug, Clone, Copy)]
pub struct AlertDemo {
    pub length: Option<Duration>,
    pub output: OutputArgs,
}

impl DemoArgs {
    /// The demo of alerts, if it is asked for.
    pub fn alerts(&self) -> Option<AlertDemo> {
        self.alerts.then(|| AlertDemo { length: self.length.map(Span::get), output: self.output })
    }
}

/// The outcome of the examples.
#[derive(Serialize)]
struct DemoReport {
    /// Jobs of an earlier demo that were removed.
    removed: usize,
    items: Vec<DemoItem>,
}

#[derive(Serialize)]
struct DemoItem {
    name: &'static str,
    job_id: JobId,
    status: JobStatus,
    what: &'static str,
    look: &'static [&'static str],
}

pub async fn run(args: DemoArgs) -> anyhow::Result<Exit> {
    let client = args.connect.client()?;
    let examples = examples::all();
    let removed = clean(&client, &examples).await?;
    if args.clean {
        let answer = DemoReport { removed, items: vec![] };
        args.output.print(&answer, |answer| format!("removed {} of the demo", jobs(answer.removed)))?;
        return Ok(Exit::Done);
    }
    let ids = submit(&client, &examples).await?;
    eprintln!("submitted {}, all tagged {TAG}", jobs(ids.len()));
    if client.clock().await?.mode == ClockMode::Manual {
        eprintln!("note: the server's clock is manual: advance it with `punctual clock advance 1m`");
    } else if !args.no_watch {
        watch(&client, &examples, &ids).await?;
    }
    let mut items = Vec::with_capacity(examples.len());
    for example in &examples {
        let Some(job_id) = ids.get(example.name).copied() else { continue };
        let status = client.job(job_id).await?.status;
        let Example { name, what, look, .. } = example;
        items.push(DemoItem { name, job_id, status, what, look });
    }
    args.output.print(&DemoReport { removed, items }, told)?;
    Ok(Exit::Done)
}

/// Removes the examples of an earlier demo. Other jobs with the same names do not have the tag.
async fn clean(client: &Client, examples: &[Example]) -> anyhow::Result<usize> {
    let mut removed = 0;
    for example in examples {
        let named = JobFilter { name: Some(example.name.to_owned()), ..JobFilter::default() };
        let page = list::collect(client, named, limits::PAGE_ITEMS_MAX).await?;
        for job in page.items.iter().filter(|job| job.tags.iter().any(|tag| tag == TAG)) {
            match client.delete(job.job_id).await {
                Ok(()) => removed += 1,
                // Another process was faster.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(removed)
}

async fn submit(client: &Client, examples: &[Example]) -> Result<BTreeMap<&'static str, JobId>, ClientError> {
    let mut ids = BTreeMap::new();
    for example in examples {
        ids.insert(example.name, client.submit(&example.job(&ids)).await?.job_id);
    }
    Ok(ids)
}

/// Shows a line per example until all that end soon have ended, or the user interrupts.
async fn watch(
    client: &Client,
    examples: &[Example],
    ids: &BTreeMap<&'static str, JobId>,
) -> anyhow::Result<()> {
    let lines = MultiProgress::new();
    let style = ProgressStyle::with_template("{wide_msg}")?;
    let bars: BTreeMap<&str, ProgressBar> = examples
        .iter()
        .map(|example| (example.name, lines.add(ProgressBar::new_spinner().with_style(style.clone()))))
        .collect();
    let watching = async {
        let start = Instant::now();
        loop {
            let mut is_over = true;
            for (name, id) in ids {
                let job = client.job(*id).await?;
                is_over &= job.is_finished() || *name == TICK;
                if let Some(bar) = bars.get(name).filter(|bar| !bar.is_hidden()) {
                    bar.set_message(line(client, job).await?);
                }
            }
            if is_over || start.elapsed() >= WATCH_TIME_MAX {
                return Ok::<(), ClientError>(());
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    };
    tokio::select! {
        biased;
        interrupted = tokio::signal::ctrl_c() => interrupted.context("cannot listen for signals")?,
        watched = watching => watched?,
    }
    lines.clear()?;
    Ok(())
}

async fn line(client: &Client, job: JobBody) -> Result<String, ClientError> {
    let execution = client.executions(job.job_id, Some(1), None).await?.items.into_iter().next();
    let now = client.clock().await?.now;
    Ok(visible(&live::told(&SeenRun { job, execution }, now)).into_owned())
}

fn told(answer: &DemoReport) -> String {
    let rows = answer.items.iter().map(|shown| {
        vec![shown.name.to_owned(), shown.job_id.to_string(), status(shown.status), shown.what.to_owned()]
    });
    let mut text = table(&["NAME", "JOB", "STATUS", "WHAT IT SHOWS"], rows);
    text += "\n\nLook closer:";
    for shown in &answer.items {
        for command in shown.look {
            text += &format!("\n  {command}");
        }
    }
    text + "\n  punctual top\n\nRemove it all with `punctual demo --clean`. See alerts with `punctual demo --alerts`."
}

fn jobs(count: usize) -> String {
    if count == 1 { "1 job".to_owned() } else { format!("{count} jobs") }
}
