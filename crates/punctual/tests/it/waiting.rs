//! The output while waiting for a job.

use crate::server::{BINARY, Server};
use crate::terminal::Terminal;
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

#[tokio::test]
async fn a_terminal_shows_where_a_job_is_until_it_is_over() {
    let server = Server::start();
    let job = server.submit(json!({"name": "nap", "job_type": "sleep", "payload": {"ms": 3_600_000}})).await;
    let data_dir = server.data_dir().to_str().unwrap();
    let mut waiting = Terminal::start(&["job", "wait", "nap", "--data-dir", data_dir]);
    waiting.waits_for("nap: RUNNING, attempt 1 of 4, for ");
    waiting.waits_for(" left");
    server.client().cancel(job).await.unwrap();
    waiting.waits_for("CANCELLED");
    assert_eq!(waiting.ended().code(), Some(1));
}

#[tokio::test]
async fn a_retry_is_waited_for_and_nothing_but_its_result_is_on_stdout() {
    let server = Server::start();
    let bad = server.submit(json!({"name": "bad", "job_type": "sleep", "payload": {}})).await;
    server.client().wait(bad).await.unwrap();
    let failed = server.cli(&["job", "retry", "bad", "--wait", "-o", "json"]);
    assert_eq!(failed.status.code(), Some(1), "{}", String::from_utf8_lossy(&failed.stderr));
    let answer: serde_json::Value = serde_json::from_slice(&failed.stdout).unwrap();
    assert_eq!(answer["items"][0]["status"], "FAILED");
    server.said(&["job", "update", "bad", "--payload", "{\"ms\": 1}"]);
    let done = server.cli(&["job", "retry", "bad", "--wait"]);
    assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(String::from_utf8_lossy(&done.stdout).ends_with("is SUCCEEDED\n"));
    assert!(String::from_utf8_lossy(&done.stderr).starts_with("retrying with execution "));
}

/// A command waits for something in a paused queue, across a restart of the server on another port.
async fn across_a_restart(line: &[&str], begun: &str) {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start_in(directory.path(), &[]);
    server.client().pause_queue("held").await.unwrap();
    server.submit(json!({"name": "held", "job_type": "noop", "queue": "held"})).await;
    server.submit(json!({"name": "later", "job_type": "noop", "queue": "held", "interval": "100d"})).await;
    let mut waiting = Command::new(BINARY)
        .args(line)
        .arg("--data-dir")
        .arg(directory.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(waiting.stderr.take().unwrap()).lines().map(|line| line.unwrap());
    assert!(told.any(|line| line.contains(begun)), "{line:?} never says {begun}");
    server.kill();
    assert!(told.any(|line| line.contains("retrying")), "{line:?} never says that the server is away");
    let server = Server::start_in(directory.path(), &[]);
    server.client().resume_queue("held").await.unwrap();
    let said = told.collect::<Vec<_>>();
    assert!(waiting.wait().unwrap().success(), "{line:?}: {said:?}");
}

#[tokio::test]
async fn a_waiting_client_continues_after_a_restart_of_the_server() {
    across_a_restart(&["job", "wait", "held"], "queue held is paused").await;
    across_a_restart(&["job", "wait", "held", "--wait-timeout", "10m"], "queue held is paused").await;
    let submit = ["job", "submit", "new", "--type", "noop", "--queue", "held", "--wait"];
    across_a_restart(&submit, "queue held is paused").await;
    across_a_restart(&["job", "trigger", "later", "--wait"], "triggered execution").await;
}

#[test]
fn a_server_that_never_was_there_is_not_waited_for() {
    let server = Server::start();
    let id = "01a1dfad-4895-78d4-aed7-08e40c2fa753";
    let token = ["--token", &server.token];
    let wait = ["job", "wait", id, "--server", "127.0.0.1:1", "--wait-timeout", "10m"];
    let gone = server.cli(&[&wait[..], &token[..]].concat());
    assert_eq!(gone.status.code(), Some(3));
}
