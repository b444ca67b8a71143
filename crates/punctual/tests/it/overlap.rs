//! Overlap policies: what happens to a run that is due while the previous one is still open.

use crate::driven::{MINUTE, advance, attempts, explained, pass, reaches, standing_at, start};
use crate::server::Server;
use punctual_client::ExecutionStatus::{self, Cancelled, Running, Succeeded, Waiting};
use punctual_core::gates::Gate;
use punctual_core::ids::JobId;
use punctual_core::schedule::SkipReason;
use serde_json::{Value, json};

/// A job for every minute that takes an hour, or until it is stopped.
async fn slow(server: &Server, more: Value) -> JobId {
    let mut job = json!({
        "name": "slow", "job_type": "sleep", "payload": {"ms": 3_600_000}, "timeout_secs": 3_600,
        "interval": "1m",
    });
    job.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    server.submit(job).await
}

/// Advances this many minutes, each only after everything due in it has begun.
async fn minutes(server: &Server, count: u32) {
    for minute in 1..=count {
        pass(server, start().plus(minute * MINUTE)).await;
    }
}

async fn skipped(server: &Server, job: JobId) -> Vec<(u64, SkipReason)> {
    let page = server.client().executions(job, None, None).await.unwrap();
    page.skipped.iter().map(|range| (range.count, range.reason)).collect()
}

async fn stopped(server: &Server, job: JobId, occurrence: u32) {
    let execution = job.occurrence(occurrence).attempt(1);
    server.client().cancel_execution(execution).await.unwrap();
    reaches(server, execution, Cancelled).await;
}

async fn runs(server: &Server, job: JobId, occurrence: u32) {
    reaches(server, job.occurrence(occurrence).attempt(1), Running).await;
}

#[tokio::test]
async fn by_default_it_is_skipped() {
    let server = standing_at(start());
    let job = slow(&server, json!({})).await;
    minutes(&server, 1).await;
    runs(&server, job, 1).await;
    pass(&server, start().plus(4 * MINUTE)).await;
    assert_eq!(attempts(&server, job).await, [(1, 1, Running)]);
    assert_eq!(skipped(&server, job).await, [(3, SkipReason::Overlap)]);
    assert!(explained(&server, job).await.contains("an earlier occurrence was still open"));
}

#[tokio::test]
async fn under_queue_it_waits_for_its_turn_and_so_many_may_wait() {
    let server = standing_at(start());
    let job = slow(&server, json!({"overlap_policy": "QUEUE", "overlap_limit": 2})).await;
    minutes(&server, 1).await;
    runs(&server, job, 1).await;
    minutes(&server, 5).await;
    assert_eq!(attempts(&server, job).await, [(1, 1, Running), (2, 1, Waiting), (3, 1, Waiting)]);
    assert_eq!(skipped(&server, job).await, [(2, SkipReason::Overlap)]);
    let third = server.client().execution(job.occurrence(3).attempt(1)).await.unwrap();
    assert_eq!(third.gates, [Gate::Overlap]);
    let told = explained(&server, job).await;
    assert!(told.contains(&format!("It waits until {job}.1.1 has ended (overlap_policy QUEUE)")), "{told}");

    stopped(&server, job, 1).await;
    runs(&server, job, 2).await;
    assert_eq!(attempts(&server, job).await, [(1, 1, Cancelled), (2, 1, Running), (3, 1, Waiting)]);
    stopped(&server, job, 2).await;
    runs(&server, job, 3).await;
}

#[tokio::test]
async fn short_runs_in_a_queue_run_one_after_the_other() {
    let server = standing_at(start());
    let short = json!({"payload": {"ms": 20}, "overlap_policy": "QUEUE", "max_runs": 5});
    let job = slow(&server, short).await;
    // All five are due at once, and none is missed.
    server.client().pause_queue("default").await.unwrap();
    pass(&server, start().plus(5 * MINUTE)).await;
    let waiting: Vec<ExecutionStatus> =
        attempts(&server, job).await.into_iter().map(|(_, _, status)| status).collect();
    assert_eq!(waiting[1..], [Waiting; 4]);
    server.client().resume_queue("default").await.unwrap();
    advance(&server, start().plus(6 * MINUTE)).await;
    let done: Vec<_> = (1..=5).map(|number| (number, 1, Succeeded)).collect();
    assert_eq!(attempts(&server, job).await, done);
    assert_eq!(skipped(&server, job).await, []);
}

#[tokio::test]
async fn under_replace_it_takes_the_place_of_the_last_one() {
    let server = standing_at(start());
    let job = slow(&server, json!({"overlap_policy": "REPLACE"})).await;
    minutes(&server, 1).await;
    for number in 1..=3 {
        runs(&server, job, number).await;
        pass(&server, start().plus((number + 1) * MINUTE)).await;
    }
    runs(&server, job, 4).await;
    assert_eq!(
        attempts(&server, job).await,
        [(1, 1, Cancelled), (2, 1, Cancelled), (3, 1, Cancelled), (4, 1, Running)]
    );
    assert_eq!(skipped(&server, job).await, []);
}

#[tokio::test]
async fn under_allow_they_run_beside_each_other_up_to_a_limit() {
    let server = standing_at(start());
    let job = slow(&server, json!({"overlap_policy": "ALLOW", "max_open": 2})).await;
    minutes(&server, 4).await;
    runs(&server, job, 1).await;
    runs(&server, job, 2).await;
    assert_eq!(attempts(&server, job).await.len(), 2);
    assert_eq!(skipped(&server, job).await, [(2, SkipReason::Backlog)]);
    assert!(explained(&server, job).await.contains("too many occurrences of the job were open (max_open)"));
}
