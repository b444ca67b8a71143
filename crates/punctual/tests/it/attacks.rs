//! Attacks on the whole API: other owners' and other queues' jobs in every operation, data in every view, requests
//! whose end is ambiguous, and texts that look like lines of the log.

use crate::access_matrix::{operations, operations_about};
use crate::principals::Principal;
use crate::raw::{HERE, Raw, head};
use crate::server::{BINARY, Server, answer, eventually};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

const NO_JOB: &str = "0197e9a0-5b7e-7c3a-9d52-6a1f0c4e8b11";
/// In the payload, the output and the error of a job.
const DATA: &str = "data-of-a-job";

/// A job of ann in the queue `pay` that has failed for good.
async fn failed_job(server: &Server, ann: &Principal<'_>) -> String {
    let command = format!("echo {DATA}; echo {DATA} >&2; exit 3");
    let job = json!({"name": "payroll", "job_type": "shell", "queue": "pay", "max_retries": 0,
        "payload": {"script": command}});
    let id = ann.submit(job).await;
    eventually("it has failed", async || {
        server.get(&format!("/api/v1/jobs/{id}")).await.1["status"] == "FAILED"
    })
    .await;
    id
}

#[tokio::test]
async fn every_operation_about_a_foreign_job_answers_like_about_an_unknown_one() {
    let server = Server::start_with(&["--allow", "shell"]);
    let ann = Principal::submitter(&server, "ann").await;
    let job = failed_job(&server, &ann).await;
    let strangers = [
        json!({"name": "bob", "role": "admin", "owner_id": "bob"}),
        json!({"name": "mail", "role": "admin", "queues": ["mail"]}),
        json!({"name": "noop", "role": "admin", "job_types": ["noop"]}),
    ];
    let paths = [format!("/api/v1/jobs/{job}"), format!("/api/v1/jobs/{job}/executions")];
    let state = async || (server.get(&paths[0]).await, server.get(&paths[1]).await);
    let before = state().await;
    let unknown = operations_about(&server, NO_JOB).await;
    let about: Vec<_> = operations_about(&server, &job)
        .await
        .into_iter()
        .zip(unknown)
        .filter(|(one, no)| one.path != no.path)
        .collect();
    assert!(about.len() > 15, "only {} operations", about.len());
    for stranger in strangers {
        let stranger = Principal::create(&server, stranger).await;
        for (foreign, unknown) in &about {
            let mut answers = vec![];
            for (path, id) in [(&foreign.path, job.as_str()), (&unknown.path, NO_JOB)] {
                let request = stranger.request(foreign.method.clone(), path);
                let (status, body) = answer(match &foreign.body {
                    Some(body) => request.json(body),
                    None => request,
                })
                .await;
                answers.push((status, body.to_string().replace(id, "ID")));
            }
            assert_eq!(answers[0], answers[1], "{} {}", foreign.method, foreign.path);
            assert!(answers[0].0.is_client_error(), "{} {}: {answers:?}", foreign.method, foreign.path);
        }
    }
    assert_eq!(state().await, before);
}

#[tokio::test]
async fn no_view_shows_a_viewer_the_data_of_jobs() {
    let server = Server::start_with(&["--allow", "shell"]);
    let ann = Principal::submitter(&server, "ann").await;
    let job = failed_job(&server, &ann).await;
    let viewer = Principal::create(&server, json!({"name": "board", "role": "viewer"})).await;
    let mut shown = 0;
    for asked in operations_about(&server, &job).await {
        // A stream has no end.
        if asked.method != Method::GET || asked.path == "/api/v1/events" {
            continue;
        }
        let text = viewer.request(Method::GET, &asked.path).send().await.unwrap();
        shown += usize::from(text.status() == StatusCode::OK);
        let text = text.text().await.unwrap();
        // The last line of standard error is the reason of the failure, which is no data.
        let text = text.replace(&format!("exited with code 3: {DATA}"), "");
        assert!(!text.contains(DATA), "{}: {text}", asked.path);
    }
    assert!(shown > 15, "only {shown} views");
}

