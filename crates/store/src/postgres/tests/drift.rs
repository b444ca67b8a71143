//! Damaged counters.

use super::database::{TestDatabase, client};
use super::integrity::problems;
use crate::conformance::drifting;
use crate::drift::Drift;
use crate::postgres::{PostgresOptions, PostgresStore, drift};
use std::sync::Arc;

fn in_words(drifts: Vec<Drift>) -> Vec<String> {
    drifts.iter().map(Drift::to_string).collect()
}

async fn spoil(options: &PostgresOptions, sql: &str) {
    client(options).await.batch_execute(sql).await.unwrap();
}

#[tokio::test]
async fn wrong_counts_are_found_and_mended() {
    TestDatabase::with(async |options| {
        let store = Arc::new(PostgresStore::open(&options).await.unwrap());
        drifting::wrong_counts_are_found_and_mended(
            store,
            async |sql| spoil(&options, sql).await,
            async || in_words(drift::find(&options).await.unwrap()),
            async || in_words(drift::mend(&options).await.unwrap()),
        )
        .await;
        assert_eq!(problems(&client(&options).await).await, Vec::<String>::new());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_are_mended_beside_those_who_change_them() {
    TestDatabase::with(async |options| {
        let store = Arc::new(PostgresStore::open(&options).await.unwrap());
        drifting::counts_are_mended_beside_those_who_change_them(
            store,
            async |sql| spoil(&options, sql).await,
            async || in_words(drift::find(&options).await.unwrap()),
            async || in_words(drift::mend(&options).await.unwrap()),
        )
        .await;
        assert_eq!(problems(&client(&options).await).await, Vec::<String>::new());
    })
    .await;
}
