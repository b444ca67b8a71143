//! Traces through the binary: spans at a collector, and the trace context of handlers.

pub mod collector;

use crate::http::web::{Answer, Web};
use crate::server::{BINARY, Server, answer, eventually};
use collector::{Collector, ReceivedSpan};
use punctual_client::worker::{Context, HandlerError, Worker};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use tokio::sync::mpsc;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";
const STATE: &str = "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7";

fn parent() -> String {
    format!("00-{TRACE}-{CALLER}-01")
}

fn traced(collector: &Collector) -> Server {
    let (url, allow) = (collector.url(), ["--allow", "shell", "--http-allow", "127.0.0.1/32"]);
    Server::start_with(&[&["--tracing-endpoint", &url], allow.as_slice()].concat())
}

/// A request within the trace of a caller.
async fn within(
    server: &Server,
    method: Method,
    path: &str,
    parent: &str,
    body: &Value,
) -> (StatusCode, Value) {
    let request = server.request(method, &format!("/api/v1{path}"));
    answer(request.header("traceparent", parent).header("tracestate", STATE).json(body)).await
}

async fn submit_within(server: &Server, parent: &str, job: Value) -> String {
    let (status, body) = within(server, Method::POST, "/jobs", parent, &job).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    body["job_id"].as_str().unwrap().to_owned()
}

fn shell(script: &str) -> Value {
    json!({"name": "traced", "job_type": "shell", "payload": {"script": script}, "max_retries": 0})
}

const REPEAT_TRACE: &str =
    "printf '{\"parent\": \"%s\", \"state\": \"%s\"}' \"$TRACEPARENT\" \"$TRACESTATE\"";

/// The result of the last execution of a job that is finished.
async fn result(server: &Server, job: &str) -> Value {
    let job = server.client().wait(job.parse().unwrap()).await.unwrap();
    let executions = server.client().executions(job.job_id, None, None).await.unwrap().items;
    serde_json::from_str(executions[0].result.as_ref().expect("a result").get()).unwrap()
}

/// The only span of an operation.
fn only<'a>(spans: &'a BTreeMap<String, Vec<ReceivedSpan>>, operation: &str) -> &'a ReceivedSpan {
    let found = &spans[operation];
    assert_eq!(found.len(), 1, "{found:#?}");
    &found[0]
}

#[tokio::test]
async fn a_job_that_starts_at_once_extends_the_trace_of_its_submit() {
    let collector = Collector::start().await;
    let server = traced(&collector);
    let job = submit_within(&server, &parent(), shell(REPEAT_TRACE)).await;
    let spans = collector.of_job(&job, &[("submit", 1), ("claim", 1), ("attempt", 1), ("report", 1)]).await;
    let [submit, claim, attempt, report] =
        ["submit", "claim", "attempt", "report"].map(|name| only(&spans, name));
    assert!([submit, claim, attempt, report].iter().all(|span| span.trace == TRACE && span.state == STATE));
    assert_eq!(submit.parent, CALLER);
    assert_eq!((&claim.parent, &attempt.parent), (&submit.id, &submit.id));
    assert_eq!(report.parent, attempt.id);
    assert_eq!(attempt.links, [], "it is in the trace already");
    assert_eq!((submit.kind, attempt.kind), (4, 5), "a producer and a consumer");
    assert!(submit.started_ns <= attempt.started_ns && attempt.started_ns <= attempt.ended_ns);

    assert_eq!((submit.name.as_str(), attempt.name.as_str()), ("submit default", "attempt default"));
    for (key, value) in [
        ("messaging.system", "punctual"),
        ("messaging.operation.type", "process"),
        ("messaging.destination.name", "default"),
        ("messaging.message.id", &format!("{job}.1.1")),
        ("punctual.job.name", "traced"),
        ("punctual.job.type", "shell"),
        ("punctual.execution.id", &format!("{job}.1.1")),
        ("punctual.attempt", "1"),
        ("punctual.status", "SUCCEEDED"),
        ("punctual.worker", "embedded"),
    ] {
        assert_eq!(attempt.attribute(key), value, "{key}");
    }
    assert_eq!(attempt.resource["service.name"], "punctual");
    let expected = format!("00-{TRACE}-{}-01", attempt.id);
    assert_eq!(result(&server, &job).await, json!({"parent": expected, "state": STATE}));
    let request = &collector.web().asked()[0];
    assert!(request.line.starts_with("POST /v1/traces "), "{}", request.line);
    assert_eq!(request.header("content-type"), Some("application/x-protobuf"));
}

