//! What will happen to a submitted job, and probable mistakes in it.

use crate::job::list::status;
use crate::job::next;
use punctual_client::{Client, ExecutionStatus, JobBody, SubmittedBody};
use punctual_config::output::time;
use punctual_config::suggest::did_you_mean;
use punctual_core::gates::Gate;
use punctual_core::job::JobStatus;
use punctual_core::time::Timestamp;
use std::time::Duration;

/// How often, and at which interval, workers are looked up before the command reports that there are none:
/// the worker of a server that has just started takes a moment to connect.
const WORKER_LOOKS: usize = 10;
const WORKER_LOOK_PAUSE: Duration = Duration::from_millis(100);

/// How long ago a time must be to count as past: scripts compute "now" a moment before it is parsed.
const PAST_MIN: Duration = Duration::from_secs(1);

/// What happens to a submitted job next, as the end of a sentence.
pub struct Outlook {
    pub text: String,
    /// Whether the response itself does not contain it.
    pub is_note: bool,
}

/// `job` is its current state, if known.
pub async fn outlook(client: &Client, submitted: &SubmittedBody, job: Option<&JobBody>) -> Outlook {
    let known = |text: String| Outlook { text, is_note: false };
    if submitted.existing {
        return known(format!("it is {}", status(submitted.status)));
    }
    let has_parents = job.is_some_and(|job| !job.depends_on.is_empty());
    match submitted.status {
        JobStatus::Active => {}
        JobStatus::Failed if job.is_some_and(was_skipped) => {
            let text = "will not run: a job that it depends on did not succeed".to_owned();
            return Outlook { text, is_note: true };
        }
        other => return known(format!("it is {}", status(other))),
    }
    if let Some(at) = runs_later(submitted)
        && !next::has_passed(client, at).await
    {
        let condition = if has_parents { ", once what it depends on has succeeded" } else { "" };
        return known(format!("runs at {at}{condition}"));
    }
    if has_parents && waits_behind(client, submitted, Gate::Dependency).await {
        return known("runs once what it depends on has succeeded".to_owned());
    }
    let held = match job {
        Some(job) => next::held(client, job).await,
        None => None,
    };
    match held {
        Some(text) => Outlook { text, is_note: true },
        None => match &submitted.status_reason {
            Some(reason) => Outlook { text: reason.clone(), is_note: true },
            None if waits_behind(client, submitted, Gate::Concurrency).await => {
                let text = "waits: the limits of its queue allow no more executions now".to_owned();
                Outlook { text, is_note: true }
            }
            None => known("runs at once".to_owned()),
        },
    }
}

fn was_skipped(job: &JobBody) -> bool {
    job.last_execution.as_ref().is_some_and(|last| last.status == ExecutionStatus::Skipped)
}

async fn waits_behind(client: &Client, submitted: &SubmittedBody, gate: Gate) -> bool {
    let executions = client.executions(submitted.job_id, Some(1), None).await;
    executions.is_ok_and(|page| page.items.iter().any(|first| first.gates.contains(&gate)))
}

/// When the job runs, unless at once. The id contains the server's time: this machine's clock may differ.
fn runs_later(submitted: &SubmittedBody) -> Option<Timestamp> {
    let made_by = submitted.job_id.made_at().plus(Duration::from_millis(1));
    submitted.next_run_time.filter(|at| *at > made_by)
}

/// A notice that the job's time was already past when it was submitted.
pub fn past(submitted: &SubmittedBody, at: Option<Timestamp>) -> Option<String> {
    let made_at = submitted.job_id.made_at();
    let at = at.filter(|at| at.plus(PAST_MIN) < made_at && !submitted.existing)?;
    let (at, now) = (time(at), time(made_at));
    Some(format!("{at} is in the past (the job was submitted at {now}): it runs now, late"))
}

/// A notice that no worker has a handler for this type, and what to do about it.
pub async fn lacks_worker(client: &Client, job_type: &str) -> Option<String> {
    let types = worker_types(client).await?;
    if types.iter().any(|known| known == job_type) {
        return None;
    }
    let advice = match job_type {
        "process" | "shell" => {
            format!("start a worker that may run it with `punctual serve --allow {job_type}`")
        }
        _ => "start a worker that has one, or choose another with --type".to_owned(),
    };
    let meant = did_you_mean(job_type, types.iter().map(String::as_str));
    Some(format!("no worker has a handler for the job type {job_type}: the job waits; {advice}{meant}"))
}

/// The job types of the connected workers; `None` if the server does not say.
async fn worker_types(client: &Client) -> Option<Vec<String>> {
    let mut types: Vec<String> = vec![];
    for _ in 0..WORKER_LOOKS {
        types = client.stats().await.ok()?.workers.into_iter().flat_map(|worker| worker.job_types).collect();
        if !types.is_empty() {
            break;
        }
        tokio::time::sleep(WORKER_LOOK_PAUSE).await;
    }
    types.sort();
    types.dedup();
    Some(types)
}
