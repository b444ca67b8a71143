//! Workers are listed, paused and drained.

use crate::driven::reaches;
use crate::server::{PATIENCE, Server, eventually};
use punctual_client::worker::{Context, HandlerError, Worker};
use punctual_client::{Client, ExecutionStatus, WorkerState};
use punctual_core::job::JobStatus;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpListener;

/// A worker in this process that handles `greet` until it is drained.
fn start_worker(server: &Server, name: &str) -> tokio::task::JoinHandle<()> {
    let worker = Worker::builder(server.client())
        .name(name)
        .handler("greet", |_: Context, _: Option<Value>| async { Ok::<_, HandlerError>(()) })
        .build();
    tokio::spawn(async move { worker.run().await.unwrap() })
}

async fn connected(server: &Server, name: &str) {
    eventually("the worker is connected", async || server.client().worker(name).await.is_ok()).await;
}

#[tokio::test]
async fn a_paused_worker_gets_nothing_and_a_drained_one_goes_home() {
    let server = Server::start();
    let client = server.client();
    let worker = start_worker(&server, "remote");
    connected(&server, "remote").await;
    let shown = client.worker("remote").await.unwrap();
    assert_eq!(
        (shown.state, shown.embedded, shown.job_types),
        (WorkerState::Open, false, vec!["greet".to_owned()])
    );
    assert_eq!(client.pause_worker("remote").await.unwrap().state, WorkerState::Paused);

    let job = server.submit(json!({"name": "hello", "job_type": "greet"})).await;
    let passes = server.submit(json!({"name": "other", "job_type": "noop"})).await;
    assert_eq!(client.wait(passes).await.unwrap().status, JobStatus::Completed);
    assert_eq!(client.execution(job.occurrence(1).attempt(1)).await.unwrap().status, ExecutionStatus::Queued);
    let (_, explained) = server.get(&format!("/api/v1/jobs/{job}/explain")).await;
    let held =
        "Worker remote, the only one with its handler, is paused: it takes no work until it is resumed.";
    assert_eq!(explained["summary"], held);
    assert_eq!(explained["advice"], json!([{"action": "resume_worker", "worker_id": "remote"}]));
    let reason = client.job(job).await.unwrap().status_reason;
    assert_eq!(reason.as_deref(), Some("waits for a worker that takes work: remote is paused"));
    let said = server.said(&["job", "submit", "again", "--type", "greet"]);
    assert!(said.contains("waits for a worker that takes work: remote is paused"), "{said}");
    client.resume_worker(&shown.session_id.to_string()).await.unwrap();
    assert_eq!(client.wait(job).await.unwrap().status, JobStatus::Completed);

    assert_eq!(client.drain_worker("remote").await.unwrap().state, WorkerState::Draining);
    worker.await.unwrap();
    let gone = client.worker("remote").await.unwrap_err();
    assert!(gone.is_not_found());
    let names: Vec<String> =
        client.workers().await.unwrap().items.into_iter().map(|worker| worker.worker_id).collect();
    assert_eq!(names, ["embedded"]);
}

#[tokio::test]
async fn a_drained_embedded_worker_does_not_end_its_server() {
    let server = Server::start();
    let client = server.client();
    let nap = server.submit(json!({"name": "nap", "job_type": "sleep", "payload": {"ms": 200}})).await;
    reaches(&server, nap.occurrence(1).attempt(1), ExecutionStatus::Running).await;
    let drained = server.cli(&["workers", "drain", "embedded"]);
    let said = String::from_utf8_lossy(&drained.stderr).into_owned();
    assert!(said.contains("the server runs no handlers until it is restarted"), "{said}");
    assert_eq!(client.wait(nap).await.unwrap().status, JobStatus::Completed, "what runs finishes");
    eventually("its session is closed", async || client.workers().await.unwrap().items.is_empty()).await;
    let (status, _) = server.get("/readyz").await;
    assert_eq!(status, 200, "the server goes on");
    assert!(server.stop().success());
}

#[tokio::test]
async fn a_node_and_a_token_say_who_they_are() {
    let server = Server::start();
    let nodes = server.client().nodes().await.unwrap().items;
    assert_eq!(nodes.len(), 1);
    assert_eq!((nodes[0].address.as_str(), nodes[0].store.as_str()), (server.address.as_str(), "sqlite"));
    assert!(nodes[0].schema_version >= 3 && nodes[0].roles.contains(&"scheduler".to_owned()));
    let me = server.client().me().await.unwrap();
    assert_eq!(me.role, "admin");
    assert!(server.token.contains(&me.token_id));
    let said = server.said(&["workers", "list"]);
    assert!(said.contains("embedded") && said.contains("OPEN"), "{said}");
    let said = server.said(&["workers", "pause", "embedded"]);
    assert!(said.contains("PAUSED"), "{said}");
    assert!(server.said(&["nodes"]).contains(&server.address));
    assert_eq!(server.cli(&["workers", "drain", "nobody"]).status.code(), Some(5));
}

#[tokio::test]
async fn a_worker_that_was_given_the_address_of_something_else_says_so_and_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::new(&listener.local_addr().unwrap().to_string(), "pt_admin_x").unwrap();
    std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let _ = connection.read(&mut [0; 4096]).unwrap();
        let answer = "HTTP/1.1 404 Not Found\r\ncontent-length: 6\r\nconnection: close\r\n\r\n<html>";
        connection.write_all(answer.as_bytes()).unwrap();
    });
    let handler = |_: Context, _: Option<Value>| async { Ok::<_, HandlerError>(()) };
    let worker = Worker::builder(client).name("lost").handler("greet", handler).build();
    let refused = tokio::time::timeout(PATIENCE, worker.run()).await.expect("it ends").unwrap_err();
    let cause = std::error::Error::source(&refused).expect("a cause").to_string();
    assert!(cause.contains("is not Punctual (404 Not Found)"), "{cause}");
}
