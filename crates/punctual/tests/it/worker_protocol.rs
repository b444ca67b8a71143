//! Workers in other processes and languages: the protocol on the wire, and the Python example.

use crate::server::{Server, answer, eventually};
use punctual_client::{Client, ExecutionBody, ExecutionStatus, JobBody};
use punctual_core::ids::JobId;
use punctual_core::job::JobStatus;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A lease that ends soon, for workers that are killed; and one that outlasts any delay of a busy machine.
const SHORT_LEASE_SECS: &str = "2";
/// A heartbeat every two seconds, and a session that a busy machine does not lose.
const DRAIN_LEASE_SECS: &str = "10";
const LONG_LEASE_SECS: &str = "60";

async fn say(server: &Server, verb: &str, body: Value) -> (StatusCode, Value) {
    server.post(&format!("/api/v1/worker/{verb}"), &body.to_string()).await
}

async fn open(server: &Server) -> i64 {
    let opening = json!({"worker": "raw", "job_types": ["raw"], "lease_secs": 60});
    let (status, session) = say(server, "sessions", opening).await;
    assert_eq!(status, StatusCode::CREATED, "{session}");
    assert_eq!((&session["lease_secs"], &session["beat_secs"]), (&json!(60), &json!(12)));
    assert_eq!(session["stop_after_secs"], 48);
    session["session"].as_i64().expect("a number")
}

async fn submit(server: &Server) -> JobId {
    server.submit(json!({"name": "raw", "payload": {"n": 1}})).await
}

/// A poll that does not wait; `more` adds fields.
async fn poll(server: &Server, session: i64, turn: u64, more: Value) -> (StatusCode, Value) {
    let mut body = json!({"session": session, "turn": turn, "job_types": ["raw"], "wait_secs": 0});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    say(server, "poll", body).await
}

/// The only execution that a poll must return.
fn only(polled: (StatusCode, Value)) -> Value {
    let (status, body) = polled;
    assert_eq!(status, StatusCode::OK, "{body}");
    let assignments = body["assignments"].as_array().expect("a list");
    assert_eq!(assignments.len(), 1, "{body}");
    assignments[0].clone()
}

fn lease(assignment: &Value) -> Value {
    json!({"execution_id": assignment["execution_id"], "epoch": assignment["epoch"]})
}

async fn succeed(server: &Server, session: i64, execution: &Value, epoch: &Value) -> String {
    let report =
        json!({"session": session, "execution_id": execution, "epoch": epoch, "outcome": "succeeded"});
    let (status, body) = say(server, "report", json!({"reports": [report]})).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    body["answers"][0].as_str().expect("a word").to_owned()
}

async fn running(server: &Server) -> u64 {
    let (_, queues) = server.get("/api/v1/queues").await;
    queues["items"].as_array().unwrap().iter().map(|queue| queue["running"].as_u64().unwrap()).sum()
}

#[tokio::test]
async fn an_assignment_says_all_that_a_handler_needs() {
    let server = Server::start();
    let session = open(&server).await;
    let job = json!({"name": "resize", "job_type": "raw", "queue": "images", "payload": {"n": 1}, "timeout_secs": 90});
    let job = server.submit(job).await;
    let found = only(poll(&server, session, 1, json!({"queues": ["images"]})).await);
    let expected = json!({
        "execution_id": format!("{job}.1.1"), "epoch": 1, "job_id": job, "job_version": 1, "name": "resize",
        "job_type": "raw", "queue": "images", "payload": {"n": 1}, "timeout_secs": 90, "attempt_number": 1,
        "idempotency_key": format!("{job}.1"),
    });
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(&found[field], value, "{field}");
    }
    for time in ["deadline", "scheduled_time", "available_at"] {
        assert!(found[time].is_string(), "{time} in {found}");
    }
}

#[tokio::test]
async fn a_waiting_poll_is_answered_when_work_comes() {
    let server = Server::start();
    let session = open(&server).await;
    let (body, job) = tokio::join!(poll(&server, session, 1, json!({"wait_secs": 30})), submit(&server));
    assert_eq!(only(body)["job_id"], json!(job));
}

