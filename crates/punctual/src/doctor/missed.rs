//! Checks whether recurring jobs have missed runs: nothing else tells that a nightly run did not happen.

use super::finding::Finding;
use super::server::listed;
use punctual_client::{Client, ClientError, JobBody, JobFilter, ScheduleType, SkipRangeBody};
use punctual_config::output;
use punctual_core::job::JobStatus;
use punctual_core::limits;
use punctual_core::schedule::SkipReason;
use punctual_core::time::Timestamp;
use std::time::Duration;

/// Runs that were missed earlier are old news. Three days cover a weekend.
const MISSED_WITHIN: Duration = Duration::from_secs(3 * 24 * 60 * 60);
/// Jobs that are examined, the latest first: each costs a request.
const JOBS_EXAMINED_MAX: usize = 500;
/// Pages of unfinished jobs that are read in search of them.
const PAGES_READ_MAX: usize = 20;

const CHECK: &str = "missed runs";

pub async fn check(client: &Client, now: Timestamp) -> Result<Finding, ClientError> {
    let (jobs, are_all) = recurring(client).await?;
    let mut missed = Vec::new();
    for job in &jobs {
        let skipped = match client.executions(job.job_id, Some(1), None).await {
            Ok(executions) => executions.skipped,
            // It was deleted since the list was read.
            Err(error) if error.is_not_found() => continue,
            Err(error) => return Err(error),
        };
        missed.extend(told(&job.name, &skipped, now));
    }
    Ok(found(&missed, Examined { jobs: jobs.len(), are_all }))
}

/// The latest recurring jobs, and whether there are no others.
async fn recurring(client: &Client) -> Result<(Vec<JobBody>, bool), ClientError> {
    let mut filter = JobFilter {
        status: Some(JobStatus::Active),
        schedule_type: Some(ScheduleType::Recurring),
        limit: Some(JOBS_EXAMINED_MAX.min(limits::PAGE_ITEMS_MAX)),
        ..JobFilter::default()
    };
    let mut jobs = Vec::new();
    // Between recurring jobs there may be many others: a page may be empty although more follow.
    for _ in 0..PAGES_READ_MAX {
        let page = client.jobs(&filter).await?;
        jobs.extend(page.items);
        filter.cursor = page.next_cursor;
        if filter.cursor.is_none() || jobs.len() >= JOBS_EXAMINED_MAX {
            break;
        }
    }
    let are_all = filter.cursor.is_none() && jobs.len() <= JOBS_EXAMINED_MAX;
    jobs.truncate(JOBS_EXAMINED_MAX);
    Ok((jobs, are_all))
}

/// How many recurring jobs were examined.
struct Examined {
    jobs: usize,
    are_all: bool,
}

/// The runs that a job has missed lately, if any.
fn told(name: &str, skipped: &[SkipRangeBody], now: Timestamp) -> Option<String> {
    let is_recent = |range: &&SkipRangeBody| {
        range.reason == SkipReason::Misfire && now.since(range.last) <= MISSED_WITHIN
    };
    let ranges: Vec<&SkipRangeBody> = skipped.iter().filter(is_recent).collect();
    let last = ranges.iter().map(|range| range.last).max()?;
    let last = output::time(last);
    Some(match ranges.iter().fold(0, |sum: u64, range| sum.saturating_add(range.count)) {
        1 => format!("{name} at {last}"),
        count => format!("{name} {count} times, last at {last}"),
    })
}

fn found(missed: &[String], examined: Examined) -> Finding {
    let of = match examined {
        Examined { are_all: true, .. } => String::new(),
        Examined { jobs, .. } => format!(" of the {jobs} latest recurring jobs"),
    };
    if !missed.is_empty() {
        let names: Vec<&str> = missed.iter().map(String::as_str).collect();
        let fix = "no scheduler was running at that time; `punctual job trigger NAME` runs a job now, and its \
                   misfire_policy can run missed ones (RUN_ONCE, RUN_ALL)";
        return Finding::warning(CHECK, format!("did not run{of}: {}", listed(&names)), fix);
    }
    let within = output::span(MISSED_WITHIN);
    match examined {
        Examined { jobs: 0, are_all: false } => Finding::skipped(
            CHECK,
            "not checked: none of the latest unfinished jobs is recurring, and there are older ones",
        ),
        Examined { are_all: false, .. } => Finding::skipped(
            CHECK,
            format!("no run{of} was missed within the last {within}; older jobs were not checked"),
        ),
        Examined { are_all: true, .. } => {
            Finding::good(CHECK, format!("no run was missed within the last {within}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Severity;

    fn at(text: &str) -> Timestamp {
        format!("2026-11-{text}Z").parse().unwrap()
    }

    fn range(first: &str, last: &str, count: u64, reason: SkipReason) -> SkipRangeBody {
        SkipRangeBody { first: at(first), last: at(last), count, reason }
    }

    #[test]
    fn only_recent_misfires_are_missed_runs() {
        let now = at("16T08:00:00");
        let night = range("16T02:00:00", "16T02:00:00", 1, SkipReason::Misfire);
        let overlap = range("16T03:00:00", "16T03:00:00", 1, SkipReason::Overlap);
        let old = range("01T02:00:00", "02T02:00:00", 2, SkipReason::Misfire);
        assert_eq!(told("nightly", &[overlap, old], now), None);
        let said = told("nightly", std::slice::from_ref(&night), now).unwrap();
        assert!(said.starts_with("nightly at ") && said.contains("02:00"), "{said}");
        let before = range("15T01:00:00", "15T02:00:00", 2, SkipReason::Misfire);
        assert!(told("nightly", &[night, before], now).unwrap().starts_with("nightly 3 times, last at "));
    }

    #[test]
    fn a_missed_run_is_a_warning_that_names_the_job() {
        let all = |jobs| Examined { jobs, are_all: true };
        let finding = found(&["nightly at 02:00".to_owned()], all(1));
        assert_eq!(
            (finding.level, finding.found.as_str()),
            (Severity::Warning, "did not run: nightly at 02:00")
        );
        assert_eq!(found(&[], all(0)).level, Severity::Good);
    }

    #[test]
    fn what_was_not_examined_is_not_called_good() {
        for jobs in [0, 500] {
            let finding = found(&[], Examined { jobs, are_all: false });
            assert_eq!(finding.level, Severity::Skipped, "{finding:?}");
            assert!(finding.found.contains("older"), "{finding:?}");
        }
        let finding = found(&["nightly".to_owned()], Examined { jobs: 500, are_all: false });
        assert_eq!(finding.found, "did not run of the 500 latest recurring jobs: nightly");
    }
}
