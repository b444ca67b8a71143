//! What people see on the command line, and the exit codes that scripts rely on.

use crate::redact::redacted;
use crate::server::{BINARY, Server, eventually};
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
    let submit = |content: &str, options: &[&str]| {
        std::fs::write(&file, content).unwrap();
        let arguments = ["job", "submit", "-f", file.to_str().unwrap()];
        server.cli(&[arguments.as_slice(), options].concat())
    };
    let refused = submit(r#"{"name":"a","cron":"x"}"#, &[]);
    assert_eq!(refused.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("did you mean cron_expression?"));
    for one in [r#"{"name":"noop"}"#, r#"[{"name":"noop"}]"#, r#"{"jobs":[{"name":"noop"}]}"#] {
        assert_eq!(submit(one, &["--wait"]).status.code(), Some(0), "{one}");
    }
    let many = r#"{"jobs":[{"name":"noop"},{"name":"noop"}]}"#;
    assert_eq!(submit(many, &[]).status.code(), Some(0));
    assert_eq!(submit(many, &["--wait"]).status.code(), Some(2));
}

#[test]
fn a_job_can_be_named_by_its_name() {
    let server = Server::start();
    for name in ["once", "twice", "twice"] {
        assert!(server.cli(&["job", "submit", name, "--delay", "100d"]).status.success());
    }
    assert_eq!(server.cli(&["job", "show", "once"]).status.code(), Some(0));
    assert_eq!(server.cli(&["job", "history", "once"]).status.code(), Some(0));
    insta::assert_snapshot!(shown(&server.cli(&["job", "show", "twice"])));
    insta::assert_snapshot!(shown(&server.cli(&["job", "show", "never"])));
}

#[test]
fn what_a_job_waits_for_is_told() {
    let server = Server::start();
    insta::assert_snapshot!(shown(&server.cli(&["job", "submit", "orphan"])));
    insta::assert_snapshot!(shown(&server.cli(&["job", "wait", "orphan", "--wait-timeout", "2s"])));
}

#[tokio::test]
async fn history_says_until_when_a_retry_waits() {
    let server = Server::start();
    let submit =
        ["job", "submit", "slow", "--type", "sleep", "--payload", "{\"ms\":60000}", "--timeout", "50ms"];
    let id = job_id(&server.cli(&[submit.as_slice(), &["-o", "json"]].concat())).parse().unwrap();
    let client = server.client();
    eventually("the job waits for its retry", async || {
        client.job(id).await.unwrap().next_retry_time.is_some()
    })
    .await;
    insta::assert_snapshot!(shown(&server.cli(&["job", "history", "slow"])));
}

#[test]
fn bad_values_are_answered_with_good_ones() {
    let directory = tempfile::tempdir().unwrap();
    for (options, hint) in [
        (&["submit", "x", "--max-retries", "-1"][..], "-1 is not in 0..=1000"),
        (&["submit", "x", "--delay", "-5s"], "must be a duration such as 30s"),
        (&["submit", "x", "--at", "2026-11-16T08:00:00"], "must name its zone: 2026-11-16T08:00:00Z for UTC"),
        (&["submit", "x", "--payload", "not json"], "single quotes"),
        (&["list", "--limit", "0"], "must be a number from 1"),
        (&["history", "x", "--limit", "0"], "must be a number from 1"),
    ] {
        let arguments = [&["job"], options].concat();
        let output = Command::new(BINARY).args(arguments).current_dir(directory.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(hint) && !said.contains("use '--"), "{said}");
    }
}

#[test]
fn commands_that_only_look_leave_no_trace_in_a_place_without_a_database() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("empty")).unwrap();
    insta::assert_snapshot!(offline(&["check", "--data-dir", "empty"], directory.path()));
    insta::assert_snapshot!(offline(&["backup", "copy", "--data-dir", "empty"], directory.path()));
    assert_eq!(std::fs::read_dir(directory.path().join("empty")).unwrap().count(), 0);
    assert!(!directory.path().join("copy").exists());
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
