//! Brokers that are killed, cut off, silent, emptied or absent. Hints may be lost meanwhile; afterwards they arrive
//! again, without a restart of any process.

use super::{NATS, RABBITMQ, REDIS, options, stage, url};
use crate::conformance::{PATIENCE, hint, received};
use crate::queue::BrokerQueue;
use punctual_core::ports::{ReadyHint, ReadyQueue, ReadyQueueError};
use punctual_link::{Link, NetworkFault};
use punctual_test_servers::{Servers, host_of};
use std::time::{Duration, Instant};

/// The pause between two attempts, as the engine has it.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Receives until it fails, as it does when a broker is lost.
pub(super) async fn fails(queue: &BrokerQueue) -> ReadyQueueError {
    let failing = async {
        loop {
            if let Err(error) = queue.receive().await {
                return error;
            }
        }
    };
    tokio::time::timeout(PATIENCE, failing).await.expect("no failure was noticed")
}

pub(super) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !condition().await {
        assert!(start.elapsed() < PATIENCE, "never came true: {what}");
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

/// Tries until it has connected again.
pub(super) async fn reconnects(queue: &BrokerQueue) {
    eventually("it has connected again", async || match queue.receive().await {
        Ok(ReadyHint::AnyLane) => true,
        Ok(ReadyHint::Lanes(lanes)) => panic!("it was not connected, and yet received {lanes:?}"),
        Err(_) => false,
    })
    .await;
}

/// Publishes until the broker accepts it: the connection that publishes is another one.
pub(super) async fn publishes(queue: &BrokerQueue, lane: &str) {
    eventually("the broker accepts a message", async || queue.publish(hint(lane)).await.is_ok()).await;
}

pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("the thread ends")
}

async fn a_killed_broker_is_used_again_after_its_restart(service: &'static str) {
    let mut servers = blocking(move || Servers::start(service).unwrap()).await;
    let stage = stage(&servers.all()[0].url);
    let (here, peer) = (stage.connected("here").await, stage.connected("peer").await);
    for round in 0..2 {
        let name = servers.all()[0].name.clone();
        servers = blocking(move || {
            servers.kill(&name).unwrap();
            servers
        })
        .await;
        fails(&here).await;
        fails(&peer).await;
        assert!(peer.publish(hint("lost")).await.is_err());
        let name = servers.all()[0].name.clone();
        servers = blocking(move || {
            servers.start_again(&name).unwrap();
            servers
        })
        .await;
        reconnects(&here).await;
        reconnects(&peer).await;
        let lane = format!("round{round}");
        publishes(&peer, &lane).await;
        assert_eq!(received(&here).await, hint(&lane));
    }
}

/// A process whose connections pass through a fault proxy.
async fn behind_proxy(service: &str) -> (Link, BrokerQueue, BrokerQueue) {
    let url = url(service);
    let link = Link::open(host_of(&url)).await.unwrap();
    let mut stage = stage(&url);
    let peer = stage.connected("peer").await;
    stage.options.hosts = options(&format!("{}://{}", url.split("://").next().unwrap(), link.address)).hosts;
    let here = stage.connected("here").await;
    (link, here, peer)
}

async fn cut_connections_are_replaced(service: &str) {
    let (link, here, peer) = behind_proxy(service).await;
    for round in 0..3 {
        link.set(NetworkFault::Cut);
        fails(&here).await;
        link.set(NetworkFault::Fair);
        reconnects(&here).await;
        let lane = format!("round{round}");
        publishes(&peer, &lane).await;
        assert_eq!(received(&here).await, hint(&lane));
        publishes(&here, &lane).await;
        assert_eq!(received(&peer).await, hint(&lane));
    }
}

/// Connected, but nothing arrives: neither side closes the connection.
async fn the_watchdog_replaces_a_silent_connection(service: &str) {
    for fault in [NetworkFault::AnswersHeld, NetworkFault::RequestsHeld, NetworkFault::Held] {
        let (link, here, peer) = behind_proxy(service).await;
        link.set(fault);
        let error = fails(&here).await;
        assert!(matches!(error, ReadyQueueError::Unavailable(_)), "{error}");
        link.set(NetworkFault::Fair);
        reconnects(&here).await;
        publishes(&peer, "again").await;
        assert_eq!(received(&here).await, hint("again"));
    }
}

