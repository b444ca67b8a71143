//! `punctual job list`.

use crate::list_format::{Cut, ListOutput, ListTexts};
use crate::pages;
use punctual_client::{Client, ComparedBody, JobBody, JobFilter, JobsPage, Page, PriorityBody, ScheduleType};
use punctual_config::args;
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::{CliError, Exit};
use punctual_config::output::{optional_time, table, tell};
use punctual_config::suggest::did_you_mean;
use punctual_core::job::JobStatus;
use punctual_core::limits;
use serde::Deserialize;
use serde::de::value::{Error as ValueError, StrDeserializer};

/// Pages that are searched for active jobs whose last run failed.
const FAILING_PAGES_MAX: usize = 5;

#[derive(clap::Args)]
pub struct ListArgs {
    /// Only jobs with this status: ACTIVE, PAUSED, COMPLETED, FAILED or CANCELLED
    #[arg(long, value_parser = parse_status)]
    status: Option<JobStatus>,
    /// Only jobs with exactly this name
    #[arg(long)]
    name: Option<String>,
    /// Only jobs that this handler runs
    #[arg(long = "type", value_name = "JOB_TYPE")]
    job_type: Option<String>,
    /// Only jobs of this queue
    #[arg(long)]
    queue: Option<String>,
    /// Only jobs of this owner
    #[arg(long)]
    owner: Option<String>,
    /// Only jobs of this priority: 1 to 10, or low, medium, high
    #[arg(long)]
    priority: Option<PriorityBody>,
    /// Only jobs of this kind: IMMEDIATE, ONE_TIME or RECURRING
    #[arg(long, value_parser = parse_schedule_type)]
    schedule_type: Option<ScheduleType>,
    /// Only jobs with this tag; if given more than once, only jobs with all of them
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Only jobs whose name, type or tags contain this text, or whose id begins with it or contains it (from 6 characters on)
    #[arg(short = 'q', long, value_name = "TEXT")]
    search: Option<String>,
    /// Only jobs whose last run failed, timed out or was lost: recurring jobs stay ACTIVE then
    #[arg(long)]
    failing: bool,
    /// Only jobs whose payload has this value in a field, such as customer=42 or order.id=A-7; may be repeated
    #[arg(long, value_name = "FIELD=VALUE", value_parser = parse_payload_field)]
    payload: Vec<(String, String)>,
    /// Only jobs with this value in any other filter of GET /jobs, such as not_tag=nightly or created_after=2026-11-15T00:00:00Z; may be repeated
    #[arg(long = "where", value_name = "FILTER=VALUE", value_parser = parse_payload_field)]
    conditions: Vec<(String, String)>,
    /// Another order than the latest first: next_run, name, priority, last_run or lateness
    #[arg(long, value_name = "ORDER")]
    sort: Option<String>,
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

/// A status, case-insensitive: people type `active`.
pub fn parse_status(text: &str) -> Result<JobStatus, String> {
    let upper = text.to_ascii_uppercase();
    JobStatus::deserialize(StrDeserializer::<ValueError>::new(&upper))
        .map_err(|_| "must be ACTIVE, PAUSED, COMPLETED, FAILED or CANCELLED".to_owned())
}

pub fn parse_schedule_type(text: &str) -> Result<ScheduleType, String> {
    args::word(text).map_err(|_| "must be IMMEDIATE, ONE_TIME or RECURRING".to_owned())
}

pub fn parse_payload_field(text: &str) -> Result<(String, String), String> {
    let (field, value) = text.split_once('=').ok_or("must be FIELD=VALUE, such as customer=42")?;
    Ok((field.to_owned(), value.to_owned()))
}

pub async fn run(args: ListArgs) -> anyhow::Result<Exit> {
    let client = args.connect.client()?;
    let filter = JobFilter {
        status: args.status,
        name: args.name,
        job_type: args.job_type,
        queue: args.queue,
        owner: args.owner,
        priority: args.priority,
        schedule_type: args.schedule_type,
        tags: args.tags,
        text: args.search,
        failing: args.failing.then_some(true),
        payload: args.payload,
        conditions: args.conditions,
        sort: args.sort,
        limit: None,
        cursor: args.cursor,
    };
    let (page, compared) = if filter.sort.is_some() {
        sorted(&client, &filter, args.limit).await?
    } else {
        (collect(&client, filter.clone(), args.limit).await?, None)
    };
    args.output.print(&page, &TEXTS)?;
    args.output.tell_more(page.next_cursor.as_deref());
    if let Some(note) = compared.and_then(|compared| sorted_note(&compared, page.items.len(), args.limit)) {
        tell(&format!("note: {note}"));
    }
    if page.items.is_empty() {
        for note in misspelled(&client, &filter).await {
            tell(&format!("note: {note}"));
        }
    }
    if let Some(note) = active_but_failing(&client, &filter).await {
        tell(&format!("note: {note}"));
    }
    Ok(Exit::Done)
}

const TEXTS: ListTexts<Page<JobBody>> = ListTexts {
    table: |page, cut| match cut {
        Cut::Long => jobs_table(page),
        Cut::Nothing => wide_table(page),
    },
    names: |page| page.items.iter().map(|job| job.job_id.to_string()).collect(),
};

/// The first jobs in another order than the latest first: one page, with how many were compared.
async fn sorted(
    client: &Client,
    filter: &JobFilter,
    limit: usize,
) -> anyhow::Result<(Page<JobBody>, Option<ComparedBody>)> {
    if limit > limits::PAGE_ITEMS_MAX {
        let message = format!("--limit {limit}: must be at most {} with --sort", limits::PAGE_ITEMS_MAX);
        return Err(CliError { exit: Exit::Misunderstood, message }.into());
    }
    let filter = JobFilter { limit: Some(limit), ..filter.clone() };
    let JobsPage { items, next_cursor, compared, .. } = client.list_jobs(&filter).await?;
    Ok((Page { items, next_cursor }, compared))
}

/// What a sorted list lacks, if anything: it has no cursor.
fn sorted_note(compared: &ComparedBody, shown: usize, limit: usize) -> Option<String> {
    let jobs = usize::try_from(compared.jobs).unwrap_or(usize::MAX);
    if !compared.complete {
        return Some(format!(
            "these are the first {shown} of the latest {jobs} jobs that match; older ones were not compared"
        ));
    }
    let most = limits::PAGE_ITEMS_MAX;
    match shown {
        _ if jobs > shown => Some(format!(
            "these are the first {shown} of at least {jobs} jobs that match: raise --limit (at most {most})"
        )),
        _ if shown == limit => Some(format!("the list ends at --limit {limit}; more jobs may match")),
        _ => None,
    }
}

/// A list of failed jobs lacks recurring jobs whose last run failed, as they run again: says how many there are.
async fn active_but_failing(client: &Client, filter: &JobFilter) -> Option<String> {
    if filter.status != Some(JobStatus::Failed) || filter.failing.is_some() {
        return None;
    }
    let mut failing = JobFilter {
        status: Some(JobStatus::Active),
        failing: Some(true),
        limit: Some(limits::PAGE_ITEMS_MAX),
        sort: None,
        cursor: None,
        ..filter.clone()
    };
    // A page of jobs that no index finds may be empty although more follow.
    for _ in 0..FAILING_PAGES_MAX {
        let page = client.jobs(&failing).await.ok()?;
        let (count, is_all) = (page.items.len(), page.next_cursor.is_none());
        if count > 0 {
            let at_least = if is_all { "" } else { "at least " };
            let jobs = if count == 1 { "active job failed in its" } else { "active jobs failed in their" };
            return Some(format!(
                "{at_least}{count} {jobs} last run: `punctual job list --failing` lists them"
            ));
        }
        if is_all {
            return None;
        }
        failing.cursor = page.next_cursor;
    }
    Some(
        "recurring jobs whose last run failed stay active: `punctual job list --failing` lists them"
            .to_owned(),
    )
}

/// Suggestions for a filter that matched nothing, from the latest jobs.
async fn misspelled(client: &Client, filter: &JobFilter) -> Vec<String> {
    let latest = JobFilter { limit: Some(limits::PAGE_ITEMS_MAX), ..JobFilter::default() };
    let jobs = client.jobs(&latest).await.map(|page| page.items).unwrap_or_default();
    let named = |what: &str, given: &Option<String>, name_of: fn(&JobBody) -> &str| {
        let given = given.as_ref().filter(|given| jobs.iter().all(|job| name_of(job) != given.as_str()))?;
        let meant = did_you_mean(given, jobs.iter().map(name_of));
        (!meant.is_empty()).then(|| format!("no job has the {what} {given}{meant}"))
    };
    let notes = [
        named("name", &filter.name, |job| &job.name),
        named("type", &filter.job_type, |job| &job.job_type),
        named("queue", &filter.queue, |job| &job.queue),
        named("owner", &filter.owner, |job| &job.owner_id),
    ];
    notes.into_iter().flatten().collect()
}

/// As many jobs as requested.
pub async fn collect(client: &Client, filter: JobFilter, limit: usize) -> anyhow::Result<Page<JobBody>> {
    let read =
        async |limit, cursor| client.jobs(&JobFilter { limit: Some(limit), cursor, ..filter.clone() }).await;
    Ok(pages::collect(limit, filter.cursor.clone(), read).await?)
}

fn jobs_table(page: &Page<JobBody>) -> String {
    if page.items.is_empty() {
        return "no jobs".to_owned();
    }
    let rows = page.items.iter().map(|job| {
        vec![
            job.job_id.to_string(),
            Cut::Long.text(&job.name, 40),
            status(job.status),
            Cut::Long.text(&job.job_type, 30),
            Cut::Long.text(&job.queue, 30),
            job.priority.0.get().to_string(),
            optional_time(job.next_run_time),
            job.last_execution.as_ref().map_or_else(|| "-".to_owned(), |last| last.status.to_string()),
        ]
    });
    table(&["JOB", "NAME", "STATUS", "TYPE", "QUEUE", "PRIORITY", "NEXT RUN", "LAST OUTCOME"], rows)
}

fn wide_table(page: &Page<JobBody>) -> String {
    if page.items.is_empty() {
        return "no jobs".to_owned();
    }
    let rows = page.items.iter().map(|job| {
        let last = job.last_execution.as_ref();
        vec![
            job.job_id.to_string(),
            job.name.clone(),
            status(job.status),
            job.job_type.clone(),
            job.queue.clone(),
            job.owner_id.clone(),
            job.tags.join(", "),
            job.priority.0.get().to_string(),
            optional_time(job.next_run_time),
            last.map_or_else(|| "-".to_owned(), |last| last.status.to_string()),
            optional_time(Some(job.created_at)),
            job.version.to_string(),
        ]
    });
    let headers = [
        "JOB",
        "NAME",
        "STATUS",
        "TYPE",
        "QUEUE",
        "OWNER",
        "TAGS",
        "PRIORITY",
        "NEXT RUN",
        "LAST OUTCOME",
        "CREATED",
        "VERSION",
    ];
    table(&headers, rows)
}

pub fn status(status: JobStatus) -> String {
    status.as_str().to_owned()
}
