//! Tests that only apply to ZooKeeper.

use super::services::ZOOKEEPER;
use crate::{CoordinationOptions, ZooKeeperCoordination, ZooKeeperOptions};
use punctual_core::ports::{Coordination, CoordinationError, Joining, LeaseName, MemberId, Standing, Take};
use punctual_core::service_url::{Login, Secret};
use std::time::Duration;

#[tokio::test]
async fn nodes_of_one_login_are_unreadable_for_others() {
    let CoordinationOptions::ZooKeeper(options) = ZOOKEEPER.options() else { panic!("not ZooKeeper") };
    let as_user = |user: &str, password: &str| {
        let login = Login { user: user.to_owned(), password: Secret(password.to_owned()) };
        ZooKeeperCoordination::new(&ZooKeeperOptions { login: Some(login), ..options.clone() })
    };
    let (ann, bob) = (as_user("ann", "one"), as_user("bob", "two"));
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
