//! When a job runs next, and what prevents it.

use punctual_client::{Client, JobBody};
use punctual_config::output::{quoted, time};
use punctual_core::job::JobStatus;
use punctual_core::time::Timestamp;

/// When an unfinished job runs next, to follow "it"; `None` if that is unknown.
pub async fn told(client: &Client, job: &JobBody) -> Option<String> {
    let at = job.next_run_time?;
    if !has_passed(client, at).await {
        return Some(format!("runs at {}", time(at)));
    }
    let held = held(client, job).await;
    Some(held.unwrap_or_else(|| "runs as soon as a worker is free".to_owned()))
}

/// Whether the server's clock, if it can be read, has reached this time: this machine's clock may differ.
pub async fn has_passed(client: &Client, at: Timestamp) -> bool {
    client.clock().await.is_ok_and(|clock| clock.now >= at)
}

/// What prevents an unfinished job from running when it is due, to follow "it". `None` if the server does not
/// say: the command itself has succeeded anyway.
pub async fn held(client: &Client, job: &JobBody) -> Option<String> {
    match job.status {
        JobStatus::Completed | JobStatus::Failed | JobStatus::Cancelled => return None,
        JobStatus::Paused => {
            return Some(format!("is paused until `punctual job resume {}`", job.job_id));
        }
        JobStatus::Active => {}
    }
    if let Some(reason) = &job.status_reason {
        return Some(reason.clone());
    }
    let queues = client.queues().await.ok()?.items;
    let is_paused = queues.iter().any(|queue| queue.paused && queue.queue == job.queue);
    let queue = quoted(&job.queue);
    is_paused.then(|| format!("waits: queue {queue} is paused until `punctual queue resume {queue}`"))
}
