//! Names and counters that nothing uses.

use super::database::{TestDatabase, client};
use crate::conformance::unused::counters_of_lanes_without_work_are_deleted;
use crate::mysql::MySqlStore;
use mysql_async::prelude::Queryable;
use std::sync::Arc;

const COUNTERS: &str = "SELECT count(*) FROM lane_tallies";

#[tokio::test]
async fn counters_of_lanes_without_work_go() {
    TestDatabase::with(async |options| {
        let store = Arc::new(MySqlStore::open(&options).await.unwrap());
        counters_of_lanes_without_work_are_deleted(store.clone(), async || {
            client(&options).await.query_first(COUNTERS).await.unwrap().unwrap()
        })
        .await;
        Arc::into_inner(store).expect("the test has ended").close().await;
    })
    .await;
}
