//! Reads from the server what the live view shows, with a bounded number of requests.

use crate::job::progress::Progress;
use crate::top::model::{Failure, Outcome, Running, Snapshot};
use punctual_client::{
    Client, ClientError, DeadLetterFilter, ExecutionBody, ExecutionStatus, JobBody, JobFilter, LaneBody,
};
use punctual_core::job::JobStatus;
use std::cmp::Reverse;

/// Lanes whose jobs are looked at for what runs, those with the most first.
const LANES_MAX: usize = 8;
/// Jobs of one lane that are looked at, the latest first.
const LANE_JOBS_MAX: usize = 100;
/// Jobs whose executions are asked for.
const RUNNING_JOBS_MAX: usize = 40;
/// Open executions of one job that are asked for.
const RUNNING_OF_JOB_MAX: usize = 4;
/// Failures that are listed.
const FAILURES_MAX: usize = 50;

pub async fn read(client: &Client, version: &str) -> Result<Snapshot, ClientError> {
    let stats = client.stats().await?;
    let queues = client.queues().await?.items;
    let running = running(client, &stats.queues).await?;
    let failures = failures(client).await?;
    Ok(Snapshot {
        version: version.to_owned(),
        now: stats.now,
        counters: stats.counters,
        running_count: stats.queues.iter().map(|lane| lane.running).sum(),
        queues,
        workers: stats.workers,
        running,
        failures,
    })
}

/// What runs, found by way of the jobs of the lanes in which something does.
async fn running(client: &Client, lanes: &[LaneBody]) -> Result<Vec<Running>, ClientError> {
    let mut lanes: Vec<&LaneBody> = lanes.iter().filter(|lane| lane.running > 0).collect();
    lanes.sort_by_key(|lane| Reverse(lane.running));
    let (mut found, mut asked) = (Vec::new(), 0);
    for lane in lanes.into_iter().take(LANES_MAX) {
        let filter = JobFilter {
            queue: Some(lane.queue.clone()),
            job_type: Some(lane.job_type.clone()),
            limit: Some(LANE_JOBS_MAX),
            ..JobFilter::default()
        };
        let mut left = lane.running;
        for job in client.jobs(&filter).await?.items.iter().filter(|job| may_run(job)) {
            if left == 0 || asked == RUNNING_JOBS_MAX {
                break;
            }
            asked += 1;
            let open = client.executions(job.job_id, Some(RUNNING_OF_JOB_MAX), None).await?.items;
            let runs = open.iter().filter(|execution| execution.status == ExecutionStatus::Running);
            let runs: Vec<Running> = runs.map(|execution| row(job, execution)).collect();
            left = left.saturating_sub(runs.len() as u64);
            found.extend(runs);
        }
    }
    Ok(found)
}

/// Whether something of the job may run: what was cancelled, or paused, may not have ended yet.
const fn may_run(job: &JobBody) -> bool {
    matches!(job.status, JobStatus::Active | JobStatus::Paused | JobStatus::Cancelled)
}

fn row(job: &JobBody, execution: &ExecutionBody) -> Running {
    Running {
        name: job.name.clone(),
        job_type: job.job_type.clone(),
        worker: execution.worker_id.clone(),
        attempt: execution.attempt_number,
        attempts_max: job.max_retries.saturating_add(1),
        started_at: execution.started_at,
        is_asked_to_stop: execution.cancel_requested,
        progress: Progress::of(execution),
    }
}

/// Dead letters, and attempts of active jobs that failed last.
async fn failures(client: &Client) -> Result<Vec<Failure>, ClientError> {
    let letters = client.dead_letters(&DeadLetterFilter::default(), Some(FAILURES_MAX), None).await?;
    let dead = letters.items.into_iter().map(|letter| Failure {
        at: letter.died_at,
        name: letter.name,
        outcome: Outcome::Dead,
        error: letter.error_message.unwrap_or_default(),
    });
    let active =
        JobFilter { status: Some(JobStatus::Active), limit: Some(LANE_JOBS_MAX), ..JobFilter::default() };
    let active = client.jobs(&active).await?.items;
    let retried = active.into_iter().filter_map(|job| {
        let last = job.last_execution.filter(|last| has_failed(last.status))?;
        Some(Failure {
            at: last.completed_at,
            name: job.name,
            outcome: Outcome::Retried(last.status),
            error: job.last_error.unwrap_or_default(),
        })
    });
    let mut failures: Vec<Failure> = dead.chain(retried).collect();
    failures.sort_by_key(|failure| Reverse(failure.at));
    failures.truncate(FAILURES_MAX);
    Ok(failures)
}

const fn has_failed(status: ExecutionStatus) -> bool {
    matches!(status, ExecutionStatus::Failed | ExecutionStatus::TimedOut | ExecutionStatus::Lost)
}
