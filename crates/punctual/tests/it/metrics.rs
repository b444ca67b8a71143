//! The metrics of a real server, checked by Prometheus' own tool; and the alerts that come with it.

use crate::server::{Server, eventually};
use punctual_client::SubmitJob;
use punctual_core::job::JobStatus;
use reqwest::{Method, StatusCode};
use serde_json::json;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const NEEDS_PROMTOOL: &str = "this test needs promtool, which comes with Prometheus";

/// Fails if promtool reports anything about these metrics.
fn check_metrics(text: &str) {
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect(NEEDS_PROMTOOL);
    promtool.stdin.take().expect("stdin is piped").write_all(text.as_bytes()).expect("it reads");
    let output = promtool.wait_with_output().expect("promtool ends");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && said.is_empty(), "{}\n{text}", String::from_utf8_lossy(&said));
}

async fn metrics(server: &Server) -> String {
    let response = server.request(Method::GET, "/metrics").send().await.expect("an answer");
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    response.text().await.expect("a body")
}

/// The value of a line, given the part before it.
fn value(text: &str, series: &str) -> Option<f64> {
    let line =
        text.lines().find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')))?;
    line.rsplit(' ').next()?.parse().ok()
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[tokio::test]
async fn promtool_finds_nothing_wrong_with_the_metrics_of_a_busy_server() {
    let server = Server::start_with(&["--allow", "shell"]);
    check_metrics(&metrics(&server).await);
    let client = server.client();
    let done = client.submit(&SubmitJob::named("noop")).await.unwrap().job_id;
    client.wait(done).await.unwrap();
    let failing =
        json!({"name": "fails", "job_type": "shell", "payload": {"script": "exit 1"}, "max_retries": 0});
    let failing = server.submit(failing).await;
    eventually("it has failed", async || client.job(failing).await.unwrap().status == JobStatus::Failed)
        .await;
    // Users choose these names.
    server.submit(json!({"name": "nobody \"runs\" \\ this", "queue": "späte \"Züge\""})).await;
    let paused = server.submit(json!({"name": "noop", "delay": "1h"})).await;
    let (status, _) = server.post(&format!("/api/v1/jobs/{paused}/pause"), "").await;
    assert_eq!(status, StatusCode::OK);
    let (status, _) = server.get("/nowhere").await;
    assert_eq!(status, StatusCode::NOT_FOUND);

    let text = metrics(&server).await;
    check_metrics(&text);
    for (series, expected) in [
        ("punctual_jobs{status=\"active\"}", 1.0),
        ("punctual_jobs{status=\"paused\"}", 1.0),
        ("punctual_jobs{status=\"completed\"}", 1.0),
        ("punctual_jobs{status=\"failed\"}", 1.0),
        ("punctual_dead_letters", 1.0),
        ("punctual_jobs_submitted_total", 4.0),
        ("punctual_executions_finished_total{status=\"succeeded\"}", 1.0),
        ("punctual_executions_finished_total{status=\"failed\"}", 1.0),
        ("punctual_execution_duration_seconds_count{outcome=\"failed\"}", 1.0),
        ("punctual_queue_wait_seconds_count", 2.0),
        ("punctual_start_lateness_seconds_count", 2.0),
        ("punctual_submit_duration_seconds_count", 4.0),
        ("punctual_worker_sessions", 1.0),
        ("punctual_http_requests_total{method=\"POST\",route=\"/api/v1/jobs\",status=\"2xx\"}", 4.0),
        (
            "punctual_http_requests_total{method=\"POST\",route=\"/api/v1/jobs/{id}/pause\",status=\"2xx\"}",
            1.0,
        ),
        ("punctual_http_requests_total{method=\"GET\",route=\"(none)\",status=\"4xx\"}", 1.0),
    ] {
        assert_eq!(value(&text, series), Some(expected), "{series}\n{text}");
    }
    for series in [
        "punctual_store_database_bytes",
        "punctual_store_transaction_duration_seconds_count",
        "punctual_http_connections",
        "punctual_start_time_seconds",
        "punctual_worker_slots",
    ] {
        assert!(value(&text, series).is_some_and(|value| value > 0.0), "{series}\n{text}");
    }
}

#[tokio::test]
async fn what_the_reference_page_lists_is_what_is_served() {
    let server = Server::start();
    let text = metrics(&server).await;
    let served: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert_eq!(served, documented());
}

/// The names on the reference page.
fn documented() -> Vec<&'static str> {
    let page = include_str!("../../../../docs/reference/metrics.md");
    page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect()
}

#[tokio::test]
async fn metrics_need_a_token() {
    let server = Server::start();
    let response = server.anonymous(Method::GET, "/metrics").send().await.unwrap();
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    let text = metrics(&server).await;
    let refused = "punctual_http_requests_total{method=\"GET\",route=\"/metrics\",status=\"4xx\"}";
    assert_eq!(value(&text, refused), Some(1.0), "who is refused is counted as well");
}

#[test]
fn promtool_accepts_the_alerts_and_they_fire_when_they_should() {
    let folder = repository().join("deploy/prometheus");
    for arguments in [["check", "rules", "rules.yaml"], ["test", "rules", "rules_test.yaml"]] {
        let output =
            Command::new("promtool").args(arguments).current_dir(&folder).output().expect(NEEDS_PROMTOOL);
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&said));
    }
}

#[test]
fn alerts_are_about_metrics_that_there_are() {
    let rules = std::fs::read_to_string(repository().join("deploy/prometheus/rules.yaml")).unwrap();
    let documented: BTreeSet<&str> = documented().into_iter().collect();
    let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
    let named: BTreeSet<&str> =
        rules.split(|c| !is_part(c)).filter(|word| word.starts_with("punctual_")).collect();
    assert!(named.len() >= 8, "{named:?}");
    for name in named {
        let family = name.strip_suffix("_bucket").unwrap_or(name);
        assert!(documented.contains(family), "{name} is not served");
    }
}
