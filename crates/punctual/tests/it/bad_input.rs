//! The HTTP API with invalid requests: a 4xx that names the error, and nothing stored.

use crate::server::{Server, answer, eventually};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const UNKNOWN: &str = "01a1de7b-f418-719d-bed9-34f76e02395c";

fn said(problem: &Value) -> &str {
    problem["detail"].as_str().unwrap_or_default()
}

async fn assert_nothing_stored(server: &Server) {
    let (_, body) = server.get("/api/v1/jobs").await;
    assert_eq!(body["items"], json!([]));
}

#[tokio::test]
async fn invalid_jobs_are_refused_by_field_and_not_stored() {
    let server = Server::start();
    let long = "x".repeat(201);
    let cases: Vec<(Value, &str)> = vec![
        (json!({}), "name"),
        (json!({"name": ""}), "name"),
        (json!({"name": long}), "name"),
        (json!({"name": "a\u{0}b"}), "name"),
        (json!({"name": 7}), "name"),
        (json!({"name": "x", "priority": 0}), "priority"),
        (json!({"name": "x", "priority": "urgent"}), "priority"),
        (json!({"name": "x", "queue": ""}), "queue"),
        (json!({"name": "x", "payload": "y".repeat(300_000)}), "payload"),
        (json!({"name": "x", "execute_at": "tomorrow"}), "execute_at"),
        (json!({"name": "x", "execute_at": "2099-01-01"}), "execute_at"),
        (json!({"name": "x", "delay": "5 minutes"}), "delay"),
        (json!({"name": "x", "delay": 5}), "delay"),
        (json!({"name": "x", "interval": "1ms"}), "interval"),
        (json!({"name": "x", "interval": "P1MT1H"}), "interval"),
        (json!({"name": "x", "cron_expression": "0 25 * * *"}), "cron_expression"),
        (json!({"name": "x", "cron_expression": "@daily", "timezone": "CEST"}), "timezone"),
        (json!({"name": "x", "cron_expression": "@daily", "misfire_grace": "2d"}), "misfire_grace"),
        (json!({"name": "x", "interval": "1h", "max_runs": 0}), "max_runs"),
        (json!({"name": "x", "interval": "1h", "max_runs": -1}), "max_runs"),
        (json!({"name": "x", "max_runs": 3}), "max_runs"),
        (json!({"name": "x", "schedule_type": "SOMETIMES"}), "schedule_type"),
        (json!({"name": "x", "schedule_type": "IMMEDIATE", "delay": "1m"}), "delay"),
        (json!({"name": "x", "schedule_type": "RECURRING"}), "cron_expression"),
        (json!({"name": "x", "execute_at": "2099-01-01T00:00:00Z", "delay": "1m"}), "delay"),
        (json!({"name": "x", "execute_at": "2099-01-01T00:00:00Z", "interval": "1m"}), "execute_at"),
        (json!({"name": "x", "overlap_policy": "MAYBE"}), "overlap_policy"),
        (json!({"name": "x", "max_retries": 5_000}), "max_retries"),
        (json!({"name": "x", "max_retries": 1.5}), "max_retries"),
        (json!({"name": "x", "retry": {"strategy": "random"}}), "retry.strategy"),
        (json!({"name": "x", "retry": {"steps": []}}), "retry.steps"),
        (json!({"name": "x", "retry": {"steps": ["1m", "soon"]}}), "retry.steps[1]"),
        (json!({"name": "x", "retry": {"fail_on": [""]}}), "retry.fail_on"),
        (json!({"name": "x", "retry": {"timeout_growth": 0.5}}), "retry.timeout_growth"),
        (json!({"name": "x", "retry": {"timeout_growth": 1.234}}), "retry.timeout_growth"),
        (json!({"name": "x", "max_retries": -1}), "max_retries"),
        (json!({"name": "x", "cron_expression": "@daily", "interval": "1h"}), "interval"),
        (json!({"name": "x", "delay": "1h", "expires_at": "2020-01-01T00:00:00Z"}), "expires_at"),
        (json!({"name": "x", "expires_after": "0s"}), "expires_after"),
        (json!({"name": "x", "expires_after": "1h", "expires_at": "2099-01-01T00:00:00Z"}), "expires_after"),
        (json!({"name": "x", "interval": "1h", "expires_at": "2099-01-01T00:00:00Z"}), "expires_at"),
        (
            json!({"name": "x", "interval": "1h", "overlap_policy": "SKIP", "overlap_limit": 2}),
            "overlap_limit",
        ),
        (
            json!({"name": "x", "interval": "1h", "overlap_policy": "QUEUE", "overlap_limit": 0}),
            "overlap_limit",
        ),
        (json!({"name": "x", "interval": "1h", "max_open": 0}), "max_open"),
        (json!({"name": "x", "interval": "1h", "misfire_limit": 3}), "misfire_limit"),
        (
            json!({"name": "x", "interval": "1h", "misfire_policy": "RUN_ALL", "replay_rate": "10/h"}),
            "replay_rate",
        ),
        (json!({"name": "x", "dst_gap": "SKIP"}), "dst_gap"),
        (json!({"name": "x", "idempotency_key": ""}), "idempotency_key"),
        (json!({"name": "x", "unique_key": long}), "unique_key"),
        (json!({"name": "x", "depends_on": "y"}), "depends_on"),
        (json!({"name": "x", "depends_on": ["y"]}), "depends_on[0]"),
        (json!({"name": "x", "depends_on": [UNKNOWN]}), "depends_on"),
        (json!({"name": "x", "depends_on": [UNKNOWN], "interval": "1h"}), "depends_on"),
        (json!({"name": "x", "timeout_secs": 0}), "timeout_secs"),
        (json!({"name": "x", "timeout_secs": -1}), "timeout_secs"),
        (json!({"name": "x", "tags": "a"}), "tags"),
        (json!({"name": "x", "tags": [""]}), "tags[0]"),
        (json!({"name": "x", "rrule": "FREQ=SOMETIMES"}), "rrule"),
        (json!({"name": "x", "rrule": "FREQ=DAILY;BYHOUR=1;BYSETPOS=2"}), "rrule"),
        (
            json!({"name": "x", "rrule": "FREQ=DAILY;UNTIL=20010101", "start_at": "2000-01-01T00:00:00Z"}),
            "rrule",
        ),
        (json!({"name": "x", "colour": "red"}), "colour"),
        (json!({"name": "x", "execute_at": 1_763_195_400}), "execute_at"),
        (json!({"name": "x", "timeout_secs": "30s"}), "timeout_secs"),
    ];
    for (job, field) in cases {
        let (status, body) = server.post("/api/v1/jobs", &job.to_string()).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{job} gave {body}");
        assert_eq!(body["errors"][0]["field"], *field, "{job} gave {body}");
        assert_eq!(body["status"], 422);
    }
    assert_nothing_stored(&server).await;
}

