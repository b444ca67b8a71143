//! Keys: one job per idempotency key, one unfinished job per unique key, one response per request key.

use crate::driven::{DAY, HOUR, advance, everything, standing_at, standing_in, start};
use crate::redact::shown;
use crate::server::{Server, answer};
use punctual_core::job::JobStatus;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use std::collections::HashSet;

/// A request with an `Idempotency-Key`: status, whether it was replayed, location and body.
async fn keyed(
    server: &Server,
    path: &str,
    key: &str,
    body: &Value,
) -> (StatusCode, bool, Option<String>, Value) {
    let request = server.request(Method::POST, path).header("idempotency-key", key).json(body);
    let response = request.send().await.unwrap();
    let header = |name| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    let (replayed, location) = (header("idempotent-replayed"), header("location"));
    let status = response.status();
    (status, replayed.as_deref() == Some("true"), location, response.json().await.unwrap())
}

#[tokio::test]
async fn an_idempotency_key_names_one_job_for_as_long_as_it_is_kept() {
    let server = standing_at(start());
    let client = server.client();
    let job = json!({"name": "order", "job_type": "noop", "idempotency_key": "order-17"});
    let id = server.submit(job.clone()).await;
    assert_eq!(client.wait(id).await.unwrap().status, JobStatus::Completed);
    advance(&server, start().plus(3 * DAY)).await;

    let before = everything(&server).await;
    let (status, again) = server.post("/api/v1/jobs", &job.to_string()).await;
    assert_eq!(status, StatusCode::OK, "{again}");
    assert_eq!((&again["job_id"], &again["status"]), (&json!(id), &json!("COMPLETED")));
    let batch = json!({"jobs": [job, {"name": "order", "job_type": "noop", "idempotency_key": "order-17"}]});
    let (_, answered) = server.post("/api/v1/jobs/batch", &batch.to_string()).await;
    for item in answered["items"].as_array().unwrap() {
        assert_eq!(item["job_id"], json!(id), "{answered}");
    }
    assert_eq!(everything(&server).await, before);

    let mut others = job.clone();
    others["owner_id"] = json!("somebody-else");
    assert_ne!(server.submit(others).await, id, "a key is its owner's");
    client.delete(id).await.unwrap();
    assert_ne!(server.submit(job).await, id, "deleting the job frees its key");
}

#[tokio::test]
async fn a_unique_key_admits_one_unfinished_job() {
    let server = standing_at(start());
    let client = server.client();
    let job = json!({"name": "sync", "job_type": "noop", "unique_key": "sync", "delay": "1h"});
    let first = server.submit(job.clone()).await;
    let (status, problem) = server.post("/api/v1/jobs", &job.to_string()).await;
    assert_eq!((status, &problem["job_id"]), (StatusCode::CONFLICT, &json!(first)), "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("unique_key"), "{problem}");

    advance(&server, start().plus(HOUR)).await;
    let second = server.submit(job.clone()).await;
    assert_eq!(server.post("/api/v1/jobs", &job.to_string()).await.0, StatusCode::CONFLICT);
    client.cancel(second).await.unwrap();
    let third = server.submit(job.clone()).await;
    client.delete(third).await.unwrap();
    server.submit(job).await;
}

#[tokio::test]
async fn a_failed_job_is_not_retried_while_another_one_has_its_unique_key() {
    let server = standing_at(start());
    let client = server.client();
    let broken = json!({"name": "sync", "job_type": "sleep", "unique_key": "sync"});
    let failed = server.submit(broken).await;
    assert_eq!(client.wait(failed).await.unwrap().status, JobStatus::Failed);
    let other =
        server.submit(json!({"name": "sync", "job_type": "noop", "unique_key": "sync", "delay": "1h"})).await;
    let before = everything(&server).await;
    let (status, problem) = server.post(&format!("/api/v1/jobs/{failed}/retry"), "").await;
    assert_eq!((status, &problem["job_id"]), (StatusCode::CONFLICT, &json!(other)), "{problem}");
    assert_eq!(everything(&server).await, before);
    advance(&server, start().plus(HOUR)).await;
    let (status, retried) = server.post(&format!("/api/v1/jobs/{failed}/retry"), "").await;
    assert_eq!((status, &retried["execution_id"]), (StatusCode::OK, &json!(format!("{failed}.1.2"))));
}

#[tokio::test]
async fn a_repeated_request_has_the_same_answer_even_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let server = standing_in(directory.path(), start());
    let job = json!({"name": "order", "job_type": "noop", "delay": "2h"});
    let (status, replayed, location, first) = keyed(&server, "/api/v1/jobs", "k-1", &job).await;
    assert_eq!((status, replayed), (StatusCode::CREATED, false));
    let again = keyed(&server, "/api/v1/jobs", "k-1", &job).await;
    assert_eq!(again, (StatusCode::CREATED, true, location.clone(), first.clone()));
    server.kill();

    let server = standing_in(directory.path(), start().plus(HOUR));
    let again = keyed(&server, "/api/v1/jobs", "k-1", &job).await;
    assert_eq!(again, (StatusCode::CREATED, true, location, first.clone()));
    let (_, list) = server.get("/api/v1/jobs").await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);

    let other = json!({"name": "other", "job_type": "noop"});
    let (status, _, _, problem) = keyed(&server, "/api/v1/jobs", "k-1", &other).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
    assert_eq!(problem["errors"][0]["field"], "Idempotency-Key");
    let (status, replayed, _, second) = keyed(&server, "/api/v1/jobs", "k-2", &job).await;
    assert_eq!((status, replayed), (StatusCode::CREATED, false));
    assert_ne!(first["job_id"], second["job_id"]);
}

