//! Coordination through Redis.

use super::server::{prefix, url};
use crate::conformance::{Stage, Time};
use crate::{CoordinationOptions, RedisCoordination, RedisOptions};
use punctual_core::ports::{Coordination, CoordinationError};
use std::sync::Arc;
use std::time::Duration;

fn options(prefix: &str) -> RedisOptions {
    match url("PUNCTUAL_TEST_REDIS").parse() {
        Ok(CoordinationOptions::Redis(options)) => RedisOptions { prefix: prefix.to_owned(), ..options },
        other => panic!("{other:?}"),
    }
}

fn door(prefix: &str) -> Arc<dyn Coordination> {
    Arc::new(RedisCoordination::new(&options(prefix)).unwrap())
}

fn stage() -> Stage {
    let here = prefix();
    Stage {
        doors: (0..3).map(|_| door(&here)).collect(),
        elsewhere: door(&prefix()),
        ttl: Duration::from_millis(1_200),
        time: Time::Real,
    }
}

macro_rules! define {
    ($($module:ident { $($case:ident),* $(,)? })*) => {$(
        mod $module {
            $(#[tokio::test]
            async fn $case() {
                crate::conformance::$module::$case(super::stage()).await;
            })*
        }
    )*};
}
crate::each_coordination_case!(define);

#[tokio::test]
async fn a_server_that_is_away_is_named_with_what_to_do_and_without_the_password() {
    let options: CoordinationOptions = "redis://ann:topsecret@127.0.0.1:1".parse().unwrap();
    let CoordinationOptions::Redis(options) = options else { panic!("not Redis") };
    let error = RedisCoordination::new(&options).unwrap().look().await.unwrap_err();
    assert!(
        matches!(&error, CoordinationError::Unavailable(said) if said.contains("127.0.0.1:1")),
        "{error}"
    );
    assert!(error.to_string().contains("check that it runs"), "{error}");
    assert!(!error.to_string().contains("topsecret"), "{error}");
}

#[tokio::test]
async fn a_wrong_password_is_told_as_such() {
    let login = crate::Login { user: "nobody".to_owned(), password: crate::Secret("topsecret".to_owned()) };
    let options = RedisOptions { login: Some(login), ..options("refused") };
    let error = RedisCoordination::new(&options).unwrap().look().await.unwrap_err();
    assert!(matches!(&error, CoordinationError::Broken(_)), "{error}");
    assert!(error.to_string().contains("user and password"), "{error}");
    assert!(!error.to_string().contains("topsecret"), "{error}");
}
