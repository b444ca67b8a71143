//! Figures over time: what executions did per minute, by queue, job type and job.

use crate::principals::Principal;
use crate::server::{Server, eventually};
use reqwest::StatusCode;
use serde_json::{Value, json};

fn job(name: &str, queue: &str, ok: bool) -> Value {
    let payload = if ok { json!({"ms": 1}) } else { json!({"url": "http://127.0.0.1:1/"}) };
    let job_type = if ok { "sleep" } else { "http" };
    json!({"name": name, "job_type": job_type, "queue": queue, "payload": payload, "max_retries": 0})
}

async fn series(server: &Server, query: &str) -> Value {
    let (status, body) = server.get(&format!("/api/v1/series{query}")).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    body
}

/// The series with this name, and the sum of one of its columns.
fn sum(answer: &Value, name: &str, column: &str) -> f64 {
    let all = answer["series"].as_array().unwrap();
    let Some(series) = all.iter().find(|series| series["name"] == name) else { return 0.0 };
    let values = series["columns"][column].as_array().unwrap();
    assert_eq!(values.len(), answer["times"].as_array().unwrap().len());
    values.iter().map(|value| value.as_f64().unwrap_or_default()).sum()
}

#[tokio::test]
async fn executions_are_counted_by_queue_type_and_job_once() {
    let folder = tempfile::tempdir().unwrap();
    let options = ["--series-jobs-max", "1", "--series-jobs", "rare"];
    let server = Server::start_in(folder.path(), &options);
    for _ in 0..3 {
        server.submit(job("often", "images", true)).await;
    }
    for name in ["other", "another", "rare"] {
        server.submit(job(name, "images", true)).await;
    }
    server.submit(job("often", "mail", false)).await;
    eventually("all are counted", async || {
        let by_queue = series(&server, "?by=queue").await;
        (sum(&by_queue, "images", "succeeded"), sum(&by_queue, "mail", "failed")) == (6.0, 1.0)
            && by_queue["pending_executions"] == 0
    })
    .await;
    let by_queue = series(&server, "?by=queue").await;
    assert_eq!((by_queue["step_secs"].as_u64(), &by_queue["truncated"]), (Some(60), &json!(false)));
    let by_type = series(&server, "?by=job_type&name=http").await;
    assert_eq!((by_type["series"].as_array().unwrap().len(), sum(&by_type, "http", "failed")), (1, 1.0));
    let all = series(&server, "?by=all&step=1h").await;
    assert_eq!((&all["series"][0]["executions"], &all["series"][0]["name"]), (&json!(7), &Value::Null));
    let ran = series(&server, "?metric=duration&by=queue&name=images").await;
    assert_eq!(sum(&ran, "images", "count"), 6.0);
    assert!(sum(&ran, "images", "p95_secs") > 0.0 && sum(&ran, "images", "mean_secs") >= 0.001, "{ran}");
    for metric in ["lateness", "waiting"] {
        let answer = series(&server, &format!("?metric={metric}&by=queue")).await;
        assert_eq!(sum(&answer, "images", "count"), 6.0, "{answer}");
    }

    // A new process continues where the last one has stored, and counts nothing twice.
    server.kill();
    let server = Server::start_in(folder.path(), &options);
    server.submit(job("often", "images", true)).await;
    eventually("the next one is counted", async || {
        sum(&series(&server, "?by=queue").await, "images", "succeeded") == 7.0
    })
    .await;
    // Two of the names share the series of all others; the failure of "often" is in another queue, and one of them.
    let by_job = series(&server, "?by=job&limit=2").await;
    assert_eq!((sum(&by_job, "often", "succeeded"), sum(&by_job, "often", "failed")), (4.0, 0.0), "{by_job}");
    let others = &by_job["series"][1];
    assert_eq!((&others["name"], &others["executions"]), (&Value::Null, &json!(3)));
    let rare = series(&server, "?by=job&name=rare").await;
    assert_eq!((sum(&rare, "rare", "succeeded"), &rare["series"][0]["owner_id"]), (1.0, &json!("default")));
    assert_eq!(by_job["truncated"], true);
}

#[tokio::test]
async fn a_caller_with_a_limited_scope_sees_figures_of_its_own_jobs() {
    let server = Server::start();
    let ann = Principal::submitter(&server, "ann").await;
    server.submit(job("theirs", "images", true)).await;
    ann.submit(job("mine", "images", true)).await;
    eventually("both are counted", async || {
        sum(&series(&server, "?by=queue").await, "images", "succeeded") == 2.0
    })
    .await;
    for by in ["all", "queue", "job_type", "job"] {
        let (_, seen) = ann.get(&format!("/api/v1/series?by={by}")).await;
        let all: Vec<&Value> = seen["series"].as_array().unwrap().iter().collect();
        assert_eq!((all.len(), &all[0]["executions"]), (1, &json!(1)), "{by}: {seen}");
    }
    let (_, theirs) = ann.get("/api/v1/series?by=job&name=theirs").await;
    assert_eq!(theirs["series"], json!([]));
}

#[tokio::test]
async fn a_query_that_cannot_be_answered_names_the_parameter() {
    let server = Server::start();
    for (query, field, part) in [
        ("metric=speed", "metric", "executions, duration"),
        ("by=colour", "by", "job_type"),
        ("step=90s", "step", "whole minutes"),
        ("since=2026-01-01T00:00:00Z&until=2026-01-14T00:00:00Z&step=1m", "step", "at least 13m"),
        ("since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z", "since", "before until"),
        ("limit=0", "limit", "from 1 to 100"),
    ] {
        let (status, body) = server.get(&format!("/api/v1/series?{query}")).await;
        let error = &body["errors"][0];
        assert_eq!((status, error["field"].as_str()), (StatusCode::BAD_REQUEST, Some(field)), "{body}");
        assert!(error["detail"].as_str().unwrap().contains(part), "{body}");
    }
}
