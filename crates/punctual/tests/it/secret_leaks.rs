//! The value of a secret of a failing job, looked for in everything that leaves the server.

use crate::changed_access::Followed;
use crate::http::web::{Answer, Web};
use crate::notifications::{OPTIONS, put};
use crate::outbox::{broker, consumer, topic};
use crate::server::{BINARY, Server, eventually};
use crate::tracing::collector::Collector;
use reqwest::Method;
use serde_json::json;

const VALUE: &str = "hunter2-of-the-leak-test";
/// In Base64, whatever precedes it.
const VALUE_BASE64: [&str; 3] = [
    "aHVudGVyMi1vZi10aGUtbGVhay10ZXN0",
    "h1bnRlcjItb2YtdGhlLWxlYWstdGVzd",
    "odW50ZXIyLW9mLXRoZS1sZWFrLXRlc3",
];
const REDACTED: &str = "[secret token]";

fn holds_no_value(what: &str, text: &str) {
    for value in [VALUE].iter().chain(&VALUE_BASE64) {
        assert!(!text.contains(value), "{what}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_of_a_failing_job_is_in_nothing_that_leaves_the_server() {
    let (events, topic) = (broker("redis"), topic("leaks"));
    let source = consumer(&events, &topic);
    let collector = Collector::start().await;
    let web = Web::answering(Answer::status("200 OK", "")).await;
    let folder = tempfile::tempdir().unwrap();
    let (data, log) = (folder.path().join("data"), folder.path().join("log"));
    let script = format!(
        "exec {BINARY} serve --listen 127.0.0.1:0 --allow shell --data-dir {} --log-level debug --log-format json --log-output \
         --tracing-endpoint {} --events {events} --events-topic {topic} --events-payloads {} 2>{}",
        data.display(),
        collector.url(),
        OPTIONS.join(" "),
        log.display()
    );
    let server = Server::start_through(&["sh", "-c", &script], &data);
    let (status, body) = put(&server, "/secrets/token", json!({"value": VALUE, "owners": ["*"]})).await;
    assert!(status.is_success(), "{body}");
    let hook = json!({"type": "webhook", "url": web.url("/hook"), "include_logs": true});
    assert!(put(&server, "/channels/hook", hook).await.0.is_success());
    let mut stream = Followed::open(server.request(Method::GET, "/api/v1/events")).await;

    let script = "echo \"out $TOKEN\"; echo \"it is $TOKEN\" >&2; exit 3";
    let job = server
        .submit(json!({"name": "leaks", "job_type": "shell", "max_retries": 0,
            "payload": {"script": script, "env": {"TOKEN": {"$secret": "token"}}},
            "notify": {"on_failure": "hook"}}))
        .await;
    let logs = format!("/api/v1/jobs/{job}/logs");
    let mut lines = Followed::open(server.request(Method::GET, &format!("{logs}?follow=true"))).await;
    lines.until("event: end").await;
    stream.until("exited with code 3").await;
    let spans = collector.of_job(&job.to_string(), &[("submit", 1), ("attempt", 1), ("report", 1)]).await;
    eventually("the webhook arrives", async || !web.asked().is_empty()).await;
    let mut published = String::new();
    eventually("the broker has the end of the execution", async || {
        for message in source.receive().await.unwrap_or_default() {
            published += std::str::from_utf8(&message.body).expect("text");
        }
        published.contains("punctual.execution.finished")
    })
    .await;

    let told: String =
        web.asked().iter().map(|asked| String::from_utf8_lossy(&asked.body).into_owned()).collect();
    for (what, text) in [
        ("the stream of events", &stream.text),
        ("the followed log", &lines.text),
        ("the webhook", &told),
        ("the broker", &published),
    ] {
        holds_no_value(what, text);
        assert!(text.contains(REDACTED), "{what} does not show the place of the value: {text}");
    }
    holds_no_value("spans", &format!("{spans:?}"));
    for asked in collector.web().asked() {
        holds_no_value("what the collector got", &String::from_utf8_lossy(&asked.body));
    }
    holds_no_value("an export", &server.said(&["export"]));
    for path in [
        &format!("/api/v1/logs?grep={VALUE}"),
        "/api/v1/logs?grep=secret",
        &logs,
        &format!("/api/v1/jobs/{job}"),
        &format!("/api/v1/jobs/{job}/executions"),
        &format!("/api/v1/jobs/{job}/explain"),
        &format!("/api/v1/executions/{job}.1.1"),
        "/api/v1/dead-letters",
        "/api/v1/audit",
        "/api/v1/notifications/deliveries",
        "/api/v1/secrets",
        "/metrics",
    ] {
        let response = server.request(Method::GET, path).send().await.unwrap();
        assert!(response.status().is_success(), "{path}: {}", response.status());
        let text = response.text().await.unwrap();
        // The search repeats what it was asked for at most.
        holds_no_value(path, &text);
    }
    server.stop();
    let logged = std::fs::read_to_string(&log).unwrap();
    assert!(
        logged.contains(REDACTED) && logged.contains("DEBUG"),
        "the log has the output of jobs, and details"
    );
    holds_no_value("the log of the server", &logged);
}