#[tokio::test]
async fn web_calls_and_remote_workers_get_the_place_of_their_attempt() {
    let collector = Collector::start().await;
    let server = traced(&collector);
    let web = Web::answering(Answer::status("200 OK", "")).await;
    let call = json!({"name": "call", "job_type": "http", "payload": {"url": web.url("/")}});
    let job = submit_within(&server, &parent(), call).await;
    let spans = collector.of_job(&job, &[("attempt", 1)]).await;
    let expected = format!("00-{TRACE}-{}-01", only(&spans, "attempt").id);
    let asked = web.asked();
    assert_eq!(
        (asked[0].header("traceparent"), asked[0].header("tracestate")),
        (Some(&*expected), Some(STATE))
    );
    let own = json!({"url": web.url("/"), "headers": {"traceparent": "mine"}});
    let own =
        submit_within(&server, &parent(), json!({"name": "own", "job_type": "http", "payload": own})).await;
    server.client().wait(own.parse().unwrap()).await.unwrap();
    let asked = web.asked();
    assert_eq!((asked[1].header("traceparent"), asked[1].header("tracestate")), (Some("mine"), None));

    let (told, mut tells) = mpsc::unbounded_channel();
    let worker = Worker::builder(server.client()).name("far");
    let worker = worker.handler("remote", move |context: Context, (): ()| {
        told.send((context.traceparent(), context.tracestate().map(str::to_owned))).unwrap();
        async { Ok::<(), HandlerError>(()) }
    });
    let worker = tokio::spawn(worker.build().run());
    let job = submit_within(&server, &parent(), json!({"name": "remote"})).await;
    let spans = collector.of_job(&job, &[("attempt", 1), ("report", 1)]).await;
    let attempt = only(&spans, "attempt");
    assert_eq!(attempt.attribute("punctual.worker"), "far");
    let expected = format!("00-{TRACE}-{}-01", attempt.id);
    assert_eq!(tells.recv().await.unwrap(), (Some(expected), Some(STATE.to_owned())));
    worker.abort();
}

#[tokio::test]
async fn runs_of_a_schedule_have_their_own_traces_and_link_to_that_of_the_submit() {
    let collector = Collector::start().await;
    let server = traced(&collector);
    let job = json!({"name": "often", "job_type": "shell", "payload": {"script": REPEAT_TRACE}, "interval": "200ms"});
    let job = submit_within(&server, &parent(), job).await;
    let spans = collector.of_job(&job, &[("submit", 1), ("fire", 2), ("attempt", 2)]).await;
    let submit = only(&spans, "submit");
    assert_eq!((submit.trace.as_str(), submit.parent.as_str()), (TRACE, CALLER));
    assert_eq!(submit.events[0].0, "punctual.waits");
    assert_eq!(submit.events[0].1["punctual.gate"], "time");
    let link = (TRACE.to_owned(), submit.id.clone());
    for attempt in &spans["attempt"][..2] {
        let fire = spans["fire"].iter().find(|fire| fire.trace == attempt.trace).expect("its fire");
        assert_ne!(fire.trace, TRACE);
        assert_eq!((fire.parent.as_str(), &attempt.parent), ("", &fire.id));
        assert_eq!((&fire.links, &attempt.links), (&vec![link.clone()], &vec![link.clone()]));
        assert_eq!(fire.attribute("punctual.occurrence"), attempt.attribute("punctual.occurrence"));
        assert_eq!(fire.attribute("punctual.job.name"), "often");
    }
    assert_ne!(spans["attempt"][0].trace, spans["attempt"][1].trace);

    // A trigger is a request that starts a run at once: the run extends its trace.
    let other = format!("00-{}-{CALLER}-01", TRACE.replace('0', "1"));
    let (status, added) =
        within(&server, Method::POST, &format!("/jobs/{job}/trigger"), &other, &json!({"override": true}))
            .await;
    assert_eq!(status, StatusCode::CREATED, "{added}");
    let execution = added["execution_id"].as_str().unwrap().to_owned();
    let mut found = vec![];
    eventually("the triggered run is traced", async || {
        found = collector.spans();
        found.retain(|span| span.attribute("punctual.execution.id") == execution);
        ["trigger", "attempt"].iter().all(|name| found.iter().any(|span| span.name.starts_with(name)))
    })
    .await;
    let trigger = found.iter().find(|span| span.name == "trigger").unwrap();
    let attempt = found.iter().find(|span| span.name.starts_with("attempt")).unwrap();
    assert_eq!((trigger.trace.as_str(), trigger.parent.as_str()), (&other[3..35], CALLER));
    assert_eq!((&attempt.trace, &attempt.parent), (&trigger.trace, &trigger.id));
}