#[tokio::test]
async fn the_most_urgent_of_a_batch_comes_first_whether_a_worker_waits_for_it_or_not() {
    let server = Server::start();
    let session = open(&server).await;
    let job =
        |n: usize| json!({"name": "raw", "priority": if n == 10 { 10 } else { 5 }, "payload": {"n": n}});
    let batch = json!({"jobs": (0..21).map(job).collect::<Vec<_>>()}).to_string();
    let submit = async || {
        // When this one is stored, the poll most likely waits; if not, a claim goes by rank, too.
        server.submit(json!({"name": "of another type"})).await;
        let (status, body) = server.post("/api/v1/jobs/batch", &batch).await;
        assert_eq!(status, StatusCode::CREATED, "{body}");
    };
    let waiting = poll(&server, session, 1, json!({"wait_secs": 30, "capacity": 3}));
    let ((_, first), ()) = tokio::join!(waiting, submit());
    let (_, second) = poll(&server, session, 2, json!({"capacity": 100})).await;
    let taken = |body: &Value| body["assignments"].as_array().expect("a list").clone();
    let all: Vec<Value> = [taken(&first), taken(&second)].concat();
    assert_eq!((all.len(), &all[0]["payload"]["n"]), (21, &json!(10)), "{first}");
    for answer in [first, second] {
        assert!(taken(&answer).is_sorted_by_key(|one| one["rank"].as_i64().expect("a rank")), "{answer}");
    }
}

#[tokio::test]
async fn a_doubled_poll_leases_nothing() {
    let server = Server::start();
    for more in [json!({}), json!({"held": []})] {
        let session = open(&server).await;
        let jobs = [submit(&server).await, submit(&server).await];
        only(poll(&server, session, 1, more.clone()).await);
        let (status, problem) = poll(&server, session, 1, more.clone()).await;
        assert_eq!(status, StatusCode::CONFLICT, "{problem}");
        assert_eq!(running(&server).await, 1, "{more}");
        for job in jobs {
            server.client().delete(job).await.unwrap();
        }
        let request = server.request(Method::DELETE, &format!("/api/v1/worker/sessions/{session}"));
        assert_eq!(answer(request).await.0, StatusCode::NO_CONTENT);
    }
}

#[tokio::test]
async fn a_poll_that_names_what_is_held_brings_back_what_a_lost_answer_had_leased() {
    let server = Server::start();
    let session = open(&server).await;
    submit(&server).await;
    let lost = only(poll(&server, session, 1, json!({"held": []})).await);
    let found = only(poll(&server, session, 2, json!({"held": []})).await);
    assert_eq!(found["execution_id"], lost["execution_id"], "it was not charged");
    assert_ne!(found["epoch"], lost["epoch"]);
    let (status, _) = poll(&server, session, 1, json!({"held": []})).await;
    assert_eq!(status, StatusCode::CONFLICT, "a late copy of a poll takes nothing away");
    let (status, nothing) = poll(&server, session, 3, json!({"held": [lease(&found)]})).await;
    assert_eq!((status, nothing), (StatusCode::OK, json!({"assignments": []})));
    assert_eq!(succeed(&server, session, &found["execution_id"], &found["epoch"]).await, "accepted");
}

#[tokio::test]
async fn a_resync_returns_what_the_worker_does_not_hold() {
    let server = Server::start();
    let session = open(&server).await;
    submit(&server).await;
    let kept = only(poll(&server, session, 1, json!({})).await);
    submit(&server).await;
    only(poll(&server, session, 2, json!({})).await);
    let resync = json!({"session": session, "turn": 3, "held": [lease(&kept)]});
    assert_eq!(say(&server, "resync", resync.clone()).await.0, StatusCode::NO_CONTENT);
    assert_eq!(running(&server).await, 1);
    assert_eq!(say(&server, "resync", resync).await.0, StatusCode::CONFLICT);
    let (status, beaten) = say(&server, "heartbeat", json!({"session": session, "beat": 1})).await;
    assert_eq!((status, &beaten["turn"]), (StatusCode::OK, &json!(3)));
}

