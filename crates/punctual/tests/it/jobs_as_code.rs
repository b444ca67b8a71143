//! Jobs as code: `plan`, `apply`, `export`, and submits that would double a schedule.

use crate::driven::{HOUR, advance, standing_at, start};
use crate::server::{BINARY, Server};
use punctual_client::{JobFilter, PreviewRequest};
use punctual_core::job::JobStatus;
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// A directory with files.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Files(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path: PathBuf = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

/// Runs the binary against the server with this standard input.
fn piped(server: &Server, arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(BINARY)
        .args(arguments)
        .arg("--data-dir")
        .arg(server.data_dir())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// Exit code, standard output and standard error.
fn ended(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn exit_code(server: &Server, arguments: &[&str]) -> i32 {
    server.cli(arguments).status.code().unwrap()
}

/// The next 20 fires of a recurring job, as its server previews them.
async fn next_fires(server: &Server, job: &Value) -> Vec<String> {
    let text = |field: &str| job[field].as_str().map(str::to_owned);
    let start_at = text("start_at").or(text("interval_anchor")).map(|time| time.parse().unwrap());
    let request = PreviewRequest {
        cron_expression: text("cron_expression"),
        interval: text("interval"),
        rrule: text("rrule"),
        schedules: serde_json::from_value(job["schedules"].clone()).unwrap(),
        calendars: serde_json::from_value(job["calendars"].clone()).unwrap(),
        timezone: text("timezone"),
        start_at,
        name: text("name"),
        owner_id: text("owner_id"),
        count: Some(20),
        ..PreviewRequest::default()
    };
    let fires = server.client().preview(&request).await.unwrap().occurrences;
    assert_eq!(fires.len(), 20);
    fires.iter().map(|fire| fire.scheduled_time.to_string()).collect()
}

/// The fields of a job that a new one does not share.
const STATE: [&str; 8] = [
    "job_id",
    "version",
    "created_at",
    "updated_at",
    "last_run_time",
    "last_execution",
    "result",
    "schedule_description",
];

/// All jobs by name, without their state and identity.
async fn described(server: &Server) -> Vec<Value> {
    let mut jobs = Vec::new();
    for job in server.client().jobs(&JobFilter::default()).await.unwrap().items {
        let mut job = serde_json::to_value(job).unwrap();
        let fields = job.as_object_mut().unwrap();
        // The rhythm of an interval, however it is written.
        if let Some(anchor) = fields.remove("interval_anchor") {
            fields.insert("start_at".to_owned(), anchor);
        }
        // Jitter depends on the id.
        if fields.contains_key("jitter") {
            fields.remove("next_run_time");
        }
        fields.retain(|name, _| !STATE.contains(&name.as_str()));
        jobs.push(job);
    }
    jobs.sort_by_key(|job| job["name"].to_string());
    jobs
}

const FILE: &str = "
managed_by: billing
jobs:
- name: invoices
  job_type: noop
  cron_expression: 30 2 * * *
  timezone: Europe/Berlin
  payload: {script: 'echo ${HOME}', region: '${env:PUNCTUAL_TEST_REGION:-eu}'}
- name: totals
  job_type: noop
  interval: 90m
";

#[test]
fn applying_twice_changes_nothing_and_a_plan_says_what_would_change() {
    let (server, files) = (Server::start(), Files::new());
    let file = files.write("jobs.yaml", FILE);
    let (code, planned, _) = ended(&server.cli(&["plan", "-f", &file]));
    assert_eq!(code, 10);
    assert!(planned.contains("+ invoices (create)\n    next runs:\n"), "{planned}");
    assert!(planned.ends_with("2 to create, 0 to update, 0 to delete, 0 unchanged\n"), "{planned}");
    assert!(server.said(&["job", "list"]).starts_with("no jobs"));

    let applied = server.said(&["apply", "-f", &file]);
    assert!(applied.ends_with("2 created, 0 updated, 0 deleted, 0 unchanged\n"), "{applied}");
    let before = server.said(&["job", "list", "-o", "json"]);
    let (code, planned, _) = ended(&server.cli(&["plan", "-f", &file]));
    assert_eq!((code, planned.as_str()), (0, "0 to create, 0 to update, 0 to delete, 2 unchanged\n"));
    assert_eq!(exit_code(&server, &["apply", "-f", &file]), 0);
    assert_eq!(server.said(&["job", "list", "-o", "json"]), before);

    // The payload reached the server with its reference replaced and the script untouched.
    let shown: Value =
        serde_json::from_str(&server.said(&["job", "show", "invoices", "-o", "json"])).unwrap();
    assert_eq!(shown["payload"], json!({"script": "echo ${HOME}", "region": "eu"}));
    assert_eq!(shown["tags"], json!(["managed_by:billing"]));
}

#[test]
fn a_changed_schedule_is_shown_with_its_runs_before_and_after() {
    let (server, files) = (standing_at("2026-10-24T12:00:00Z".parse().unwrap()), Files::new());
    let file = files.write("jobs.yaml", FILE);
    server.said(&["apply", "-f", &file]);
    files.write("jobs.yaml", &FILE.replace("30 2", "30 4"));
    let (code, planned, _) = ended(&server.cli(&["plan", "-f", &file]));
    assert_eq!(code, 10);
    insta::assert_snapshot!(planned);
    let planned: Value =
        serde_json::from_slice(&server.cli(&["plan", "-f", &file, "-o", "json"]).stdout).unwrap();
    assert_eq!(planned["summary"], json!({"create": 0, "update": 1, "delete": 0, "unchanged": 1}));
    assert_eq!(planned["jobs"][0]["changes"][0]["field"], "cron_expression");
}

#[test]
fn prune_deletes_only_jobs_with_the_label() {
    let (server, files) = (Server::start(), Files::new());
    let file = files.write("jobs.yaml", FILE);
    server.said(&["apply", "-f", &file]);
    server.said(&["job", "submit", "stranger", "--type", "noop", "--every", "1h"]);
    server.said(&[
        "job",
        "submit",
        "other",
        "--type",
        "noop",
        "--every",
        "1h",
        "--tag",
        "managed_by:payroll",
    ]);
    let fewer = &FILE[..FILE.find("- name: totals").unwrap()];
    files.write("jobs.yaml", fewer);

    // Without --prune nothing is deleted.
    assert_eq!(exit_code(&server, &["plan", "-f", &file]), 0);
    let (code, planned, _) = ended(&server.cli(&["plan", "-f", &file, "--prune"]));
    assert_eq!(code, 10);
    assert!(planned.starts_with("- totals (delete, --prune)\n"), "{planned}");
    server.said(&["apply", "-f", &file, "--prune"]);
    let listed: Value = serde_json::from_str(&server.said(&["job", "list", "-o", "json"])).unwrap();
    let mut names: Vec<&str> =
        listed["items"].as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["invoices", "other", "stranger"]);
    assert_eq!(exit_code(&server, &["plan", "-f", &file, "--prune"]), 0);

    let bare = files.write("bare.yaml", "name: x\njob_type: noop\ninterval: 1h\n");
    let (code, _, told) = ended(&server.cli(&["apply", "-f", &bare, "--prune"]));
    assert_eq!(code, 2);
    assert!(told.contains("bare.yaml has none: add managed_by: NAME to it"), "{told}");
}

#[test]
fn one_invalid_job_stops_all_and_every_error_is_shown() {
    let (server, files) = (Server::start(), Files::new());
    let file = files.write(
        "jobs.yaml",
        "jobs:\n- {name: good, job_type: noop, interval: 1h}\n- {name: bad, interval: 1ms}\n- {name: worse, queeu: x}\n",
    );
    for verb in ["plan", "apply"] {
        let (code, said, told) = ended(&server.cli(&[verb, "-f", &file]));
        assert_eq!((code, said.as_str()), (4, ""));
        assert!(told.contains("job 2 (bad): "), "{told}");
        assert!(told.contains("job 3 (worse): ") && told.contains("queeu"), "{told}");
        assert!(told.ends_with("nothing was changed\n"), "{told}");
    }
    assert!(server.said(&["job", "list"]).starts_with("no jobs"));
}

#[tokio::test]
async fn what_is_exported_deleted_and_applied_again_is_the_same() {
    let (server, files) = (standing_at(start()), Files::new());
    let calendar = json!({"entries": [{"dates": ["2026-12-24/2026-12-26"]}, {"weekdays": ["THU"]}]});
    let channel = json!({"type": "slack", "url": "https://hooks.slack.example/T0/private"});
    for (path, body) in [("calendars/holidays", calendar), ("channels/ops", channel)] {
        let request = server.request(reqwest::Method::PUT, &format!("/api/v1/{path}")).json(&body);
        assert!(request.send().await.unwrap().status().is_success(), "{path}");
    }
    let submitted = [
        json!({"name": "cron", "job_type": "noop", "cron_expression": "H 2 * * MON-FRI", "timezone": "Europe/Berlin",
               "misfire_policy": "RUN_ALL", "misfire_limit": 3, "priority": 8, "tags": ["a", "b"]}),
        json!({"name": "elapsed", "job_type": "noop", "interval": "7h", "jitter": "5m", "overlap_policy": "QUEUE",
               "overlap_limit": 7, "retry": {"strategy": "ladder", "steps": ["1m", "1h"]}, "timeout_secs": 0.5}),
        json!({"name": "calendar", "job_type": "noop", "interval": "P1M", "timezone": "America/New_York",
               "dst_gap": "SKIP", "payload": {"z": [1.5, "no", "${env:HOME}"], "a": {"text": "two\nlines"}}}),
        json!({"name": "once", "job_type": "noop", "execute_at": "2027-01-01T00:00:00Z", "expires_after": "1d"}),
        json!({"name": "ruled", "job_type": "noop", "rrule": "FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,TH;BYHOUR=9;BYMINUTE=30",
               "timezone": "Europe/Berlin", "calendars": ["holidays"], "notify": {"on_failure": "ops"}}),
        json!({"name": "several", "job_type": "noop", "timezone": "Asia/Tokyo", "result_overflow": "fail",
               "schedules": [{"name": "early", "cron_expression": "5 4 * * *"}, {"interval": "7h"},
                             {"rrule": "FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=18;BYMINUTE=0", "timezone": "UTC"}]}),
        json!({"name": "noop", "cron_expression": "@daily"}),
    ];
    for job in submitted {
        server.submit(job).await;
    }
    let once = JobFilter { name: Some("once".to_owned()), ..JobFilter::default() };
    let parent = server.client().jobs(&once).await.unwrap().items[0].job_id;
    server.submit(json!({"name": "after", "job_type": "noop", "depends_on": [parent]})).await;
    advance(&server, start().plus(HOUR)).await;
    let before = described(&server).await;
    let exported = server.said(&["export"]);
    let as_json: Value = serde_json::from_str(&server.said(&["export", "-o", "json"])).unwrap();
    let plain = json!({"name": "noop", "cron_expression": "@daily"});
    assert!(as_json["jobs"].as_array().unwrap().contains(&plain), "{as_json}");
    let file = files.write("jobs.yaml", &exported);
    // The jobs were not applied yet: their names do not identify them.
    let (code, planned, _) = ended(&server.cli(&["plan", "-f", &file]));
    assert_eq!(code, 10);
    assert_eq!(planned.matches("from now on its name identifies it").count(), 8, "{planned}");
    server.said(&["apply", "-f", &file]);
    assert_eq!(described(&server).await, before);
    assert_eq!(exit_code(&server, &["plan", "-f", &file]), 0, "{exported}");

    let json_file = files.write("jobs.json", &server.said(&["export", "-o", "json"]));
    assert_eq!(exit_code(&server, &["plan", "-f", &json_file]), 0);
    for file in [file, json_file] {
        for name in ["after", "calendar", "cron", "elapsed", "noop", "once", "ruled", "several"] {
            server.said(&["job", "delete", name]);
        }
        advance(&server, server.client().clock().await.unwrap().now.plus(HOUR)).await;
        server.said(&["apply", "-f", &file]);
        let mut after = described(&server).await;
        for (before, after) in before.iter().zip(&mut after) {
            if before["schedule_type"] == "RECURRING" {
                assert_eq!(next_fires(&server, before).await, next_fires(&server, after).await);
            }
            // The parent has a new id.
            if after["name"] == "after" {
                assert_eq!(after["depends_on"].as_array().unwrap().len(), 1);
                after["depends_on"] = before["depends_on"].clone();
            }
        }
        assert_eq!(before, after);
        assert_eq!(exit_code(&server, &["plan", "-f", &file]), 0);
    }
}

#[test]
fn a_job_as_shown_can_be_applied() {
    let server = Server::start();
    server.said(&[
        "job",
        "submit",
        "tick",
        "--type",
        "noop",
        "--every",
        "1h",
        "--payload",
        "{ \"ms\": 1.50 }",
    ]);
    for format in ["yaml", "json"] {
        let shown = server.said(&["job", "show", "tick", "-o", format]);
        let (code, _, told) = ended(&piped(&server, &["apply", "-f", "-"], &shown));
        assert_eq!(code, 0, "{told}");
        let (code, planned, told) = ended(&piped(&server, &["plan", "-f", "-"], &shown));
        assert_eq!(code, 0, "{planned}{told}");
        let changed = shown.replace("1h", "2h");
        let (code, planned, _) = ended(&piped(&server, &["plan", "-f", "-"], &changed));
        assert_eq!(code, 10);
        assert!(planned.contains("interval: \"1h\" → \"2h\""), "{planned}");
    }
}

#[tokio::test]
async fn a_finished_job_does_not_run_again_when_it_is_applied_again() {
    let (server, files) = (standing_at(start()), Files::new());
    let file = files.write("jobs.yaml", "jobs:\n- {name: migrate, job_type: noop, delay: 10m}\n");
    server.said(&["apply", "-f", &file]);
    advance(&server, start().plus(HOUR)).await;
    server.said(&["apply", "-f", &file]);
    advance(&server, start().plus(2 * HOUR)).await;
    let jobs = server.client().jobs(&JobFilter::default()).await.unwrap().items;
    assert_eq!(jobs.iter().map(|job| job.status).collect::<Vec<_>>(), [JobStatus::Completed]);
    let executions = server.client().executions(jobs[0].job_id, None, None).await.unwrap().items;
    assert_eq!(executions.len(), 1);
}

#[test]
fn a_submit_never_doubles_a_schedule_silently() {
    let (server, files) = (Server::start(), Files::new());
    let submit = ["job", "submit", "tick", "--type", "noop", "--every", "1h"];
    server.said(&submit);
    let (code, _, told) = ended(&server.cli(&submit));
    assert_eq!(code, 4);
    for choice in
        ["a recurring job named tick exists already", "--upsert", "another name", "--allow-duplicate"]
    {
        assert!(told.contains(choice), "{told}");
    }
    let file = files.write(
        "jobs.yaml",
        "- {name: tick, job_type: noop, interval: 1h}\n- {name: tock, job_type: noop, interval: 1h}\n\
         - {name: tock, job_type: noop, interval: 2h}\n",
    );
    let (code, said, told) = ended(&server.cli(&["job", "submit", "-f", &file]));
    assert_eq!(code, 4);
    assert_eq!(said.matches("refused").count(), 2, "{said}");
    assert!(told.contains("(tick): a recurring job named tick exists already"), "{told}");
    assert!(told.contains("(tock): another recurring job in the file is named tock"), "{told}");

    // Whatever repeats them.
    for (name, schedule, file) in [
        ("ruled", ["--rrule", "FREQ=DAILY"], "- {name: ruled, job_type: noop, rrule: FREQ=WEEKLY}\n"),
        (
            "listed",
            ["--cron", "@daily"],
            "- {name: listed, job_type: noop, schedules: [{interval: 2h}, {cron_expression: '@daily'}]}\n",
        ),
    ] {
        let by_flags = ["job", "submit", name, "--type", "noop", schedule[0], schedule[1]];
        let by_file = files.write(&format!("{name}.yaml"), file);
        server.said(&["job", "submit", "-f", &by_file]);
        for again in [&by_flags[..], &["job", "submit", "-f", &by_file]] {
            let (code, _, told) = ended(&server.cli(again));
            assert_eq!(code, 4, "{again:?}: {told}");
            assert!(told.contains(&format!("a recurring job named {name} exists already")), "{told}");
        }
    }

    // Jobs that run once, and other owners, may have the name.
    server.said(&["job", "submit", "tick", "--type", "noop", "--wait"]);
    server.said(&[&submit[..], &["--owner", "someone"]].concat());
    assert_eq!(exit_code(&server, &[&submit[..], &["--upsert"]].concat()), 0);
    server.said(&[&submit[..], &["--allow-duplicate"]].concat());
}

#[test]
fn upsert_creates_changes_and_leaves_alone() {
    let (server, files) = (Server::start(), Files::new());
    let submit =
        |every: &str| server.said(&["job", "submit", "tick", "--type", "noop", "--every", every, "--upsert"]);
    let created = submit("1h");
    assert!(created.starts_with("created job "), "{created}");
    let id = created.split(' ').nth(2).unwrap().trim_end_matches(',').to_owned();
    assert!(submit("1h").starts_with(&format!("unchanged job {id}")));
    assert!(submit("2h").starts_with(&format!("updated job {id}")));
    let file = files.write(
        "jobs.yaml",
        "- {name: tick, job_type: noop, interval: 3h}\n- {name: tock, job_type: noop, interval: 1h}\n",
    );
    let said = server.said(&["job", "submit", "-f", &file, "--upsert"]);
    assert!(said.contains(&id) && said.contains("updated") && said.contains("created"), "{said}");
    let listed: Value = serde_json::from_str(&server.said(&["job", "list", "-o", "json"])).unwrap();
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
}

#[test]
fn applies_that_race_create_each_job_once() {
    let (server, files) = (Server::start(), Files::new());
    let jobs: String =
        (0..10).map(|number| format!("- {{name: job-{number}, job_type: noop, interval: 1h}}\n")).collect();
    let file = files.write("jobs.yaml", &format!("managed_by: race\njobs:\n{jobs}"));
    std::thread::scope(|scope| {
        let racing: Vec<_> = (0..4).map(|_| scope.spawn(|| server.cli(&["apply", "-f", &file]))).collect();
        for apply in racing {
            let (code, _, told) = ended(&apply.join().unwrap());
            assert_eq!(code, 0, "{told}");
        }
    });
    let listed: Value = serde_json::from_str(&server.said(&["job", "list", "-o", "json"])).unwrap();
    assert_eq!(listed["items"].as_array().unwrap().len(), 10);
    assert_eq!(exit_code(&server, &["plan", "-f", &file, "--prune"]), 0);
}

#[test]
fn several_jobs_of_one_name_are_a_conflict_that_lists_them() {
    let (server, files) = (Server::start(), Files::new());
    let submit =
        ["job", "submit", "tick", "--type", "noop", "--every", "1h", "--allow-duplicate", "-o", "json"];
    let ids = [(); 2].map(|()| {
        let submitted: Value = serde_json::from_str(&server.said(&submit)).unwrap();
        submitted["job_id"].as_str().unwrap().to_owned()
    });
    let file = files.write("jobs.yaml", "name: tick\njob_type: noop\ninterval: 1h\n");
    let (code, _, told) = ended(&server.cli(&["apply", "-f", &file]));
    assert_eq!(code, 4);
    assert!(ids.iter().all(|id| told.contains(id)), "{told}");
    let (code, _, told) = ended(&server.cli(&["export"]));
    assert_eq!(code, 4);
    assert!(ids.iter().all(|id| told.contains(id)), "{told}");
}

#[test]
fn an_export_needs_the_permission_to_read_payloads() {
    let server = Server::start();
    let created: Value =
        serde_json::from_str(&server.said(&["token", "create", "watcher", "--role", "viewer", "-o", "json"]))
            .unwrap();
    let secret = created["secret"].as_str().unwrap();
    let (code, _, told) = ended(&server.cli(&["export", "--token", secret]));
    assert_eq!(code, 4);
    assert!(told.contains("payload:read"), "{told}");
}

#[test]
fn the_schema_is_printed() {
    let output = Command::new(BINARY).arg("schema").output().unwrap();
    let schema: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(schema["$defs"]["SubmitJob"]["properties"]["cron_expression"].is_object());
    assert_eq!(schema["anyOf"][0]["anyOf"][0]["required"], json!(["jobs"]));
}

const WITH_NOTIFICATIONS: &str = "
channels:
- {name: ops, type: webhook, url: 'https://example.org/hook'}
- {name: chat, type: slack, url: {$secret: slack-url}}
rules:
- {name: backups, events: [failed, missed], channels: [chat], match: {tags: [backup]}}
silences:
- {match: {tags: [backup]}, starts_at: '2026-01-01T00:00:00Z', ends_at: '2026-01-02T00:00:00Z', reason: over}
jobs:
- {name: invoices, job_type: noop, interval: 1h, notify: {on_failure: [ops, chat]}}
";

#[tokio::test]
async fn channels_and_rules_of_a_file_are_applied_before_the_jobs_that_name_them() {
    let (server, files) = (Server::start(), Files::new());
    let secret = json!({"value": "https://hooks.slack.example/T0/private", "owners": ["*"]});
    let request = server.request(reqwest::Method::PUT, "/api/v1/secrets/slack-url").json(&secret);
    assert!(request.send().await.unwrap().status().is_success());
    let file = files.write("jobs.yaml", WITH_NOTIFICATIONS);
    let (code, planned, error) = ended(&server.cli(&["plan", "-f", &file]));
    assert_eq!(code, 10, "{error}");
    assert!(
        planned.contains("+ channel chat (create)\n+ rule backups (create)\n+ invoices (create)"),
        "{planned}"
    );
    assert!(planned.contains("notify: (none) → \"chat, ops (to be created)\""), "{planned}");
    assert!(planned.ends_with("4 to create, 0 to update, 0 to delete, 1 unchanged\n"), "{planned}");
    // What the server would refuse stops everything.
    let far =
        files.write("far.yaml", &WITH_NOTIFICATIONS.replace("2026-01-02T00:00:00Z", "2199-01-02T00:00:00Z"));
    for command in ["plan", "apply"] {
        let (code, _, error) = ended(&server.cli(&[command, "-f", &far]));
        assert!(code != 0 && error.contains("silence 1: ends_at must be within a year"), "{code} {error}");
    }
    assert!(!server.said(&["channel", "list"]).contains("chat"));
    let applied = server.said(&["apply", "-f", &file]);
    assert!(applied.ends_with("4 created, 0 updated, 0 deleted, 1 unchanged\n"), "{applied}");
    assert_eq!(exit_code(&server, &["plan", "-f", &file]), 0);

    // What the server has comes back as a file, without secret values, and means the same.
    let silence = json!({"match": {"tags": ["backup"]}, "duration": "2h", "reason": "moving"}).to_string();
    assert_eq!(server.post("/api/v1/notifications/silences", &silence).await.0, 201);
    let exported = server.said(&["export"]);
    assert!(exported.contains("$secret: slack-url") && exported.contains("reason: moving"), "{exported}");
    assert!(!exported.contains("private"), "{exported}");
    let exported = files.write("exported.yaml", &exported);
    let (code, planned, error) = ended(&server.cli(&["plan", "-f", &exported]));
    assert_eq!(code, 0, "{planned}{error}");

    // An unchanged job that will not run is named.
    assert!(server.cli(&["job", "cancel", "invoices"]).status.success());
    let applied = server.said(&["apply", "-f", &file]);
    let cancelled = "invoices: unchanged, but CANCELLED: it will not run; delete it and apply again\n";
    assert!(applied.starts_with(cancelled), "{applied}");
    let report: Value = serde_json::from_str(&server.said(&["apply", "-f", &file, "-o", "json"])).unwrap();
    assert_eq!(report["jobs"][0]["status"], "CANCELLED");

    // A change names its fields, and a value that must be a reference is refused.
    let changed = WITH_NOTIFICATIONS.replace("https://example.org/hook", "https://example.org/new");
    let changed = files.write("changed.yaml", &changed.replace("[failed, missed]", "[failed]"));
    let (_, planned, _) = ended(&server.cli(&["plan", "-f", &changed]));
    assert!(planned.contains("url: \"https://example.org/hook\" → \"https://example.org/new\""), "{planned}");
    assert!(planned.contains("~ rule backups (update)\n    events: "), "{planned}");
    assert_eq!(exit_code(&server, &["apply", "-f", &changed]), 0);
    assert_eq!(exit_code(&server, &["plan", "-f", &changed]), 0);
    let plain =
        WITH_NOTIFICATIONS.replace("{$secret: slack-url}", "'https://hooks.slack.example/T0/private'");
    let (_, _, told) = ended(&server.cli(&["apply", "-f", &files.write("plain.yaml", &plain)]));
    assert!(told.contains("channel 2 (chat): url must be a reference such as {$secret: NAME}"), "{told}");
}
