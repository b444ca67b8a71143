//! Messages of the command line about difficult cases: names that several jobs share, times in the past, runs
//! that are blocked.

use crate::driven::{HOUR, advance, pass, reaches, standing_at, start};
use crate::redact::shown;
use crate::server::{BINARY, Server, eventually};
use punctual_client::ExecutionStatus::{Cancelled, Running};
use punctual_core::ids::JobId;
use serde_json::json;
use std::process::{Command, Output};

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Waits until the server's own worker has connected: until then every job lacks a handler.
async fn has_workers(server: &Server) {
    let warm = server.submit(json!({"name": "warm", "job_type": "noop"})).await;
    server.client().wait(warm).await.unwrap();
}

#[tokio::test]
async fn a_name_means_the_only_unfinished_job_that_has_it() {
    let server = standing_at(start());
    let client = server.client();
    for _ in 0..6 {
        let job = server.submit(json!({"name": "report", "job_type": "noop"})).await;
        client.wait(job).await.unwrap();
    }
    insta::assert_snapshot!("names_finished", shown(&server.cli(&["job", "show", "report"])));
    let job = server.submit(json!({"name": "report", "job_type": "noop", "delay": "1h"})).await;
    client.pause(job).await.unwrap();
    let found = server.said(&["job", "show", "report", "-o", "json"]);
    assert!(found.contains(&job.to_string()), "{found}");
    server.submit(json!({"name": "report", "job_type": "noop", "delay": "2h"})).await;
    insta::assert_snapshot!("names_unfinished", shown(&server.cli(&["job", "show", "report"])));
    let refused = server.cli(&["job", "resume", "report"]);
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
}

#[test]
fn a_file_and_flags_for_its_jobs_exclude_each_other() {
    for flag in [
        ["--queue", "mail"],
        ["--type", "noop"],
        ["--tag", "a"],
        ["--timeout", "5s"],
        ["--priority", "high"],
        ["--expires-after", "1h"],
        ["--delay", "1h"],
        ["--timezone", "UTC"],
        ["--max-open", "2"],
        ["--max-retries", "2"],
        ["--owner", "ann"],
        ["--payload", "1"],
    ] {
        let refused = Command::new(BINARY).args(["job", "submit", "-f", "jobs.json"]).args(flag).output();
        let refused = refused.unwrap();
        assert_eq!(refused.status.code(), Some(2), "{flag:?}");
        assert!(stderr(&refused).contains("cannot be used with"), "{flag:?}: {}", stderr(&refused));
    }
}

#[tokio::test]
async fn a_child_is_told_whether_it_will_run() {
    let server = standing_at(start());
    let client = server.client();
    has_workers(&server).await;
    let bad = server.submit(json!({"name": "bad", "job_type": "sleep", "payload": 1})).await;
    client.wait(bad).await.unwrap();
    let submit = |parent: &str, options: &[&str]| {
        server.cli(&[&["job", "submit", "child", "--type", "noop", "--depends-on", parent], options].concat())
    };
    insta::assert_snapshot!("child_after_success", shown(&submit("warm", &[])));
    insta::assert_snapshot!("child_after_success_later", shown(&submit("warm", &["--delay", "1h"])));
    insta::assert_snapshot!("child_after_failure", shown(&submit("bad", &[])));
    let waited = submit("bad", &["--wait"]);
    assert_eq!(waited.status.code(), Some(1), "{}", stderr(&waited));
    let for_programs = submit("bad", &["-o", "json"]);
    assert_eq!(for_programs.status.code(), Some(0));
    assert!(stderr(&for_programs).starts_with("note: it will not run"), "{}", stderr(&for_programs));
}