#[tokio::test]
async fn a_report_counts_only_in_the_epoch_of_its_lease() {
    let server = Server::start();
    let session = open(&server).await;
    let job = submit(&server).await;
    let first = only(poll(&server, session, 1, json!({})).await);
    let execution = &first["execution_id"];
    assert_eq!(succeed(&server, session, execution, &json!(7)).await, "stale");
    let back = json!({"session": session, "leases": [lease(&first)]});
    assert_eq!(say(&server, "give-back", back).await.0, StatusCode::NO_CONTENT);
    let second = only(poll(&server, session, 2, json!({})).await);
    assert_eq!(&second["execution_id"], execution);
    assert_eq!(succeed(&server, session, execution, &first["epoch"]).await, "stale");
    assert_eq!(succeed(&server, session + 1, execution, &second["epoch"]).await, "stale");
    assert_eq!(succeed(&server, session, execution, &second["epoch"]).await, "accepted");
    assert_eq!(succeed(&server, session, execution, &second["epoch"]).await, "already_accepted");
    assert_eq!(server.client().job(job).await.unwrap().status, JobStatus::Completed);
}

#[tokio::test]
async fn every_outcome_can_be_reported() {
    let server = Server::start();
    let session = open(&server).await;
    for (turn, (end, status, error)) in [
        (json!({"outcome": "succeeded", "result": {"a": [1]}}), ExecutionStatus::Succeeded, None),
        (json!({"outcome": "failed", "error": "no"}), ExecutionStatus::Failed, Some("no")),
        (json!({"outcome": "timed_out"}), ExecutionStatus::TimedOut, Some("the attempt ran out of time")),
        (json!({"outcome": "cancelled"}), ExecutionStatus::Cancelled, None),
        (json!({"outcome": "interrupted", "error": "reboot"}), ExecutionStatus::Lost, Some("reboot")),
    ]
    .into_iter()
    .enumerate()
    {
        let job = server.submit(json!({"name": "raw", "max_retries": 0})).await;
        let found = only(poll(&server, session, turn as u64 + 1, json!({})).await);
        let mut report = lease(&found);
        report["session"] = json!(session);
        report.as_object_mut().unwrap().extend(end.as_object().unwrap().clone());
        let (_, answers) = say(&server, "report", json!({"reports": [report]})).await;
        assert_eq!(answers, json!({"answers": ["accepted"]}), "{end}");
        let execution = only_execution(&server.client(), job).await;
        assert_eq!((execution.status, execution.error_message.as_deref()), (status, error), "{end}");
        assert!(execution.started_at.is_some() && execution.completed_at >= execution.started_at, "{end}");
    }
}

#[tokio::test]
async fn a_handler_chooses_when_it_runs_again() {
    let server = Server::start();
    let session = open(&server).await;
    let job = server.submit(json!({"name": "raw", "max_retries": 1})).await;
    for (turn, end) in [
        json!({"session": session, "outcome": "snoozed", "snooze": "1ms"}),
        json!({"session": session, "outcome": "failed", "error": "busy", "retry_after": "1h"}),
    ]
    .into_iter()
    .enumerate()
    {
        let mut report =
            lease(&only(poll(&server, session, turn as u64 + 1, json!({"wait_secs": 20})).await));
        report.as_object_mut().unwrap().extend(end.as_object().unwrap().clone());
        let (_, answers) = say(&server, "report", json!({"reports": [report.clone()]})).await;
        assert_eq!(answers, json!({"answers": ["accepted"]}), "{end}");
        let (_, answers) = say(&server, "report", json!({"reports": [report]})).await;
        assert_eq!(answers, json!({"answers": ["already_accepted"]}), "{end}");
    }
    let executions = server.client().executions(job, None, None).await.unwrap().items;
    let seen: Vec<_> = executions.iter().map(|one| (one.attempt_number, one.status)).collect();
    let expected =
        [(3, ExecutionStatus::Waiting), (2, ExecutionStatus::Failed), (1, ExecutionStatus::Snoozed)];
    assert_eq!(seen, expected);
    let chosen: Vec<bool> = executions.iter().map(|one| one.chosen_by_handler).collect();
    assert_eq!(chosen, [true, true, false]);
    let wait = executions[0].available_at.since(executions[1].completed_at.unwrap());
    assert!(wait >= Duration::from_secs(3_600), "the policy would have waited a minute, not {wait:?}");
    let explained = server.client().explain(job).await.unwrap().summary;
    assert!(explained.contains("retry 1 of 1, at a time chosen by the handler"), "{explained}");
}

