//! Events for other systems: they arrive through real brokers, also when the server is killed or the broker is away.

use crate::private::Private;
use crate::server::{BINARY, Server, eventually};
use punctual_core::ports::MessageSource;
use punctual_queue::{BrokerOptions, SettingNames, message_source};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::Arc;

const JOBS: usize = 500;
const BATCH: usize = 50;

/// The URL of a server that tests share.
pub fn broker(service: &str) -> String {
    let variable = format!("PUNCTUAL_TEST_{}", service.to_uppercase());
    std::env::var(&variable).unwrap_or_else(|_| {
        panic!("{variable} is not set: run `cargo xtask test`, which starts servers for the tests")
    })
}

/// A name that no other test uses.
pub fn topic(name: &str) -> String {
    format!("it-{}.{name}", std::process::id())
}

/// A consumer of a topic.
pub fn consumer(url: &str, topic: &str) -> Arc<dyn MessageSource> {
    let options = BrokerOptions::parse(url).unwrap().unwrap().configured_as(SettingNames::EVENTS);
    message_source(&options, topic, "test").unwrap()
}

/// The events that have arrived, by id. A repeated event must be the same.
#[derive(Default)]
struct Arrived(BTreeMap<String, Value>);

impl Arrived {
    async fn take_from(&mut self, source: &dyn MessageSource) {
        let Ok(messages) = source.receive().await else { return };
        for message in &messages {
            let event: Value = serde_json::from_slice(&message.body).unwrap();
            let id = event["id"].as_str().unwrap().to_owned();
            assert_eq!(message.id.as_deref(), Some(id.as_str()));
            let earlier = self.0.insert(id, event.clone());
            assert!(earlier.is_none_or(|earlier| earlier == event), "repeated with other content: {event}");
        }
        if !messages.is_empty() {
            // An error is followed by another delivery.
            let _ = source.acknowledge(&messages).await;
        }
    }

    fn jobs(&self, kind: &str) -> BTreeSet<String> {
        let events = self.0.values().filter(|event| event["type"] == kind);
        events.map(|event| event["data"]["job_id"].as_str().unwrap().to_owned()).collect()
    }
}

async fn submit_batch(server: &Server) -> Vec<String> {
    let jobs: Vec<Value> = (0..BATCH).map(|_| json!({"name": "noop", "payload": {"private": 1}})).collect();
    let (status, answer) = server.post("/api/v1/jobs/batch", &json!({"jobs": jobs}).to_string()).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    let items = answer["items"].as_array().unwrap();
    items.iter().map(|item| item["job_id"].as_str().unwrap().to_owned()).collect()
}

