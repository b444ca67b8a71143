//! PostgreSQL and the embedded store give the same replies to the same random walk.

use super::database::{TestDatabase, client};
use super::integrity::problems;
use crate::conformance::{PORTION, Pair, walk_alike};
use crate::postgres::{PostgresOptions, PostgresStore};
use crate::sqlite::tests::open;
use std::sync::Arc;

const STEPS: usize = 300;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_walk_0_is_answered_alike() {
    walk(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_walk_1_is_answered_alike() {
    walk(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_walk_2_is_answered_alike() {
    walk(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_walk_3_is_answered_alike() {
    walk(3).await;
}

async fn walk(seed: u64) {
    TestDatabase::with(async |options| {
        let options = PostgresOptions { partition_width: PORTION, ..options };
        let dir = tempfile::tempdir().unwrap();
        let embedded = Arc::new(open(dir.path()));
        let shared = Arc::new(PostgresStore::open(&options).await.unwrap());
        walk_alike(Pair { one: embedded.clone(), other: shared }, seed, STEPS).await;
        assert_eq!(embedded.integrity_check().await.unwrap(), Vec::<String>::new());
        assert_eq!(problems(&client(&options).await).await, Vec::<String>::new());
    })
    .await;
}
