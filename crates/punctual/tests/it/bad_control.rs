//! Invalid requests about existing objects: a 4xx that names the error, and no change.

use crate::driven::{everything, standing_at, start};
use crate::server::{Server, answer};
use punctual_core::ids::JobId;
use punctual_core::job::JobStatus;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

const UNKNOWN: &str = "01a1de7b-f418-719d-bed9-34f76e02395c";

/// A recurring job, a one-time job, one that waits for it, and a dead one.
struct House {
    server: Server,
    hourly: JobId,
    once: JobId,
    child: JobId,
    dead: JobId,
}

async fn house() -> House {
    let server = standing_at(start());
    let hourly = server.submit(json!({"name": "hourly", "job_type": "noop", "interval": "1h"})).await;
    let once = server.submit(json!({"name": "once", "job_type": "noop", "delay": "1h"})).await;
    let child = server.submit(json!({"name": "child", "job_type": "noop", "depends_on": [once]})).await;
    let dead = server.submit(json!({"name": "dead", "job_type": "sleep"})).await;
    assert_eq!(server.client().wait(dead).await.unwrap().status, JobStatus::Failed);
    House { server, hourly, once, child, dead }
}

/// Sends each request and requires this status and this field of the first error, and that nothing has
/// changed in the end.
async fn refused(server: &Server, cases: Vec<(Method, String, Value, StatusCode, &str)>) {
    let before = everything(server).await;
    for (method, path, body, expected, field) in cases {
        let path = format!("/api/v1{path}");
        let (status, problem) = answer(server.request(method.clone(), &path).json(&body)).await;
        let case = format!("{method} {path} {body} gave {problem}");
        assert_eq!((status, &problem["status"]), (expected, &json!(expected.as_u16())), "{case}");
        assert_eq!(problem["errors"][0]["field"], field, "{case}");
        let said = problem["detail"].as_str().unwrap_or_default();
        assert!(said.contains(field), "{case}");
    }
    assert_eq!(everything(server).await, before);
}

const INVALID: StatusCode = StatusCode::UNPROCESSABLE_ENTITY;

#[tokio::test]
async fn dependencies_that_cannot_be_are_refused() {
    let House { server, hourly, once, child, .. } = house().await;
    let submit = |job: Value, field| (Method::POST, "/jobs".to_owned(), job, INVALID, field);
    let patch =
        |job: JobId, patch: Value, field| (Method::PATCH, format!("/jobs/{job}"), patch, INVALID, field);
    let cases = vec![
        submit(json!({"name": "x", "depends_on": [UNKNOWN]}), "depends_on"),
        submit(json!({"name": "x", "depends_on": [once, UNKNOWN]}), "depends_on"),
        submit(json!({"name": "x", "depends_on": [hourly]}), "depends_on"),
        submit(json!({"name": "x", "depends_on": [once, once]}), "depends_on"),
        submit(json!({"name": "x", "depends_on": [once], "interval": "1h"}), "depends_on"),
        submit(json!({"name": "x", "depends_on": {"job": once}}), "depends_on"),
        patch(once, json!({"depends_on": [child]}), "depends_on"),
        patch(once, json!({"depends_on": [once]}), "depends_on"),
        patch(child, json!({"depends_on": null}), "depends_on"),
    ];
    refused(&server, cases).await;
}

#[tokio::test]
async fn changes_that_make_no_sense_are_refused_by_field() {
    let House { server, hourly, once, .. } = house().await;
    let patch =
        |job: JobId, patch: Value, field| (Method::PATCH, format!("/jobs/{job}"), patch, INVALID, field);
    let cases = vec![
        patch(once, json!({"pirority": 1}), "pirority"),
        patch(once, json!({"priority": 11}), "priority"),
        patch(once, json!({"priority": "7"}), "priority"),
        patch(once, json!({"name": null}), "name"),
        patch(once, json!({"name": ""}), "name"),
        patch(once, json!({"max_retries": -1}), "max_retries"),
        patch(once, json!({"retry": {"timeout_growth": 0.5}}), "retry.timeout_growth"),
        patch(once, json!({"retry": {"strateggy": "fixed"}}), "retry.strateggy"),
        patch(once, json!({"expires_at": start().to_string()}), "expires_at"),
        patch(once, json!({"execute_at": null}), "execute_at"),
        patch(once, json!({"max_runs": 3}), "max_runs"),
        patch(once, json!({"owner_id": "else"}), "owner_id"),
        patch(once, json!({"idempotency_key": "k"}), "idempotency_key"),
        patch(once, json!({"unique_key": "k"}), "unique_key"),
        patch(once, json!({"job_id": hourly}), "job_id"),
        patch(once, json!({"status": "PAUSED"}), "status"),
        patch(hourly, json!({"interval": "1ms"}), "interval"),
        patch(hourly, json!({"interval": null}), "interval"),
        patch(hourly, json!({"cron_expression": "61 * * * *"}), "cron_expression"),
        patch(hourly, json!({"timezone": "Mars/Olympus"}), "timezone"),
        patch(hourly, json!({"overlap_limit": 3}), "overlap_limit"),
        patch(hourly, json!({"cron_expression": "@daily", "delay": "1h"}), "delay"),
        (Method::PUT, format!("/jobs/{once}"), json!({"job_type": "noop"}), INVALID, "name"),
        (
            Method::PUT,
            format!("/jobs/{once}"),
            json!({"name": "once", "interval": "0s"}),
            INVALID,
            "interval",
        ),
    ];
    refused(&server, cases).await;
}

