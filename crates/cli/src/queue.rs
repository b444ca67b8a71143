//! `punctual queue`: shows queues and their limits, changes the limits, and pauses and resumes queues.

use crate::list_format::{Cut, ListOutput, ListTexts};
use clap::Subcommand;
use punctual_client::{Client, ClientError, JobFilter, Page, ParseStartRateError, QueueBody, StartRate};
use punctual_config::args;
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::Exit;
use punctual_config::output::{OutputArgs, one_line, optional_time, table, tell};
use punctual_config::suggest::did_you_mean;
use punctual_core::limits;
use serde_json::{Map, Value, json};
use std::fmt::Display;
use std::str::FromStr;

#[derive(Subcommand)]
pub enum QueueCommand {
    /// List queues that have work, are paused or have settings
    List(ListQueuesArgs),
    /// Show the contents and settings of queues
    Show(QueueArgs),
    /// Set the limits of a queue (depth, concurrency, rate) and the weights of owners; others keep their values
    Set(SetArgs),
    /// Pause queues: nothing in them starts; running executions finish
    Pause(QueueArgs),
    /// Resume paused queues: everything that waited runs, late
    Resume(QueueArgs),
}

#[derive(clap::Args)]
pub struct ListQueuesArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: ListOutput,
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
    #[command(flatten)]
    settings: SettingArgs,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// What is not named stays as it is.
#[derive(clap::Args)]
#[group(required = true, multiple = true)]
struct SettingArgs {
    /// How many executions may wait or be queued before submits are rejected, or none for no limit
    #[arg(long, value_name = "N|none", value_parser = limit::<u64>)]
    max_depth: Option<QueueSetting<u64>>,
    /// How many executions may be queued or running at once, or none for no limit
    #[arg(long, value_name = "N|none", value_parser = limit::<u32>)]
    concurrency: Option<QueueSetting<u32>>,
    /// How many executions may start in a span of time, such as 100/1m, or none for no limit
    #[arg(long, value_name = "N/SPAN|none", value_parser = rate)]
    rate: Option<QueueSetting<StartRate>>,
    /// How many executions with the same concurrency key may be queued or running at once, or none for no limit
    #[arg(long, value_name = "N|none", value_parser = limit::<u32>)]
    key_concurrency: Option<QueueSetting<u32>>,
    /// How many executions with the same concurrency key may start in a span of time, or none for no limit
    #[arg(long, value_name = "N/SPAN|none", value_parser = rate)]
    key_rate: Option<QueueSetting<StartRate>>,
    /// The weight of an owner's share relative to other owners, who have 1, or none to remove it; can be given more than
    /// once
    #[arg(long, value_name = "OWNER=N|none", value_parser = weight)]
    weight: Vec<(String, u32)>,
}

/// A limit of a queue, or no limit.
#[derive(Clone, Copy)]
struct QueueSetting<T>(Option<T>);

fn limit<T: FromStr>(text: &str) -> Result<QueueSetting<T>, String> {
    setting(text, |text| text.parse().map_err(|_| "must be a number, or none".to_owned()))
}

fn rate(text: &str) -> Result<QueueSetting<StartRate>, String> {
    setting(text, |text| text.parse().map_err(|error: ParseStartRateError| format!("{error}, or none")))
}