#[tokio::test]
async fn a_failure_that_no_retry_can_mend_is_final() {
    let server = Server::start();
    let session = open(&server).await;
    let job = submit(&server).await;
    let mut report = lease(&only(poll(&server, session, 1, json!({})).await));
    let end = json!({"session": session, "outcome": "failed", "error": "no", "retryable": false});
    report.as_object_mut().unwrap().extend(end.as_object().unwrap().clone());
    say(&server, "report", json!({"reports": [report]})).await;
    assert_eq!(server.client().job(job).await.unwrap().status, JobStatus::Failed);
}

#[tokio::test]
async fn lines_are_kept_of_what_the_session_holds() {
    let server = Server::start();
    let session = open(&server).await;
    submit(&server).await;
    let found = only(poll(&server, session, 1, json!({})).await);
    let execution = &found["execution_id"];
    let lines = json!([{"message": "begin"}, {"message": "oops", "stream": "stderr"}]);
    let logs = |session| json!({"session": session, "execution_id": execution, "lines": lines});
    assert_eq!(say(&server, "logs", logs(session)).await.0, StatusCode::NO_CONTENT);
    assert_eq!(say(&server, "logs", logs(session + 1)).await.0, StatusCode::CONFLICT);
    let kept = server.client().execution_logs(execution.as_str().unwrap().parse().unwrap(), None, None).await;
    let messages: Vec<String> = kept.unwrap().items.into_iter().map(|line| line.message).collect();
    assert_eq!(messages, ["begin", "oops"]);
}

#[tokio::test]
async fn a_session_that_is_not_there_is_gone() {
    let server = Server::start();
    let closed = open(&server).await;
    let close = |session: &str| server.request(Method::DELETE, &format!("/api/v1/worker/sessions/{session}"));
    assert_eq!(answer(close(&closed.to_string())).await.0, StatusCode::NO_CONTENT);
    for session in [closed, 4_711, -1] {
        for (verb, body) in [
            ("poll", json!({"session": session, "turn": 1, "job_types": ["raw"]})),
            ("poll", json!({"session": session, "turn": 1, "job_types": ["raw"], "held": []})),
            ("heartbeat", json!({"session": session, "beat": 1})),
            ("resync", json!({"session": session, "turn": 1, "held": []})),
        ] {
            let (status, problem) = say(&server, verb, body).await;
            assert_eq!(status, StatusCode::GONE, "{verb}: {problem}");
        }
        assert_eq!(answer(close(&session.to_string())).await.0, StatusCode::GONE);
    }
    assert_eq!(answer(close("mine")).await.0, StatusCode::GONE);
}