#[tokio::test]
async fn a_time_that_has_passed_is_not_told_as_one_to_come() {
    let server = standing_at(start());
    has_workers(&server).await;
    let job = server
        .submit(json!({"name": "once", "job_type": "sleep", "payload": {"ms": 3_600_000}, "delay": "1h"}))
        .await;
    server.said(&["job", "pause", "once"]);
    insta::assert_snapshot!("past_not_yet", shown(&server.cli(&["job", "resume", "once"])));
    server.said(&["job", "pause", "once"]);
    pass(&server, start().plus(2 * HOUR)).await;
    let update = ["job", "update", "once", "--priority", "high"];
    insta::assert_snapshot!("past_paused", shown(&server.cli(&update)));
    server.said(&["queue", "pause", "default"]);
    insta::assert_snapshot!("past_queue_paused", shown(&server.cli(&["job", "resume", "once"])));
    let waited = server.cli(&["job", "wait", "once", "--wait-timeout", "100ms"]);
    insta::assert_snapshot!("past_wait", shown(&waited));
    server.said(&["queue", "resume", "default"]);
    reaches(&server, job.occurrence(1).attempt(1), Running).await;
    let early = ["job", "submit", "early", "--type", "noop", "--at", "2026-04-30T00:00:00Z"];
    insta::assert_snapshot!("past_submit", shown(&server.cli(&early)));
}

#[tokio::test]
async fn what_is_due_waits_for_a_free_worker() {
    let clock = start().to_string();
    let server = Server::start_with(&[
        "--clock",
        "manual",
        "--clock-start",
        &clock,
        "--slots",
        "1",
        "--prefetch",
        "0",
    ]);
    let nap = json!({"name": "nap", "job_type": "sleep", "payload": {"ms": 3_600_000}});
    let nap = server.submit(nap).await;
    reaches(&server, nap.occurrence(1).attempt(1), Running).await;
    server.submit(json!({"name": "once", "job_type": "noop", "delay": "1h"})).await;
    server.said(&["job", "pause", "once"]);
    pass(&server, start().plus(2 * HOUR)).await;
    insta::assert_snapshot!("due_resume", shown(&server.cli(&["job", "resume", "once"])));
    let update = ["job", "update", "once", "--priority", "high"];
    insta::assert_snapshot!("due_update", shown(&server.cli(&update)));
}

#[tokio::test]
async fn a_job_that_something_holds_up_is_not_said_to_run_at_once() {
    let server = standing_at(start());
    has_workers(&server).await;
    server.said(&["queue", "pause", "mail"]);
    let letter = ["job", "submit", "letter", "--type", "noop", "--queue", "mail"];
    insta::assert_snapshot!("held_by_queue", shown(&server.cli(&letter)));
    let for_programs = server.cli(&[letter.as_slice(), &["-o", "json"]].concat());
    assert!(stderr(&for_programs).starts_with("note: it waits: queue mail is paused"));
    let waited = server.cli(&[letter.as_slice(), &["--wait", "--wait-timeout", "100ms"]].concat());
    assert!(stderr(&waited).contains("note: it waits: queue mail is paused"), "{}", stderr(&waited));
}

#[test]
fn a_schedule_is_previewed_as_the_job_would_have_it() {
    let server = standing_at(start());
    let preview = |options: &[&str]| server.cli(&[&["schedule", "preview"], options].concat());
    let spring = [
        "--cron",
        "30 2 * * *",
        "--timezone",
        "Europe/Berlin",
        "--after",
        "2027-03-27T12:00:00Z",
        "--count",
        "1",
    ];
    let first = |options: &[&str]| {
        let output = preview(&[spring.as_slice(), options].concat());
        String::from_utf8(output.stdout).unwrap().lines().nth(3).map(str::to_owned)
    };
    assert!(first(&["--dst-gap", "run_after"]).unwrap().starts_with("2027-03-28T01:00:00Z"));
    assert!(first(&["--dst-gap", "skip"]).unwrap().starts_with("2027-03-29T00:30:00Z"));
    assert_eq!(first(&["--dst-gap", "skip", "--end-at", "2027-03-28T12:00:00Z"]), None);
    let autumn = ["--cron", "30 2 25 10 *", "--timezone", "Europe/Berlin", "--count", "2", "-o", "json"];
    let both = preview(&[autumn.as_slice(), &["--dst-overlap", "both"]].concat());
    assert!(String::from_utf8_lossy(&both.stdout).contains("2026-10-25T01:30:00Z"));
    let hashed = |options: &[&str]| preview(&[&["--cron", "H H * * THU", "--count", "1"], options].concat());
    assert!(stderr(&hashed(&[])).contains("pass --name"), "{}", stderr(&hashed(&[])));
    assert_eq!(stderr(&hashed(&["--name", "report"])), "");
    assert_ne!(hashed(&["--name", "report"]).stdout, hashed(&["--name", "backup"]).stdout);
    assert_ne!(
        hashed(&["--name", "report", "--owner", "ann"]).stdout,
        hashed(&["--name", "report", "--owner", "bob"]).stdout
    );
    assert_eq!(stderr(&preview(&["--cron", "0 8 * MAR THU"])), "");
}

