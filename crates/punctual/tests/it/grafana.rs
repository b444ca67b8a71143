//! The dashboards for Grafana: a real Prometheus scrapes a server, and answers the query of every panel.

use crate::http::web::{Answer, Web};
use crate::server::{Server, answer, eventually, http_client};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A Prometheus that scrapes one server every second. Killed on drop.
struct Prometheus {
    child: Child,
    address: String,
    _folder: TempDir,
}

impl Prometheus {
    fn scraping(server: &Server) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        std::fs::write(&token, &server.token).unwrap();
        let config = json!({
            "global": {"scrape_interval": "1s"},
            "scrape_configs": [{
                "job_name": "punctual",
                "authorization": {"credentials_file": token},
                "static_configs": [{"targets": [server.address]}],
            }],
        });
        let file = folder.path().join("prometheus.yaml");
        // Every JSON text is YAML.
        std::fs::write(&file, config.to_string()).unwrap();
        let mut child = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg("--web.listen-address=127.0.0.1:0")
            .arg("--enable-feature=exemplar-storage")
            .stderr(Stdio::piped())
            .spawn()
            .expect("this test needs prometheus, which `cargo xtask tools` unpacks");
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines.by_ref().map(Result::unwrap).find_map(|line| {
            let (_, address) = line.split_once("msg=\"Listening on\" address=")?;
            Some(address.trim().to_owned())
        });
        // Its output is read to the end, so that it never waits for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Prometheus { child, address: address.expect("it listens"), _folder: folder }
    }

    async fn query(&self, expression: &str) -> Vec<Value> {
        let data = self.read("query", &[("query", expression)]).await;
        data["result"].as_array().cloned().unwrap_or_default()
    }

    /// The labels of the exemplars of a metric.
    async fn exemplars(&self, metric: &str) -> Vec<Value> {
        let range = [("query", metric), ("start", "0"), ("end", "9999999999")];
        let series = self.read("query_exemplars", &range).await.as_array().cloned().unwrap_or_default();
        series
            .iter()
            .flat_map(|one| one["exemplars"].as_array().unwrap())
            .map(|one| one["labels"].clone())
            .collect()
    }

    /// Null as long as it is not ready: it listens before it is.
    async fn read(&self, route: &str, parameters: &[(&str, &str)]) -> Value {
        let url = format!("http://{}/api/v1/{route}", self.address);
        let (status, body) = answer(http_client().get(url).query(parameters)).await;
        if status == StatusCode::SERVICE_UNAVAILABLE {
            return Value::Null;
        }
        assert_eq!(body["status"], "success", "{parameters:?}: {body}");
        body["data"].clone()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Every panel's title and query of a dashboard, with a value for each variable.
fn queries(dashboard: &Value) -> Vec<(String, String)> {
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let mut found = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let mut query = target["expr"].as_str().unwrap().replace("$__rate_interval", "1m");
            for variable in variables {
                query = query.replace(&format!("${}", variable["name"].as_str().unwrap()), ".*");
            }
            assert!(!query.contains('$'), "{query} has a variable that the dashboard does not declare");
            found.push((panel["title"].as_str().unwrap().to_owned(), query));
        }
    }
    found
}

#[tokio::test]
async fn prometheus_answers_the_query_of_every_panel() {
    let server = Server::start_with(&["--slots", "2", "--metrics-jobs-max", "10"]);
    server.submit(json!({"name": "tick", "job_type": "noop", "interval": "1s"})).await;
    let nap = json!({"name": "nap", "job_type": "sleep", "payload": {"ms": 600_000}, "timeout_secs": 900});
    server.submit(nap).await;
    let prometheus = Prometheus::scraping(&server);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/grafana/dashboards");
    let mut dashboards = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let dashboard: Value = serde_json::from_slice(&std::fs::read(file.unwrap().path()).unwrap()).unwrap();
        for variable in dashboard["templating"]["list"].as_array().unwrap() {
            // label_values(SELECTOR, LABEL)
            let Some(definition) = variable["definition"].as_str() else { continue };
            let (selector, _) = definition.trim_start_matches("label_values(").rsplit_once(',').unwrap();
            let selector = selector.replace("$instance", ".*").replace("$owner", ".*");
            eventually(definition, async || !prometheus.query(&selector).await.is_empty()).await;
        }
        for (title, query) in queries(&dashboard) {
            let what = format!("{}: {title}: {query}", dashboard["title"]);
            eventually(&what, async || !prometheus.query(&query).await.is_empty()).await;
        }
        dashboards += 1;
    }
    assert_eq!(dashboards, 4);
    let ended = prometheus.query("max(punctual_job_last_success_timestamp{job_name=\"tick\"})").await;
    let at: f64 = ended[0]["value"][1].as_str().unwrap().parse().unwrap();
    assert!(at > 1.7e9, "{at} is in seconds since 1970");
}

#[tokio::test]
async fn prometheus_finds_the_traces_of_runs_in_the_histogram_of_durations() {
    let collector = Web::answering(Answer::status("200 OK", "")).await;
    let server = Server::start_with(&["--tracing-endpoint", &collector.url("")]);
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let request = server.request(Method::POST, "/api/v1/jobs").json(&json!({"name": "noop"}));
    let parent = format!("00-{trace}-b7ad6b7169203331-01");
    let (status, body) = answer(request.header("traceparent", parent)).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    let prometheus = Prometheus::scraping(&server);
    eventually("the trace is an exemplar", async || {
        let found = prometheus.exemplars("punctual_execution_duration_seconds_bucket").await;
        found.contains(&json!({"trace_id": trace}))
    })
    .await;
    // All other metrics are read in this format, too.
    eventually("counters have values", async || {
        !prometheus.query("punctual_jobs_submitted_total == 1").await.is_empty()
    })
    .await;
}