#[tokio::test]
async fn bad_bodies_are_refused_by_field() {
    let server = Server::start();
    let session = open(&server).await;
    let job = submit(&server).await;
    let many = |count: usize| vec!["x"; count];
    let long = "x".repeat(201);
    let opening = |more: Value| with(json!({"worker": "w", "job_types": ["x"]}), more);
    let poll = |more: Value| with(json!({"session": session, "turn": 1, "job_types": ["x"]}), more);
    let report = |more: Value| {
        let report = json!({"session": session, "execution_id": format!("{job}.1.1"), "epoch": 1});
        json!({"reports": [with(report, more)]})
    };
    let note = |more: Value| {
        let note = json!({"execution_id": format!("{job}.1.1"), "epoch": 1});
        json!({"session": session, "notes": [with(note, more)]})
    };
    for (verb, body, field) in [
        ("sessions", json!({"job_types": ["x"]}), "worker"),
        ("sessions", json!({"worker": "w"}), "job_types"),
        ("sessions", opening(json!({"worker": ""})), "worker"),
        ("sessions", opening(json!({"worker": long})), "worker"),
        ("sessions", opening(json!({"worker": "a\u{0}"})), "worker"),
        ("sessions", opening(json!({"job_types": []})), "job_types"),
        ("sessions", opening(json!({"job_types": ["ok", ""]})), "job_types[1]"),
        ("sessions", opening(json!({"job_types": many(1_001)})), "job_types"),
        ("sessions", opening(json!({"slots": 0})), "slots"),
        ("sessions", opening(json!({"slots": 5_001})), "slots"),
        ("sessions", opening(json!({"lease_secs": 0.1})), "lease_secs"),
        ("sessions", opening(json!({"lease_secs": 601})), "lease_secs"),
        ("sessions", opening(json!({"lease_secs": "6s"})), "lease_secs"),
        ("sessions", opening(json!({"embedded": true})), "embedded"),
        ("poll", poll(json!({"session": "mine"})), "session"),
        ("poll", poll(json!({"turn": 0})), "turn"),
        ("poll", poll(json!({"turn": -1})), "turn"),
        ("poll", poll(json!({"turn": 1_u64 << 53})), "turn"),
        ("poll", poll(json!({"capacity": 0})), "capacity"),
        ("poll", poll(json!({"capacity": 101})), "capacity"),
        ("poll", poll(json!({"wait_secs": 31})), "wait_secs"),
        ("poll", poll(json!({"wait": 5})), "wait"),
        ("poll", poll(json!({"queues": [long]})), "queues[0]"),
        ("poll", poll(json!({"held": [{"execution_id": "x", "epoch": 1}]})), "held[0].execution_id"),
        ("poll", poll(json!({"held": [{"execution_id": format!("{job}.1.1")}]})), "held[0].epoch"),
        ("heartbeat", json!({"session": session}), "beat"),
        ("heartbeat", json!({"session": session, "beat": 0}), "beat"),
        ("report", json!({"reports": {}}), "reports"),
        ("report", report(json!({})), "reports[0].outcome"),
        ("report", report(json!({"outcome": "done"})), "reports[0].outcome"),
        ("report", report(json!({"outcome": "failed"})), "reports[0].error"),
        ("report", report(json!({"outcome": "failed", "error": "e", "result": 1})), "reports[0].result"),
        ("report", report(json!({"outcome": "succeeded", "error": "e"})), "reports[0].error"),
        ("report", report(json!({"outcome": "timed_out", "retryable": true})), "reports[0].retryable"),
        ("report", report(json!({"outcome": "succeeded", "started_at": "noon"})), "reports[0].started_at"),
        ("report", report(json!({"outcome": "snoozed"})), "reports[0].snooze"),
        ("report", report(json!({"outcome": "snoozed", "snooze": "367d"})), "reports[0].snooze"),
        ("report", report(json!({"outcome": "succeeded", "snooze": "1m"})), "reports[0].snooze"),
        ("report", report(json!({"outcome": "timed_out", "retry_after": "1m"})), "reports[0].retry_after"),
        (
            "report",
            report(json!({"outcome": "failed", "error": "e", "retry_at": "2999-01-01T00:00:00Z"})),
            "reports[0].retry_at",
        ),
        ("notes", json!({"session": session}), "notes"),
        ("notes", note(json!({})), "notes[0].progress"),
        ("notes", note(json!({"progress": {}})), "notes[0].progress"),
        ("notes", note(json!({"progress": {"percent": 101}})), "notes[0].progress.percent"),
        ("notes", note(json!({"progress": {"done": 1}})), "notes[0].progress.done"),
        ("notes", note(json!({"progress": {"percent": 1}, "number": 0})), "notes[0].number"),
        ("notes", note(json!({"checkpoint": "x".repeat(65_535)})), "notes[0].checkpoint"),
        ("give-back", json!({"session": session}), "leases"),
        ("resync", json!({"session": session, "turn": 1}), "held"),
        (
            "logs",
            json!({"session": session, "execution_id": format!("{job}.1.1"), "lines": [{}]}),
            "lines[0].message",
        ),
    ] {
        let (status, problem) = say(&server, verb, body.clone()).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{verb} {body}: {problem}");
        assert_eq!(problem["errors"][0]["field"], field, "{verb} {body}: {problem}");
    }
    let request = server.anonymous(Method::POST, "/api/v1/worker/sessions").json(&opening(json!({})));
    assert_eq!(answer(request).await.0, StatusCode::UNAUTHORIZED);
}

