//! `punctual job show` and `punctual job history`.

use crate::job::list::status;
use crate::job::policies;
use crate::job::which::WhichJob;
use crate::pages;
use punctual_client::{Client, ExecutionBody, ExecutionsPage, JobBody, SkipRangeBody};
use punctual_config::args;
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::Exit;
use punctual_config::output::{OutputArgs, details, shortened, span, table, time, time_to_millis};
use punctual_core::access::Permission;
use punctual_core::gates::Gate;
use punctual_core::ids::JobId;
use punctual_core::job::ResultOverflow;
use punctual_core::limits;
use serde_json::value::RawValue;
use std::time::Duration;

#[derive(clap::Args)]
pub struct ShowArgs {
    #[command(flatten)]
    which: WhichJob,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub async fn run(args: ShowArgs) -> anyhow::Result<Exit> {
    let client = args.connect.client()?;
    let job = client.job(args.which.id(&client).await?).await?;
    print_job(&client, &job, args.output).await?;
    Ok(Exit::Done)
}

/// Prints a job. An empty payload and a hidden one look the same in an answer, so people learn which one it is.
pub async fn print_job(client: &Client, job: &JobBody, output: OutputArgs) -> anyhow::Result<()> {
    let mut hides_payload = false;
    if output.is_table() && job.payload.is_none() {
        let permissions = client.me().await?.permissions;
        hides_payload = !permissions.iter().any(|permission| permission == Permission::PayloadRead.word());
    }
    output.print(job, |job| job_details(job, hides_payload))
}

fn job_details(job: &JobBody, hides_payload: bool) -> String {
    let last = job.last_execution.as_ref();
    details([
        ("Job", Some(job.job_id.to_string())),
        ("Name", Some(job.name.clone())),
        ("Status", Some(status(job.status))),
        ("Reason", job.status_reason.clone()),
        ("Type", Some(job.job_type.clone())),
        ("Queue", Some(job.queue.clone())),
        ("Priority", Some(job.priority.0.get().to_string())),
        ("Owner", Some(job.owner_id.clone())),
        ("Tags", (!job.tags.is_empty()).then(|| job.tags.join(", "))),
        ("Schedule", Some(schedule(job))),
        ("Missed runs", policies::missed(job)),
        ("Overlap", policies::overlap(job)),
        ("Expires", expiry(job)),
        ("Depends on", (!job.depends_on.is_empty()).then(|| listed(&job.depends_on))),
        ("Idempotency key", job.idempotency_key.clone()),
        ("Unique key", job.unique_key.clone()),
        ("Concurrency key", job.concurrency_key.clone()),
        ("Notify", job.notify.as_ref().and_then(|notify| serde_json::to_string(notify).ok())),
        (
            "Large results",
            match job.result_overflow {
                Some(ResultOverflow::Fail) => Some("fail the execution".to_owned()),
                Some(ResultOverflow::Blob) => Some("stored as blobs".to_owned()),
                Some(ResultOverflow::Truncate) | None => None,
            },
        ),
        ("Next run", job.next_run_time.map(time)),
        ("Next retry", job.next_retry_time.map(time)),
        ("Last run", job.last_run_time.map(time)),
        ("Progress", job.progress.as_ref().map(|progress| shortened(&progress.to_string(), 200))),
        ("Last outcome", last.map(|last| last.status.to_string())),
        ("Last error", job.last_error.as_ref().map(|error| shortened(error, 200))),
        ("Time limit", Some(span(Duration::from_millis(job.timeout_secs.as_millis())))),
        ("If it fails", Some(policies::retries(job))),
        (
            "Not retried",
            job.retry.fail_on.as_ref().filter(|texts| !texts.is_empty()).map(|texts| texts.join(", ")),
        ),
        (
            "Payload",
            match &job.payload {
                Some(payload) => Some(document(payload)),
                None => hides_payload.then(|| "hidden: needs payload:read".to_owned()),
            },
        ),
        ("Result", job.result.as_deref().map(document)),
        ("Version", Some(job.version.to_string())),
        ("Created", Some(time(job.created_at))),
    ])
}

/// The beginning of a document on one line. Line breaks in JSON are never inside of strings.
fn document(json: &RawValue) -> String {
    let lines = json.get().lines().map(str::trim).filter(|line| !line.is_empty());
    shortened(&lines.collect::<Vec<_>>().join(" "), 200)
}

fn schedule(job: &JobBody) -> String {
    match (&job.schedule_description, job.execute_at) {
        (Some(description), _) => {
            let runs = job.max_runs.map_or_else(String::new, |runs| format!(", {runs} times"));
            format!("{description}{runs}")
        }
        (None, Some(at)) => format!("once at {}", time(at)),
        (None, None) => "at once".to_owned(),
    }
}

fn expiry(job: &JobBody) -> Option<String> {
    let after =
        job.expires_after.map(|after| format!("{after} after its scheduled time, unless it has started"));
    after.or_else(|| job.expires_at.map(|at| format!("at {}, unless it has started", time(at))))
}

fn listed(ids: &[JobId]) -> String {
    ids.iter().map(JobId::to_string).collect::<Vec<_>>().join(", ")
}

#[derive(clap::Args)]
pub struct HistoryArgs {
    #[command(flatten)]
    which: WhichJob,
    /// How many executions to show
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

pub async fn history(args: HistoryArgs) -> anyhow::Result<Exit> {
    let client = args.connect.client()?;
    let job = args.which.id(&client).await?;
    let page = collect(&client, job, args.limit, args.cursor).await?;
    args.output.print(&page, executions_table)?;
    pages::tell_more(args.output, page.next_cursor.as_deref());
    Ok(Exit::Done)
}

async fn collect(
    client: &Client,
    job: JobId,
    limit: usize,
    cursor: Option<String>,
) -> anyhow::Result<ExecutionsPage> {
    let mut all = ExecutionsPage { items: vec![], skipped: vec![], next_cursor: cursor };
    loop {
        let wanted = (limit - all.items.len()).clamp(1, limits::PAGE_ITEMS_MAX);
        let page = client.executions(job, Some(wanted), all.next_cursor.as_deref()).await?;
        all.items.extend(page.items);
        all.skipped.extend(page.skipped);
        all.next_cursor = page.next_cursor;
        if all.next_cursor.is_none() || all.items.len() >= limit {
            return Ok(all);
        }
    }
}

fn executions_table(page: &ExecutionsPage) -> String {
    let mut text = String::new();
    if page.items.is_empty() && page.skipped.is_empty() {
        return "no executions are stored: none has started yet, or retention has deleted them".to_owned();
    }
    if !page.items.is_empty() {
        text += &table(
            &["EXECUTION", "STATUS", "SCHEDULED", "STARTED", "TOOK", "WORKER", "ERROR"],
            page.items.iter().map(execution_row),
        );
    }
    if !page.skipped.is_empty() {
        text += &format!("\n\nDid not run:\n{}", skipped_table(&page.skipped));
    }
    text
}

fn execution_row(execution: &ExecutionBody) -> Vec<String> {
    let took = match (execution.started_at, execution.completed_at) {
        (Some(started), Some(completed)) => span(completed.since(started)),
        _ => "-".to_owned(),
    };
    vec![
        execution.execution_id.to_string(),
        state_and_progress(execution),
        time_to_millis(execution.scheduled_time),
        execution.started_at.map_or_else(|| "-".to_owned(), time_to_millis),
        took,
        execution.worker_id.clone().unwrap_or_else(|| "-".to_owned()),
        why(execution).map_or_else(|| "-".to_owned(), |error| shortened(error, 60)),
    ]
}

/// The handler's error, or why it did not run.
fn why(execution: &ExecutionBody) -> Option<&str> {
    execution.error_message.as_deref().or(execution.reason.as_deref())
}

/// The status, and the latest progress.
fn state_and_progress(execution: &ExecutionBody) -> String {
    match &execution.progress {
        Some(progress) => format!("{}: {}", state(execution), shortened(&progress.to_string(), 40)),
        None => state(execution),
    }
}

/// The checkpoint that its next attempt starts from.
fn checkpoint(execution: &ExecutionBody) -> Option<String> {
    let stored = execution.checkpoint.as_deref().map(document);
    stored.or_else(|| execution.checkpoint_bytes.map(|bytes| format!("{bytes} bytes")))
}

/// The status, and what it waits for; with a time if it waits for one.
fn state(execution: &ExecutionBody) -> String {
    let status = execution.status;
    if execution.cancel_requested {
        return format!("{status}, asked to stop");
    }
    let others = execution.gates.iter().filter(|gate| **gate != Gate::Time).map(|gate| gate.name());
    let others = others.collect::<Vec<_>>().join(", ");
    let until = match execution.gates.contains(&Gate::Time) {
        true => format!(" until {}", time(execution.available_at)),
        false => String::new(),
    };
    match others.as_str() {
        "" => format!("{status}{until}"),
        others => format!("{status}{until} ({others})"),
    }
}

/// Ranges of occurrences that did not run.
pub fn skipped_table(skipped: &[SkipRangeBody]) -> String {
    let rows = skipped.iter().map(|range| {
        vec![
            format!("{:?}", range.reason).to_lowercase(),
            range.count.to_string(),
            time(range.first),
            time(range.last),
        ]
    });
    table(&["REASON", "COUNT", "FIRST", "LAST"], rows)
}

pub fn execution_details(execution: &ExecutionBody) -> String {
    details([
        ("Execution", Some(execution.execution_id.to_string())),
        ("Status", Some(state(execution))),
        ("Reason", execution.reason.clone()),
        ("Scheduled", Some(time_to_millis(execution.scheduled_time))),
        ("Started", execution.started_at.map(time_to_millis)),
        ("Completed", execution.completed_at.map(time_to_millis)),
        ("Expires", execution.expires_at.map(time)),
        ("Worker", execution.worker_id.clone()),
        ("Repeats", execution.repeats.map(|occurrence| occurrence.to_string())),
        ("Payload", execution.payload.as_deref().map(document)),
        ("Progress", execution.progress.as_ref().map(|progress| shortened(&progress.to_string(), 200))),
        ("Checkpoint", checkpoint(execution)),
        ("Error", execution.error_message.as_ref().map(|error| shortened(error, 200))),
        ("Result", execution.result.as_deref().map(document)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_of_several_lines_is_shown_on_one() {
        let shown = |json: &str| document(&RawValue::from_string(json.to_owned()).unwrap());
        assert_eq!(shown("{\n  \"to\": \"a  b\",\r\n\n  \"n\": 1e999\n}"), r#"{ "to": "a  b", "n": 1e999 }"#);
        assert_eq!(shown(r#"{"a":1}"#), r#"{"a":1}"#);
        let long = shown(&format!("[\n\"{}\"\n]", "x".repeat(300)));
        assert!(long.starts_with("[ \"xxx") && long.ends_with("x…") && long.chars().count() == 201, "{long}");
    }
}
