//! Following logs while they are written, across attempts and restarts of the server.

use crate::server::{BINARY, PATIENCE, Server, eventually};
use punctual_client::{FollowedLine, FollowedLogs, LogQuery};
use reqwest::{Method, StatusCode};
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

const OPTIONS: [&str; 2] = ["--allow", "shell"];

async fn next(log: &mut FollowedLogs) -> Option<String> {
    let next = tokio::time::timeout(PATIENCE, log.next()).await.expect("a line in time");
    match next.expect("a stream").expect("a line") {
        FollowedLine::Line(line) => Some(line.message),
        FollowedLine::End => None,
    }
}

/// A script that writes a line and continues when a file exists.
fn stepwise(dir: &Path) -> String {
    let wait = |file: &str| format!("while [ ! -e {} ]; do sleep 0.02; done", dir.join(file).display());
    format!("echo $PUNCTUAL_ATTEMPT.1; {}; echo $PUNCTUAL_ATTEMPT.2; {}", wait("one"), wait("two"))
}

fn touch(dir: &Path, file: &str) {
    std::fs::write(dir.join(file), "").unwrap();
}

#[tokio::test]
async fn lines_come_as_they_are_written_and_the_end_is_told() {
    let server = Server::start_with(&OPTIONS);
    let client = server.client();
    let files = tempfile::tempdir().unwrap();
    let script = stepwise(files.path());
    let job =
        server.submit(json!({"name": "slow", "job_type": "shell", "payload": {"script": script}})).await;
    let all = LogQuery::default();
    let mut of_job = client.follow_job_logs(job, &all, None).await.unwrap();
    assert_eq!(next(&mut of_job).await.as_deref(), Some("1.1"));
    let cursor = of_job.cursor().unwrap().to_owned();
    let execution = job.occurrence(1).attempt(1);
    let mut of_execution = client.follow_execution_logs(execution, &all, None).await.unwrap();
    assert_eq!(next(&mut of_execution).await.as_deref(), Some("1.1"));
    touch(files.path(), "one");
    for log in [&mut of_job, &mut of_execution] {
        assert_eq!(next(log).await.as_deref(), Some("1.2"));
    }
    touch(files.path(), "two");
    for log in [&mut of_job, &mut of_execution] {
        assert_eq!(next(log).await, None);
    }
    let mut resumed = client.follow_job_logs(job, &all, Some(&cursor)).await.unwrap();
    assert_eq!((next(&mut resumed).await.as_deref(), next(&mut resumed).await), (Some("1.2"), None));
    let accepts = server
        .request(Method::GET, &format!("/api/v1/jobs/{job}/logs"))
        .header("accept", "text/event-stream");
    let answer = accepts.send().await.unwrap();
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    assert!(answer.text().await.unwrap().ends_with("event: end\ndata: {\"status\":\"COMPLETED\"}\n\n"));
}

#[tokio::test]
async fn a_tail_and_a_range_of_time_name_some_of_the_lines() {
    let server = Server::start_with(&OPTIONS);
    let client = server.client();
    let script = "for i in 1 2 3; do echo $PUNCTUAL_ATTEMPT.$i; done; [ $PUNCTUAL_ATTEMPT = 2 ]";
    let job = json!({"name": "twice", "job_type": "shell", "payload": {"script": script},
        "retry": {"strategy": "fixed", "delay": "1ms"}});
    let job = server.submit(job).await;
    client.wait(job).await.unwrap();
    let read = async |query: LogQuery| client.job_log_lines(job, &query).await.unwrap();
    let messages = async |query: LogQuery| -> Vec<String> {
        read(query).await.items.into_iter().map(|line| line.message).collect()
    };
    let tail = |count| LogQuery { tail: Some(count), ..LogQuery::default() };
    assert_eq!(messages(tail(2)).await, ["2.2", "2.3"]);
    assert_eq!(messages(tail(4)).await, ["1.3", "2.1", "2.2", "2.3"], "across attempts");
    assert_eq!(messages(tail(100)).await.len(), 6);
    let none = read(tail(0)).await;
    assert_eq!(none.items, []);
    let after = LogQuery { cursor: none.follow_cursor, ..LogQuery::default() };
    assert_eq!(messages(after).await, [""; 0], "and it goes on after the last line");

    let lines = read(LogQuery::default()).await.items;
    let second = lines.iter().find(|line| line.message == "2.1").unwrap().timestamp;
    let since = messages(LogQuery { since: Some(second), ..LogQuery::default() }).await;
    let until = messages(LogQuery { until: Some(second), ..LogQuery::default() }).await;
    assert_eq!((since.len() + until.len(), since.first().map(String::as_str)), (6, Some("2.1")));

    let mut followed = client.follow_job_logs(job, &tail(1), None).await.unwrap();
    assert_eq!((next(&mut followed).await.as_deref(), next(&mut followed).await), (Some("2.3"), None));
    for (query, said) in [
        ("follow=yes", "follow must be true or false"),
        ("tail=-1", "tail must be a number from 0 to"),
        ("tail=1&cursor=job-logs~x", "cursor must be"),
        ("follow=true&until=2026-01-01T00:00:00Z", "until cannot be combined with follow"),
        ("since=yesterday", "since must be"),
    ] {
        let (status, problem) = server.get(&format!("/api/v1/jobs/{job}/logs?{query}")).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{query}: {problem}");
        assert!(problem["detail"].as_str().unwrap().contains(said), "{query}: {problem}");
    }
}

#[tokio::test]
async fn the_command_line_follows_across_a_restart_of_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let files = tempfile::tempdir().unwrap();
    let server = Server::start_in(directory.path(), &OPTIONS);
    let script = stepwise(files.path());
    let job = json!({"name": "slow", "job_type": "shell", "payload": {"script": script},
        "retry": {"strategy": "fixed", "delay": "1ms"}});
    let job = server.submit(job).await;
    let mut follower = Command::new(BINARY)
        .args(["job", "logs", "slow", "-f", "--data-dir"])
        .arg(directory.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let mut line = || lines.next().map(|line| line.unwrap());
    assert_eq!(line().as_deref(), Some("1.1"));
    server.kill();
    let server = Server::start_in(directory.path(), &OPTIONS);
    // The attempt was lost with the server, and is retried.
    assert_eq!(line().as_deref(), Some("2.1"));
    touch(files.path(), "one");
    assert_eq!(line().as_deref(), Some("2.2"));
    touch(files.path(), "two");
    assert_eq!(line(), None, "nothing is shown twice");
    assert!(follower.wait().unwrap().success());
    eventually("the job is done", async || server.client().job(job).await.unwrap().is_finished()).await;
}
