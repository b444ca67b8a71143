//! Damaged counters.

use super::database::{TestDatabase, client};
use super::integrity::problems;
use crate::conformance::counter_mismatches;
use crate::counter_mismatch::CounterMismatch;
use crate::mysql::{MySqlOptions, MySqlStore, counter_mismatch};
use mysql_async::prelude::Queryable;
use std::sync::Arc;

fn in_words(mismatches: Vec<CounterMismatch>) -> Vec<String> {
    mismatches.iter().map(CounterMismatch::to_string).collect()
}

async fn spoil(options: &MySqlOptions, sql: &str) {
    client(options).await.query_drop(sql).await.unwrap();
}

#[tokio::test]
async fn wrong_counters_are_found_and_repaired() {
    TestDatabase::with(async |options| {
        let store = Arc::new(MySqlStore::open(&options).await.unwrap());
        counter_mismatches::wrong_counters_are_found_and_repaired(
            store.clone(),
            async |sql| spoil(&options, sql).await,
            async || in_words(counter_mismatch::find(&options).await.unwrap()),
            async || in_words(counter_mismatch::repair(&options).await.unwrap()),
        )
        .await;
        assert_eq!(problems(&mut client(&options).await).await, Vec::<String>::new());
        Arc::into_inner(store).expect("nobody else uses it").close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_are_repaired_while_others_change_them() {
    TestDatabase::with(async |options| {
        let store = Arc::new(MySqlStore::open(&options).await.unwrap());
        counter_mismatches::counters_are_repaired_while_others_change_them(
            store.clone(),
            async |sql| spoil(&options, sql).await,
            async || in_words(counter_mismatch::find(&options).await.unwrap()),
            async || in_words(counter_mismatch::repair(&options).await.unwrap()),
        )
        .await;
        assert_eq!(problems(&mut client(&options).await).await, Vec::<String>::new());
        Arc::into_inner(store).expect("nobody else uses it").close().await;
    })
    .await;
}
