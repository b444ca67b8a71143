//! Clusters whose processes wake each other through a broker: it fails, comes back or was never there, while jobs are
//! submitted. None is lost, none runs twice, and schedules go on.

use crate::cluster::{Cluster, Process};
use crate::private::Private;
use crate::segments::{go_on, none_is_missed_or_doubled};
use crate::server::{BINARY, eventually};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::process::Command;
use std::time::Duration;

/// Jobs that are submitted at once.
const BATCH: usize = 300;

async fn nodes(api: &Process, cluster: &Cluster) -> Vec<Value> {
    let (status, page) = api.request(cluster, Method::GET, "/api/v1/nodes", None).await;
    assert_eq!(status, StatusCode::OK, "{page}");
    page["items"].as_array().cloned().unwrap_or_default()
}

/// Waits until all processes receive hints, or none of them does.
async fn all_are(connected: bool, count: usize, api: &Process, cluster: &Cluster) {
    eventually(&format!("connected is {connected} for {count} processes"), async || {
        let nodes = nodes(api, cluster).await;
        nodes.len() == count && nodes.iter().all(|node| node["ready_queue_connected"] == connected)
    })
    .await;
}

/// Submits jobs that do nothing.
async fn submit_batch(api: &Process, cluster: &Cluster) {
    let jobs: Vec<Value> = (0..BATCH).map(|_| json!({"name": "noop", "queue": "bulk"})).collect();
    let body = Some(json!({"jobs": jobs}));
    let (status, body) = api.request(cluster, Method::POST, "/api/v1/jobs/batch", body).await;
    assert!(status.is_success(), "{status}: {body}");
}

/// Waits until all jobs of this many batches have run, and checks that each of them ran once.
async fn all_ran_once(batches: usize, api: &Process, cluster: &Cluster) {
    let mut ran = std::collections::BTreeMap::<String, usize>::new();
    eventually("all jobs have run", async || {
        ran.clear();
        let mut path = "/api/v1/executions?status=SUCCEEDED&queue=bulk&limit=500".to_owned();
        loop {
            let (status, page) = api.request(cluster, Method::GET, &path, None).await;
            assert_eq!(status, StatusCode::OK, "{page}");
            for execution in page["items"].as_array().unwrap() {
                *ran.entry(execution["job_id"].as_str().unwrap().to_owned()).or_default() += 1;
            }
            let Some(cursor) = page["next_cursor"].as_str() else { break };
            path = format!("/api/v1/executions?status=SUCCEEDED&queue=bulk&limit=500&cursor={cursor}");
        }
        ran.len() == batches * BATCH
    })
    .await;
    assert!(ran.values().all(|runs| *runs == 1), "{ran:?}");
}

/// An API node, a scheduler and two workers that use a broker.
struct Processes {
    api: Process,
    _others: [Process; 3],
}

impl Processes {
    fn start(cluster: &Cluster, broker: &str) -> Self {
        let start = |role: &[&str]| cluster.start(&[role, &["--broker", broker]].concat());
        Processes {
            api: start(&["api", "--listen", "127.0.0.1:0"]),
            _others: [
                start(&["scheduler", "--health-listen", "127.0.0.1:0"]),
                start(&["worker", "--worker-name", "one"]),
                start(&["worker", "--worker-name", "two"]),
            ],
        }
    }
}

async fn a_cluster_outlives(service: &str) {
    let mut server = Private::start(service);
    let url = server.url(service).to_owned();
    Cluster::with(async |cluster| {
        let Processes { api, _others } = Processes::start(cluster, &url);
        all_are(true, 4, &api, cluster).await;
        let (_, ready) = api.request(cluster, Method::GET, "/readyz", None).await;
        assert_eq!(ready, json!({"status": "ready", "ready_queue": "connected"}));
        let kind = url.split("://").next().unwrap();
        assert!(nodes(&api, cluster).await.iter().all(|node| node["ready_queue"] == kind));

        let recurring = json!({"name": "noop", "schedule_type": "RECURRING", "interval": "1s", "overlap_policy": "ALLOW"});
        let recurring = [api.submit(cluster, recurring).await];
        for _ in 0..2 {
            submit_batch(&api, cluster).await;
        }
        server.kill(service);
        for _ in 0..2 {
            submit_batch(&api, cluster).await;
        }
        all_are(false, 4, &api, cluster).await;
        // Schedules go on while the queue is gone, and so does everything else.
        submit_batch(&api, cluster).await;
        go_on(&api, cluster, &recurring).await;
        all_ran_once(5, &api, cluster).await;
        let (status, ready) = api.request(cluster, Method::GET, "/readyz", None).await;
        assert_eq!((status, &ready["ready_queue"]), (StatusCode::OK, &json!("disconnected")));
        let warnings = nodes(&api, cluster).await[0]["warnings"].to_string();
        assert!(warnings.contains("broker.url") && warnings.contains("polls the database"), "{warnings}");

        server.start_again(service);
        submit_batch(&api, cluster).await;
        all_are(true, 4, &api, cluster).await;
        submit_batch(&api, cluster).await;
        all_ran_once(7, &api, cluster).await;
        none_is_missed_or_doubled(&api, cluster, &recurring, Duration::from_secs(1)).await;
        assert!(nodes(&api, cluster).await.iter().all(|node| node["warnings"] == json!([])));
        let (_, metrics) = api.request(cluster, Method::GET, "/metrics", None).await;
        let metrics = metrics.as_str().expect("text");
        assert!(metrics.contains(&format!("punctual_ready_queue_connected{{kind=\"{kind}\"}} 1\n")), "{metrics}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_outlives_its_redis_broker() {
    a_cluster_outlives("redis").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_outlives_its_nats() {
    a_cluster_outlives("nats").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_outlives_its_rabbitmq() {
    a_cluster_outlives("rabbitmq").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_starts_without_its_broker_and_uses_it_when_it_is_there() {
    let mut server = Private::start("redis");
    let url = server.url("redis").to_owned();
    server.kill("redis");
    Cluster::with(async |cluster| {
        let Processes { api, _others } = Processes::start(cluster, &url);
        submit_batch(&api, cluster).await;
        all_ran_once(1, &api, cluster).await;
        all_are(false, 4, &api, cluster).await;
        server.start_again("redis");
        all_are(true, 4, &api, cluster).await;
        server.sql("redis", "FLUSHALL");
        submit_batch(&api, cluster).await;
        all_ran_once(2, &api, cluster).await;
    })
    .await;
}

#[tokio::test]
async fn a_broker_is_for_processes_that_share_a_store() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |broker: &str| {
        let mut command = Command::new(BINARY);
        command.args(["serve", "--listen", "127.0.0.1:0", "--broker", broker, "--data-dir"]);
        let output = command.arg(directory.path()).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let said = refused("redis://127.0.0.1:1");
    assert!(said.contains("broker.url is for processes that share a store"), "{said}");
    let said = refused("kafka://ann:topsecret@127.0.0.1:1");
    assert!(said.contains("cargo feature `kafka`") && !said.contains("topsecret"), "{said}");
}