pub(super) async fn an_absent_broker_is_reported_with_advice_and_without_the_password(scheme: &str) {
    let queue = stage(&format!("{scheme}://ann:topsecret@127.0.0.1:1,127.0.0.1:2")).process("here");
    let errors = [queue.receive().await.unwrap_err(), queue.publish(hint("a")).await.unwrap_err()];
    for error in errors {
        let said = error.to_string();
        for words in ["127.0.0.1:1,127.0.0.1:2", "check that it runs", "broker.url"] {
            assert!(said.contains(words), "{said}");
        }
        assert!(!said.contains("topsecret"), "{said}");
    }
}

macro_rules! define_for {
    ($module:ident $service:ident $scheme:literal) => {
        mod $module {
            #[tokio::test]
            async fn a_killed_broker_is_used_again_after_its_restart() {
                super::a_killed_broker_is_used_again_after_its_restart(super::$service).await;
            }

            #[tokio::test]
            async fn cut_connections_are_replaced() {
                super::cut_connections_are_replaced(super::$service).await;
            }

            #[tokio::test]
            async fn the_watchdog_replaces_a_silent_connection() {
                super::the_watchdog_replaces_a_silent_connection(super::$service).await;
            }

            #[tokio::test]
            async fn an_absent_broker_is_reported_with_advice_and_without_the_password() {
                super::an_absent_broker_is_reported_with_advice_and_without_the_password($scheme).await;
            }
        }
    };
}
define_for! { redis REDIS "redis" }
define_for! { nats NATS "nats" }
define_for! { rabbitmq RABBITMQ "amqp" }

#[tokio::test]
async fn redis_that_is_emptied_keeps_its_channels() {
    let mut servers = blocking(|| Servers::start(REDIS).unwrap()).await;
    let stage = stage(&servers.all()[0].url);
    let (here, peer) = (stage.connected("here").await, stage.connected("peer").await);
    let _servers = blocking(move || {
        servers.sql(REDIS, "FLUSHALL").unwrap();
        servers
    })
    .await;
    peer.publish(hint("a")).await.unwrap();
    assert_eq!(received(&here).await, hint("a"));
}

#[tokio::test]
async fn redis_that_rejects_the_login_says_so() {
    let mut options = options(&url(REDIS).replacen("://", "://nobody:topsecret@", 1));
    options.prefix.push_str("/login");
    let queue = crate::conformance::QueueStage { options }.process("here");
    let error = queue.receive().await.unwrap_err();
    assert!(
        matches!(&error, ReadyQueueError::Rejected(said) if said.contains("user and password")),
        "{error}"
    );
    assert!(!error.to_string().contains("topsecret"), "{error}");
}

#[tokio::test]
async fn rabbitmq_that_rejects_the_login_says_so() {
    let options = options(&url(RABBITMQ).replacen("://", "://nobody:topsecret@", 1));
    let queue = crate::conformance::QueueStage { options }.process("here");
    let error = queue.receive().await.unwrap_err();
    assert!(
        matches!(&error, ReadyQueueError::Rejected(said) if said.contains("user and password")),
        "{error}"
    );
    assert!(!error.to_string().contains("topsecret"), "{error}");
}

/// An operator deletes the objects that the processes have created, while they use them.
#[tokio::test]
async fn rabbitmq_whose_exchange_is_deleted_gets_a_new_one() {
    let url = url(RABBITMQ);
    let stage = stage(&url);
    let (here, peer) = (stage.connected("here").await, stage.connected("peer").await);
    let properties = lapin::ConnectionProperties::default();
    let operator = lapin::Connection::connect(&format!("{url}/%2f"), properties).await.unwrap();
    let channel = operator.create_channel().await.unwrap();
    let exchange = format!("{}.ready", stage.options.prefix);
    channel.exchange_delete(exchange.into(), lapin::options::ExchangeDeleteOptions::default()).await.unwrap();
    fails(&here).await;
    fails(&peer).await;
    reconnects(&here).await;
    reconnects(&peer).await;
    publishes(&peer, "again").await;
    assert_eq!(received(&here).await, hint("again"));
}