#[tokio::test]
async fn names_that_cannot_be_seen_and_times_that_do_not_exist_are_refused() {
    let server = Server::start();
    let blank = "must not be blank, as in \" \": use a name with visible characters";
    let hidden = "must not contain the invisible character U+200B, as in \"a<U+200B>b\": remove it";
    let turned =
        "must not contain the bidirectional control character U+202E, as in \"a<U+202E>b\": remove it";
    let padded = "must not begin or end with white space, as in \" a\": write \"a\"";
    let dots = "must not be \"..\", which cannot be part of a URL: choose another name";
    let second = "must have a second from 00 to 59, not 60 as in \"2099-01-01T23:59:60Z\": leap seconds are not \
                  supported";
    let offset =
        "must have an offset from -23:59 to +23:59, or Z for UTC, unlike \"2099-01-01T00:00:00+25:00\"";
    for (field, value, detail) in [
        ("name", json!(" "), blank),
        ("name", json!("a\u{200b}b"), hidden),
        ("job_type", json!("a\u{202e}b"), turned),
        ("queue", json!(" a"), padded),
        ("queue", json!(".."), dots),
        ("owner_id", json!("a\u{200b}b"), hidden),
        ("idempotency_key", json!("a\u{200b}b"), hidden),
        ("unique_key", json!(" "), blank),
        ("concurrency_key", json!(" a"), padded),
        ("execute_at", json!("2099-01-01T23:59:60Z"), second),
        ("execute_at", json!("2099-01-01T00:00:00+25:00"), offset),
        ("expires_at", json!("2099-01-01T23:59:60Z"), second),
    ] {
        let mut job = json!({"name": "x"});
        job[field] = value;
        let (status, body) = server.post("/api/v1/jobs", &job.to_string()).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{job} gave {body}");
        let said = body["errors"][0]["detail"].as_str().unwrap().split(" (line").next().unwrap();
        assert_eq!((&body["errors"][0]["field"], said), (&json!(field), detail), "{job} gave {body}");
    }
    let job = json!({"name": "x", "tags": ["fine", "a\u{202e}b"]});
    let (_, body) = server.post("/api/v1/jobs", &job.to_string()).await;
    assert_eq!(
        (&body["errors"][0]["field"], &body["errors"][0]["detail"]),
        (&json!("tags[1]"), &json!(turned))
    );
    assert_nothing_stored(&server).await;
    let opening = json!({"worker": "w\u{202e}", "job_types": ["a"], "lease_secs": 60});
    let (status, body) = server.post("/api/v1/worker/sessions", &opening.to_string()).await;
    assert_eq!((status, &body["errors"][0]["field"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("worker")));
    for queue in ["a%E2%80%8Bb", "%20", &"x".repeat(201)] {
        let (status, body) = server.post(&format!("/api/v1/queues/{queue}/pause"), "").await;
        assert_eq!(
            (status, &body["errors"][0]["field"]),
            (StatusCode::UNPROCESSABLE_ENTITY, &json!("queue"))
        );
    }
    for time in ["2026-01-01T23:59:60Z", "2026-01-01T00:00:00%2B25:00"] {
        let (status, body) = server.get(&format!("/api/v1/dead-letters?died_from={time}")).await;
        assert!(status.is_client_error(), "{body}");
        assert_eq!(body["errors"][0]["field"], "died_from", "{body}");
        let said = body["errors"][0]["detail"].as_str().unwrap();
        assert!(said.starts_with("must have a"), "{said}");
    }
}

#[test]
fn the_command_line_spells_out_what_is_wrong_with_a_name_or_a_time() {
    let server = Server::start();
    for (arguments, said) in [
        (vec!["job", "submit", "a\u{202e}b"], "bidirectional control character U+202E"),
        (vec!["job", "submit", "\u{200b}"], "invisible character U+200B"),
        (vec!["job", "submit", "x", "--at", "2099-01-01T23:59:60Z"], "leap seconds are not supported"),
        (vec!["job", "submit", "x", "--at", "2099-01-01T00:00:00+25:00"], "offset from -23:59 to +23:59"),
        (vec!["queue", "pause", "a\u{200b}"], "U+200B"),
    ] {
        let output = server.cli(&arguments);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.contains(said), "{arguments:?}: {told}");
        assert!(!told.contains(['\u{202e}', '\u{200b}']), "{told}");
    }
}

