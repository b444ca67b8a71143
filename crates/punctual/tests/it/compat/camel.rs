//! The camelCase `/api/jobs` API.

use super::{Hand, ask, create, get, now, server, text};
use crate::driven::{HOUR, MINUTE, advance, pass};
use crate::server::{Server, eventually};
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;

async fn submit(server: &Server, job: Value) -> String {
    let accepted = create(server, "/api/jobs", job).await;
    assert_eq!(accepted, json!({"jobId": accepted["jobId"], "status": "submitted"}));
    text(&accepted["jobId"])
}

/// The status of a job, whose answer has these fields and no others.
async fn status(server: &Server, id: &str) -> String {
    let status = get(server, &format!("/api/jobs/{id}/status")).await;
    assert!(status["lastUpdated"].is_string(), "{status}");
    let expected =
        json!({"jobId": id, "job_id": id, "status": status["status"], "lastUpdated": status["lastUpdated"]});
    assert_eq!(status, expected);
    text(&status["status"])
}

fn done(id: &str, status: &str) -> Value {
    json!({"jobId": id, "job_id": id, "status": status})
}

#[tokio::test]
async fn a_one_time_job_is_submitted_runs_and_has_logs() {
    let server = server();
    let hand = Hand::open(&server, "report").await;
    let job = json!({"jobName": "report", "jobType": "one-time", "executionTime": "2026-05-01T12:00:00Z",
        "priority": "high", "payload": {"to": "ann"}});
    let id = submit(&server, job).await;
    assert_eq!(status(&server, &id).await, "pending");
    let listed = get(&server, "/api/jobs").await;
    let expected = json!([{"jobId": id, "job_id": id, "jobName": "report", "status": "pending",
        "executionTime": "2026-05-01T12:00:00Z"}]);
    assert_eq!(listed, expected);

    pass(&server, now().plus(2 * HOUR)).await;
    let taken = hand.take().await;
    assert_eq!(status(&server, &id).await, "running");
    let lines = json!({"execution_id": taken["execution_id"], "lines": [{"message": "half way"}]});
    hand.say("logs", lines).await;
    hand.succeed(&taken, Value::Null).await;
    assert_eq!(status(&server, &id).await, "completed");
    let logs = get(&server, &format!("/api/jobs/{id}/logs")).await;
    let expected = json!({"jobId": id, "job_id": id,
        "logs": [{"timestamp": logs["logs"][0]["timestamp"], "message": "half way"}]});
    assert_eq!(logs, expected);
    assert!(logs["logs"][0]["timestamp"].is_string(), "{logs}");
    // A job that has ended by itself is deleted.
    let path = format!("/api/jobs/{id}");
    assert_eq!(ask(&server, Method::DELETE, &path, None, 200).await, done(&id, "deleted"));
    ask(&server, Method::GET, &format!("{path}/status"), None, 404).await;
}

#[tokio::test]
async fn a_recurring_job_starts_at_its_time_and_repeats() {
    let server = server();
    let job = json!({"jobName": "noop", "jobType": "recurring", "executionTime": "2026-05-02T09:00:00Z",
        "frequency": "daily", "priority": "low"});
    let id = submit(&server, job).await;
    let next = async || text(&get(&server, &format!("/api/v1/jobs/{id}")).await["next_run_time"]);
    assert_eq!(next().await, "2026-05-02T09:00:00Z");
    advance(&server, now().plus(24 * HOUR)).await;
    assert_eq!(
        (status(&server, &id).await.as_str(), next().await.as_str()),
        ("pending", "2026-05-03T09:00:00Z")
    );

    let change = json!({"jobName": "digest", "executionTime": "2026-05-04T07:30:00Z", "frequency": "weekly",
        "priority": "medium", "payload": {"n": 2}});
    let updated = ask(&server, Method::PUT, &format!("/api/jobs/{id}"), Some(change), 200).await;
    assert_eq!(updated, done(&id, "updated"));
    let stored = get(&server, &format!("/api/v1/jobs/{id}")).await;
    for (field, value) in [
        ("name", json!("digest")),
        ("job_type", json!("noop")),
        ("interval", json!("weekly")),
        ("priority", json!(5)),
        ("payload", json!({"n": 2})),
        ("next_run_time", json!("2026-05-04T07:30:00Z")),
    ] {
        assert_eq!(stored[field], value, "{field} of {stored}");
    }
    // A part of the fields changes only those, and a payload is replaced as a whole.
    let change = json!({"payload": {"m": 3}});
    ask(&server, Method::PUT, &format!("/api/jobs/{id}"), Some(change), 200).await;
    let stored = get(&server, &format!("/api/v1/jobs/{id}")).await;
    assert_eq!((&stored["payload"], &stored["interval"]), (&json!({"m": 3}), &json!("weekly")));

    let verb =
        async |verb: &str| ask(&server, Method::POST, &format!("/api/jobs/{id}/{verb}"), None, 200).await;
    assert_eq!(verb("pause").await, done(&id, "paused"));
    assert_eq!(status(&server, &id).await, "paused");
    assert_eq!(verb("resume").await, done(&id, "resumed"));
    assert_eq!(status(&server, &id).await, "pending");
    for _ in 0..2 {
        let cancelled = ask(&server, Method::DELETE, &format!("/api/jobs/{id}"), None, 200).await;
        assert_eq!(cancelled, done(&id, "cancelled"));
        assert_eq!(status(&server, &id).await, "cancelled");
    }
}