fn with(mut body: Value, more: Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[tokio::test]
async fn a_server_that_stops_sends_waiting_workers_away() {
    let server = Server::start();
    let session = open(&server).await;
    let body = json!({"session": session, "turn": 1, "job_types": ["raw"], "wait_secs": 30});
    let park = || server.request(Method::POST, "/api/v1/worker/poll").json(&body).send();
    let (mut one, mut other) = (pin!(park()), pin!(park()));
    // Of two polls the later one replaces the earlier one: then it waits.
    let (replaced, parked) = tokio::select! {
        replaced = &mut one => (replaced, other),
        replaced = &mut other => (replaced, one),
    };
    assert_eq!(replaced.expect("an answer").status(), StatusCode::CONFLICT);
    server.terminate();
    let parked = parked.await;
    let parked = parked.expect("an answer");
    assert_eq!(parked.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(parked.headers().contains_key("retry-after"));
    assert!(server.ended().success());
}

/// A worker in another process. Killed on drop.
struct PythonWorker(Child);

impl PythonWorker {
    fn start(server: &Server, script: &Path, name: &str, lease_secs: &str) -> Self {
        let mut command = PythonWorker::command(server, script, name, lease_secs);
        PythonWorker(command.spawn().expect("this test needs python3"))
    }

    fn command(server: &Server, script: &Path, name: &str, lease_secs: &str) -> Command {
        let mut command = Command::new("python3");
        command
            .arg("-B")
            .arg(script)
            .env("PUNCTUAL_SERVER", format!("http://{}", server.address))
            .env("PUNCTUAL_TOKEN", &server.token)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("WORKER_NAME", name)
            .env("WORKER_LEASE_SECS", lease_secs)
            .env("EXAMPLES", examples())
            .stdin(Stdio::null());
        command
    }

    /// A worker whose handlers wait for the test.
    fn waiting(server: &Server, name: &str, lease_secs: &str) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/workers/waiting.py");
        PythonWorker::start(server, &script, name, lease_secs)
    }

    fn kill(mut self) {
        self.0.kill().expect("it can be killed");
        self.0.wait().expect("it is gone");
    }
}

impl Drop for PythonWorker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/python")
}

pub async fn finished(client: &Client, job: JobId) -> JobBody {
    eventually("the job is finished", async || client.job(job).await.unwrap().is_finished()).await;
    client.job(job).await.unwrap()
}

async fn executions(client: &Client, job: JobId) -> Vec<ExecutionBody> {
    client.executions(job, None, None).await.unwrap().items
}

pub async fn only_execution(client: &Client, job: JobId) -> ExecutionBody {
    let mut executions = executions(client, job).await;
    assert_eq!(executions.len(), 1, "{executions:?}");
    executions.remove(0)
}

async fn runs_on(client: &Client, job: JobId, worker: &str) {
    eventually("the job runs", async || {
        executions(client, job).await.iter().any(|execution| {
            execution.status == ExecutionStatus::Running && execution.worker_id.as_deref() == Some(worker)
        })
    })
    .await;
}

#[test]
fn the_python_worker_is_as_short_as_promised() {
    let text = std::fs::read_to_string(examples().join("worker.py")).unwrap();
    assert!(text.lines().count() < 100, "{} lines", text.lines().count());
}

