//! Which job a command refers to.

use crate::job::list::{self, status};
use punctual_client::{Client, JobBody, JobFilter};
use punctual_config::exit::{CliError, Exit};
use punctual_config::output::{one_line, quoted, time};
use punctual_config::suggest::did_you_mean;
use punctual_core::ids::{ExecutionId, JobId, OccurrenceId};
use punctual_core::job::JobStatus;
use punctual_core::limits;

/// How many jobs of the same name are listed.
const TOLD_MAX: usize = 5;
/// How many pages are searched for a part of an id. The server examines some thousand jobs for each.
const PAGES_SEARCHED_MAX: usize = 20;

#[derive(Debug, clap::Args)]
pub struct WhichJob {
    /// The job's id, a part of it such as its end (at least 6 characters), or its name: that of an applied job, or one that is unique among all or among unfinished jobs
    #[arg(value_name = "JOB")]
    job: String,
}

/// A job, or none if the command is about all jobs that match.
#[derive(Debug, clap::Args)]
pub struct OneJobOrAll {
    /// The job's id, a part of it such as its end (at least 6 characters), or its name: that of an applied job, or one that is unique among all or among unfinished jobs
    #[arg(value_name = "JOB", required_unless_present = "all", conflicts_with = "all")]
    job: Option<String>,
}

impl OneJobOrAll {
    pub async fn id(&self, client: &Client) -> anyhow::Result<JobId> {
        find(client, self.job.as_deref().unwrap_or_default()).await
    }
}

impl WhichJob {
    /// The job's id, looked up if a name was given.
    pub async fn id(&self, client: &Client) -> anyhow::Result<JobId> {
        find(client, &self.job).await
    }
}

/// The id of the job with this id, of the job that was applied with this name, of the only job with it, or of the only
/// unfinished one.
pub async fn find(client: &Client, name: &str) -> anyhow::Result<JobId> {
    if let Ok(id) = name.parse() {
        return Ok(id);
    }
    if let Some(message) = part_of_a_job(name) {
        return Err(CliError { exit: Exit::Misunderstood, message }.into());
    }
    // An applied job is found at once. Other names may belong to any number of jobs.
    if let Some(job) = client.named_job(name).await? {
        return Ok(job.job_id);
    }
    let all = named(client, name, None).await?;
    match all.as_slice() {
        [] => return with_part(client, name).await,
        [job] => return Ok(job.job_id),
        _ => {}
    }
    let mut unfinished = named(client, name, Some(JobStatus::Active)).await?;
    unfinished.extend(named(client, name, Some(JobStatus::Paused)).await?);
    match unfinished.as_slice() {
        [] => Err(ambiguous(name, "jobs are named", &all)),
        [job] => Ok(job.job_id),
        _ => Err(ambiguous(name, "unfinished jobs are named", &unfinished)),
    }
}

/// The id of the only job with this part in its id. Ids are ordered by time, so those of jobs that were submitted
/// together begin alike, and their ends differ.
async fn with_part(client: &Client, name: &str) -> anyhow::Result<JobId> {
    let part = name.to_ascii_lowercase();
    if !could_be_an_id(&part) {
        let latest = JobFilter { limit: Some(limits::PAGE_ITEMS_MAX), ..JobFilter::default() };
        return Err(unknown(name, &client.jobs(&latest).await?.items));
    }
    let mut filter =
        JobFilter { text: Some(part.clone()), limit: Some(limits::PAGE_ITEMS_MAX), ..JobFilter::default() };
    let mut matching: Vec<JobBody> = Vec::new();
    for _ in 0..PAGES_SEARCHED_MAX {
        let page = client.jobs(&filter).await?;
        // The text may also be in a name.
        matching.extend(page.items.into_iter().filter(|job| job.job_id.has_part(&part)));
        filter.cursor = page.next_cursor;
        if filter.cursor.is_none() || matching.len() > TOLD_MAX {
            break;
        }
    }
    only_one(name, &matching, filter.cursor.is_none())
}

/// The job among those whose ids have the part; `are_all`: there are no others.
fn only_one(name: &str, matching: &[JobBody], are_all: bool) -> anyhow::Result<JobId> {
    match matching {
        // An older job may have the part as well.
        [] | [_] if !are_all => Err(not_searched(name, matching.first())),
        [] => Err(unknown(name, &[])),
        [job] => Ok(job.job_id),
        _ => Err(ambiguous(name, "ids contain", matching)),
    }
}