#[tokio::test]
async fn verbs_and_selections_that_make_no_sense_are_refused_by_field() {
    let House { server, hourly, dead, .. } = house().await;
    let letter = dead.occurrence(1);
    let mut cases =
        vec![(Method::POST, format!("/jobs/{hourly}/trigger"), json!({"overide": true}), INVALID, "overide")];
    for verb in ["redrive", "discard"] {
        for (body, field) in [
            (json!({}), "ids"),
            (json!({"ids": []}), "ids"),
            (json!({"ids": "all"}), "ids"),
            (json!({"ids": [dead]}), "ids[0]"),
            (json!({"ids": [letter], "filter": {}}), "filter"),
            (json!({"ids": [letter], "limit": 5}), "limit"),
            (json!({"filter": null}), "ids"),
            (json!({"filter": []}), "filter"),
            (json!({"filter": {"que": "mail"}}), "filter.que"),
            (json!({"filter": {"died_from": "noon"}}), "filter.died_from"),
            (json!({"filter": {}, "limit": 0}), "limit"),
            (json!({"filter": {}, "cursor": "jobs~1"}), "cursor"),
        ] {
            cases.push((Method::POST, format!("/dead-letters/{verb}"), body, INVALID, field));
        }
    }
    for (query, field) in [("died_from=noon", "died_from"), ("job_id=x", "job_id"), ("nmae=x", "nmae")] {
        let path = format!("/dead-letters?{query}");
        cases.push((Method::GET, path, Value::Null, StatusCode::BAD_REQUEST, field));
    }
    refused(&server, cases).await;
}

#[tokio::test]
async fn a_condition_that_is_no_version_is_refused() {
    let House { server, once, .. } = house().await;
    let before = everything(&server).await;
    for bad in ["1", "\"one\"", "W/\"1\"", "\"1\", \"2\"", "\"\"", "\"-1\""] {
        for method in [Method::PATCH, Method::PUT] {
            let request = server.request(method, &format!("/api/v1/jobs/{once}")).header("if-match", bad);
            let (status, problem) = answer(request.json(&json!({"name": "other", "delay": "1h"}))).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{bad}: {problem}");
            assert_eq!(problem["errors"][0]["field"], "If-Match", "{bad}: {problem}");
        }
    }
    assert_eq!(everything(&server).await, before);
}

#[tokio::test]
async fn verbs_on_what_is_not_there_are_a_404() {
    let House { server, .. } = house().await;
    let before = everything(&server).await;
    for (method, path) in [
        (Method::PATCH, format!("/jobs/{UNKNOWN}")),
        (Method::PUT, format!("/jobs/{UNKNOWN}")),
        (Method::DELETE, format!("/jobs/{UNKNOWN}")),
        (Method::POST, format!("/jobs/{UNKNOWN}/pause")),
        (Method::POST, format!("/jobs/{UNKNOWN}/resume")),
        (Method::POST, format!("/jobs/{UNKNOWN}/cancel")),
        (Method::POST, format!("/jobs/{UNKNOWN}/trigger")),
        (Method::POST, format!("/jobs/{UNKNOWN}/retry")),
        (Method::POST, format!("/jobs/{UNKNOWN}/explode")),
        (Method::POST, format!("/executions/{UNKNOWN}.1.1/cancel")),
        (Method::POST, "/executions/nonsense/cancel".to_owned()),
    ] {
        let mut request = server.request(method.clone(), &format!("/api/v1{path}"));
        if matches!(method, Method::PATCH | Method::PUT) {
            request = request.json(&json!({"name": "x"}));
        }
        let (status, problem) = answer(request).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{method} {path}: {problem}");
    }
    assert_eq!(everything(&server).await, before);
}
