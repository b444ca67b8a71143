//! Coordination through etcd.

use super::server::{prefix, url};
use crate::conformance::{Stage, Time};
use crate::{CoordinationOptions, EtcdCoordination, EtcdOptions, HostAndPort, Login, Secret};
use punctual_core::ports::{Coordination, CoordinationError, Joining, MemberId, Standing};
use std::sync::Arc;
use std::time::Duration;

/// etcd gives no lease a shorter time than it needs to elect a leader, which is two seconds as it comes.
const TTL: Duration = Duration::from_secs(2);

pub fn options(url: &str, prefix: &str) -> EtcdOptions {
    match url.parse() {
        Ok(CoordinationOptions::Etcd(options)) => EtcdOptions { prefix: prefix.to_owned(), ..options },
        other => panic!("{other:?}"),
    }
}

pub fn stage(url: &str) -> Stage {
    let here = prefix();
    let door = |prefix: &str| -> Arc<dyn Coordination> {
        Arc::new(EtcdCoordination::new(&options(url, prefix)).unwrap())
    };
    Stage {
        doors: (0..3).map(|_| door(&here)).collect(),
        elsewhere: door(&prefix()),
        ttl: TTL,
        time: Time::Real,
    }
}

fn given() -> String {
    url("PUNCTUAL_TEST_ETCD")
}

macro_rules! define {
    ($($module:ident { $($case:ident),* $(,)? })*) => {$(
        mod $module {
            $(#[tokio::test]
            async fn $case() {
                crate::conformance::$module::$case(super::stage(&super::given())).await;
            })*
        }
    )*};
}
crate::each_coordination_case!(define);

#[tokio::test]
async fn hosts_that_are_away_are_passed_over() {
    let mut options = options(&given(), &prefix());
    options.hosts.insert(0, HostAndPort { host: "127.0.0.1".to_owned(), port: 1 });
    let etcd = EtcdCoordination::new(&options).unwrap();
    let member = MemberId::new("somebody").unwrap();
    let joined = etcd.join(Joining { member, card: String::new(), ttl: TTL }).await;
    assert_eq!(joined, Ok(Standing::Alive));
}

#[tokio::test]
async fn what_cannot_be_reached_is_named_with_what_to_do_and_without_the_password() {
    let options = options("etcd://ann:topsecret@127.0.0.1:1,127.0.0.1:2", "away");
    let error = EtcdCoordination::new(&options).unwrap().look().await.unwrap_err();
    let said = error.to_string();
    assert!(matches!(error, CoordinationError::Unavailable(_)), "{said}");
    for words in ["127.0.0.1:1", "127.0.0.1:2", "check that it runs"] {
        assert!(said.contains(words), "{said}");
    }
    assert!(!said.contains("topsecret"), "{said}");
}

#[tokio::test]
async fn a_login_that_etcd_does_not_take_is_told_as_such() {
    let login = Login { user: "ann".to_owned(), password: Secret("topsecret".to_owned()) };
    let options = EtcdOptions { login: Some(login), ..options(&given(), &prefix()) };
    let error = EtcdCoordination::new(&options).unwrap().look().await.unwrap_err().to_string();
    // This server has no users at all, and says so.
    assert!(error.contains("authentication is not enabled"), "{error}");
    assert!(!error.contains("topsecret"), "{error}");
}

#[tokio::test]
async fn a_file_without_certificates_is_named() {
    let error = EtcdCoordination::new(&options("etcds://127.0.0.1:1?ca=/nonexistent/ca.pem", "x")).err();
    assert!(error.unwrap().to_string().contains("/nonexistent/ca.pem"));
}
