//! Bad input: errors name the fields that the caller has sent, and nothing is stored.

use super::{ask, server, text};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

#[tokio::test]
async fn errors_name_the_fields_of_the_form() {
    let server = server();
    let long = "x".repeat(201);
    for (path, body, field) in [
        ("/api/job", json!({}), "name"),
        ("/api/job", json!({"name": "x", "maxRetries": 0}), "maxRetries"),
        ("/api/job", json!({"name": "x", "maxRetries": 1002}), "maxRetries"),
        ("/api/job", json!({"name": "x", "maxRetries": "2"}), "maxRetries"),
        ("/api/job", json!({"name": "x", "max_retries": 2}), "max_retries"),
        ("/api/job", json!({"name": long}), "name"),
        ("/api/jobs", json!({"jobName": long}), "jobName"),
        ("/api/jobs", json!({"jobType": "one-time"}), "jobName"),
        ("/api/jobs", json!({"jobName": "x", "jobType": "sometimes"}), "jobType"),
        ("/api/jobs", json!({"jobName": "x", "jobType": "recurring"}), "frequency"),
        ("/api/jobs", json!({"jobName": "x", "jobType": "one-time", "frequency": "daily"}), "frequency"),
        ("/api/jobs", json!({"jobName": "x", "frequency": "sometimes"}), "frequency"),
        ("/api/jobs", json!({"jobName": "x", "frequency": "61 * * * *"}), "frequency"),
        ("/api/jobs", json!({"jobName": "x", "executionTime": "tomorrow"}), "executionTime"),
        ("/api/jobs", json!({"jobName": "x", "executionTime": 5}), "executionTime"),
        ("/api/jobs", json!({"jobName": "x", "priority": "urgent"}), "priority"),
        ("/api/jobs", json!({"jobName": "x", "job_type": "y"}), "job_type"),
        ("/api/jobs", json!({"name": "x", "cron_expression": "61 * * * *"}), "cron_expression"),
        ("/api/jobs", json!({"name": "x", "schedule_type": "RECURRING"}), "cron_expression"),
        ("/api/jobs", json!({"name": "x", "priority": 11}), "priority"),
        ("/api/jobs", json!({"name": "x", "jobid": 1}), "jobid"),
        ("/jobs", json!({}), "type"),
        ("/jobs", json!({"type": "x", "runAt": "later"}), "runAt"),
        ("/jobs", json!({"type": "x", "runAt": 5}), "runAt"),
        ("/jobs", json!({"type": "x", "runAt": "5pm", "schedule": "daily"}), "schedule"),
        ("/jobs", json!({"type": "x", "schedule": "61 * * * *"}), "schedule"),
        ("/jobs", json!({"type": "x", "idempotencyKey": long}), "idempotencyKey"),
        ("/jobs", json!({"type": "x", "run_at": "5pm"}), "run_at"),
        ("/users/ann/jobs", json!({"is_reccuring": true}), "executionInterval"),
        ("/users/ann/jobs", json!({"executionInterval": "3 hours a day"}), "executionInterval"),
        ("/users/ann/jobs", json!({"executionInterval": "P1M", "is_reccuring": false}), "executionInterval"),
        ("/users/ann/jobs", json!({"maxRetryCount": 1001}), "maxRetryCount"),
        ("/users/ann/jobs", json!({"is_reccuring": "yes"}), "is_reccuring"),
        ("/users/ann/jobs", json!({"user_id": "bob"}), "user_id"),
    ] {
        let problem = ask(&server, Method::POST, path, Some(body.clone()), 422).await;
        assert_eq!(problem["errors"][0]["field"], field, "{path} {body}: {problem}");
        assert!(text(&problem["detail"]).starts_with(field), "{problem}");
    }
    let (_, jobs) = server.get("/api/v1/jobs").await;
    assert_eq!(jobs["items"], json!([]));
}

