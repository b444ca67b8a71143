//! Payloads of built-in job types are checked when they are submitted, on every route.

use crate::server::{Server, answer};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

const BAD: [(&str, &str, &str); 5] = [
    ("process", r#"{"command": []}"#, "payload.command"),
    ("shell", r#"{"scrpt": "true"}"#, "payload.scrpt"),
    ("http", r#"{"url": "file:///etc/passwd"}"#, "payload.url"),
    ("http", r#"{"url": "https://example.com/", "urll": 1}"#, "payload.urll"),
    ("http", "null", "payload"),
];

fn payload(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// The fields that a 422 names.
fn fields(status: StatusCode, problem: &Value) -> Vec<String> {
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
    let errors = problem["errors"].as_array().unwrap().iter();
    errors.map(|error| error["field"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_payload_that_the_handler_would_refuse_is_refused_at_submit() {
    let server = Server::start();
    for (job_type, text, field) in BAD {
        let job = json!({"name": "bad", "job_type": job_type, "payload": payload(text)});
        let (status, problem) = server.post("/api/v1/jobs", &job.to_string()).await;
        assert_eq!(fields(status, &problem), [field], "{problem}");
        let batch = json!({"jobs": [job, {"name": "good", "job_type": "noop", "delay": "1h"}]});
        let (_, body) = server.post("/api/v1/jobs/batch", &batch.to_string()).await;
        let told = body.to_string();
        assert!(told.contains(&format!("\"jobs[0].{field}\"")) && told.contains("job_id"), "{told}");
    }
    let job = json!({"name": "bad", "job_type": "http", "payload": {"url": 1}, "timeout_secs": 0});
    let (status, problem) = server.post("/api/v1/jobs", &job.to_string()).await;
    assert_eq!(fields(status, &problem), ["payload.url", "timeout_secs"], "all errors at once");
    // The payload of a job for a worker of one's own is that worker's business.
    server.submit(json!({"name": "own", "payload": {"command": []}, "delay": "1h"})).await;
}

#[tokio::test]
async fn a_change_that_the_handler_would_refuse_is_refused() {
    let server = Server::start();
    let good = json!({"name": "n", "job_type": "http", "payload": {"url": "http://a.test/"}, "delay": "1h"});
    let id = server.submit(good.clone()).await;
    let path = format!("/api/v1/jobs/{id}");
    let (status, problem) = server.patch(&path, &json!({"payload": {"url": "file:///x"}})).await;
    assert_eq!(fields(status, &problem), ["payload.url"]);
    let (status, problem) = server.patch(&path, &json!({"job_type": "shell"})).await;
    assert_eq!(fields(status, &problem), ["payload.url"], "another type has other fields");
    let mut replaced = good;
    replaced["payload"] = json!({"urll": "http://a.test/"});
    let request = server.request(Method::PUT, &path).header("content-type", "application/json");
    let (status, problem) = answer(request.body(replaced.to_string())).await;
    assert_eq!(fields(status, &problem), ["payload.urll"]);
    assert_eq!(server.patch(&path, &json!({"priority": 9})).await.0, StatusCode::OK);
}

#[tokio::test]
async fn compatible_routes_refuse_them_too() {
    let server = Server::start();
    let job = json!({"jobName": "http", "payload": {"url": "file:///x"}});
    let (status, problem) = server.post("/api/jobs", &job.to_string()).await;
    assert!(status.is_client_error() && problem.to_string().contains("payload.url"), "{status} {problem}");
}