#[tokio::test]
async fn the_id_of_an_execution_is_understood_or_says_which_to_give() {
    let server = Server::start_with(&["--allow", "shell"]);
    let script = "echo attempt $PUNCTUAL_ATTEMPT; [ $PUNCTUAL_ATTEMPT = 2 ]";
    let submit = ["job", "submit", "twice", "--shell", script, "--retry-steps", "1ms", "--wait"];
    let done = server.cli(&submit);
    insta::assert_snapshot!("logs_hint", shown(&done));
    let again = server.cli(&[submit.as_slice(), &["-o", "json"]].concat());
    assert!(!stderr(&again).contains("logs"), "{}", stderr(&again));
    let again: serde_json::Value = serde_json::from_slice(&again.stdout).unwrap();
    let job: JobId = again["job_id"].as_str().unwrap().parse().unwrap();
    let attempt = |number| job.occurrence(1).attempt(number).to_string();
    for follow in [&[][..], &["-f"]] {
        let logs = |id: &str| server.said(&[&["job", "logs", id], follow].concat());
        assert_eq!(logs(&attempt(1)), "attempt 1\n");
        assert_eq!(logs(&attempt(2)), "attempt 2\n");
        assert_eq!(logs(&job.to_string()), "attempt 1\nattempt 2\n");
    }
    assert_eq!(server.cli(&["job", "logs", &attempt(9)]).status.code(), Some(5));
    for verb in ["history", "explain", "show", "wait", "pause"] {
        let refused = server.cli(&["job", verb, &attempt(1)]);
        assert_eq!(refused.status.code(), Some(2), "{verb}");
        let expected = format!("{} is the id of an execution; pass the id of its job, {job}", attempt(1));
        assert!(stderr(&refused).contains(&expected), "{verb}: {}", stderr(&refused));
    }
    let refused = server.cli(&["job", "logs", &job.occurrence(1).to_string()]);
    assert!(stderr(&refused).contains("is the id of one run of a job; pass"), "{}", stderr(&refused));
}

#[tokio::test]
async fn waiting_says_what_may_take_for_ever() {
    let server = standing_at(start());
    has_workers(&server).await;
    let submit = ["job", "submit", "tick", "--type", "noop", "--every", "1h"];
    let wait = ["--wait", "--wait-timeout", "100ms"];
    insta::assert_snapshot!("wait_endless", shown(&server.cli(&[&submit[..], &wait].concat())));
    let paused = server.cli(&["job", "pause", "tick"]);
    assert!(paused.status.success());
    insta::assert_snapshot!(
        "wait_paused",
        shown(&server.cli(&["job", "wait", "tick", "--wait-timeout", "100ms"]))
    );
    let twice =
        server.submit(json!({"name": "twice", "job_type": "noop", "interval": "1h", "max_runs": 1})).await;
    let ends = server.cli(&["job", "wait", "twice", "--wait-timeout", "100ms"]);
    assert!(stderr(&ends).contains("until the schedule ends, with its last run"), "{}", stderr(&ends));
    advance(&server, start().plus(2 * HOUR)).await;
    assert_eq!(server.cli(&["job", "wait", &twice.to_string()]).status.code(), Some(0));
}

#[tokio::test]
async fn a_cancelled_job_is_waited_for_until_nothing_of_it_runs() {
    let server = Server::start_with(&["--allow", "shell"]);
    let client = server.client();
    let script = "trap 'sleep 2; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    let job =
        server.submit(json!({"name": "slow", "job_type": "shell", "payload": {"script": script}})).await;
    let execution = job.occurrence(1).attempt(1);
    eventually("it has set its trap", async || {
        client.execution_logs(execution, None, None).await.is_ok_and(|page| !page.items.is_empty())
    })
    .await;
    client.cancel(job).await.unwrap();
    assert_eq!(client.execution(execution).await.unwrap().status, Running);
    let early = server.cli(&["job", "wait", "slow", "--wait-timeout", "10ms"]);
    assert_eq!(early.status.code(), Some(8), "{}", stderr(&early));
    assert_eq!(server.cli(&["job", "wait", "slow"]).status.code(), Some(1));
    assert_eq!(client.execution(execution).await.unwrap().status, Cancelled);
}