#[tokio::test]
async fn the_python_worker_takes_an_address_and_says_why_it_is_refused() {
    let server = Server::start();
    let worker = |token: &str| {
        let mut command = Command::new("python3");
        command.arg("-B").arg(examples().join("worker.py")).stdin(Stdio::null());
        command
            .env("PUNCTUAL_SERVER", &server.address)
            .env("PUNCTUAL_TOKEN", token)
            .env("WORKER_NAME", "plain");
        command
    };
    let nobody = worker("").output().unwrap();
    let said = String::from_utf8_lossy(&nobody.stderr).into_owned();
    assert!(nobody.status.code() == Some(2) && said.starts_with("set PUNCTUAL_TOKEN"), "{said}");
    let refused = worker("pt_admin_wrong").output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("opened no session: HTTP Error 401"), "{said}");
    assert!(said.contains("detail") && !said.contains("Traceback"), "{said}");
    let _worker = PythonWorker(worker(&server.token).spawn().unwrap());
    eventually("it is connected", async || server.client().worker("plain").await.is_ok()).await;
}

#[tokio::test]
async fn the_python_worker_processes_an_image() {
    let server = Server::start();
    let _worker = PythonWorker::start(&server, &examples().join("worker.py"), "python", LONG_LEASE_SECS);
    let job =
        json!({"name": "ImageProcessing", "payload": {"imageUrl": "http://img.com/1.png"}, "max_retries": 2});
    let job = server.submit(job).await;
    let client = server.client();
    assert_eq!(finished(&client, job).await.status, JobStatus::Completed);
    let execution = only_execution(&client, job).await;
    assert_eq!(execution.worker_id.as_deref(), Some("python"));
    let result: Value = serde_json::from_str(execution.result.unwrap().get()).unwrap();
    assert_eq!(result, json!({"file": "1.png", "key": format!("{job}.1")}));
}

#[tokio::test]
async fn a_drained_python_worker_closes_its_session_and_ends() {
    let server = Server::start();
    let client = server.client();
    let mut worker = PythonWorker::start(&server, &examples().join("worker.py"), "python", DRAIN_LEASE_SECS);
    eventually("it is connected", async || client.worker("python").await.is_ok()).await;
    client.drain_worker("python").await.unwrap();
    eventually("it has ended", async || worker.0.try_wait().unwrap().is_some()).await;
    assert!(worker.0.wait().unwrap().success());
    assert!(client.worker("python").await.unwrap_err().is_not_found(), "it has closed its session");
}

#[tokio::test]
async fn what_a_killed_python_worker_was_doing_runs_on_another_one() {
    let server = Server::start();
    let client = server.client();
    let first = PythonWorker::waiting(&server, "first", SHORT_LEASE_SECS);
    let job = server.submit(json!({"name": "wait"})).await;
    let is_noted = async || {
        let progress = only_execution(&client, job).await.progress;
        progress.and_then(|progress| progress.message).as_deref() == Some("waiting")
    };
    eventually("the worker says how far it is", is_noted).await;
    first.kill();
    let _second = PythonWorker::waiting(&server, "second", LONG_LEASE_SECS);
    assert_eq!(finished(&client, job).await.status, JobStatus::Completed);
    let ran: Vec<_> = executions(&client, job)
        .await
        .into_iter()
        .map(|execution| (execution.attempt_number, execution.status, execution.worker_id.unwrap()))
        .collect();
    let expected = [
        (2, ExecutionStatus::Succeeded, "second".to_owned()),
        (1, ExecutionStatus::Lost, "first".to_owned()),
    ];
    assert_eq!(ran, expected);
    let result = client.job(job).await.unwrap().result.unwrap();
    let result: Value = serde_json::from_str(result.get()).unwrap();
    assert_eq!(
        result,
        json!({"worker": "second", "checkpoint": {"attempt": 1}}),
        "it went on where the first was"
    );
}