#[tokio::test]
async fn misspelled_fields_are_suggested() {
    let server = Server::start();
    for (field, detail) in
        [("executeAt", "is not a known field, did you mean execute_at?"), ("zzzzz", "is not a known field")]
    {
        let (_, body) = server.post("/api/v1/jobs", &json!({"name": "x", field: 1}).to_string()).await;
        let said = body["errors"][0]["detail"].as_str().unwrap();
        assert!(said.starts_with(detail), "{field}: {said}");
    }
}

#[tokio::test]
async fn bodies_that_are_no_json_objects_are_refused() {
    let server = Server::start();
    for body in ["", "{", "nonsense", "[", "[\"x\"", "{\"name\":\"x\"} trailing", "{\"name\":\"x\",}"] {
        let (status, answer) = server.post("/api/v1/jobs", body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body:?} gave {answer}");
        assert_eq!(answer["title"], "the body is not valid JSON");
    }
    for body in ["[]", "[{\"name\":\"x\"}]", "\"x\"", "null"] {
        let (status, answer) = server.post("/api/v1/jobs", body).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
        assert_eq!(answer["title"], "the body is not a job");
        assert!(answer["detail"].as_str().unwrap().contains("/jobs/batch"), "{answer}");
    }
    let (status, answer) = server.post("/api/v1/jobs/batch", "[{\"name\":\"x\"}]").await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
    assert_eq!(answer["title"], "the body is not a batch of jobs");
    assert_nothing_stored(&server).await;
}

