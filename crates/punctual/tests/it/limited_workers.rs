//! Workers whose tokens are limited to queues, and what limited callers learn about workers.

use crate::certificates::Certificates;
use crate::principals::Principal;
use crate::server::{Server, eventually};
use reqwest::StatusCode;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn images_token() -> Value {
    json!({"name": "py", "role": "worker", "queues": ["images"], "job_types": ["ImageProcessing"]})
}

fn python_worker(server: &str, token: &str) -> Command {
    let mut command = Command::new("python3");
    command
        .arg("-B")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/python/worker.py"))
        .env("PUNCTUAL_SERVER", server)
        .env("PUNCTUAL_TOKEN", token)
        .env("WORKER_NAME", "python")
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    command
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn a_poll_without_queues_serves_those_of_its_session() {
    let server = Server::start();
    let worker = Principal::create(&server, images_token()).await;
    let opening =
        json!({"worker": "half", "job_types": ["ImageProcessing"], "queues": ["images"], "lease_secs": 60});
    let (status, session) = worker.post("/api/v1/worker/sessions", &opening).await;
    assert_eq!(status, StatusCode::CREATED, "{session}");
    let job = json!({"name": "resize", "job_type": "ImageProcessing"});
    server.submit(job.clone()).await;
    let mut in_images = job;
    in_images["queue"] = json!("images");
    server.submit(in_images).await;
    let poll = json!({"session": session["session"], "turn": 1, "job_types": ["ImageProcessing"], "capacity": 5,
        "wait_secs": 0});
    let (status, answer) = worker.post("/api/v1/worker/poll", &poll).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let queues: Vec<&Value> =
        answer["assignments"].as_array().unwrap().iter().map(|assignment| &assignment["queue"]).collect();
    assert_eq!(queues, ["images"]);
}

#[tokio::test]
async fn a_limited_caller_learns_why_no_worker_takes_its_job() {
    let server = Server::start();
    let opening =
        json!({"worker": "half", "job_types": ["ImageProcessing"], "queues": ["images"], "lease_secs": 60});
    let (status, _) = server.post("/api/v1/worker/sessions", &opening.to_string()).await;
    assert_eq!(status, StatusCode::CREATED);
    let ann = Principal::submitter(&server, "ann").await;
    let job = ann.submit(json!({"name": "resize", "job_type": "ImageProcessing"})).await;
    let (_, explained) = ann.get(&format!("/api/v1/jobs/{job}/explain")).await;
    let said = explained.to_string();
    assert!(said.contains("serves the queue default: half serves images"), "{said}");
}

#[tokio::test]
async fn a_pattern_is_not_the_name_of_a_queue_or_an_owner() {
    let server = Server::start();
    let refused = |(status, body): (StatusCode, Value), what: &str| {
        let said = body.to_string();
        assert!(
            status.is_client_error() && said.contains(&format!("is a pattern; name one {what}")),
            "{said}"
        );
    };
    let job = json!({"name": "a", "job_type": "noop", "queue": "mail-*"});
    refused(server.post("/api/v1/jobs", &job.to_string()).await, "queue");
    refused(server.post("/api/v1/queues/mail-*/pause", "").await, "queue");
    let opening = json!({"worker": "w", "job_types": ["noop"], "queues": ["mail-*"]});
    refused(server.post("/api/v1/worker/sessions", &opening.to_string()).await, "queue");
    let token = json!({"name": "t", "role": "submitter", "owner_id": "*"});
    refused(server.post("/api/v1/tokens", &token.to_string()).await, "owner");
    let worker = server.cli(&["worker", "--server", &server.address, "--queues", "mail-*"]);
    assert_eq!(worker.status.code(), Some(2), "{}", told(&worker));
    assert!(told(&worker).contains("is a pattern; name one queue"), "{}", told(&worker));
}

#[tokio::test]
async fn the_python_worker_serves_the_queues_of_its_token() {
    let server = Server::start();
    let token = Principal::create(&server, images_token()).await;
    let refused = python_worker(&server.address, &token.secret).output().unwrap();
    assert!(!refused.status.success() && told(&refused).contains("name the queues"), "{}", told(&refused));
    let worker =
        python_worker(&server.address, &token.secret).env("WORKER_QUEUES", "images").spawn().unwrap();
    let job = json!({"name": "resize", "job_type": "ImageProcessing", "queue": "images",
        "payload": {"imageUrl": "http://img.com/1.png"}});
    let job = server.submit(job).await;
    let client = server.client();
    eventually("the job is finished", async || client.job(job).await.unwrap().is_finished()).await;
    token.revoke().await;
    let ended = worker.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1), "{}", told(&ended));
    assert!(told(&ended).contains("the token is unknown"), "{}", told(&ended));
}

#[tokio::test]
async fn the_python_worker_trusts_the_authority_that_it_is_given() {
    let certificates = Certificates::new();
    let server = certificates.serve(&[]);
    let address = format!("https://127.0.0.1:{}", server.address.rsplit_once(':').unwrap().1);
    let mut command = python_worker(&address, &server.token);
    let mut worker = command.env("PUNCTUAL_TLS_CA", certificates.path("ca.pem")).spawn().unwrap();
    let is_connected = async || {
        let listed = server.said(&["workers", "list", "-o", "json"]);
        listed.contains("\"python\"")
    };
    eventually("the worker is connected", is_connected).await;
    worker.kill().unwrap();
    worker.wait().unwrap();
}
