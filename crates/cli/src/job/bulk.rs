//! `punctual job pause|resume|cancel|delete|retry|trigger|update --all`: one verb for all jobs that match.
//!
//! The server performs it as an operation. The command first shows what matches, asks, and then waits for the end.

use crate::job::list::{parse_payload_field, parse_schedule_type, parse_status};
use crate::operations;
use indicatif::{ProgressBar, ProgressStyle};
use punctual_client::{
    BulkAnswer, BulkRequest, Client, ClientError, OperationBody, PriorityBody, ScheduleType, SubmitJob,
};
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::{CliError, Exit};
use punctual_config::output::{OutputArgs, shortened, table, tell};
use punctual_core::ids::OperationId;
use punctual_core::job::JobStatus;
use punctual_core::operation::{BulkAction, BulkTarget, OperationStatus};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// The first and the longest pause between two reads of an operation.
const LOOK_PAUSE_MIN: Duration = Duration::from_millis(20);
const LOOK_PAUSE_MAX: Duration = Duration::from_millis(500);
/// How long a server may be away while an operation runs.
const AWAY_MAX: Duration = Duration::from_secs(60);

/// How an action on all jobs that match is confirmed and awaited.
#[derive(Debug, clap::Args)]
pub struct BulkArgs {
    /// Act on everything that matches the filters; without a filter on everything
    #[arg(long)]
    all: bool,
    /// Only with this value in a filter of the list in the API, such as queue=mail or tag=nightly; may be repeated
    #[arg(long = "where", value_name = "FILTER=VALUE", requires = "all", value_parser = parse_payload_field)]
    conditions: Vec<(String, String)>,
    /// Show how many match and some of them, and change nothing
    #[arg(long, requires = "all")]
    dry_run: bool,
    /// Do not ask
    #[arg(long, requires = "all")]
    yes: bool,
    /// Do not wait for the end
    #[arg(long, requires = "all")]
    detach: bool,
}

/// Which jobs. Most filters of `job list`.
#[derive(Debug, clap::Args)]
pub struct BulkFilterArgs {
    /// With --all: only jobs with exactly this name
    #[arg(long, requires = "all")]
    name: Option<String>,
    /// With --all: only jobs that this handler runs
    #[arg(long = "type", requires = "all", value_name = "JOB_TYPE")]
    job_type: Option<String>,
    /// With --all: only jobs of this queue
    #[arg(long, requires = "all")]
    queue: Option<String>,
    /// With --all: only jobs of this priority: 1 to 10, or low, medium, high
    #[arg(long, requires = "all")]
    priority: Option<PriorityBody>,
    /// With --all: only jobs with this tag; if given more than once, only jobs with all of them
    #[arg(long = "tag", requires = "all", value_name = "TAG")]
    tags: Vec<String>,
    #[command(flatten)]
    more: MoreFilterArgs,
}

/// The filters whose flags no other command gives another meaning.
#[derive(Debug, Clone, clap::Args)]
pub struct MoreFilterArgs {
    /// With --all: only jobs with this status: ACTIVE, PAUSED, COMPLETED, FAILED or CANCELLED
    #[arg(long, requires = "all", value_parser = parse_status)]
    status: Option<JobStatus>,
    /// With --all: only jobs of this owner
    #[arg(long, requires = "all")]
    owner: Option<String>,
    /// With --all: only jobs of this kind: IMMEDIATE, ONE_TIME or RECURRING
    #[arg(long, requires = "all", value_parser = parse_schedule_type)]
    schedule_type: Option<ScheduleType>,
    /// With --all: only jobs whose name, type or tags contain this text
    #[arg(short = 'q', long = "search", alias = "q", requires = "all", value_name = "TEXT")]
    search: Option<String>,
    /// With --all: only jobs whose last run failed, timed out or was lost
    #[arg(long, requires = "all")]
    failing: bool,
    /// With --all: only jobs whose payload has this value in a field, such as customer=42
    #[arg(long = "payload-field", requires = "all", value_name = "FIELD=VALUE", value_parser = parse_payload_field)]
    payload_fields: Vec<(String, String)>,
}

/// Filters by their names in the API.
pub type FilterFields = Vec<(String, Value)>;

impl BulkFilterArgs {
    /// Takes the values of flags that otherwise change these fields.
    pub fn taken_from(name: &mut Option<String>, fields: &mut SubmitJob, more: &MoreFilterArgs) -> Self {
        BulkFilterArgs {
            name: name.take(),
            job_type: fields.job_type.take(),
            queue: fields.queue.take(),
            priority: fields.priority.take(),
            tags: fields.tags.take().unwrap_or_default(),
            more: more.clone(),
        }
    }