#[tokio::test]
async fn batches_that_cannot_be_read_are_refused_whole() {
    let server = Server::start();
    for (body, field) in [
        (json!({}), "jobs"),
        (json!({"jobs": []}), "jobs"),
        (json!({"jobs": 5}), "jobs"),
        (json!({"jobs": [], "jbos": []}), "jbos"),
        (json!({"jobs": vec![json!({"name": "x"}); 10_001]}), "jobs"),
    ] {
        let (status, answer) = server.post("/api/v1/jobs/batch", &body.to_string()).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
        assert_eq!(answer["errors"][0]["field"], field, "{answer}");
    }
    assert_nothing_stored(&server).await;
}

#[tokio::test]
async fn all_invalid_fields_of_a_job_are_named_at_once() {
    let server = Server::start();
    let fields = |body: &Value| -> Vec<String> {
        let errors = body["errors"].as_array().unwrap();
        errors.iter().map(|error| error["field"].as_str().unwrap().to_owned()).collect()
    };
    let malformed = json!({"name": "x", "priority": 11, "delay": 5, "colour": "red"});
    let (_, body) = server.post("/api/v1/jobs", &malformed.to_string()).await;
    assert_eq!(fields(&body), ["colour", "delay", "priority"], "{body}");
    let out_of_bounds =
        json!({"name": "", "interval": "1h", "timezone": "X", "max_runs": 0, "timeout_secs": 0});
    let (_, body) = server.post("/api/v1/jobs", &out_of_bounds.to_string()).await;
    assert_eq!(fields(&body), ["timezone", "max_runs", "name", "timeout_secs"], "{body}");
    assert_nothing_stored(&server).await;
}

#[tokio::test]
async fn bodies_have_a_size_and_a_type() {
    let server = Server::start();
    let large = json!({"name": "x", "payload": "y".repeat(1_100_000)}).to_string();
    let (status, body) = server.post("/api/v1/jobs", &large).await;
    assert_eq!((status, &body["status"]), (StatusCode::PAYLOAD_TOO_LARGE, &json!(413)));
    let form = server.request(Method::POST, "/api/v1/jobs").header("content-type", "text/plain");
    let (status, body) = answer(form.body("{\"name\":\"x\"}")).await;
    assert_eq!((status, &body["status"]), (StatusCode::UNSUPPORTED_MEDIA_TYPE, &json!(415)));
    assert!(said(&body).contains("Content-Type: application/json"), "{body}");
    assert_nothing_stored(&server).await;
}

#[tokio::test]
async fn query_parameters_are_checked_by_name() {
    let server = Server::start();
    for (query, field) in [
        ("status=DONE", "status"),
        ("priority=12", "priority"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=x", "limit"),
        ("cursor=x", "cursor"),
        ("cursor=dead-letters~5", "cursor"),
        ("statsu=ACTIVE", "statsu"),
        ("queue=a&queue=b", "queue"),
    ] {
        let (status, body) = server.get(&format!("/api/v1/jobs?{query}")).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{query} gave {body}");
        assert_eq!(body["errors"][0]["field"], field, "{query} gave {body}");
    }
}

#[tokio::test]
async fn what_is_not_there_is_a_404_and_what_may_not_be_done_a_405() {
    let server = Server::start();
    for path in [
        format!("/api/v1/jobs/{UNKNOWN}"),
        format!("/api/v1/jobs/{UNKNOWN}/executions"),
        format!("/api/v1/jobs/{UNKNOWN}/explain"),
        format!("/api/v1/executions/{UNKNOWN}.1.1"),
        "/api/v1/jobs/nonsense".to_owned(),
        "/api/v1/jobs/%ff".to_owned(),
        "/api/v1/executions/nonsense".to_owned(),
        "/api/v1/nothing".to_owned(),
        "/nothing".to_owned(),
    ] {
        let request = server.request(Method::GET, &path);
        let response = request.send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "application/problem+json", "{path}");
        assert_eq!(response.status(), StatusCode::NOT_FOUND, "{path}");
    }
    let (_, nothing) = server.get("/api/v1/nothing").await;
    assert!(said(&nothing).contains("/openapi.json"), "{nothing}");
    let response = server.request(Method::DELETE, "/api/v1/jobs").send().await.unwrap();
    assert_eq!(response.headers()["allow"], "GET,HEAD,POST");
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    let problem: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    assert!(said(&problem).contains("GET, HEAD, POST"), "{problem}");
}