#[tokio::test]
async fn changes_with_bad_fields_are_refused_by_name() {
    let server = server();
    let job = json!({"name": "noop", "cron_expression": "0 9 * * *", "owner_id": "ann"});
    let id = server.submit(job).await;
    for (method, path, body, field) in [
        (Method::PUT, format!("/api/jobs/{id}"), json!({"frequency": "sometimes"}), "frequency"),
        (Method::PUT, format!("/api/jobs/{id}"), json!({"jobName": ""}), "jobName"),
        (Method::PUT, format!("/api/jobs/{id}"), json!({"jobType": "recurring"}), "jobType"),
        (Method::PUT, format!("/api/jobs/{id}"), json!({"frequency": null}), "frequency"),
        (Method::PATCH, format!("/users/ann/jobs/{id}"), json!({}), "next_execution_time"),
        (
            Method::PATCH,
            format!("/users/ann/jobs/{id}"),
            json!({"next_execution_time": "soon"}),
            "next_execution_time",
        ),
    ] {
        let problem = ask(&server, method, &path, Some(body), 422).await;
        assert_eq!(problem["errors"][0]["field"], field, "{problem}");
    }
    let nothing = ask(&server, Method::PUT, &format!("/api/jobs/{id}"), Some(json!({})), 422).await;
    assert!(text(&nothing["detail"]).starts_with("give at least one of jobName"), "{nothing}");
    let path = format!("/api/jobs/{id}/executions?limit=1001");
    assert_eq!(ask(&server, Method::GET, &path, None, 400).await["errors"][0]["field"], "limit");
}

#[tokio::test]
async fn changes_of_another_version_are_refused() {
    let server = server();
    let job = json!({"name": "noop", "interval": "1h", "owner_id": "ann"});
    let id = server.submit(job).await;
    let change = async |method: Method, path: &str, version: &str, body: Value| {
        let request = server.request(method, path).header("If-Match", version).json(&body);
        crate::server::answer(request).await
    };
    let path = format!("/api/jobs/{id}");
    let (status, stale) = change(Method::PUT, &path, "\"7\"", json!({"priority": 9})).await;
    assert_eq!((status, &stale["version"]), (StatusCode::PRECONDITION_FAILED, &json!(1)), "{stale}");
    let (status, _) = change(Method::PUT, &path, "7", json!({"priority": 9})).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let (status, updated) = change(Method::PUT, &path, "\"1\"", json!({"priority": 9})).await;
    assert_eq!(status, StatusCode::OK, "{updated}");

    let path = format!("/users/ann/jobs/{id}");
    let next = json!({"next_execution_time": "2026-05-01T11:30:00Z"});
    let (status, stale) = change(Method::PATCH, &path, "\"1\"", next.clone()).await;
    assert_eq!((status, &stale["version"]), (StatusCode::PRECONDITION_FAILED, &json!(2)), "{stale}");
    let (status, updated) = change(Method::PATCH, &path, "\"2\"", next).await;
    assert_eq!(status, StatusCode::OK, "{updated}");
}

#[tokio::test]
async fn a_method_that_a_path_does_not_have_points_to_the_page_of_these_forms() {
    let server = server();
    for (method, path, page) in [
        (Method::DELETE, "/api/job", "Compatible job APIs"),
        (Method::PATCH, "/api/jobs", "Compatible job APIs"),
        (Method::PUT, "/users/ann/jobs", "Compatible job APIs"),
        (Method::DELETE, "/api/v1/jobs", "/openapi.json"),
    ] {
        let problem = ask(&server, method, path, None, 405).await;
        let detail = text(&problem["detail"]);
        assert!(detail.starts_with("this path accepts ") && detail.contains(page), "{path}: {detail}");
    }
}

#[tokio::test]
async fn bodies_follow_the_rules_of_all_requests() {
    let server = server();
    for path in ["/api/job", "/api/jobs", "/jobs", "/users/ann/jobs"] {
        let send = async |kind: Option<&str>, body: &str| {
            let request = server.request(Method::POST, path).body(body.to_owned());
            let request = match kind {
                Some(kind) => request.header("content-type", kind),
                None => request,
            };
            let response = request.send().await.expect("an answer");
            assert_eq!(response.headers()["content-type"], "application/problem+json", "{path}");
            response.status()
        };
        let json = Some("application/json");
        assert_eq!(send(None, "{}").await, StatusCode::UNSUPPORTED_MEDIA_TYPE);
        assert_eq!(send(Some("text/plain"), "{}").await, StatusCode::UNSUPPORTED_MEDIA_TYPE);
        assert_eq!(send(json, "{").await, StatusCode::BAD_REQUEST);
        assert_eq!(send(json, "[]").await, StatusCode::UNPROCESSABLE_ENTITY);
        let large = format!("{{\"payload\": \"{}\"}}", "x".repeat(1024 * 1024));
        assert_eq!(send(json, &large).await, StatusCode::PAYLOAD_TOO_LARGE);
    }
    let key = json!({"name": "noop"});
    let send = async || {
        let request = server.request(Method::POST, "/api/job").header("Idempotency-Key", "k1").json(&key);
        crate::server::answer(request).await
    };
    let (first, second): ((StatusCode, Value), _) = (send().await, send().await);
    assert_eq!((first.0, &first), (StatusCode::CREATED, &second));
}
