//! Clusters of brokers whose leader is lost while events are published and received.

use super::faults::blocking;
use super::streams::{self, Place};
use super::{options, stage};
use crate::conformance::{PATIENCE, hint, received};
use punctual_core::ports::ReadyQueue;
use punctual_test_servers::Servers;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Instant;

const EVENTS: usize = 600;
const BATCH: usize = 20;

/// Asks a cluster, through the first server that answers.
async fn ask(url: &str, call: &str, body: Value) -> Option<Value> {
    let hosts = options(url).hosts;
    let servers: Vec<String> = hosts.iter().map(|host| format!("nats://{host}")).collect();
    let client = async_nats::connect(servers).await.ok()?;
    let answer = client.request(format!("$JS.API.{call}"), body.to_string().into()).await.ok()?;
    serde_json::from_slice(&answer.payload).ok()
}

/// Three servers, each with a copy of the stream. The leader of the stream is killed three times.
#[tokio::test]
async fn a_nats_cluster_that_loses_its_leader_loses_no_event() {
    let mut servers = blocking(|| Servers::start("nats-cluster").unwrap()).await;
    let url = servers.url_of_all();
    let place = Place::new(&url);
    let stream = place.topic.replace('.', "_");
    let config = json!({
        "name": stream, "subjects": [place.topic], "storage": "file", "num_replicas": 3, "retention": "workqueue",
    });
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < PATIENCE, "the cluster creates no stream");
        let created = ask(&url, &format!("STREAM.CREATE.{stream}"), config.clone()).await;
        if created.is_some_and(|answer| answer["error"].is_null()) {
            break;
        }
    }
    let (sink, source) = (place.sink(), place.source("one"));
    let (mut sent, mut arrived, mut killed) = (0, BTreeSet::new(), 0);
    let start = Instant::now();
    while arrived.len() < EVENTS {
        assert!(start.elapsed() < PATIENCE * 3, "{sent} sent, {} arrived, {killed} killed", arrived.len());
        if sent < EVENTS && sink.publish(&streams::events(sent..sent + BATCH)).await.is_ok() {
            sent += BATCH;
        }
        // An error is followed by another delivery.
        if let Ok(messages) = source.receive().await
            && !messages.is_empty()
        {
            let _ = source.acknowledge(&messages).await;
            arrived.extend(messages.iter().map(streams::id));
        }
        if killed < 3 && sent >= (killed + 1) * EVENTS / 4 {
            let about = ask(&url, &format!("STREAM.INFO.{stream}"), json!({})).await;
            let leader = about.and_then(|about| Some(about["cluster"]["leader"].as_str()?.to_owned()));
            let Some(leader) = leader else { continue };
            servers = blocking(move || {
                servers.kill(&leader).unwrap();
                servers.start_again(&leader).unwrap();
                servers
            })
            .await;
            killed += 1;
        }
    }
    assert_eq!((sent, killed), (EVENTS, 3));
    let expected: BTreeSet<String> = (0..EVENTS).map(|number| format!("id-{number}")).collect();
    assert_eq!(arrived, expected);
    // Hints work on the same servers.
    let stage = stage(&url);
    let (here, peer) = (stage.connected("here").await, stage.connected("peer").await);
    peer.publish(hint("after")).await.unwrap();
    assert_eq!(received(&here).await, hint("after"));
}