fn setting<T>(text: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Result<QueueSetting<T>, String> {
    if text.eq_ignore_ascii_case("none") {
        Ok(QueueSetting(None))
    } else {
        parse(text).map(|value| QueueSetting(Some(value)))
    }
}

/// The weight of owners without an explicit one.
const SHARE_OF_ALL: u32 = 1;

fn weight(text: &str) -> Result<(String, u32), String> {
    let wrong =
        || "must be an owner and a number, or an owner and none, such as ann=3 or ann=none".to_owned();
    let (owner, weight) = text.rsplit_once('=').ok_or_else(wrong)?;
    let QueueSetting(weight) = setting(weight, |weight| weight.parse().map_err(|_| wrong()))?;
    Ok((owner.to_owned(), weight.unwrap_or(SHARE_OF_ALL)))
}

impl SettingArgs {
    /// The settings that are named, as a merge patch.
    fn patch(&self) -> Map<String, Value> {
        let mut patch = Map::new();
        let mut add = |field: &str, value: Option<Value>| {
            if let Some(value) = value {
                patch.insert(field.to_owned(), value);
            }
        };
        add("max_depth", self.max_depth.map(|setting| json!(setting.0)));
        add("concurrency", self.concurrency.map(|setting| json!(setting.0)));
        add("rate", self.rate.map(|setting| json!(setting.0)));
        add("key_concurrency", self.key_concurrency.map(|setting| json!(setting.0)));
        add("key_rate", self.key_rate.map(|setting| json!(setting.0)));
        if !self.weight.is_empty() {
            let weight = |(owner, weight): &(String, u32)| {
                (owner.clone(), if *weight == SHARE_OF_ALL { Value::Null } else { json!(weight) })
            };
            patch.insert("weights".to_owned(), Value::Object(self.weight.iter().map(weight).collect()));
        }
        patch
    }
}

pub async fn run(command: QueueCommand) -> anyhow::Result<Exit> {
    match command {
        QueueCommand::List(args) => {
            let queues = args.connect.client()?.queues().await?;
            args.output.print(&queues, &TEXTS)?;
        }
        QueueCommand::Show(args) => {
            each(args, EmptyQueueNote::Unused, async |client, queue| client.queue(queue).await).await?
        }
        QueueCommand::Set(args) => {
            let client = args.connect.client()?;
            let queue = client.patch_queue(&args.queue, &args.settings.patch()).await?;
            let page = Page { items: vec![queue], next_cursor: None };
            args.output.print(&page, |page| queues_table(page, Cut::Long))?;
        }
        QueueCommand::Pause(args) => {
            each(args, EmptyQueueNote::Misspelled, async |client, queue| client.pause_queue(queue).await)
                .await?
        }
        QueueCommand::Resume(args) => {
            each(args, EmptyQueueNote::Misspelled, async |client, queue| client.resume_queue(queue).await)
                .await?
        }
    }
    Ok(Exit::Done)
}

/// What to print about a queue without jobs. Such a queue is valid, because jobs may come, so only commands
/// that read mention every such queue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EmptyQueueNote {
    Unused,
    Misspelled,
}

/// Applies the same action to each queue and shows their new state.
async fn each(
    args: QueueArgs,
    noted: EmptyQueueNote,
    act: impl AsyncFn(&Client, &str) -> Result<QueueBody, ClientError>,
) -> anyhow::Result<()> {
    let client = args.connect.client()?;
    let mut page = Page { items: vec![], next_cursor: None };
    for queue in &args.queues {
        let body = act(&client, queue).await?;
        if body.depth() == 0
            && body.running == 0
            && let Some(note) = unused(&client, queue, noted).await
        {
            tell(&format!("note: {note}"));
        }
        page.items.push(body);
    }
    args.output.print(&page, |page| queues_table(page, Cut::Long))
}

/// A notice that a queue without work has no job either, with a suggestion from the latest jobs. Any name is
/// valid, because jobs may come.
async fn unused(client: &Client, queue: &str, noted: EmptyQueueNote) -> Option<String> {
    let latest = JobFilter { limit: Some(limits::PAGE_ITEMS_MAX), ..JobFilter::default() };
    let jobs = client.jobs(&latest).await.ok()?;
    if jobs.items.iter().any(|job| job.queue == queue) {
        return None;
    }
    let meant = did_you_mean(queue, jobs.items.iter().map(|job| job.queue.as_str()));
    if meant.is_empty() && noted == EmptyQueueNote::Misspelled {
        return None;
    }
    let whose = match jobs.next_cursor {
        None => "no job".to_owned(),
        Some(_) => format!("none of the latest {} jobs", jobs.items.len()),
    };
    Some(format!("{whose} is in queue {}{meant}", one_line(queue)))
}