#[tokio::test]
async fn a_python_worker_that_hears_nothing_ends_its_handler_and_connects_again() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = Server::start_at("127.77.0.1:0", &data);
    let address = server.address.clone();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/workers/waiting.py");
    let mut worker = PythonWorker::command(&server, &script, "python", SHORT_LEASE_SECS);
    let mut worker = PythonWorker(worker.stderr(Stdio::piped()).spawn().expect("this test needs python3"));
    let job = server.submit(json!({"name": "wait"})).await;
    runs_on(&server.client(), job, "python").await;
    server.kill();
    let mut said = BufReader::new(worker.0.stderr.take().unwrap()).lines();
    let heard = said.next().unwrap().unwrap();
    assert_eq!(
        heard,
        format!("{address} has not answered in time: this worker ends what it runs, and connects again")
    );
    let waits = said.next().unwrap().unwrap();
    assert!(waits.starts_with(&format!("waiting for {address}: ")), "{waits}");
    // The second attempt ends at once: the same process has restarted, without its handler.
    let server = Server::start_at(&address, &data);
    assert_eq!(finished(&server.client(), job).await.status, JobStatus::Completed);
    let last = executions(&server.client(), job).await.remove(0);
    assert_eq!((last.attempt_number, last.worker_id.as_deref()), (2, Some("python")));
    assert!(worker.0.try_wait().unwrap().is_none(), "it goes on");
}

#[tokio::test]
async fn what_a_python_handler_prints_is_in_the_log_of_its_job() {
    let server = Server::start();
    let _worker = PythonWorker::waiting(&server, "python", LONG_LEASE_SECS);
    let job = server.submit(json!({"name": "talk", "payload": "two\nlines, and one without an end"})).await;
    assert_eq!(finished(&server.client(), job).await.status, JobStatus::Completed);
    let logs = server.said(&["job", "logs", &job.to_string()]);
    for line in ["two", "lines, and one without an end"] {
        assert!(logs.lines().any(|told| told.ends_with(line)), "{logs}");
    }
}

#[tokio::test]
async fn a_cancel_and_a_timeout_reach_the_python_worker() {
    let server = Server::start();
    let client = server.client();
    let _worker = PythonWorker::waiting(&server, "python", "10");
    let job = server.submit(json!({"name": "wait"})).await;
    runs_on(&client, job, "python").await;
    client.cancel(job).await.unwrap();
    let stopped = async || only_execution(&client, job).await.status == ExecutionStatus::Cancelled;
    eventually("the handler has stopped", stopped).await;
    let job = server.submit(json!({"name": "wait", "timeout_secs": 0.1, "max_retries": 0})).await;
    assert_eq!(finished(&client, job).await.status, JobStatus::Failed);
    assert_eq!(only_execution(&client, job).await.status, ExecutionStatus::TimedOut);
    let job = server.submit(json!({"name": "fail", "payload": "why", "max_retries": 0})).await;
    finished(&client, job).await;
    assert_eq!(only_execution(&client, job).await.error_message.as_deref(), Some("ValueError('why')"));
}

#[tokio::test]
async fn two_workers_share_a_queue() {
    let server = Server::start();
    let client = server.client();
    let place = tempfile::tempdir().unwrap();
    let payload = json!({"directory": place.path(), "expected": 2});
    let _workers = ["one", "two"].map(|name| PythonWorker::waiting(&server, name, LONG_LEASE_SECS));
    let first = server.submit(json!({"name": "meet", "payload": payload})).await;
    let second = server.submit(json!({"name": "meet", "payload": payload})).await;
    let mut ran_on = Vec::new();
    for job in [first, second] {
        assert_eq!(finished(&client, job).await.status, JobStatus::Completed);
        ran_on.push(only_execution(&client, job).await.worker_id.unwrap());
    }
    ran_on.sort();
    assert_eq!(ran_on, ["one", "two"]);
}

#[tokio::test]
async fn a_python_worker_that_is_told_to_stop_finishes_and_leaves() {
    let server = Server::start();
    let mut worker = PythonWorker::start(&server, &examples().join("worker.py"), "python", LONG_LEASE_SECS);
    let connected = async || {
        let stats = server.client().stats().await.unwrap();
        stats.workers.iter().any(|worker| worker.worker_id == "python")
    };
    eventually("the worker is connected", connected).await;
    let pid = rustix::process::Pid::from_child(&worker.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(worker.0.wait().unwrap().success());
    assert!(!connected().await, "it has closed its session");
}