#[tokio::test]
async fn a_command_that_submits_a_job_continues_its_trace() {
    let collector = Collector::start().await;
    let server = traced(&collector);
    let data_dir = server.data_dir().display().to_string();
    let output = Command::new(BINARY)
        .args(["job", "submit", "noop", "--output", "json", "--data-dir", &data_dir])
        .env("TRACEPARENT", parent())
        .env("TRACESTATE", STATE)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let spans = collector.of_job(answer["job_id"].as_str().unwrap(), &[("submit", 1), ("attempt", 1)]).await;
    let submit = only(&spans, "submit");
    assert_eq!(
        (submit.trace.as_str(), submit.parent.as_str(), submit.state.as_str()),
        (TRACE, CALLER, STATE)
    );
}

#[tokio::test]
async fn jobs_of_a_batch_link_to_it() {
    let collector = Collector::start().await;
    let server = traced(&collector);
    let jobs = json!({"jobs": [{"name": "noop"}, {"name": "noop"}]});
    let (status, body) = within(&server, Method::POST, "/jobs/batch", &parent(), &jobs).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    let job = body["items"][1]["job_id"].as_str().unwrap();
    let spans = collector.of_job(job, &[("submit", 1), ("attempt", 1)]).await;
    let batch = collector
        .spans()
        .into_iter()
        .find(|span| !span.attribute("messaging.batch.message_count").is_empty());
    let batch = batch.expect("the span of the batch");
    assert_eq!((batch.trace.as_str(), batch.parent.as_str()), (TRACE, CALLER));
    assert_eq!(batch.attribute("messaging.batch.message_count"), "2");
    let (submit, attempt) = (only(&spans, "submit"), only(&spans, "attempt"));
    let link = vec![(batch.trace.clone(), batch.id.clone())];
    assert_eq!((&submit.links, &attempt.links), (&link, &link));
    assert_eq!((&attempt.trace, &attempt.parent), (&submit.trace, &submit.id));
    assert!(batch.links.contains(&(submit.trace.clone(), submit.id.clone())), "{:?}", batch.links);
}

#[tokio::test]
async fn failures_and_retries_are_in_the_spans_of_attempts() {
    let collector = Collector::start().await;
    let server = traced(&collector);
    let mut job = shell("echo no luck >&2; exit 3");
    job["max_retries"] = json!(1);
    job["retry"] = json!({"strategy": "fixed", "delay": "10ms"});
    let job = server.submit(job).await.to_string();
    let spans = collector.of_job(&job, &[("submit", 1), ("attempt", 2)]).await;
    let (submit, [first, last]) = (only(&spans, "submit"), &spans["attempt"][..]) else {
        panic!("{spans:?}")
    };
    assert_eq!(
        (submit.parent.as_str(), submit.trace.as_str()),
        ("", first.trace.as_str()),
        "a trace of its own"
    );
    assert_eq!((&first.trace, &first.parent), (&last.trace, &last.parent));
    assert_ne!(first.id, last.id);
    assert_eq!((first.attribute("punctual.status"), first.attribute("error.type")), ("FAILED", "FAILED"));
    assert!(first.error.as_ref().unwrap().contains("exit"), "{first:?}");
    assert_eq!(first.events[0].0, "punctual.retry");
    assert!(first.events[0].1.contains_key("punctual.retry_at"), "{first:?}");
    assert_eq!(last.events, []);
}