#[test]
fn what_is_missing_is_named_with_all_its_choices() {
    for (line, choices) in [
        ("schedule preview", "<--cron <EXPRESSION>|--every <INTERVAL>|--rrule <RULE>>"),
        ("clock advance", "<DURATION|--to <TIME>>"),
        ("clock jump", "<DURATION|--to <TIME>>"),
        ("dlq redrive", "<OCCURRENCE|--all|--job <JOB>|--name <NAME>"),
        ("dlq discard", "<OCCURRENCE|--all|--job <JOB>|--name <NAME>"),
        ("job submit", "<NAME|--shell <SCRIPT>|COMMAND|--file <FILE>>"),
    ] {
        let refused = Command::new(BINARY).args(line.split(' ')).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{line}");
        assert!(stderr(&refused).contains(choices), "{line}: {}", stderr(&refused));
    }
    for line in [
        "schedule preview --cron @daily --every 1h",
        "clock advance 1h --to 2026-05-01T00:00:00Z",
        "dlq redrive --all --queue mail",
        "job submit name -f jobs.json",
    ] {
        let refused = Command::new(BINARY).args(line.split(' ')).output().unwrap();
        assert!(stderr(&refused).contains("cannot be used with"), "{line}: {}", stderr(&refused));
    }
    for verb in ["pause", "resume"] {
        let refused = Command::new(BINARY).args(["queue", verb, ""]).output().unwrap();
        assert_eq!(refused.status.code(), Some(2));
        assert!(stderr(&refused).contains("must be the name of a queue"), "{}", stderr(&refused));
    }
}

#[tokio::test]
async fn errors_are_about_flags_and_their_values() {
    let server = Server::start();
    let said = |line: &str| {
        let refused = server.cli(&line.split(' ').collect::<Vec<_>>());
        (refused.status.code(), stderr(&refused))
    };
    for (line, code, told) in [
        ("job submit x --timeout 0s", 4, "--timeout 0s must be more than 0"),
        (
            "job submit x --max-runs 3",
            4,
            "--max-runs 3 only applies to recurring jobs: give --cron or --every, too",
        ),
        ("schedule preview --cron 99", 4, "--cron 99 is not a cron expression"),
        ("job list --cursor nowhere", 4, "--cursor nowhere must be"),
        ("job list --limit -1", 2, "invalid value '-1' for '--limit <LIMIT>': must be a number from 1"),
        (
            "job submit x --every 1h --misfire-grace -1s",
            2,
            "invalid value '-1s' for '--misfire-grace <DURATION>'",
        ),
        ("clock jump -1h", 2, "invalid value '-1h' for '[DURATION]'"),
    ] {
        let (found, text) = said(line);
        assert!(found == Some(code) && text.contains(told), "{line}: {text}");
    }
    // The fields of a file are named as in the file.
    let file = server.data_dir().join("job.json");
    std::fs::write(&file, r#"{"name": "x", "timeout_secs": 0}"#).unwrap();
    let (_, text) = said(&format!("job submit -f {}", file.display()));
    assert!(text.contains("timeout_secs must be more than 0"), "{text}");
}

#[tokio::test]
async fn only_results_are_written_to_stdout() {
    let server = Server::start();
    let client = server.client();
    for name in ["a", "b"] {
        let job = server.submit(json!({"name": name, "job_type": "noop"})).await;
        client.wait(job).await.unwrap();
    }
    for line in ["job list --limit 1", "executions list --status SUCCEEDED --limit 1"] {
        let page = server.cli(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(String::from_utf8_lossy(&page.stdout).lines().count(), 2, "{line}");
        assert!(stderr(&page).starts_with("more with --cursor "), "{line}: {}", stderr(&page));
    }
    assert_eq!(stderr(&server.cli(&["job", "list", "--limit", "1", "-o", "json"])), "");
    for follow in [&[][..], &["--follow"]] {
        let empty = server.cli(&[&["job", "logs", "a"], follow].concat());
        assert_eq!((empty.stdout.as_slice(), empty.status.code()), (&b""[..], Some(0)));
        assert_eq!(stderr(&empty), "note: no lines: nothing was written, or retention has deleted it\n");
    }
}
