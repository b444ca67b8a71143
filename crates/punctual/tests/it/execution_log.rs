//! The log of the server in JSON: outcomes of executions and output of jobs, for systems that collect logs.

use crate::server::{BINARY, Server, eventually};
use serde_json::Value;
use std::path::Path;

/// A server that writes its log into a file, with these options.
fn server(directory: &Path, options: &str) -> Server {
    let data = directory.join("data");
    let script = format!(
        "exec {BINARY} serve --listen 127.0.0.1:0 --allow shell --data-dir {} --log-format json {options} 2>{}",
        data.display(),
        directory.join("log").display()
    );
    Server::start_through(&["sh", "-c", &script], &data)
}

fn logged(directory: &Path, target: &str) -> Vec<Value> {
    let log = std::fs::read_to_string(directory.join("log")).unwrap();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["target"] == target).collect()
}

#[tokio::test]
async fn outcomes_and_output_are_logged_once_each() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(directory.path(), "--log-output");
    server.cli(&["job", "submit", "good", "--shell", "echo fine; echo '<3>oh' >&2", "--wait"]);
    server.cli(&["job", "submit", "bad", "--shell", "echo why >&2; exit 3", "--max-retries", "0", "--wait"]);
    let outcomes = || logged(directory.path(), "punctual::executions");
    eventually("both outcomes are logged", async || outcomes().len() == 2).await;
    let [good, bad] = &outcomes()[..] else { panic!("two lines") };
    assert_eq!((&good["job_name"], &good["status"]), (&"good".into(), &"SUCCEEDED".into()));
    assert_eq!(
        (&good["queue"], &good["job_type"], &good["attempt"]),
        (&"default".into(), &"shell".into(), &1.into())
    );
    assert!(good["duration_ms"].is_u64() && good["lateness_ms"].is_u64(), "{good}");
    assert!(good.get("execution_error").is_none(), "{good}");
    assert_eq!((&bad["job_name"], &bad["status"]), (&"bad".into(), &"FAILED".into()));
    assert_eq!(bad["execution_error"], "exited with code 3: why");

    let output = logged(directory.path(), "punctual::output");
    let lines: Vec<&str> = output.iter().filter_map(|line| line["line"].as_str()).collect();
    assert!(lines.contains(&"fine") && lines.contains(&"why"), "{lines:?}");
    let error = output.iter().find(|line| line["line"] == "oh").expect("the line with a level");
    assert_eq!((&error["line_level"], &error["stream"]), (&"error".into(), &"stderr".into()));
    assert_eq!(error["execution_id"], good["execution_id"]);
}

#[tokio::test]
async fn output_stays_out_of_the_log_by_default() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(directory.path(), "");
    server.cli(&["job", "submit", "bad", "--shell", "echo why; exit 3", "--max-retries", "0", "--wait"]);
    let outcomes = || logged(directory.path(), "punctual::executions");
    eventually("the outcome is logged", async || outcomes().len() == 1).await;
    assert!(outcomes()[0].get("execution_error").is_none());
    assert!(logged(directory.path(), "punctual::output").is_empty());
}