#[tokio::test]
async fn an_invalid_traceparent_is_ignored() {
    let collector = Collector::start().await;
    let server = traced(&collector);
    let zero = parent().replace(TRACE, &"0".repeat(32));
    for wrong in ["garbage", "", &parent().to_uppercase(), &zero, &format!("{}-more", parent())] {
        let job = submit_within(&server, wrong, shell(REPEAT_TRACE)).await;
        let spans = collector.of_job(&job, &[("submit", 1), ("attempt", 1)]).await;
        let (submit, attempt) = (only(&spans, "submit"), only(&spans, "attempt"));
        assert_eq!((submit.parent.as_str(), submit.state.as_str()), ("", ""), "{wrong}");
        assert_eq!((&attempt.trace, &attempt.parent), (&submit.trace, &submit.id));
        let expected = format!("00-{}-{}-01", attempt.trace, attempt.id);
        assert_eq!(result(&server, &job).await, json!({"parent": expected, "state": ""}), "{wrong}");
    }
}

#[tokio::test]
async fn without_a_collector_a_trace_is_passed_on() {
    let server = Server::start_with(&["--allow", "shell"]);
    let job = submit_within(&server, &parent(), shell(REPEAT_TRACE)).await;
    assert_eq!(result(&server, &job).await, json!({"parent": parent(), "state": STATE}));
    let later = submit_within(&server, &parent(), {
        let mut job = shell(REPEAT_TRACE);
        job["delay"] = json!("10ms");
        job
    })
    .await;
    assert_eq!(
        result(&server, &later).await,
        json!({"parent": "", "state": ""}),
        "a later run does not extend it"
    );
}

#[tokio::test]
async fn a_trace_is_no_part_of_a_job_that_is_put() {
    let collector = Collector::start().await;
    let server = traced(&collector);
    let job = json!({"name": "nightly", "job_type": "noop", "cron_expression": "0 3 * * *"});
    let (status, first) = within(&server, Method::PUT, "/jobs/by-name/nightly", &parent(), &job).await;
    assert_eq!(status, StatusCode::CREATED, "{first}");
    let other = parent().replace(CALLER, "00f067aa0ba902b7");
    let (status, same) = within(&server, Method::PUT, "/jobs/by-name/nightly", &other, &job).await;
    assert_eq!((status, &same["version"]), (StatusCode::OK, &first["version"]), "nothing has changed");
    let text = same.to_string();
    assert!(!text.contains("trace") && !text.contains(TRACE), "{text}");
    let (_, plan) = within(&server, Method::POST, "/jobs/by-name/nightly/plan", &other, &job).await;
    assert_eq!(plan["action"], "none", "{plan}");
}

#[tokio::test]
async fn only_a_share_of_traces_is_recorded_but_those_of_callers_always() {
    let collector = Collector::start().await;
    let server = Server::start_with(&[
        "--tracing-endpoint",
        &collector.url(),
        "--tracing-sample",
        "0",
        "--allow",
        "shell",
    ]);
    let unrecorded = server.submit(shell(REPEAT_TRACE)).await.to_string();
    let handed = result(&server, &unrecorded).await["parent"].as_str().unwrap().to_owned();
    assert!(handed.ends_with("-00"), "handlers do not record it either: {handed}");
    let refused = submit_within(&server, &parent().replace("-01", "-00"), shell(REPEAT_TRACE)).await;
    let handed = result(&server, &refused).await["parent"].as_str().unwrap().to_owned();
    assert!(handed.starts_with(&format!("00-{TRACE}-")) && handed.ends_with("-00"), "{handed}");
    let job = submit_within(&server, &parent(), shell(REPEAT_TRACE)).await;
    collector.of_job(&job, &[("submit", 1), ("attempt", 1)]).await;
    let jobs: Vec<String> =
        collector.spans().iter().map(|span| span.attribute("punctual.job.id").to_owned()).collect();
    assert!(jobs.iter().all(|traced| *traced == job), "{jobs:?}");
}

async fn metric(server: &Server, name: &str) -> u64 {
    let text = server.request(Method::GET, "/metrics").send().await.unwrap().text().await.unwrap();
    let line = text.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap_or_default();
    line.rsplit(' ').next().unwrap().parse().unwrap_or_default()
}

