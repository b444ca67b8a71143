//! The server's store and the embedded one give the same replies to the same random walk.

use super::database::TestDatabase;
use super::dialect::{Options, ServerStore, close, problems};
use crate::conformance::{PORTION, Pair, walk_alike};
use crate::sqlite::tests::open;
use std::sync::Arc;

const STEPS: usize = 300;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn walk_0_gets_equal_replies() {
    walk(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn walk_1_gets_equal_replies() {
    walk(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn walk_2_gets_equal_replies() {
    walk(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn walk_3_gets_equal_replies() {
    walk(3).await;
}

async fn walk(seed: u64) {
    TestDatabase::with(async |options| {
        let options = Options { partition_width: PORTION, ..options };
        let dir = tempfile::tempdir().unwrap();
        let embedded = Arc::new(open(dir.path()));
        let shared = Arc::new(ServerStore::open(&options).await.unwrap());
        walk_alike(Pair { one: embedded.clone(), other: shared.clone() }, seed, STEPS).await;
        assert_eq!(embedded.integrity_check().await.unwrap(), Vec::<String>::new());
        assert_eq!(problems(&options).await, Vec::<String>::new());
        close(shared).await;
    })
    .await;
}
