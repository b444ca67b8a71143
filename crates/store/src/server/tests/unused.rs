//! Unused names and counters.

use super::database::TestDatabase;
use super::dialect::{ServerStore, close, query};
use crate::conformance::unused::counters_of_lanes_without_work_are_deleted;
use std::sync::Arc;

const COUNTERS: &str = "SELECT count(*) FROM lane_tallies";

#[tokio::test]
async fn counters_of_lanes_without_work_are_removed() {
    TestDatabase::with(async |options| {
        let store = Arc::new(ServerStore::open(&options).await.unwrap());
        counters_of_lanes_without_work_are_deleted(store.clone(), async || {
            query(&options, COUNTERS).await[0][0].parse().unwrap()
        })
        .await;
        close(store).await;
    })
    .await;
}