async fn every_event_arrives_although_the_server_is_killed(service: &str) {
    let (url, topic) = (broker(service), topic(&format!("kill.{service}")));
    let directory = tempfile::tempdir().unwrap();
    let start =
        || Server::start_in(&directory.path().join("data"), &["--events", &url, "--events-topic", &topic]);
    let source = consumer(&url, &topic);
    let (mut server, mut arrived, mut submitted) = (start(), Arrived::default(), BTreeSet::new());
    for round in 0..JOBS / BATCH {
        submitted.extend(submit_batch(&server).await);
        if round % 3 == 2 {
            // Some events of this moment are published, and some are not.
            eventually("some events arrive", async || {
                arrived.take_from(&*source).await;
                arrived.0.len() > round * BATCH / 2
            })
            .await;
            server.kill();
            server = start();
        }
    }
    eventually("all events arrive", async || {
        arrived.take_from(&*source).await;
        arrived.jobs("punctual.execution.finished") == submitted
    })
    .await;
    let event = arrived.0.values().next().unwrap();
    let (job, data) = (event["data"]["job_id"].as_str().unwrap(), &event["data"]);
    assert_eq!(event["specversion"], "1.0");
    assert_eq!((&event["source"], &event["subject"]), (&json!("/punctual"), &json!(job)));
    assert_eq!(event["time"], data["completed_at"]);
    assert_eq!(
        (&data["status"], &data["job_name"], &data["attempt"]),
        (&json!("SUCCEEDED"), &json!("noop"), &json!(1))
    );
    assert!(!event.to_string().contains("private"), "payloads are left out: {event}");
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_gets_every_event_although_the_server_is_killed() {
    every_event_arrives_although_the_server_is_killed("redis").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nats_gets_every_event_although_the_server_is_killed() {
    every_event_arrives_although_the_server_is_killed("nats").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rabbitmq_gets_every_event_although_the_server_is_killed() {
    every_event_arrives_although_the_server_is_killed("rabbitmq").await;
}

/// While the broker is away, events wait in the database, and operators see it.
#[tokio::test(flavor = "multi_thread")]
async fn events_wait_for_a_broker_that_is_away() {
    let mut private = Private::start("nats");
    let (url, topic) = (private.url("nats").to_owned(), topic("away"));
    let options = ["--events", &url, "--events-topic", &topic, "--events-payloads"];
    let server = Server::start_with(&options);
    let source = consumer(&url, &topic);
    let mut arrived = Arrived::default();
    let first: BTreeSet<String> = submit_batch(&server).await.into_iter().collect();
    eventually("events arrive", async || {
        arrived.take_from(&*source).await;
        arrived.jobs("punctual.execution.finished") == first
    })
    .await;
    private.kill("nats");
    let waiting: BTreeSet<String> = submit_batch(&server).await.into_iter().collect();
    eventually("the lag is reported", async || {
        let metrics = server.request(Method::GET, "/metrics").send().await.unwrap().text().await.unwrap();
        metrics.contains(&format!("\npunctual_events_waiting {BATCH}\n"))
            && metrics
                .lines()
                .any(|line| line.starts_with("punctual_events_lag_seconds ") && !line.ends_with(" 0"))
    })
    .await;
    eventually("nodes warn", async || {
        let (_, nodes) = server.get("/api/v1/nodes").await;
        let warnings = nodes["items"][0]["warnings"].to_string();
        warnings.contains("events are not published") && warnings.contains("events.url")
    })
    .await;
    private.start_again("nats");
    eventually("events arrive afterwards", async || {
        arrived.take_from(&*source).await;
        arrived.jobs("punctual.execution.finished").is_superset(&waiting)
    })
    .await;
    assert!(arrived.0.values().all(|event| event["data"]["payload"] == json!({"private": 1})));
    eventually("nothing waits", async || {
        let metrics = server.request(Method::GET, "/metrics").send().await.unwrap().text().await.unwrap();
        metrics.contains("\npunctual_events_waiting 0\n")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_can_be_published_alone() {
    let (url, topic) = (broker("redis"), topic("dead"));
    let options = ["--events", &url, "--events-topic", &topic, "--events-types", "dead_letter.added"];
    let server = Server::start_with(&options);
    server.submit(json!({"name": "noop"})).await;
    // Its payload is wrong, so that it fails for good.
    let failing = server.submit(json!({"name": "sleep", "payload": {}})).await;
    let source = consumer(&url, &topic);
    let mut arrived = Arrived::default();
    eventually("the dead letter arrives", async || {
        arrived.take_from(&*source).await;
        !arrived.0.is_empty()
    })
    .await;
    let (id, event) = arrived.0.first_key_value().unwrap();
    assert_eq!((arrived.0.len(), id.as_str()), (1, format!("dead_letter.added:{failing}.1.1").as_str()));
    assert_eq!(event["type"], "punctual.dead_letter.added");
    let data = &event["data"];
    assert_eq!((&data["status"], &data["job_id"]), (&json!("FAILED"), &json!(failing.to_string())));
    assert!(data["error_message"].as_str().unwrap().contains("payload"), "{data}");
}

#[test]
fn wrong_settings_of_events_are_named() {
    let directory = tempfile::tempdir().unwrap();
    for (options, words) in [
        (["--events", "kafka://ann:topsecret@a"], "cargo feature `kafka`"),
        (["--events-types", "job.finished"], "execution.finished or dead_letter.added"),
        (["--events-topic", "a..b"], "--events-topic"),
    ] {
        let mut command = Command::new(BINARY);
        command
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(options)
            .arg("--data-dir")
            .arg(directory.path());
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(words) && !said.contains("topsecret"), "{said}");
    }
}
