//! What whoever waits for a job sees.

use crate::server::Server;
use crate::terminal::Terminal;
use serde_json::json;

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
    assert!(String::from_utf8_lossy(&done.stderr).starts_with("retries with execution "));
}
