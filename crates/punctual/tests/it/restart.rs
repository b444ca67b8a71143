//! Changes to jobs outlive the server, however it ended.

use crate::driven::{HOUR, advance, attempts, reaches, standing_in, start};
use punctual_client::ExecutionStatus::{Cancelled, Running, Succeeded, TimedOut, Waiting};
use punctual_client::{DeadLetterFilter, DeadLetterSelection};
use punctual_core::job::JobStatus;
use punctual_core::schedule::SkipReason;
use serde_json::json;

#[tokio::test]
async fn pauses_cancels_dependencies_and_dead_letters_survive_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let server = standing_in(directory.path(), start());
    let client = server.client();
    let hourly = |name: &str| json!({"name": name, "job_type": "noop", "interval": "1h"});
    let paused = server.submit(hourly("paused")).await;
    let cancelled = server.submit(hourly("cancelled")).await;
    let deleted = server.submit(hourly("deleted")).await;
    let parent = server.submit(json!({"name": "parent", "job_type": "noop", "delay": "2h"})).await;
    let child = server.submit(json!({"name": "child", "job_type": "noop", "depends_on": [parent]})).await;
    let dead = json!({
        "name": "dead", "job_type": "sleep", "payload": {"ms": 60_000}, "timeout_secs": 0.02, "max_retries": 0,
    });
    let dead = server.submit(dead).await;
    client.wait(dead).await.unwrap();
    client.pause(paused).await.unwrap();
    client.cancel(cancelled).await.unwrap();
    client.delete(deleted).await.unwrap();
    server.kill();

    let server = standing_in(directory.path(), start().plus(HOUR + HOUR / 2));
    let client = server.client();
    advance(&server, start().plus(3 * HOUR)).await;
    assert_eq!(client.job(paused).await.unwrap().status, JobStatus::Paused);
    assert_eq!(client.job(cancelled).await.unwrap().status, JobStatus::Cancelled);
    assert!(client.job(deleted).await.unwrap_err().is_not_found());
    assert_eq!(attempts(&server, paused).await, []);
    assert_eq!(client.wait(child).await.unwrap().status, JobStatus::Completed);
    client.resume(paused).await.unwrap();
    let skipped = client.executions(paused, None, None).await.unwrap().skipped;
    assert_eq!((skipped[0].count, skipped[0].reason), (3, SkipReason::Paused));
    let letters = client.dead_letters(&DeadLetterFilter::default(), None, None).await.unwrap().items;
    assert_eq!(letters.iter().map(|letter| letter.job_id).collect::<Vec<_>>(), [dead]);
    let all = DeadLetterSelection::matching(DeadLetterFilter::default());
    assert_eq!(client.redrive(&all).await.unwrap().redriven, 1);
    reaches(&server, dead.occurrence(1).attempt(2), TimedOut).await;
}

#[tokio::test]
async fn what_was_asked_to_stop_is_not_run_again_after_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let server = standing_in(directory.path(), start());
    let nap =
        json!({"name": "nap", "job_type": "sleep", "payload": {"ms": 3_600_000}, "timeout_secs": 3_600});
    let job = server.submit(nap).await;
    reaches(&server, job.occurrence(1).attempt(1), Running).await;
    server.client().cancel(job).await.unwrap();
    server.kill();
    let server = standing_in(directory.path(), start().plus(HOUR));
    reaches(&server, job.occurrence(1).attempt(1), Cancelled).await;
    advance(&server, start().plus(2 * HOUR)).await;
    assert_eq!(attempts(&server, job).await, [(1, 1, Cancelled)]);
    assert_eq!(server.client().job(job).await.unwrap().status, JobStatus::Cancelled);
}

#[tokio::test]
async fn runs_that_wait_for_an_open_one_go_on_after_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let server = standing_in(directory.path(), start());
    let client = server.client();
    let nap = json!({
        "name": "nap", "job_type": "sleep", "payload": {"ms": 3_600_000}, "timeout_secs": 3_600, "interval": "1d",
        "overlap_policy": "QUEUE",
    });
    let job = server.submit(nap).await;
    for _ in 0..2 {
        server.post(&format!("/api/v1/jobs/{job}/trigger"), "").await;
    }
    reaches(&server, job.occurrence(1).attempt(1), Running).await;
    assert_eq!(client.execution(job.occurrence(2).attempt(1)).await.unwrap().status, Waiting);
    let (_, body) = server.patch(&format!("/api/v1/jobs/{job}"), &json!({"payload": {"ms": 0}})).await;
    assert_eq!(body["version"], 2, "{body}");
    server.kill();
    // The killed attempt is lost and runs again, with the job's current payload.
    let server = standing_in(directory.path(), start().plus(HOUR));
    reaches(&server, job.occurrence(1).attempt(2), Succeeded).await;
    reaches(&server, job.occurrence(2).attempt(1), Succeeded).await;
}
