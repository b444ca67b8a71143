//! The `/jobs` API.

use super::{Hand, ask, create, get, now, server, text};
use crate::driven::{HOUR, MINUTE, advance, pass};
use reqwest::Method;
use serde_json::json;

#[tokio::test]
async fn a_job_runs_at_its_time_once_per_key() {
    let server = server();
    let hand = Hand::open(&server, "email").await;
    let job = json!({"type": "email", "runAt": "5pm", "idempotencyKey": "email_user_456_welcome"});
    let accepted = create(&server, "/jobs", job.clone()).await;
    assert_eq!(accepted, json!({"jobId": accepted["jobId"]}));
    let id = text(&accepted["jobId"]);
    let path = format!("/jobs/{id}");
    let scheduled = get(&server, &path).await;
    assert_eq!(
        (&scheduled["status"], &scheduled["nextRunAt"]),
        (&json!("SCHEDULED"), &json!("2026-05-01T17:00:00Z"))
    );
    pass(&server, now().plus(7 * HOUR)).await;
    let taken = hand.take().await;
    assert_eq!(get(&server, &path).await["status"], "RUNNING");
    hand.succeed(&taken, json!({"sent": true})).await;
    let done = get(&server, &path).await;
    let expected = json!({"id": id, "jobId": id, "type": "email", "status": "COMPLETED", "nextRunAt": null,
        "lastRunAt": done["lastRunAt"], "maxRetries": 4, "currentAttempt": 1, "lastError": null, "nextRetryAt": null,
        "retryHistory": [], "idempotencyKey": "email_user_456_welcome", "result": {"sent": true}});
    assert_eq!(done, expected);
    assert!(done["lastRunAt"].is_string(), "{done}");
    // The key returns the previous result and runs nothing.
    let again = ask(&server, Method::POST, "/jobs", Some(job), 200).await;
    assert_eq!(again, done);
}

#[tokio::test]
async fn a_job_is_retried_after_growing_delays_and_then_dead() {
    let server = server();
    let hand = Hand::open(&server, "charge").await;
    let id =
        text(&create(&server, "/jobs", json!({"type": "charge", "payload": {"cents": 5}})).await["jobId"]);
    let path = format!("/jobs/{id}");
    let mut due = now();
    for (attempt, minutes) in [(1, 1), (2, 5), (3, 30), (4, 120)] {
        hand.fail(&hand.take().await, "Connection timeout").await;
        let job = get(&server, &path).await;
        due = due.plus(minutes * MINUTE);
        assert_eq!((&job["status"], &job["currentAttempt"]), (&json!("FAILED"), &json!(attempt)), "{job}");
        assert_eq!(
            (&job["lastError"], &job["nextRetryAt"]),
            (&json!("Connection timeout"), &json!(due)),
            "{job}"
        );
        assert_eq!(job["retryHistory"].as_array().unwrap().len(), attempt, "{job}");
        pass(&server, due).await;
    }
    hand.fail(&hand.take().await, "Connection refused").await;
    let dead = get(&server, &path).await;
    assert_eq!((&dead["status"], &dead["nextRetryAt"]), (&json!("DEAD"), &json!(null)), "{dead}");
    let last = &dead["retryHistory"][4];
    assert_eq!((&last["attempt"], &last["error"]), (&json!(5), &json!("Connection refused")));
    assert!(last["at"].is_string(), "{last}");
}

#[tokio::test]
async fn a_schedule_repeats_a_job() {
    let server = server();
    let id = text(&create(&server, "/jobs", json!({"type": "noop", "schedule": "0 8 * * *"})).await["jobId"]);
    let job = get(&server, &format!("/jobs/{id}")).await;
    assert_eq!((&job["schedule"], &job["nextRunAt"]), (&json!("0 8 * * *"), &json!("2026-05-02T08:00:00Z")));
    advance(&server, now().plus(24 * HOUR)).await;
    let job = get(&server, &format!("/jobs/{id}")).await;
    assert_eq!((&job["status"], &job["nextRunAt"]), (&json!("SCHEDULED"), &json!("2026-05-03T08:00:00Z")));
    assert!(job["lastRunAt"].is_string(), "{job}");
}
