//! What people see on the command line, and the exit codes that scripts rely on.

use crate::redact::redacted;
use crate::server::{BINARY, Server};
use std::path::Path;
use std::process::{Command, Output};

/// Standard output and error and the exit code, comparable.
fn shown(output: &Output) -> String {
    let text = |bytes: &[u8]| redacted(&String::from_utf8_lossy(bytes));
    let mut shown = format!("exit {}\n{}", output.status.code().unwrap_or(-1), text(&output.stdout));
    if !output.stderr.is_empty() {
        shown += &format!("\n--- stderr\n{}", text(&output.stderr));
    }
    shown
}

fn offline(arguments: &[&str], directory: &Path) -> String {
    let output = Command::new(BINARY).args(arguments).current_dir(directory).output().unwrap();
    shown(&output)
}

fn job_id(output: &Output) -> String {
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    value["job_id"].as_str().unwrap().to_owned()
}

#[test]
fn submitting_waiting_and_looking_at_a_job() {
    let server = Server::start();
    insta::assert_snapshot!(shown(&server.cli(&["job", "list"])));
    insta::assert_snapshot!(shown(&server.cli(&["job", "submit", "hello", "--type", "noop", "--wait"])));
    let submit = [
        "job",
        "submit",
        "nightly",
        "--type",
        "noop",
        "--delay",
        "100d",
        "--payload",
        "{\"a\":1}",
        "--queue",
        "reports",
        "--priority",
        "high",
        "--max-retries",
        "1",
        "--timeout",
        "90s",
        "--tag",
        "a",
        "--tag",
        "b",
    ];
    insta::assert_snapshot!(shown(&server.cli(&submit)));
    let id = job_id(&server.cli(&[submit.as_slice(), &["-o", "json"]].concat()));
    insta::assert_snapshot!(shown(&server.cli(&["job", "show", &id])));
    insta::assert_snapshot!(shown(&server.cli(&["job", "history", &id])));
    insta::assert_snapshot!(shown(&server.cli(&["job", "list", "--status", "completed"])));
    insta::assert_snapshot!(shown(&server.cli(&["job", "wait", &id, "--wait-timeout", "100ms"])));
}

#[test]
fn a_failed_job_is_told_by_exit_code_and_dead_letter() {
    let server = Server::start();
    let failed = server.cli(&["job", "submit", "bad", "--type", "sleep", "--wait", "-o", "json"]);
    assert_eq!(failed.status.code(), Some(1));
    let id = job_id(&failed);
    insta::assert_snapshot!(shown(&server.cli(&["job", "history", &id])));
    insta::assert_snapshot!(shown(&server.cli(&["dlq", "list"])));
    insta::assert_snapshot!(shown(&server.cli(&["stats"])));
}

#[test]
fn jobs_come_from_files_too() {
    let server = Server::start();
    let file = server.data_dir().join("jobs.json");
    std::fs::write(&file, r#"[{"name":"a","delay":"1h"},{"name":""},{"name":"c","delay":"2h"}]"#).unwrap();
    let output = server.cli(&["job", "submit", "-f", file.to_str().unwrap()]);
    insta::assert_snapshot!(shown(&output));
    std::fs::write(&file, r#"{"name":"a","cron":"x"}"#).unwrap();
    let output = server.cli(&["job", "submit", "-f", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&output.stderr).contains("unknown field `cron`"));
}

#[test]
fn refusals_say_what_is_wrong() {
    let server = Server::start();
    insta::assert_snapshot!(shown(&server.cli(&["job", "submit", "x", "--every", "1ms"])));
    let unknown = "01a1de7b-f418-719d-bed9-34f76e02395c";
    insta::assert_snapshot!(shown(&server.cli(&["job", "show", unknown])));
    insta::assert_snapshot!(shown(&server.cli(&["job", "list", "--token", "pt_admin_wrong"])));
    insta::assert_snapshot!(
        shown(&server.cli(&["check"])).replace(&server.data_dir().display().to_string(), "[dir]")
    );
}

#[test]
fn without_a_server_the_errors_help() {
    let directory = tempfile::tempdir().unwrap();
    insta::assert_snapshot!(offline(&["job", "list"], directory.path()));
    // Port 1 is never listened on.
    let closed = ["job", "list", "--server", "127.0.0.1:1", "--token", "pt_admin_x"];
    insta::assert_snapshot!(offline(&closed, directory.path()));
    insta::assert_snapshot!(offline(&["check"], directory.path()));
    insta::assert_snapshot!(offline(&["job", "submit", "x", "--payload", "{"], directory.path()));
    insta::assert_snapshot!(offline(&["job", "submit", "x", "--at", "noon"], directory.path()));
    insta::assert_snapshot!(offline(&["--help"], directory.path()));
}