#[tokio::test]
async fn a_dead_or_slow_collector_costs_spans_and_nothing_else() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let slow = Web::answering(Answer::Hanging(b"")).await;
    for url in [format!("http://{gone}"), slow.url("")] {
        let server = Server::start_with(&["--tracing-endpoint", &url]);
        let jobs: Vec<Value> = (0..5_000).map(|_| json!({"name": "noop"})).collect();
        let (status, _) = server.post("/api/v1/jobs/batch", &json!({"jobs": jobs}).to_string()).await;
        assert_eq!(status, StatusCode::CREATED);
        let succeeded = "punctual_executions_finished_total{status=\"succeeded\"}";
        eventually("all jobs have run", async || metric(&server, succeeded).await == 5_000).await;
        // 20,000 spans, and room for 8,192.
        let lost = "punctual_tracing_spans_dropped_total";
        eventually("spans are lost and counted", async || metric(&server, lost).await > 10_000).await;
        assert_eq!(metric(&server, "punctual_tracing_spans_exported_total").await, 0);
        assert!(server.stop().success(), "it stops in time");
    }
}

// The collector must answer while the test waits for the end of the server.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_sends_its_last_spans() {
    let collector = Collector::start().await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("headers"), "x-key: secret\n").unwrap();
    std::fs::set_permissions(folder.path().join("headers"), Permissions::from_mode(0o600)).unwrap();
    let headers = folder.path().join("headers").display().to_string();
    let server =
        Server::start_with(&["--tracing-endpoint", &collector.url(), "--tracing-headers-file", &headers]);
    let job = server.submit(json!({"name": "noop"})).await;
    server.client().wait(job).await.unwrap();
    assert!(server.stop().success());
    let spans = collector.spans();
    let of_job = spans.iter().filter(|span| span.attribute("punctual.job.id") == job.to_string()).count();
    assert_eq!(of_job, 4, "{spans:#?}");
    assert!(collector.web().asked().iter().all(|asked| asked.header("x-key") == Some("secret")));
}

/// A session of a worker that speaks the protocol itself, and its first assignment.
async fn leased(server: &Server, lease_secs: f64) -> (Value, Value) {
    let opening = json!({"worker": "raw", "job_types": ["raw"], "lease_secs": lease_secs});
    let (_, session) = server.post("/api/v1/worker/sessions", &opening.to_string()).await;
    let poll = json!({"session": session["session"], "turn": 1, "job_types": ["raw"], "wait_secs": 20});
    let (_, answer) = server.post("/api/v1/worker/poll", &poll.to_string()).await;
    (session["session"].clone(), answer["assignments"][0].clone())
}

#[tokio::test]
async fn the_attempt_of_a_lost_worker_has_a_span() {
    let collector = Collector::start().await;
    let server = traced(&collector);
    let job = submit_within(&server, &parent(), json!({"name": "raw", "max_retries": 0})).await;
    let (_, assignment) = leased(&server, 0.5).await;
    let spans = collector.of_job(&job, &[("attempt", 1)]).await;
    let attempt = only(&spans, "attempt");
    assert_eq!((attempt.trace.as_str(), attempt.attribute("punctual.status")), (TRACE, "LOST"));
    assert_eq!(attempt.error.as_deref(), Some("the worker stopped responding"));
    assert_eq!(assignment["traceparent"], format!("00-{TRACE}-{}-01", attempt.id));
    assert_eq!(assignment["tracestate"], STATE);
}

#[tokio::test]
async fn a_lost_attempt_that_is_retried_has_the_event_of_a_retry() {
    let collector = Collector::start().await;
    let server = traced(&collector);
    let job = submit_within(&server, &parent(), json!({"name": "raw", "max_retries": 1})).await;
    leased(&server, 0.5).await;
    let (session, again) = leased(&server, 60.0).await;
    let report = json!({
        "session": session, "execution_id": again["execution_id"], "epoch": again["epoch"], "outcome": "succeeded",
    });
    let (status, answer) =
        server.post("/api/v1/worker/report", &json!({"reports": [report]}).to_string()).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let spans = collector.of_job(&job, &[("attempt", 2)]).await;
    let attempts = &spans["attempt"];
    let of = |number: &str| {
        let found = attempts.iter().find(|span| span.attribute("punctual.attempt") == number);
        found.unwrap_or_else(|| panic!("{spans:#?}"))
    };
    let (first, last) = (of("1"), of("2"));
    assert_eq!(
        (first.attribute("punctual.status"), last.attribute("punctual.status")),
        ("LOST", "SUCCEEDED")
    );
    let [(event, attributes)] = &first.events[..] else { panic!("{first:?}") };
    assert_eq!((event.as_str(), attributes["punctual.attempt"].as_str()), ("punctual.retry", "2"));
    assert_eq!(last.events, [], "no attempt follows");
}

