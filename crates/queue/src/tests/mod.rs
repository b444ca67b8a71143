//! One test per conformance case and broker, and faults that all brokers must survive.

mod ensemble;
mod faults;
#[cfg(feature = "kafka")]
mod kafka;
mod redis_nodes;
mod secured;
mod streams;

use crate::conformance::{QueueStage, each_queue_case};
use crate::options::BrokerOptions;
use std::sync::atomic::{AtomicU32, Ordering};

/// The brokers: the name of the service for tests, and of the server in it.
const REDIS: &str = "redis";
const NATS: &str = "nats";
const RABBITMQ: &str = "rabbitmq";

/// The URL of a server that tests share; panics with instructions if it is not set.
fn url(service: &str) -> String {
    let variable = format!("PUNCTUAL_TEST_{}", service.to_uppercase());
    std::env::var(&variable).unwrap_or_else(|_| {
        panic!("{variable} is not set: run `cargo xtask test`, which starts servers for the tests")
    })
}

fn options(url: &str) -> BrokerOptions {
    BrokerOptions::parse(url).unwrap_or_else(|error| panic!("{url}: {error}")).expect("a broker")
}

/// A cluster that no other test uses.
fn stage(url: &str) -> QueueStage {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    QueueStage { options: options(url).below(&name) }
}

macro_rules! define_for {
    ($module:ident $service:ident $($case:ident),* $(,)?) => {
        mod $module {
            $(#[tokio::test]
            async fn $case() {
                crate::conformance::$case(super::stage(&super::url(super::$service))).await;
            })*
        }
    };
}

macro_rules! define {
    ($($case:ident),* $(,)?) => {
        define_for! { redis REDIS $($case),* }
        define_for! { nats NATS $($case),* }
        define_for! { rabbitmq RABBITMQ $($case),* }
    };
}
each_queue_case!(define);
