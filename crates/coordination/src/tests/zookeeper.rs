//! Coordination through ZooKeeper.

use super::server::{prefix, url};
use crate::conformance::{Stage, Time};
use crate::{CoordinationOptions, ZooKeeperCoordination, ZooKeeperOptions};
use punctual_core::ports::{Coordination, CoordinationError, Joining, LeaseName, MemberId, Standing, Take};
use std::sync::Arc;
use std::time::Duration;

pub fn options(url: &str, path: &str) -> ZooKeeperOptions {
    match url.parse() {
        Ok(CoordinationOptions::ZooKeeper(options)) => ZooKeeperOptions { path: path.to_owned(), ..options },
        other => panic!("{other:?}"),
    }
}

pub fn stage(url: &str) -> Stage {
    let here = prefix();
    let door =
        |path: &str| -> Arc<dyn Coordination> { Arc::new(ZooKeeperCoordination::new(&options(url, path))) };
    Stage {
        doors: (0..3).map(|_| door(&here)).collect(),
        elsewhere: door(&prefix()),
        ttl: Duration::from_secs(2),
        time: Time::Real,
    }
}

fn given() -> String {
    url("PUNCTUAL_TEST_ZOOKEEPER")
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
async fn servers_that_are_away_are_named_with_what_to_do_and_without_the_password() {
    let options = options("zookeeper://ann:topsecret@127.0.0.1:1,127.0.0.1:2", "away");
    let said = match ZooKeeperCoordination::new(&options).look().await {
        Err(CoordinationError::Unavailable(said)) => said,
        other => panic!("{other:?}"),
    };
    for words in ["127.0.0.1:1,127.0.0.1:2", "check that it runs"] {
        assert!(said.contains(words), "{said}");
    }
    assert!(!said.contains("topsecret"), "{said}");
}

#[tokio::test]
async fn what_one_login_has_made_no_other_one_reads() {
    let (server, path) = (given(), prefix());
    let as_user = |login: &str| {
        let url = server.replacen("://", &format!("://{login}@"), 1);
        ZooKeeperCoordination::new(&options(&url, &path))
    };
    let (ann, bob) = (as_user("ann:one"), as_user("bob:two"));
    let member = MemberId::new("of-ann").unwrap();
    let joining = Joining { member: member.clone(), card: "hers".to_owned(), ttl: Duration::from_secs(2) };
    assert_eq!(ann.join(joining).await, Ok(Standing::Alive));
    let taken = ann.take(&member, vec![LeaseName::Leader]).await.unwrap();
    assert!(matches!(taken[0], Take::Held(_)), "{taken:?}");
    assert_eq!(ann.look().await.unwrap().members.len(), 1);
    let refused = bob.look().await.unwrap_err();
    assert!(
        matches!(&refused, CoordinationError::Broken(said) if said.contains("user and password")),
        "{refused}"
    );
}
