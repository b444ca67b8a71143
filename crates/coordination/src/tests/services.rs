//! Tests for every service: the conformance suite, the errors when it is unavailable, and entries that
//! another program has written among those of a cluster.

use super::server::{adapter, prefix, url};
use super::strange;
use crate::CoordinationOptions;
use crate::conformance::{Stage, Time, all_names};
use punctual_core::ports::{Coordination, CoordinationError, Joining, LeaseName, MemberId, Standing, Take};
use std::sync::Arc;
use std::time::Duration;

/// A service, and its properties that the suite depends on.
#[derive(Debug, Clone, Copy)]
pub struct Service {
    /// The environment variable with the URL of the server.
    variable: &'static str,
    pub scheme: &'static str,
    ttl: Duration,
}

/// It accepts no shorter time for a lease than it needs to elect a leader, which is two seconds by default.
pub const ETCD: Service =
    Service { variable: "PUNCTUAL_TEST_ETCD", scheme: "etcd", ttl: Duration::from_secs(2) };
pub const REDIS: Service =
    Service { variable: "PUNCTUAL_TEST_REDIS", scheme: "redis", ttl: Duration::from_millis(1_200) };
pub const ZOOKEEPER: Service =
    Service { variable: "PUNCTUAL_TEST_ZOOKEEPER", scheme: "zookeeper", ttl: Duration::from_secs(2) };

impl Service {
    pub fn url(self) -> String {
        url(self.variable)
    }

    /// A separate cluster on the provided server.
    pub fn options(self) -> CoordinationOptions {
        options(&self.url()).below(&prefix())
    }

    pub fn stage(self) -> Stage {
        self.stage_at(&self.url())
    }

    pub fn stage_at(self, url: &str) -> Stage {
        self.stage_of(&options(url).below(&prefix()))
    }

    /// Connections to this cluster.
    pub fn stage_of(self, here: &CoordinationOptions) -> Stage {
        Stage {
            doors: (0..3).map(|_| adapter(here)).collect(),
            elsewhere: adapter(&here.clone().below("elsewhere")),
            ttl: self.ttl,
            time: Time::Real,
        }
    }

    /// A new member with this name, which stays for as long as the service allows without a heartbeat.
    pub async fn joined(self, door: &Arc<dyn Coordination>, name: &str) -> MemberId {
        let member = MemberId::new(name).unwrap();
        let joining = Joining { member: member.clone(), card: name.to_owned(), ttl: Duration::from_secs(30) };
        assert_eq!(door.join(joining).await, Ok(Standing::Alive));
        member
    }
}

fn options(url: &str) -> CoordinationOptions {
    url.parse().unwrap_or_else(|error| panic!("{url}: {error}"))
}

async fn one_that_is_away_is_named_with_what_to_do_and_without_the_password(service: Service) {
    let options = options(&format!("{}://ann:topsecret@127.0.0.1:1,127.0.0.1:2", service.scheme));
    let said = match adapter(&options).look().await {
        Err(CoordinationError::Unavailable(said)) => said,
        other => panic!("{other:?}"),
    };
    for words in ["127.0.0.1:1", "127.0.0.1:2", "check that it runs"] {
        assert!(said.contains(words), "{said}");
    }
    assert!(!said.contains("topsecret"), "{said}");
}

async fn a_host_that_is_away_is_passed_over(service: Service) {
    let options = options(&service.url().replacen("://", "://127.0.0.1:1,", 1)).below(&prefix());
    service.joined(&adapter(&options), "member").await;
}

async fn what_cannot_be_read_is_passed_over_and_in_nobodys_way(service: Service) {
    let options = service.options();
    let doors: Vec<Arc<dyn Coordination>> = (0..2).map(|_| adapter(&options)).collect();
    let first = service.joined(&doors[0], "first").await;
    let held = doors[0].take(&first, all_names()).await.unwrap();
    for id in ["no id", "for-ever"] {
        strange::member(&options, id).await;
    }
    for (name, holder) in [
        ("tail", &b"first"[..]),
        ("leader", b"no id"),
        ("segment-00", b"\xff\xfe"),
        ("segment-01", b"for-ever"),
    ] {
        strange::lease(&options, name, holder).await;
    }
    let second = service.joined(&doors[1], "second").await;
    let taken = doors[1].take(&second, all_names()).await.unwrap();
    let roster = doors[1].look().await.unwrap();
    let ids: Vec<&MemberId> = roster.members.iter().map(|member| &member.id).collect();
    assert_eq!(ids, [&first, &second]);
    // One scan frees what an acquisition has not.
    let again = doors[1].take(&second, all_names()).await.unwrap();
    for (at, name) in all_names().into_iter().enumerate() {
        let was = match &held[at] {
            Take::Held(epoch) => *epoch,
            other => panic!("{name}: {other:?}"),
        };
        let is_spoiled = ["leader", "segment-00", "segment-01"].contains(&name.to_string().as_str());
        match &again[at] {
            Take::Held(epoch) if is_spoiled => assert!(*epoch > was, "{name}: {epoch:?} after {was:?}"),
            Take::HeldBy(holder) if !is_spoiled => assert_eq!(*holder, first, "{name}: {taken:?}"),
            other => panic!("{name}: {other:?}"),
        }
    }
    let roster = doors[0].look().await.unwrap();
    assert_eq!(roster.held.len(), all_names().len(), "{roster:?}");
    assert_eq!(doors[0].beat(&first, String::new()).await, Ok(Standing::Alive));
    assert_eq!(roster.held[0].0.name, LeaseName::Leader);
}

/// One test for each case and service.
macro_rules! define_for {
    ($service:ident $value:ident $($module:ident { $($case:ident),* $(,)? })*) => {
        mod $service {
            $(mod $module {
                $(#[tokio::test]
                async fn $case() {
                    crate::conformance::$module::$case(super::super::$value.stage()).await;
                })*
            })*

            define_shared! {
                $value
                one_that_is_away_is_named_with_what_to_do_and_without_the_password,
                a_host_that_is_away_is_passed_over,
                what_cannot_be_read_is_passed_over_and_in_nobodys_way,
            }
        }
    };
}

macro_rules! define_shared {
    ($value:ident $($case:ident),* $(,)?) => {
        $(#[tokio::test]
        async fn $case() {
            super::$case(super::$value).await;
        })*
    };
}

macro_rules! define {
    ($($cases:tt)*) => {
        define_for! { etcd ETCD $($cases)* }
        define_for! { redis REDIS $($cases)* }
        define_for! { zookeeper ZOOKEEPER $($cases)* }
    };
}
crate::each_coordination_case!(define);
