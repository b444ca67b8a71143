//! Tests that only apply to Redis.

use super::server::adapter;
use super::services::REDIS;
use super::strange::redis::run;
use crate::conformance::names;
use crate::{CoordinationOptions, RedisOptions};
use punctual_core::ports::{CoordinationError, Standing, Take};
use punctual_core::service_url::{Login, Secret};

fn given() -> RedisOptions {
    match REDIS.options() {
        CoordinationOptions::Redis(options) => options,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_wrong_password_is_reported() {
    let login = Login { user: "nobody".to_owned(), password: Secret("topsecret".to_owned()) };
    let options = CoordinationOptions::Redis(RedisOptions { login: Some(login), ..given() });
    let error = adapter(&options).look().await.unwrap_err();
    assert!(matches!(&error, CoordinationError::Broken(_)), "{error}");
    assert!(error.to_string().contains("user and password"), "{error}");
    assert!(!error.to_string().contains("topsecret"), "{error}");
}

/// Redis may evict keys when it is out of memory, one at a time.
#[tokio::test]
async fn a_heartbeat_restores_a_member_that_is_missing_from_the_list() {
    let options = given();
    let door = adapter(&CoordinationOptions::Redis(options.clone()));
    let member = REDIS.joined(&door, "member").await;
    let held = door.take(&member, names(2)).await.unwrap();
    run(&options, &["DEL", "{}:ids"], b"").await;
    assert_eq!(door.look().await.unwrap().members, []);
    assert_eq!(door.beat(&member, "here".to_owned()).await, Ok(Standing::Alive));
    let roster = door.look().await.unwrap();
    assert_eq!(roster.members.iter().map(|member| &member.id).collect::<Vec<_>>(), [&member]);
    assert_eq!(door.take(&member, names(2)).await.unwrap(), held, "it keeps its leases");
}

#[tokio::test]
async fn keys_of_another_type_are_removed() {
    let options = given();
    let door = adapter(&CoordinationOptions::Redis(options.clone()));
    let member = REDIS.joined(&door, "member").await;
    door.take(&member, names(2)).await.unwrap();
    for key in ["{}:ids", "{}:holders", "{}:epochs"] {
        run(&options, &["SET", key], b"x").await;
        assert_eq!(door.beat(&member, "here".to_owned()).await, Ok(Standing::Alive), "{key}");
        let taken = door.take(&member, names(2)).await.unwrap();
        assert!(taken.iter().all(|take| matches!(take, Take::Held(_))), "{key}: {taken:?}");
        let roster = door.look().await.unwrap();
        assert_eq!((roster.members.len(), roster.held.len()), (1, 2), "{key}");
    }
}

#[tokio::test]
async fn a_lease_with_a_malformed_epoch_is_acquired_with_a_new_one() {
    let options = given();
    let door = adapter(&CoordinationOptions::Redis(options.clone()));
    let member = REDIS.joined(&door, "member").await;
    door.take(&member, names(3)).await.unwrap();
    run(&options, &["HSET", "{}:epochs", "leader", "seven"], b"").await;
    run(&options, &["HDEL", "{}:epochs", "segment-00"], b"").await;
    let roster = door.look().await.unwrap();
    assert_eq!((roster.members.len(), roster.held.len()), (1, 1), "{roster:?}");
    let taken = door.take(&member, names(3)).await.unwrap();
    assert!(taken.iter().all(|take| matches!(take, Take::Held(_))), "{taken:?}");
    assert_eq!(door.look().await.unwrap().held.len(), 3);
}
