//! Names and counters that nothing uses.

use super::database::{TestDatabase, client};
use crate::conformance::unused::counters_of_lanes_without_work_are_deleted;
use crate::postgres::PostgresStore;
use std::sync::Arc;

const COUNTERS: &str = "SELECT count(*) FROM lane_tallies";

#[tokio::test]
async fn counters_of_lanes_without_work_go() {
    TestDatabase::with(async |options| {
        let store = Arc::new(PostgresStore::open(&options).await.unwrap());
        counters_of_lanes_without_work_are_deleted(store, async || {
            let row = client(&options).await.query_one(COUNTERS, &[]).await.unwrap();
            row.get(0)
        })
        .await;
    })
    .await;
}
