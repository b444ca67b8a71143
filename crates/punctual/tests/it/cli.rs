//! The output of the command line, and the exit codes that scripts rely on.

use crate::redact::shown;
use crate::server::{BINARY, Server, eventually};
use std::path::Path;
use std::process::{Command, Output};

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
fn every_invalid_field_is_shown_on_its_own_line() {
    let server = Server::start();
    let said = |arguments: &[&str]| {
        let refused = server.cli(arguments);
        assert_eq!(refused.status.code(), Some(4), "{arguments:?}");
        String::from_utf8_lossy(&refused.stderr).into_owned()
    };
    let has_lines = |said: &str, beginnings: &[&str]| {
        let is_there =
            |beginning: &&str| said.lines().any(|line| line.starts_with(&format!("  {beginning}")));
        assert!(beginnings.iter().all(is_there), "{said}");
    };
    let file = server.data_dir().join("jobs.json");
    let invalid = r#"{"name":"a","max_retries":100000,"queue":"..","calendars":["none"],"interval":"1h",
        "payload":{"a":{"$secret":"none"}},"notify":{"on_failure":"none"}}"#;
    let fields =
        ["max_retries must", "queue must", "calendars[0] must", "payload.a must", "notify.on_failure must"];
    for (name, content) in
        [("one", invalid.to_owned()), ("list", format!("[{invalid}, {{\"name\":\"b\",\"delay\":\"1h\"}}]"))]
    {
        std::fs::write(&file, content).unwrap();
        let refused = said(&["job", "submit", "-f", file.to_str().unwrap()]);
        has_lines(&refused, &fields);
        assert!(
            name == "one" || refused.contains("refused job 1 of 2 (a): the request has invalid fields\n"),
            "{refused}"
        );
        has_lines(&said(&["plan", "-f", file.to_str().unwrap()]), &fields);
    }
    let refused = said(&["queue", "set", "mail", "--concurrency", "0", "--rate", "0/1s"]);
    has_lines(&refused, &["--concurrency 0 must", "--rate 0/1s must"]);
}

