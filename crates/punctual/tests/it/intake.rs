//! Jobs that other systems submit through real brokers: each message creates one job, also when the server is killed.

use crate::outbox::{broker, consumer, topic};
use crate::server::{BINARY, Server, eventually};
use punctual_core::ports::{EventSink, OutgoingEvent};
use punctual_queue::{BrokerOptions, SettingNames, event_sink};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const MESSAGES: usize = 500;
const BATCH: usize = 50;

/// A producer of messages.
fn producer(url: &str, topic: &str) -> Arc<dyn EventSink> {
    let options = BrokerOptions::parse(url).unwrap().unwrap().configured_as(SettingNames::INTAKE);
    event_sink(&options, topic).unwrap()
}

fn message(id: &str, body: &Value) -> OutgoingEvent {
    OutgoingEvent { id: id.to_owned(), kind: "order.placed", subject: id.to_owned(), body: body.to_string() }
}

/// A job alone, or in a CloudEvent.
fn job(number: usize) -> OutgoingEvent {
    let id = format!("order-{number}");
    let job = json!({"name": "noop", "payload": {"order": number}});
    if number.is_multiple_of(2) {
        return message(&id, &job);
    }
    let event =
        json!({"specversion": "1.0", "id": id, "source": "/shop", "type": "order.placed", "data": job});
    message(&id, &event)
}

fn start(directory: &Path, url: &str, topic: &str) -> Server {
    let options = ["--intake", url, "--intake-topic", topic, "--intake-owner", "shop"];
    Server::start_in(&directory.join("data"), &options)
}

/// The jobs of the owner: how many there are for each order.
async fn orders(server: &Server) -> BTreeMap<u64, usize> {
    let mut orders = BTreeMap::new();
    let mut path = "/api/v1/jobs?owner=shop&limit=500".to_owned();
    loop {
        let (_, page) = server.get(&path).await;
        for job in page["items"].as_array().unwrap_or_else(|| panic!("{page}")) {
            let (_, job) = server.get(&format!("/api/v1/jobs/{}", job["job_id"].as_str().unwrap())).await;
            *orders.entry(job["payload"]["order"].as_u64().unwrap()).or_default() += 1;
        }
        let Some(cursor) = page["next_cursor"].as_str() else { return orders };
        path = format!("/api/v1/jobs?owner=shop&limit=500&cursor={cursor}");
    }
}

async fn count(server: &Server) -> usize {
    let (_, page) = server.get("/api/v1/jobs?owner=shop&limit=500").await;
    let rest = usize::from(page["next_cursor"].is_string());
    page["items"].as_array().map_or(0, Vec::len) + rest
}

async fn every_message_creates_one_job_although_the_server_is_killed(service: &str) {
    let (url, topic) = (broker(service), topic(&format!("jobs.{service}")));
    let directory = tempfile::tempdir().unwrap();
    let producer = producer(&url, &topic);
    let mut server = start(directory.path(), &url, &topic);
    for round in 0..MESSAGES / BATCH {
        let jobs: Vec<OutgoingEvent> = (round * BATCH..(round + 1) * BATCH).map(job).collect();
        producer.publish(&jobs).await.unwrap();
        if round == 2 {
            let bad = message("bad", &json!({"name": "noop", "max_retrys": 3}));
            let foreign = message("foreign", &json!({"name": "noop", "owner_id": "bank"}));
            producer.publish(&[bad, foreign]).await.unwrap();
        }
        if round % 3 == 1 {
            eventually("some jobs arrive", async || count(&server).await > round * BATCH / 2).await;
            server.kill();
            server = start(directory.path(), &url, &topic);
        }
    }
    eventually("all jobs arrive", async || count(&server).await >= MESSAGES).await;
    // A producer that repeats what it has sent, under the same ids.
    producer.publish(&[job(0), job(1)]).await.unwrap();
    let rejected = consumer(&url, &format!("{topic}.rejected"));
    let mut bodies = vec![];
    eventually("both bad messages were rejected", async || {
        let messages = rejected.receive().await.unwrap();
        if !messages.is_empty() {
            rejected.acknowledge(&messages).await.unwrap();
        }
        bodies.extend(messages.iter().map(|message| String::from_utf8(message.body.clone()).unwrap()));
        bodies.iter().any(|body| body.contains("max_retrys"))
            && bodies.iter().any(|body| body.contains("bank"))
    })
    .await;
    // The repeated messages have been received when a later one has arrived.
    producer.publish(&[job(MESSAGES)]).await.unwrap();
    eventually("the last job arrives", async || orders(&server).await.contains_key(&(MESSAGES as u64))).await;
    let orders = orders(&server).await;
    assert_eq!(orders.len(), MESSAGES + 1);
    assert!(orders.values().all(|jobs| *jobs == 1), "{orders:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_message_of_redis_creates_one_job_although_the_server_is_killed() {
    every_message_creates_one_job_although_the_server_is_killed("redis").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_message_of_nats_creates_one_job_although_the_server_is_killed() {
    every_message_creates_one_job_although_the_server_is_killed("nats").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_message_of_rabbitmq_creates_one_job_although_the_server_is_killed() {
    every_message_creates_one_job_although_the_server_is_killed("rabbitmq").await;
}

#[test]
fn jobs_of_messages_need_an_owner() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(BINARY);
    command.args(["serve", "--listen", "127.0.0.1:0", "--intake", "redis://127.0.0.1:1", "--data-dir"]);
    let output = command.arg(directory.path()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("intake.owner"), "{said}");
}
