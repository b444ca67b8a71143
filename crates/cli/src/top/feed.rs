//! Reads the data of the live view from the server, with a bounded number of requests.

use crate::top::model::{FailedAttempt, FailureOutcome, RunningExecution, TopSnapshot};
use punctual_client::{
    Client, ClientError, DeadLetterFilter, ExecutionBody, ExecutionFilter, ExecutionStatus, JobFilter,
};
use punctual_core::job::JobStatus;
use std::cmp::Reverse;

/// Running executions that are listed.
const RUNNING_MAX: usize = 100;
/// Active jobs that are checked for failures, the latest first.
const ACTIVE_JOBS_MAX: usize = 100;
/// Failures that are listed.
const FAILURES_MAX: usize = 50;

pub async fn read(client: &Client) -> Result<TopSnapshot, ClientError> {
    // The answering node comes first.
    let node = client.nodes().await?.items.into_iter().next();
    let stats = client.stats().await?;
    let queues = client.queues().await?.items;
    let running = running(client).await?;
    let failures = failures(client).await?;
    Ok(TopSnapshot {
        version: node.as_ref().map_or_else(String::new, |node| node.version.clone()),
        started_at: node.map(|node| node.started_at),
        now: stats.now,
        counters: stats.counters,
        running_count: stats.live.running,
        queues,
        workers: stats.workers,
        running,
        failures,
    })
}

/// The listed running executions.
async fn running(client: &Client) -> Result<Vec<RunningExecution>, ClientError> {
    let filter = ExecutionFilter {
        status: Some(ExecutionStatus::Running),
        limit: Some(RUNNING_MAX),
        ..ExecutionFilter::default()
    };
    Ok(client.all_executions(&filter).await?.items.into_iter().map(row).collect())
}

fn row(execution: ExecutionBody) -> RunningExecution {
    RunningExecution {
        name: execution.name.unwrap_or_default(),
        job_type: execution.job_type.unwrap_or_default(),
        worker: execution.worker_id,
        attempt: execution.attempt_number,
        attempts_max: execution.max_retries.unwrap_or_default().saturating_add(1),
        started_at: execution.started_at,
        is_asked_to_stop: execution.cancel_requested,
        progress: execution.progress,
    }
}

/// Dead letters, and active jobs whose last attempt failed.
async fn failures(client: &Client) -> Result<Vec<FailedAttempt>, ClientError> {
    let letters = client.dead_letters(&DeadLetterFilter::default(), Some(FAILURES_MAX), None).await?;
    let dead = letters.items.into_iter().map(|letter| FailedAttempt {
        at: letter.died_at,
        name: letter.name,
        outcome: FailureOutcome::Dead,
        error: letter.error_message.unwrap_or_default(),
    });
    let active =
        JobFilter { status: Some(JobStatus::Active), limit: Some(ACTIVE_JOBS_MAX), ..JobFilter::default() };
    let active = client.jobs(&active).await?.items;
    let retried = active.into_iter().filter_map(|job| {
        let last = job.last_execution.filter(|last| has_failed(last.status))?;
        Some(FailedAttempt {
            at: last.completed_at,
            name: job.name,
            outcome: FailureOutcome::Retried(last.status),
            error: job.last_error.unwrap_or_default(),
        })
    });
    let mut failures: Vec<FailedAttempt> = dead.chain(retried).collect();
    failures.sort_by_key(|failure| Reverse(failure.at));
    failures.truncate(FAILURES_MAX);
    Ok(failures)
}

const fn has_failed(status: ExecutionStatus) -> bool {
    matches!(status, ExecutionStatus::Failed | ExecutionStatus::TimedOut | ExecutionStatus::Lost)
}