#[tokio::test]
async fn without_a_valid_token_nothing_is_shown() {
    let server = Server::start();
    let id = server.token.split('_').nth(1).unwrap();
    let authorizations = [
        None,
        Some(String::new()),
        Some("Bearer".to_owned()),
        Some("Bearer x".to_owned()),
        Some(format!("Basic {}", server.token)),
        Some(server.token.clone()),
        Some(format!("Bearer pt_{id}_")),
        Some(format!("Bearer pt_{id}_wrong")),
        Some(format!("Bearer {}0", server.token)),
        Some(format!("Bearer {}", &server.token[..server.token.len() - 1])),
        Some("Bearer pt_nobody_wrong".to_owned()),
    ];
    let paths = [
        "/api/v1",
        "/api/v1/jobs",
        "/api/v1/stats",
        "/api/v1/dead-letters",
        "/api/v1/nothing",
        "/metrics",
        "/nothing",
        "//livez",
        "/livez/",
        "/livez/../metrics",
        "/%6Civez/../api/v1/jobs",
    ];
    for authorization in &authorizations {
        for path in paths {
            let mut request = server.anonymous(Method::GET, path);
            if let Some(authorization) = authorization {
                request = request.header("authorization", authorization);
            }
            let (status, body) = answer(request).await;
            assert_eq!(status, StatusCode::UNAUTHORIZED, "{authorization:?} {path}: {body}");
        }
    }
    let post = server.anonymous(Method::POST, "/api/v1/jobs").json(&json!({"name": "x"}));
    assert_eq!(answer(post).await.0, StatusCode::UNAUTHORIZED);
    assert_nothing_stored(&server).await;
}

#[tokio::test]
async fn health_needs_no_token() {
    let server = Server::start();
    for (path, field, value) in
        [("/livez", "status", "live"), ("/readyz", "status", "ready"), ("/", "api", "/api/v1")]
    {
        let (status, body) = answer(server.anonymous(Method::GET, path)).await;
        assert_eq!((status, &body[field]), (StatusCode::OK, &json!(value)), "{path}");
    }
}

/// Senders that announce a large batch and stop after this many bytes of it.
async fn stalled_senders(server: &Server, count: usize, sent_bytes: usize) -> Vec<TcpStream> {
    let mut stalled = Vec::new();
    for _ in 0..count {
        let mut stream = TcpStream::connect(&server.address).await.unwrap();
        let head = format!(
            "POST /api/v1/jobs/batch HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: 8388608\r\nexpect: 100-continue\r\n\r\n",
            server.token
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        // The server asks for the body once it has room for it.
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 100");
        stream.write_all(&vec![b' '; sent_bytes]).await.unwrap();
        stalled.push(stream);
    }
    stalled
}

#[tokio::test]
async fn stalled_large_bodies_bound_memory_and_let_small_ones_pass() {
    let server = Server::start();
    let large = json!({"name": "x", "delay": "1h", "payload": "y".repeat(100_000)}).to_string();
    // Announced bytes take no memory, and nothing away from others.
    let idle = stalled_senders(&server, 40, 0).await;
    let (status, body) = server.post("/api/v1/jobs", &large).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    let stalled = stalled_senders(&server, 4, 8 * 1024 * 1024 - 1).await;
    let (status, body) = server.post("/api/v1/jobs", r#"{"name":"small","delay":"1h"}"#).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    eventually("large bodies are refused", async || {
        let request = server.request(Method::POST, "/api/v1/jobs").header("content-type", "application/json");
        let response = request.body(large.clone()).send().await.unwrap();
        response.status() == StatusCode::TOO_MANY_REQUESTS && response.headers()["retry-after"] == "1"
    })
    .await;
    drop((idle, stalled));
    eventually("large bodies pass again", async || {
        server.post("/api/v1/jobs", &large).await.0 == StatusCode::CREATED
    })
    .await;
}