#[tokio::test]
async fn batches_triggers_and_refusals_are_repeated_as_they_were_answered() {
    let server = standing_at(start());
    let id = server.submit(json!({"name": "daily", "job_type": "noop", "cron_expression": "@daily"})).await;
    let batch = json!({"jobs": [{"name": "a", "delay": "1h"}, {"name": ""}, {"name": "b", "delay": "1h"}]});
    let refused = json!({"name": "x", "interval": "1ms"});
    let trigger = format!("/api/v1/jobs/{id}/trigger");
    for (path, body) in [("/api/v1/jobs/batch", &batch), (&trigger, &json!({})), ("/api/v1/jobs", &refused)] {
        let (status, replayed, location, first) = keyed(&server, path, path, body).await;
        assert!(!replayed);
        let again = keyed(&server, path, path, body).await;
        assert_eq!(again, (status, true, location, first), "{path}");
    }
    let (_, list) = server.get("/api/v1/jobs").await;
    assert_eq!(list["items"].as_array().unwrap().len(), 3);
    let (_, runs) = server.get(&format!("/api/v1/jobs/{id}/executions")).await;
    assert_eq!(runs["items"].as_array().unwrap().len(), 1);
}

/// The statuses of many equal concurrent requests, and the jobs in their responses.
async fn at_once(requests: Vec<RequestBuilder>) -> (Vec<StatusCode>, HashSet<String>) {
    let asked: Vec<_> = requests.into_iter().map(|request| tokio::spawn(answer(request))).collect();
    let (mut statuses, mut jobs) = (vec![], HashSet::new());
    for answered in asked {
        let (status, body) = answered.await.unwrap();
        statuses.push(status);
        jobs.insert(body["job_id"].as_str().unwrap_or_else(|| panic!("{body}")).to_owned());
    }
    (statuses, jobs)
}

#[tokio::test]
async fn many_at_once_with_one_key_make_one_job() {
    let server = standing_at(start());
    let submit = |job: &Value| {
        let request = server.request(Method::POST, "/api/v1/jobs");
        request.json(job)
    };
    let count = |statuses: &[StatusCode], wanted| statuses.iter().filter(|status| **status == wanted).count();
    let job = |field: &str| json!({"name": field, "job_type": "noop", "delay": "1h", field: "k"});

    let named = job("idempotency_key");
    let (statuses, jobs) = at_once((0..20).map(|_| submit(&named)).collect()).await;
    assert_eq!(jobs.len(), 1);
    assert_eq!((count(&statuses, StatusCode::CREATED), count(&statuses, StatusCode::OK)), (1, 19));

    let unique = job("unique_key");
    let (statuses, jobs) = at_once((0..20).map(|_| submit(&unique)).collect()).await;
    assert_eq!(jobs.len(), 1);
    assert_eq!((count(&statuses, StatusCode::CREATED), count(&statuses, StatusCode::CONFLICT)), (1, 19));

    let plain = json!({"name": "plain", "job_type": "noop", "delay": "1h"});
    let keyed = || submit(&plain).header("idempotency-key", "k");
    let (statuses, jobs) = at_once((0..20).map(|_| keyed()).collect()).await;
    assert_eq!((jobs.len(), count(&statuses, StatusCode::CREATED)), (1, 20));
    let (_, list) = server.get("/api/v1/jobs").await;
    assert_eq!(list["items"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn keys_that_cannot_be_one_are_refused() {
    let server = standing_at(start());
    let before = everything(&server).await;
    for bad in [String::new(), "x".repeat(201), "schl\u{fc}ssel".to_owned()] {
        let request = server.request(Method::POST, "/api/v1/jobs").header("idempotency-key", &bad);
        let (status, problem) = answer(request.json(&json!({"name": "x"}))).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{bad}: {problem}");
        assert_eq!(problem["errors"][0]["field"], "Idempotency-Key", "{bad}: {problem}");
    }
    assert_eq!(everything(&server).await, before);
}

#[test]
fn the_command_line_has_all_three_keys() {
    let server = standing_at(start());
    let submit = |name: &str, options: &[&str]| {
        let base = ["job", "submit", name, "--type", "noop", "--delay", "1h"];
        server.cli(&[base.as_slice(), options].concat())
    };
    let named = ["--idempotency-key", "order-17"];
    insta::assert_snapshot!("keys_first", shown(&submit("order", &named)));
    insta::assert_snapshot!("keys_again", shown(&submit("order", &named)));
    insta::assert_snapshot!("keys_unique", shown(&submit("sync", &["--unique-key", "sync"])));
    insta::assert_snapshot!("keys_taken", shown(&submit("sync", &["--unique-key", "sync"])));
    let once = ["--request-key", "k-1"];
    assert_eq!(submit("repeated", &once).stdout, submit("repeated", &once).stdout);
    let trigger = ["job", "trigger", "repeated", "--request-key", "k-2"];
    assert_eq!(server.said(&trigger), server.said(&trigger));
    insta::assert_snapshot!("keys_mismatch", shown(&submit("another", &once)));
    insta::assert_snapshot!("keys_bad", shown(&submit("another", &["--request-key", "schlüssel"])));
    assert_eq!(server.said(&["job", "list", "-o", "json"]).matches("\"job_id\"").count(), 3);
}