/// One of two parties that read such a request differently would take its end for a second request.
#[tokio::test]
async fn a_request_whose_end_is_ambiguous_is_refused_and_nothing_follows_it() {
    let server = Server::start();
    let second = format!(
        "{}Content-Type: application/json\r\nContent-Length: 16\r\n\r\n{{\"name\": \"noop\"}}",
        head(&server, "POST", "/api/v1/jobs")
    );
    let body = json!({"name": "noop"}).to_string();
    let length = body.len();
    let framings = [
        format!("Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n"),
        format!("Transfer-Encoding: chunked\r\nContent-Length: {length}\r\n"),
        format!("Content-Length: {length}\r\nContent-Length: 0\r\n"),
        format!("Content-Length: {length}, 0\r\n"),
        format!("Content-Length: +{length}\r\n"),
        "Content-Length: -1\r\n".to_owned(),
        "Content-Length: 0x10\r\n".to_owned(),
        "Transfer-Encoding: chunked, identity\r\n".to_owned(),
        "Transfer-Encoding: identity\r\nTransfer-Encoding: xchunked\r\n".to_owned(),
        format!("Content-Length : {length}\r\n"),
        format!("X: y\r\n Content-Length: {length}\r\n"),
        format!("Content-Length: {length}\nTransfer-Encoding\u{b}: chunked\r\n"),
    ];
    for framing in framings {
        let mut raw = Raw::open(&server.address, HERE).await;
        let first = format!(
            "{}Content-Type: application/json\r\n{framing}\r\n0\r\n\r\n",
            head(&server, "POST", "/api/v1/jobs")
        );
        raw.send(first.as_bytes()).await;
        raw.send(second.as_bytes()).await;
        raw.0.shutdown().await.ok();
        let said = raw.rest().await;
        let statuses: Vec<&str> = said.lines().filter(|line| line.starts_with("HTTP/1.1 ")).collect();
        assert!(statuses.len() <= 1, "{framing:?}: {statuses:?}");
        assert!(statuses.iter().all(|status| status.starts_with("HTTP/1.1 4")), "{framing:?}: {statuses:?}");
        let (_, jobs) = server.get("/api/v1/jobs").await;
        assert_eq!(jobs["items"], json!([]), "{framing:?}");
    }
}

#[tokio::test]
async fn texts_of_callers_and_workers_add_no_lines_to_the_log() {
    for format in ["text", "json"] {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let script = format!(
            "exec \"$0\" \"$@\" --log-format {format} --log-output --log-level debug 2>'{}'",
            log.display()
        );
        let server = Server::start_through(&["sh", "-c", &script, BINARY], &directory.path().join("data"));
        let forged = "x\n2026-01-01T00:00:00Z ERROR punctual: forged\r\n{\"forged\": true}\u{1b}[2J";
        let worker = Principal::create(&server, json!({"name": "w", "role": "worker"})).await;
        server.submit(json!({"name": "raw", "payload": {"text": forged}, "max_retries": 0})).await;
        let opening =
            json!({"worker": "w", "host": forged, "version": forged, "job_types": ["raw"], "queues": []});
        for hostile in [json!({"worker": forged, "job_types": [forged], "queues": [forged]}), opening.clone()]
        {
            worker.post("/api/v1/worker/sessions", &hostile).await;
        }
        let (status, session) =
            worker.post("/api/v1/worker/sessions", &json!({"worker": "w", "job_types": ["raw"]})).await;
        assert_eq!(status, StatusCode::CREATED, "{session}");
        let session = session["session"].clone();
        let poll = json!({"session": session, "turn": 1, "job_types": ["raw"], "wait_secs": 20});
        let (_, polled) = worker.post("/api/v1/worker/poll", &poll).await;
        let found = &polled["assignments"][0];
        let lines = json!({"session": session, "execution_id": found["execution_id"], "lines": [{"message": forged}]});
        worker.post("/api/v1/worker/logs", &lines).await;
        let report = json!({"reports": [{"session": session, "execution_id": found["execution_id"],
            "epoch": found["epoch"], "outcome": "failed", "error": forged}]});
        let (status, answers) = worker.post("/api/v1/worker/report", &report).await;
        assert_eq!((status, &answers["answers"][0]), (StatusCode::OK, &json!("accepted")), "{answers}");
        for asked in operations(&server).await.iter().filter(|asked| asked.method == Method::GET).take(5) {
            let request = server.request(Method::GET, &asked.path).header("user-agent", "x\tERROR forged");
            assert!(!answer(request).await.0.is_server_error());
        }
        assert!(server.stop().success());
        let written = std::fs::read_to_string(&log).unwrap();
        for line in written.lines() {
            let is_whole = match format {
                "json" => serde_json::from_str::<Value>(line).is_ok_and(|line| line["forged"].is_null()),
                _ => !line.starts_with("2026-01-01T00:00:00Z ERROR") && !line.starts_with('{'),
            };
            assert!(is_whole && !line.contains('\u{1b}'), "{format}: {line:?}");
        }
    }
}