/// There are more jobs than a search examines, so that one match does not have to be the only one.
fn not_searched(name: &str, found: Option<&JobBody>) -> anyhow::Error {
    let found = match found {
        Some(job) => format!("one is {} ({})", job.job_id, one_line(&job.name)),
        None => "none of these has it".to_owned(),
    };
    let message = format!(
        "only the latest jobs were searched for the part of an id {}: {found}, and older jobs may have it too: pass the whole id",
        one_line(name)
    );
    CliError { exit: Exit::Misunderstood, message }.into()
}

/// Whether a text could be a part of an id, and is long enough to search for.
fn could_be_an_id(text: &str) -> bool {
    text.len() >= limits::ID_PART_CHARS_MIN && looks_like_an_id(text)
}

fn looks_like_an_id(text: &str) -> bool {
    text.chars().all(|letter| letter.is_ascii_hexdigit() || letter == '-')
}

/// Whether a text looks like a part of an id, but is too short.
fn is_too_short(text: &str) -> bool {
    text.len() < limits::ID_PART_CHARS_MIN
        && text.contains(|letter: char| letter.is_ascii_digit())
        && looks_like_an_id(text)
}

fn unknown(name: &str, latest: &[JobBody]) -> anyhow::Error {
    let mut meant = did_you_mean(name, latest.iter().map(|job| job.name.as_str()));
    if meant.is_empty() && is_too_short(name) {
        meant = format!("; a part of an id needs at least {} characters", limits::ID_PART_CHARS_MIN);
    }
    CliError::not_found(format!("there is no job with the id or name {}{meant}", one_line(name))).into()
}

/// The latest jobs of this name, one more than are listed.
async fn named(client: &Client, name: &str, status: Option<JobStatus>) -> anyhow::Result<Vec<JobBody>> {
    let filter = JobFilter { name: Some(name.to_owned()), status, ..JobFilter::default() };
    Ok(list::collect(client, filter, TOLD_MAX + 1).await?.items)
}

/// What to use instead of the id of a part of a job.
fn part_of_a_job(id: &str) -> Option<String> {
    let (kind, job) = match (id.parse::<ExecutionId>(), id.parse::<OccurrenceId>()) {
        (Ok(execution), _) => ("an execution", execution.occurrence.job),
        (_, Ok(occurrence)) => ("one run of a job", occurrence.job),
        _ => return None,
    };
    Some(format!("{id} is the id of {kind}; pass the id of its job, {job}"))
}

fn ambiguous(name: &str, are_named: &str, jobs: &[JobBody]) -> anyhow::Error {
    let count = match jobs.len() {
        ..=TOLD_MAX => jobs.len().to_string(),
        _ => format!("more than {TOLD_MAX}"),
    };
    let mut message = format!("{count} {are_named} {}: pass the id of one of them", one_line(name));
    for job in jobs.iter().take(TOLD_MAX) {
        message += &format!("\n  {} {}, created {}", job.job_id, status(job.status), time(job.created_at));
    }
    if jobs.len() > TOLD_MAX {
        let list = if jobs.iter().all(|job| job.name == name) {
            format!("punctual job list --name {}", quoted(name))
        } else {
            "punctual job list".to_owned()
        };
        message += &format!("\n  and more: see `{list}`");
    }
    CliError { exit: Exit::Misunderstood, message }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str) -> JobBody {
        let text = format!(
            r#"{{"job_id":"0197e9a0-5b7e-7c3a-9d52-6a1f0c4e8b11","name":"{name}","job_type":"noop","payload":null,"schedule_type":"IMMEDIATE",
                "status":"ACTIVE","status_reason":null,"next_run_time":null,"next_retry_time":null,"last_run_time":null,"last_error":null,
                "last_execution":null,"version":1,"created_at":"2026-11-15T08:30:00Z","updated_at":"2026-11-15T08:30:00Z","queue":"q",
                "priority":5,"max_retries":3,"retry":{{}},"timeout_secs":60,"owner_id":"me","tags":[]}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn one_match_is_the_only_one_after_a_complete_search_alone() {
        let found = job("report");
        assert_eq!(only_one("4e8b11", std::slice::from_ref(&found), true).unwrap(), found.job_id);
        let refused =
            |matching: &[JobBody], are_all| only_one("4e8b11", matching, are_all).unwrap_err().to_string();
        let unsure = refused(std::slice::from_ref(&found), false);
        assert!(
            unsure.contains("only the latest jobs were searched") && unsure.contains("(report)"),
            "{unsure}"
        );
        assert!(refused(&[], false).contains("none of these has it"));
        assert!(refused(&[], true).contains("there is no job with the id or name 4e8b11"));
        assert!(refused(&[job("a"), job("b")], false).starts_with("2 ids contain 4e8b11"));
    }
}
