//! The output of `punctual job explain`.

use crate::driven::{HOUR, advance, pass, reaches, standing_at, start};
use crate::redact::shown;
use crate::server::Server;
use punctual_client::ExecutionStatus::Running;
use punctual_core::ids::JobId;
use serde_json::{Value, json};

#[tokio::test]
async fn a_recurring_job_tells_what_it_did_and_what_it_did_not() {
    let server = standing_at(start());
    let job = json!({"name": "hourly", "job_type": "noop", "interval": "1h"});
    let job = server.submit(job).await;
    advance(&server, start().plus(2 * HOUR)).await;
    server.client().pause(job).await.unwrap();
    advance(&server, start().plus(5 * HOUR + HOUR / 2)).await;
    insta::assert_snapshot!("explain_paused", shown(&server.cli(&["job", "explain", "hourly"])));
    server.client().resume(job).await.unwrap();
    advance(&server, start().plus(6 * HOUR)).await;
    insta::assert_snapshot!("explain_resumed", shown(&server.cli(&["job", "explain", "hourly"])));
}

#[tokio::test]
async fn a_job_between_two_attempts_tells_why_and_until_when() {
    let server = standing_at(start());
    let job = json!({
        "name": "flaky", "job_type": "sleep", "payload": {"ms": 60_000}, "timeout_secs": 0.02,
        "max_retries": 1, "retry": {"strategy": "ladder", "steps": ["2h"]},
    });
    let job = server.submit(job).await;
    advance(&server, start().plus(HOUR)).await;
    let waiting = shown(&server.cli(&["job", "explain", "flaky"]));
    assert!(waiting.contains("it is retry 1 of 1, after attempt 1 ended TIMED_OUT"), "{waiting}");
    advance(&server, start().plus(4 * HOUR)).await;
    insta::assert_snapshot!("explain_dead", shown(&server.cli(&["job", "explain", &job.to_string()])));
}

#[tokio::test]
async fn a_child_of_a_deleted_job_tells_that_it_will_be_skipped() {
    let server = Server::start();
    let say = async |verb: &str, body: Value| {
        server.post(&format!("/api/v1/worker/{verb}"), &body.to_string()).await.1
    };
    let opening = json!({"worker": "raw", "job_types": ["raw"], "lease_secs": 60});
    let session = say("sessions", opening).await["session"].clone();
    let (done, parent) =
        (server.submit(json!({"name": "raw"})).await, server.submit(json!({"name": "raw"})).await);
    let child = json!({"name": "child", "job_type": "noop", "depends_on": [done, parent]});
    let child = server.submit(child).await;
    let poll = json!({"session": session, "turn": 1, "job_types": ["raw"], "wait_secs": 0, "capacity": 2});
    let assignments = say("poll", poll).await["assignments"].as_array().unwrap().clone();
    let end = async |job: JobId| {
        let of = assignments.iter().find(|one| one["job_id"] == json!(job)).unwrap();
        let report = json!({
            "session": session, "execution_id": of["execution_id"], "epoch": of["epoch"], "outcome": "succeeded",
        });
        assert_eq!(say("report", json!({"reports": [report]})).await["answers"], json!(["accepted"]));
    };
    let explained = async || server.get(&format!("/api/v1/jobs/{child}/explain")).await.1;
    end(done).await;
    server.client().delete(done).await.unwrap();
    let waits = explained().await["summary"].as_str().unwrap().to_owned();
    assert_eq!(
        waits,
        format!("It waits for job {parent} (raw, ACTIVE) to succeed."),
        "the other one has succeeded"
    );
    server.client().delete(parent).await.unwrap();
    let doomed = explained().await["summary"].as_str().unwrap().to_owned();
    let said = format!("Job {parent}, which it depends on, was deleted before it succeeded: once the run");
    assert!(doomed.starts_with(&said), "{doomed}");
    end(parent).await;
    let skipped = explained().await;
    assert_eq!(skipped["status"], "FAILED");
    let actions: Vec<&str> =
        skipped["advice"].as_array().unwrap().iter().filter_map(|advice| advice["action"].as_str()).collect();
    assert_eq!(actions, ["trigger_job"], "{skipped}");
}

#[tokio::test]
async fn a_job_that_waits_tells_what_for() {
    let server = standing_at(start());
    let nap = json!({
        "name": "nap", "job_type": "sleep", "payload": {"ms": 3_600_000}, "interval": "1h",
        "overlap_policy": "QUEUE",
    });
    let nap = server.submit(nap).await;
    pass(&server, start().plus(HOUR)).await;
    reaches(&server, nap.occurrence(1).attempt(1), Running).await;
    pass(&server, start().plus(2 * HOUR)).await;
    insta::assert_snapshot!("explain_overlap", shown(&server.cli(&["job", "explain", "nap"])));
    insta::assert_snapshot!("explain_overlap_history", shown(&server.cli(&["job", "history", "nap"])));
    server.submit(json!({"name": "letter", "job_type": "noop", "queue": "mail", "delay": "1h"})).await;
    server.client().pause_queue("mail").await.unwrap();
    pass(&server, start().plus(3 * HOUR)).await;
    insta::assert_snapshot!("explain_queue", shown(&server.cli(&["job", "explain", "letter"])));
    let json = server.said(&["job", "explain", "letter", "-o", "json"]);
    let explained: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(explained["sentences"][0], explained["summary"]);
}