#[tokio::test]
async fn jobs_of_a_file_depend_on_each_other_by_name() {
    let server = Server::start();
    server.said(&["job", "submit", "there", "--type", "noop", "--wait"]);
    server.said(&["queue", "pause", "held"]);
    let file = server.data_dir().join("jobs.json");
    let noop = |name: &str, parents: &str| {
        format!(
            r#"{{"name":"{name}","job_type":"noop","queue":"held","idempotency_key":"{name}","depends_on":[{parents}]}}"#
        )
    };
    let jobs = [
        noop("load", r#""transform""#),
        noop("transform", r#""fetch","there""#),
        noop("fetch", ""),
        noop("lost", r#""nobody""#),
        noop("orphan", r#""lost""#),
        noop("hen", r#""egg""#),
        noop("egg", r#""hen""#),
    ];
    std::fs::write(&file, format!("[{}]", jobs.join(","))).unwrap();
    let submitted = server.cli(&["job", "submit", "-f", file.to_str().unwrap()]);
    insta::assert_snapshot!("file_family", shown(&submitted));
    server.said(&["queue", "resume", "held"]);
    server.said(&["job", "wait", "load"]);
    let job = |name: &str| -> serde_json::Value {
        serde_json::from_str(&server.said(&["job", "show", name, "-o", "json"])).unwrap()
    };
    assert_eq!(job("load")["depends_on"][0], job("transform")["job_id"]);
    assert_eq!(job("transform")["depends_on"][0], job("fetch")["job_id"]);
    assert_eq!(job("transform")["depends_on"][1], job("there")["job_id"]);
    std::fs::write(&file, noop("alone", r#""load""#)).unwrap();
    server.said(&["job", "submit", "-f", file.to_str().unwrap(), "--wait"]);
}

#[test]
fn a_job_shows_its_policies() {
    let server = Server::start();
    let shows = |options: &[&str], line: &str| {
        let submit = ["job", "submit", "x", "--delay", "1d", "-o", "json"];
        let id = job_id(&server.cli(&[&submit[..], options].concat()));
        shows_line(&server.said(&["job", "show", &id]), line);
    };
    shows(
        &["--max-retries", "2", "--retry-delay", "30s"],
        "If it fails  2 retries, exponential from 30s to 1h",
    );
    shows(&["--max-retries", "0"], "If it fails  no retries");
    shows(
        &["--max-retries", "1", "--retry-strategy", "fixed", "--retry-delay", "5s"],
        "If it fails  1 retry, each after 5s",
    );
    shows(&["--retry-strategy", "ladder", "--retry-steps", "1m,1h"], "If it fails  3 retries, after 1m, 1h");
    let recurring = [
        "job",
        "submit",
        "r",
        "--every",
        "1h",
        "--misfire-policy",
        "RUN_ALL",
        "--misfire-limit",
        "5",
        "--overlap-policy",
        "REPLACE",
        "-o",
        "json",
    ];
    let told = server.said(&["job", "show", &job_id(&server.cli(&recurring))]);
    shows_line(&told, "Missed runs  all are replayed, at most 5");
    shows_line(&told, "Overlap      a new run replaces the previous one");
}

fn shows_line(told: &str, line: &str) {
    let expected = line.split_whitespace().collect::<Vec<_>>();
    let has_it = told.lines().any(|shown| {
        let words = shown.split_whitespace().collect::<Vec<_>>();
        words.starts_with(&expected)
    });
    assert!(has_it, "{line} in {told}");
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
        (&["submit", "x", "--overlap-policy", "maybe"], "must be SKIP, ALLOW, QUEUE or REPLACE"),
        (&["submit", "x", "--dst-gap", "jump"], "must be SKIP or RUN_AFTER"),
        (&["submit", "x", "--replay-rate", "10/h"], "must be a rate such as 10/m"),
        (&["submit", "x", "--timeout-growth", "fast"], "must be a factor such as 1.5"),
        (&["submit", "x", "--retry-strategy", "hope"], "must be exponential, fixed or ladder"),
        (&["submit", "x", "--expires-at", "noon"], "must be a time such as"),
        (&["submit", "-f", "jobs.json", "--max-open", "3"], "cannot be used with"),
        (&["submit", "-f", "jobs.json", "--unique-key", "k"], "cannot be used with"),
        (&["update", "x", "--if-version", "new"], "invalid digit"),
        (&["update", "x"], "nothing to change"),
        (&["pause"], "<JOB>..."),
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
fn flags_say_all_that_a_job_file_can() {
    let server = Server::start();
    let submit = "job submit everything --type noop --queue slow --priority 7 --cron @daily --timezone Europe/Berlin \
        --dst-gap skip --dst-overlap both --misfire-policy run_all --misfire-grace 5m --misfire-limit 10 \
        --max-lateness 1d --replay-rate 10/m --jitter 30s --max-runs 7 --start-at 2099-01-01T00:00:00Z \
        --end-at 2099-12-31T00:00:00Z --overlap-policy queue --overlap-limit 3 --max-open 20 --expires-after 1h \
        --max-retries 2 --retry-steps 1m,5m --fail-on TIMED_OUT --fail-on broken --timeout-growth 1.5 \
        --timeout 90s --owner finance --idempotency-key i --unique-key u --tag a --tag b";
    let id = server.said(&[&submit.split_whitespace().collect::<Vec<_>>()[..], &["-o", "json"]].concat());
    let id: serde_json::Value = serde_json::from_str(&id).unwrap();
    let job = server.said(&["job", "show", id["job_id"].as_str().unwrap(), "-o", "json"]);
    let job: serde_json::Value = serde_json::from_str(&job).unwrap();
    let expected = serde_json::json!({
        "name": "everything", "job_type": "noop", "queue": "slow", "priority": 7,
        "cron_expression": "@daily", "timezone": "Europe/Berlin", "dst_gap": "SKIP", "dst_overlap": "BOTH",
        "misfire_policy": "RUN_ALL", "misfire_grace": "5m", "misfire_limit": 10, "max_lateness": "1d",
        "replay_rate": "10/m", "jitter": "30s", "max_runs": 7, "start_at": "2099-01-01T00:00:00Z",
        "end_at": "2099-12-31T00:00:00Z", "overlap_policy": "QUEUE", "overlap_limit": 3, "max_open": 20,
        "expires_after": "1h", "max_retries": 2,
        "retry": {
            "strategy": "ladder", "steps": ["1m", "5m"], "fail_on": ["TIMED_OUT", "broken"],
            "timeout_growth": 1.5,
        },
        "timeout_secs": 90, "owner_id": "finance", "idempotency_key": "i", "unique_key": "u",
        "tags": ["a", "b"],
    });
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(&job[field], value, "{field}");
    }
    insta::assert_snapshot!(shown(&server.cli(&["job", "show", "everything"])));
    let mut submitted = expected;
    submitted["name"] = "from-file".into();
    submitted["idempotency_key"] = "j".into();
    submitted["unique_key"] = "v".into();
    let file = server.data_dir().join("job.json");
    std::fs::write(&file, submitted.to_string()).unwrap();
    server.said(&["job", "submit", "-f", file.to_str().unwrap()]);
    let job = server.said(&["job", "show", "from-file", "-o", "json"]);
    let job: serde_json::Value = serde_json::from_str(&job).unwrap();
    for (field, value) in submitted.as_object().unwrap() {
        assert_eq!(&job[field], value, "{field}");
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
    // Nothing listens on port 1.
    let closed = ["job", "list", "--server", "127.0.0.1:1", "--token", "pt_admin_x"];
    insta::assert_snapshot!(offline(&closed, directory.path()));
    insta::assert_snapshot!(offline(&["check"], directory.path()));
    insta::assert_snapshot!(offline(&["job", "submit", "x", "--payload", "{"], directory.path()));
    insta::assert_snapshot!(offline(&["job", "submit", "x", "--at", "noon"], directory.path()));
    insta::assert_snapshot!(offline(&["--help"], directory.path()));
}