    pub fn fields(&self) -> FilterFields {
        let mut fields = vec![];
        for (field, value) in [
            ("name", self.name.clone()),
            ("job_type", self.job_type.clone()),
            ("queue", self.queue.clone()),
            ("priority", self.priority.map(|priority| priority.0.get().to_string())),
        ] {
            fields.extend(value.map(|value| (field.to_owned(), json!(value))));
        }
        fields.extend(self.tags.iter().map(|tag| ("tag".to_owned(), json!(tag))));
        fields.extend(self.more.fields());
        fields
    }
}

impl MoreFilterArgs {
    pub fn fields(&self) -> FilterFields {
        let given = [
            ("status", self.status.map(|status| json!(status.as_str()))),
            ("owner", self.owner.as_ref().map(|owner| json!(owner))),
            ("schedule_type", self.schedule_type.map(|kind| json!(kind))),
            ("q", self.search.as_ref().map(|text| json!(text))),
            ("failing", self.failing.then_some(json!(true))),
        ];
        let given = given.into_iter().filter_map(|(field, value)| Some((field.to_owned(), value?)));
        let payload = self.payload_fields.iter();
        let payload = payload.map(|(field, value)| (format!("payload.{field}"), json!(value)));
        given.chain(payload).collect()
    }
}

/// Adds a value to a field; a second one makes it a list.
fn add(filter: &mut Map<String, Value>, field: &str, value: Value) {
    match filter.get_mut(field) {
        None => {
            filter.insert(field.to_owned(), value);
        }
        Some(Value::Array(values)) => values.push(value),
        Some(first) => *first = json!([first, value]),
    }
}

/// An action on everything that matches.
pub struct BulkRun {
    args: BulkArgs,
    action: BulkAction,
    target: BulkTarget,
    filter: Map<String, Value>,
    patch: Option<Box<RawValue>>,
}

impl BulkArgs {
    /// Whether the command is about all jobs that match.
    pub fn is_meant(&self) -> bool {
        self.all
    }

    pub fn run_of(self, action: BulkAction, filters: FilterFields) -> BulkRun {
        let mut filter = Map::new();
        self.conditions.iter().for_each(|(field, value)| add(&mut filter, field, json!(value)));
        filters.into_iter().for_each(|(field, value)| add(&mut filter, &field, value));
        BulkRun { args: self, action, target: BulkTarget::Jobs, filter, patch: None }
    }
}

impl BulkRun {
    /// The same action on executions with these values in the filters.
    pub fn on_executions<'a>(mut self, filters: impl IntoIterator<Item = (&'a str, Option<String>)>) -> Self {
        for (field, value) in filters {
            value.into_iter().for_each(|value| add(&mut self.filter, field, json!(value)));
        }
        BulkRun { target: BulkTarget::Executions, ..self }
    }

    pub fn with_patch(self, patch: Box<RawValue>) -> Self {
        BulkRun { patch: Some(patch), ..self }
    }

    pub async fn run(self, connect: &ConnectArgs, output: OutputArgs) -> anyhow::Result<Exit> {
        let client = connect.client()?;
        let all = self.filter.is_empty();
        let BulkRun { args, action, target, filter, patch } = self;
        let change = patch.as_ref().map_or_else(String::new, |patch| format!(" with {}", patch.get()));
        let request = BulkRequest { all, patch, target, dry_run: true, ..BulkRequest::new(action, filter) };
        let preview = client.bulk(&request).await?;
        if args.dry_run {
            output.print(&preview, |preview| described(preview, &change))?;
            return Ok(Exit::Done);
        }
        if preview.matched == 0 {
            output.print(&preview, nothing_matches)?;
            return Ok(Exit::Done);
        }
        if !args.yes && !is_confirmed(&preview, &change)? {
            let message = "cancelled: nothing was changed".to_owned();
            return Err(CliError { exit: Exit::Failed, message }.into());
        }
        let started = client.bulk(&BulkRequest { dry_run: false, ..request }).await?;
        let Some(id) = started.operation_id else {
            return Err(ClientError::Unexpected("an operation without an id".to_owned()).into());
        };
        if args.detach {
            output.print(&started, |_| format!("started operation {id}: `punctual operations show {id}`"))?;
            return Ok(Exit::Done);
        }
        let operation = until_finished(&client, id, started.matched).await?;
        output.print(&operation, operations::details_of)?;
        Ok(exit_of(&operation))
    }
}