#[tokio::test]
async fn a_process_that_did_not_lease_an_execution_still_records_its_attempt() {
    let collector = Collector::start().await;
    let folder = tempfile::tempdir().unwrap();
    let (url, data_dir) = (collector.url(), folder.path().join("data"));
    let options = ["--tracing-endpoint", &url];
    let server = Server::start_in(&data_dir, &options);
    let later = json!({"name": "raw", "delay": "10ms"});
    let job = submit_within(&server, &parent(), later).await;
    let (session, assignment) = leased(&server, 60.0).await;
    collector.of_job(&job, &[("submit", 1), ("fire", 1), ("claim", 1)]).await;
    server.kill();
    let server = Server::start_in(&data_dir, &options);
    let report = json!({
        "session": session, "execution_id": assignment["execution_id"], "epoch": assignment["epoch"],
        "outcome": "succeeded",
    });
    let (status, answer) =
        server.post("/api/v1/worker/report", &json!({"reports": [report]}).to_string()).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let spans = collector.of_job(&job, &[("attempt", 1), ("report", 1)]).await;
    let [submit, fire, attempt] = ["submit", "fire", "attempt"].map(|name| only(&spans, name));
    assert_eq!((&attempt.trace, &attempt.parent), (&fire.trace, &fire.id));
    assert_eq!(attempt.links, [(submit.trace.clone(), submit.id.clone())]);
    assert_eq!(assignment["traceparent"], format!("00-{}-{}-01", attempt.trace, attempt.id));
    assert_eq!(
        (attempt.attribute("punctual.worker"), attempt.attribute("punctual.job.name")),
        ("raw", "raw")
    );
}

/// The names of the events of a span, and the gate that each names.
fn gates(span: &ReceivedSpan) -> Vec<(&str, Option<&str>)> {
    span.events
        .iter()
        .map(|(name, attributes)| (name.as_str(), attributes.get("punctual.gate").map(String::as_str)))
        .collect()
}

#[tokio::test]
async fn what_a_run_waits_for_is_an_event() {
    let collector = Collector::start().await;
    let server = traced(&collector);
    server.said(&["queue", "set", "narrow", "--concurrency", "1"]);
    let folder = tempfile::tempdir().unwrap();
    let gate = folder.path().join("go");
    let mut first = shell(&format!("until [ -e '{}' ]; do sleep 0.1; done", gate.display()));
    first["queue"] = json!("narrow");
    let first = submit_within(&server, &parent(), first).await;
    let mut limited = shell("true");
    limited["queue"] = json!("narrow");
    let limited = submit_within(&server, &parent(), limited).await;
    let mut child = shell("true");
    child["depends_on"] = json!([first]);
    let child = submit_within(&server, &parent(), child).await;
    std::fs::write(&gate, "").unwrap();
    for (job, waits_for) in [(limited, "concurrency"), (child, "dependency")] {
        let spans = collector.of_job(&job, &[("submit", 1), ("claim", 1)]).await;
        assert_eq!(gates(only(&spans, "submit")), [("punctual.waits", Some(waits_for))]);
        let claim = only(&spans, "claim");
        assert_eq!(gates(claim), [], "the wait is part of punctual.queue_wait_ms");
        assert!(claim.attributes["punctual.queue_wait_ms"].parse::<u64>().is_ok(), "{claim:?}");
    }
}

#[tokio::test]
async fn a_snoozed_attempt_has_the_event_of_a_snooze() {
    let collector = Collector::start().await;
    let server = traced(&collector);
    let job = submit_within(&server, &parent(), json!({"name": "raw", "max_retries": 0})).await;
    let (session, assignment) = leased(&server, 60.0).await;
    let report = json!({
        "session": session, "execution_id": assignment["execution_id"], "epoch": assignment["epoch"],
        "outcome": "snoozed", "snooze": "1h",
    });
    let (status, answer) =
        server.post("/api/v1/worker/report", &json!({"reports": [report]}).to_string()).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let spans = collector.of_job(&job, &[("attempt", 1)]).await;
    let attempt = only(&spans, "attempt");
    let [(event, attributes)] = &attempt.events[..] else { panic!("{attempt:?}") };
    assert_eq!((event.as_str(), attributes["punctual.attempt"].as_str()), ("punctual.snooze", "2"));
    assert!(attributes.contains_key("punctual.retry_at") && attempt.error.is_none(), "{attempt:?}");
}