#[tokio::test]
async fn a_one_time_job_that_becomes_recurring_keeps_its_time() {
    let server = server();
    for (execution_time, before, next) in [
        ("2026-12-01T09:00:00Z", "pending", "2026-12-01T09:00:00Z"),
        // It has run, and does not run again for a time that has passed.
        ("2026-04-20T09:00:00Z", "completed", "2026-05-02T09:00:00Z"),
    ] {
        let id = submit(&server, json!({"jobName": "noop", "executionTime": execution_time})).await;
        eventually(before, async || status(&server, &id).await == before).await;
        let change = json!({"frequency": "daily"});
        ask(&server, Method::PUT, &format!("/api/jobs/{id}"), Some(change), 200).await;
        let stored = get(&server, &format!("/api/v1/jobs/{id}")).await;
        assert_eq!(stored["next_run_time"], next, "{stored}");
    }
}

#[tokio::test]
async fn a_failed_job_is_failed_and_frequencies_are_words_durations_or_cron() {
    let server = server();
    let hand = Hand::open(&server, "mail").await;
    let id = submit(&server, json!({"jobName": "mail"})).await;
    hand.report(
        &hand.take().await,
        json!({"outcome": "failed", "error": "no such user", "retryable": false}),
    )
    .await;
    assert_eq!(status(&server, &id).await, "failed");
    for (frequency, next) in [
        ("hourly", "2026-05-01T11:00:00Z"),
        ("monthly", "2026-06-01T10:00:00Z"),
        ("PT3H", "2026-05-01T13:00:00Z"),
        ("30 8 * * 1-5", "2026-05-04T08:30:00Z"),
        ("@daily", "2026-05-02T00:00:00Z"),
    ] {
        let id = submit(&server, json!({"jobName": "noop", "frequency": frequency})).await;
        let stored = get(&server, &format!("/api/v1/jobs/{id}")).await;
        assert_eq!(text(&stored["next_run_time"])[..19], next[..19], "{frequency}");
    }
}

#[tokio::test]
async fn lists_have_filters_and_pages_with_a_limit() {
    let server = server();
    let later = "2026-06-01T00:00:00Z";
    for number in 0..5 {
        let priority = if number < 2 { "low" } else { "high" };
        // Ids sort by their time.
        pass(&server, now().plus(Duration::from_secs(number + 1))).await;
        submit(
            &server,
            json!({"jobName": format!("once-{number}"), "executionTime": later, "priority": priority}),
        )
        .await;
    }
    pass(&server, now().plus(MINUTE)).await;
    let recurring = submit(&server, json!({"jobName": "often", "frequency": "daily"})).await;
    ask(&server, Method::POST, &format!("/api/jobs/{recurring}/pause"), None, 200).await;
    let names = async |query: &str| {
        let listed = get(&server, &format!("/api/jobs?{query}")).await;
        let names = listed.as_array().unwrap().iter().map(|job| text(&job["jobName"]));
        names.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names("page=1&limit=2").await, "often once-4");
    assert_eq!(names("page=3&limit=2").await, "once-1 once-0");
    assert_eq!(names("page=4&limit=2").await, "");
    assert_eq!(names("type=recurring").await, "often");
    assert_eq!(names("type=one-time&priority=high").await, "once-4 once-3 once-2");
    assert_eq!(names("type=one-time&priority=high&page=2&limit=2").await, "once-2");
    assert_eq!(names("status=paused").await, "often");
    assert_eq!(names("status=pending&priority=low").await, "once-1 once-0");
    for status in ["running", "completed", "failed", "cancelled"] {
        assert_eq!(names(&format!("status={status}")).await, "", "{status}");
    }
    assert_eq!(names("page=100&limit=100").await, "");
    let refused = ask(&server, Method::GET, "/api/jobs?page=101&limit=100", None, 400).await;
    assert_eq!(refused["errors"][0]["field"], "page");
    let detail = text(&refused["detail"]);
    assert!(detail.contains("10000") && detail.contains("next_cursor of GET /api/v1/jobs"), "{detail}");
    for (query, field) in [
        ("status=done", "status"),
        ("type=cron", "type"),
        ("priority=5", "priority"),
        ("page=0", "page"),
        ("size=3", "size"),
    ] {
        let refused = ask(&server, Method::GET, &format!("/api/jobs?{query}"), None, 400).await;
        assert_eq!(refused["errors"][0]["field"], field, "{refused}");
    }
}