/// What an operation would act on, and for an update with which change.
fn described(preview: &BulkAnswer, change: &str) -> String {
    let count = counted(preview);
    if preview.sample.is_empty() {
        return nothing_matches(preview);
    }
    let rows = preview.sample.iter().map(|item| {
        let refusal =
            item.refusal.as_deref().map_or_else(|| "-".to_owned(), |refusal| shortened(refusal, 60));
        vec![item.id.clone(), shortened(&item.name, 40), item.status.clone(), refusal]
    });
    let more = if preview.matched as usize > preview.sample.len() { "; the first ones:" } else { ":" };
    let action = preview.action;
    let id = if preview.target == BulkTarget::Jobs { "JOB" } else { "EXECUTION" };
    format!(
        "{action}{change}: {count} match{more}\n{}",
        table(&[id, "NAME", "STATUS", "WOULD BE REFUSED"], rows)
    )
}

fn nothing_matches(preview: &BulkAnswer) -> String {
    format!("no {} match", noun(preview.target, 0))
}

fn noun(target: BulkTarget, count: u64) -> &'static str {
    match (target, count) {
        (BulkTarget::Jobs, 1) => "job",
        (BulkTarget::Jobs, _) => "jobs",
        (BulkTarget::Executions, 1) => "execution",
        (BulkTarget::Executions, _) => "executions",
    }
}

fn counted(preview: &BulkAnswer) -> String {
    let at_least = if preview.matched_is_exact { "" } else { "at least " };
    format!("{at_least}{} {}", preview.matched, noun(preview.target, preview.matched))
}

/// Asks on the terminal. A script must say it on the command line.
fn is_confirmed(preview: &BulkAnswer, change: &str) -> anyhow::Result<bool> {
    let what = format!("{} {}{change}", preview.action, counted(preview));
    if !io::stdin().is_terminal() {
        let message = format!("this would {what}: review them with --dry-run, then add --yes");
        return Err(CliError { exit: Exit::Misunderstood, message }.into());
    }
    tell(&described(preview, change));
    eprint!("{what}? [y/N] ");
    io::stderr().flush()?;
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    Ok(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Waits for the end of an operation, with a progress bar where stderr is a terminal.
async fn until_finished(client: &Client, id: OperationId, total: u64) -> anyhow::Result<OperationBody> {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(total).with_style(style).with_message(format!("operation {id}"));
    let (mut pause, mut seen_at) = (LOOK_PAUSE_MIN, Instant::now());
    loop {
        match client.operation(id).await {
            Ok(operation) => {
                seen_at = Instant::now();
                bar.set_length(total.max(operation.done + operation.refused));
                bar.set_position(operation.done + operation.refused);
                if operation.status != OperationStatus::Running {
                    bar.finish_and_clear();
                    return Ok(operation);
                }
            }
            Err(error) if error.is_retryable() && seen_at.elapsed() < AWAY_MAX => {}
            Err(error) => {
                bar.finish_and_clear();
                tell(&format!("operation {id} goes on: `punctual operations show {id}`"));
                return Err(error.into());
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LOOK_PAUSE_MAX);
    }
}

fn exit_of(operation: &OperationBody) -> Exit {
    match operation.status {
        OperationStatus::Cancelled | OperationStatus::Failed => Exit::Failed,
        OperationStatus::Running | OperationStatus::Completed if operation.refused > 0 => Exit::Refused,
        OperationStatus::Running | OperationStatus::Completed => Exit::Done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[arg(conflicts_with = "all")]
        jobs: Vec<String>,
        #[command(flatten)]
        bulk: BulkArgs,
        #[command(flatten)]
        filters: BulkFilterArgs,
    }

    fn filter(line: &str) -> Result<String, String> {
        let line = Line::try_parse_from(["pause"].into_iter().chain(line.split_whitespace()));
        let Line { bulk, filters, .. } = line.map_err(|error| error.to_string())?;
        Ok(Value::Object(bulk.run_of(BulkAction::Pause, filters.fields()).filter).to_string())
    }

    #[test]
    fn filters_are_sent_by_the_names_of_the_api() {
        for (line, sent) in [
            ("--all", "{}"),
            ("--all --tag a --tag b --status active", r#"{"status":"ACTIVE","tag":["a","b"]}"#),
            ("--all --type mail --failing", r#"{"failing":true,"job_type":"mail"}"#),
            ("--all --where queue=x --priority high", r#"{"priority":"8","queue":"x"}"#),
            ("--all --payload-field order.id=7", r#"{"payload.order.id":"7"}"#),
        ] {
            let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
            assert_eq!(read(&filter(line).unwrap()), read(sent), "{line}");
        }
    }

    #[test]
    fn filters_need_all_and_all_excludes_names() {
        assert!(filter("--tag a").is_err());
        assert!(filter("--yes").is_err());
        assert!(filter("report --all").is_err());
    }
}
