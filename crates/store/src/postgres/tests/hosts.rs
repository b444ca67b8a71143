//! Several hosts in one URL: which of them is used, and the error when none is usable.

use super::database::TestDatabase;
use crate::postgres::connection::{connect, pool};
use crate::postgres::{OpenError, PostgresOptions, PostgresStore};
use punctual_core::ports::{Store, StoreError};
use std::time::Duration;
use tokio::net::TcpListener;

/// The same database with other hosts before it.
fn behind(hosts: &str, options: &PostgresOptions) -> PostgresOptions {
    let url = options.url.replacen('@', &format!("@{hosts},"), 1);
    PostgresOptions { url, ..options.clone() }
}

#[tokio::test]
async fn a_host_that_hangs_or_is_gone_does_not_delay_the_next() {
    TestDatabase::with(async |options| {
        // It accepts connections, like the kernel of a machine whose processes hang, and never replies.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let hosts = format!("127.0.0.1:9,{}", silent.local_addr().unwrap());
        let store = PostgresStore::open(&behind(&hosts, &options)).await.unwrap();
        store.clock().await.unwrap();
        let target = behind(&hosts, &options).target().unwrap();
        connect(&target).await.unwrap();
        assert_eq!(target.places().next(), Some(2), "the next connection starts with the host that answered");
        let pool = pool(&target, 1).unwrap();
        assert!(!pool.get().await.unwrap().is_closed());
    })
    .await;
}

#[tokio::test]
async fn the_error_gives_a_reason_for_each_unusable_host() {
    let url = "postgres://nobody@127.0.0.1:9,127.0.0.1:10/nothing";
    let error = PostgresStore::open(&PostgresOptions::new(url)).await.map(drop).unwrap_err();
    let OpenError::Database { database, source: StoreError::Unavailable(reason) } = error else {
        panic!("{error:?}")
    };
    assert_eq!(database, "127.0.0.1,127.0.0.1/nothing");
    assert!(reason.contains("127.0.0.1:9: ") && reason.contains("; 127.0.0.1:10: "), "{reason}");
}

#[tokio::test]
async fn a_connection_attempt_times_out_if_all_hosts_hang() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let options = PostgresOptions {
        connect_timeout: Duration::from_millis(100),
        ..PostgresOptions::new(format!("postgres://nobody@{address},{address}/nothing"))
    };
    let error = connect(&options.target().unwrap()).await.map(drop).unwrap_err();
    assert!(error.to_string().contains("has not answered within 0.1 s"), "{error}");
}

#[tokio::test]
async fn a_read_only_database_is_not_used_as_the_primary() {
    TestDatabase::with(async |options| {
        let url = format!("{}?options=-c%20default_transaction_read_only%3Don", options.url);
        let error =
            PostgresStore::open(&PostgresOptions { url, ..options.clone() }).await.map(drop).unwrap_err();
        let OpenError::Database { source: StoreError::Unavailable(reason), .. } = error else {
            panic!("{error:?}")
        };
        assert!(reason.ends_with("give the address of the primary"), "{reason}");
    })
    .await;
}
