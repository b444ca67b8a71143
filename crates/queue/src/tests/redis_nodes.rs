//! Several servers of Redis: a primary that sentinels choose, and a cluster that shares the keys.

use super::faults::{blocking, eventually, fails, publishes, reconnects};
use super::streams::{self, Place};
use super::{options, stage};
use crate::conformance::{QueueStage, hint, received};
use punctual_core::ports::{ReadyQueue, ReadyQueueError};
use punctual_test_servers::{Servers, host_of};
use std::collections::BTreeSet;

async fn start(service: &'static str) -> Servers {
    blocking(move || Servers::start(service).unwrap()).await
}

/// The URL of the sentinels; the primary has this name.
fn sentinels(servers: &Servers, primary: &str) -> String {
    let sentinels = servers.all().iter().filter(|server| server.name.contains("sentinel"));
    let hosts: Vec<&str> = sentinels.map(|server| host_of(&server.url)).collect();
    format!("redis://{}?sentinel={primary}", hosts.join(","))
}

async fn kill(mut servers: Servers, name: &'static str) -> Servers {
    blocking(move || {
        servers.kill(name).unwrap();
        servers
    })
    .await
}

/// What a command on a server prints.
async fn said(mut servers: Servers, name: &'static str, command: String) -> (Servers, String) {
    blocking(move || {
        let said = servers.sql(name, &command).unwrap();
        (servers, said)
    })
    .await
}

#[tokio::test]
async fn hints_follow_the_primary_that_sentinels_choose() {
    let servers = start("redis-sentinel").await;
    let stage = stage(&sentinels(&servers, "punctual"));
    let (here, peer) = (stage.connected("here").await, stage.connected("peer").await);
    peer.publish(hint("before")).await.unwrap();
    assert_eq!(received(&here).await, hint("before"));
    let mut servers = kill(servers, "redis-primary").await;
    fails(&here).await;
    fails(&peer).await;
    reconnects(&here).await;
    reconnects(&peer).await;
    publishes(&peer, "after").await;
    assert_eq!(received(&here).await, hint("after"));
    // The old primary comes back and believes at first that it still is one.
    let _servers = blocking(move || {
        servers.start_again("redis-primary").unwrap();
        servers
    })
    .await;
    let third = stage.connected("third").await;
    third.publish(hint("again")).await.unwrap();
    assert_eq!(received(&here).await, hint("again"));
}

#[tokio::test]
async fn streams_follow_the_primary_that_sentinels_choose() {
    let mut servers = start("redis-sentinel").await;
    let place = Place::new(&sentinels(&servers, "punctual"));
    let (sink, source) = (place.sink(), place.source("one"));
    sink.publish(&streams::events(0..50)).await.unwrap();
    // A failover loses what no replica has received.
    for replica in ["redis-replica-1", "redis-replica-2"] {
        loop {
            let length;
            (servers, length) = said(servers, replica, format!("XLEN {}", place.topic)).await;
            if length.trim() == "50" {
                break;
            }
        }
    }
    let servers = kill(servers, "redis-primary").await;
    eventually("the new primary takes events", async || sink.publish(&streams::events(50..60)).await.is_ok())
        .await;
    let mut arrived = BTreeSet::new();
    eventually("all events arrive", async || {
        let Ok(messages) = source.receive().await else { return false };
        let _ = source.acknowledge(&messages).await;
        arrived.extend(messages.iter().map(streams::id));
        arrived.len() == 60
    })
    .await;
    drop(servers);
}

#[tokio::test]
async fn a_primary_that_no_sentinel_knows_is_named() {
    let servers = start("redis-sentinel").await;
    let error = stage(&sentinels(&servers, "mymaster")).process("here").receive().await.unwrap_err();
    assert!(
        matches!(&error, ReadyQueueError::Rejected(said) if said.contains("mymaster") && said.contains("broker.url")),
        "{error}"
    );
}

#[tokio::test]
async fn hints_reach_processes_at_every_node_of_a_cluster() {
    let servers = start("redis-cluster").await;
    let all = stage(&servers.url_of_all());
    let at = |node: usize| {
        let mut options = all.options.clone();
        options.hosts = vec![options.hosts[node].clone()];
        QueueStage { options }
    };
    let (one, two, three) =
        (at(0).connected("one").await, at(1).connected("two").await, at(2).connected("three").await);
    let anywhere = all.connected("anywhere").await;
    for (sender, lane) in [(&one, "a"), (&two, "b"), (&three, "c")] {
        sender.publish(hint(lane)).await.unwrap();
        for receiver in [&one, &two, &three, &anywhere] {
            if !std::ptr::eq(receiver, sender) {
                assert_eq!(received(receiver).await, hint(lane));
            }
        }
    }
    let _servers = kill(servers, "redis-cluster-1").await;
    fails(&anywhere).await;
    reconnects(&anywhere).await;
    publishes(&three, "without-one").await;
    assert_eq!(received(&anywhere).await, hint("without-one"));
    assert_eq!(received(&two).await, hint("without-one"));
}

/// A topic and that of its rejected messages are on different nodes in general.
#[tokio::test]
async fn streams_are_on_the_node_that_has_their_key() {
    let servers = start("redis-cluster").await;
    assert_eq!(options(&servers.url_of_all()).hosts.len(), 3);
    for _ in 0..6 {
        streams::a_rejected_message_is_stored_separately(Place::new(&servers.url_of_all())).await;
    }
}
