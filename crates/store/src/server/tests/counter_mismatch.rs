//! Damaged counters.

use super::database::TestDatabase;
use super::dialect::{Options, ServerStore, close, counter_mismatch, problems, run};
use crate::conformance::counter_mismatches;
use crate::counter_mismatch::CounterMismatch;
use std::sync::Arc;

fn in_words(mismatches: Vec<CounterMismatch>) -> Vec<String> {
    mismatches.iter().map(CounterMismatch::to_string).collect()
}

async fn spoil(options: &Options, sql: &str) {
    run(options, sql).await;
}

#[tokio::test]
async fn wrong_counters_are_found_and_repaired() {
    TestDatabase::with(async |options| {
        let store = Arc::new(ServerStore::open(&options).await.unwrap());
        counter_mismatches::wrong_counters_are_found_and_repaired(
            store.clone(),
            async |sql| spoil(&options, sql).await,
            async || in_words(counter_mismatch::find(&options).await.unwrap()),
            async || in_words(counter_mismatch::repair(&options).await.unwrap()),
        )
        .await;
        assert_eq!(problems(&options).await, Vec::<String>::new());
        close(store).await;
    })
    .await;
}

#[tokio::test]
async fn counts_whose_sum_overflows_are_read_and_found() {
    TestDatabase::with(async |options| {
        let store = Arc::new(ServerStore::open(&options).await.unwrap());
        counter_mismatches::counts_whose_sum_overflows_are_read_and_found(
            store.clone(),
            async |sql| spoil(&options, sql).await,
            async || in_words(counter_mismatch::find(&options).await.unwrap()),
            async || in_words(counter_mismatch::repair(&options).await.unwrap()),
        )
        .await;
        close(store).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_are_repaired_while_others_change_them() {
    TestDatabase::with(async |options| {
        let store = Arc::new(ServerStore::open(&options).await.unwrap());
        counter_mismatches::counters_are_repaired_while_others_change_them(
            store.clone(),
            async |sql| spoil(&options, sql).await,
            async || in_words(counter_mismatch::find(&options).await.unwrap()),
            async || in_words(counter_mismatch::repair(&options).await.unwrap()),
        )
        .await;
        assert_eq!(problems(&options).await, Vec::<String>::new());
        close(store).await;
    })
    .await;
}