fn or_dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// The concurrency and the rate.
fn limits_of(concurrency: Option<u32>, rate: Option<StartRate>) -> String {
    match (concurrency, rate) {
        (Some(concurrency), Some(rate)) => format!("{concurrency}, {rate}"),
        (concurrency, rate) => {
            or_dash(concurrency.map(|most| most.to_string()).or(rate.map(|rate| rate.to_string())))
        }
    }
}

/// Characters of the weights column in a table. The other formats contain all of them.
const WEIGHTS_CHARS_MAX: usize = 40;

fn weights_of(queue: &QueueBody) -> String {
    if queue.settings.weights.is_empty() {
        return "-".to_owned();
    }
    let weights = queue.settings.weights.iter().map(|(owner, weight)| format!("{owner}={weight}"));
    weights.collect::<Vec<_>>().join(", ")
}

fn state(queue: &QueueBody) -> &'static str {
    match (&queue.unreadable, queue.paused) {
        (Some(_), _) => "UNREADABLE",
        (None, true) => "PAUSED",
        (None, false) => "OPEN",
    }
}

const TEXTS: ListTexts<Page<QueueBody>> = ListTexts {
    table: queues_table,
    names: |page| page.items.iter().map(|queue| queue.queue.clone()).collect(),
};

fn queues_table(page: &Page<QueueBody>, cut: Cut) -> String {
    if page.items.is_empty() {
        return "no queue has work, is paused or has settings".to_owned();
    }
    let rows = page.items.iter().map(|queue| {
        vec![
            cut.text(&queue.queue, 40),
            state(queue).to_owned(),
            queue.waiting.to_string(),
            queue.queued.to_string(),
            queue.running.to_string(),
            or_dash(queue.settings.max_depth),
            limits_of(queue.settings.concurrency, queue.settings.rate),
            limits_of(queue.settings.key_concurrency, queue.settings.key_rate),
            cut.text(&weights_of(queue), WEIGHTS_CHARS_MAX),
            optional_time(queue.oldest_queued_at),
            optional_time(queue.paused_at),
        ]
    });
    table(
        &[
            "QUEUE",
            "STATUS",
            "WAITING",
            "QUEUED",
            "RUNNING",
            "MAX DEPTH",
            "LIMIT",
            "KEY LIMIT",
            "WEIGHTS",
            "OLDEST QUEUED",
            "PAUSED SINCE",
        ],
        rows,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        settings: SettingArgs,
    }

    fn patch(line: &str) -> Result<Value, String> {
        let line = Line::try_parse_from(["set"].into_iter().chain(line.split_whitespace()));
        Ok(Value::Object(line.map_err(|error| error.to_string())?.settings.patch()))
    }

    #[test]
    fn only_what_is_named_is_sent() {
        for (line, sent) in [
            ("--weight eve=5", json!({"weights": {"eve": 5}})),
            ("--weight ann=none --weight bob=1", json!({"weights": {"ann": null, "bob": null}})),
            ("--weight a=b=none --rate none", json!({"weights": {"a=b": null}, "rate": null})),
            ("--rate 5/s --concurrency 3", json!({"rate": "5/1s", "concurrency": 3})),
            ("--max-depth NONE --key-rate 1/m", json!({"max_depth": null, "key_rate": "1/1m"})),
        ] {
            assert_eq!(patch(line), Ok(sent), "{line}");
        }
        for wrong in ["--weight ann", "--weight ann=", "--weight ann=some", "--weight ann=-1"] {
            let problem = patch(wrong).unwrap_err();
            assert!(problem.contains("ann=3 or ann=none"), "{problem}");
        }
    }

    #[test]
    fn weights_are_shown_beside_the_limits() {
        let mut queue: QueueBody = serde_json::from_value(serde_json::json!({
            "queue": "images", "paused": false, "waiting": 0, "queued": 0, "running": 0,
            "weights": {"ann": 3, "bob": 2},
        }))
        .unwrap();
        assert_eq!(weights_of(&queue), "ann=3, bob=2");
        queue.settings.weights.clear();
        assert_eq!(weights_of(&queue), "-");
    }
}
