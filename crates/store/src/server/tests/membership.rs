//! One test per case of the membership table, each with several stores on one database.

use super::database::TestDatabase;
use super::dialect::{ServerStore, close};
use crate::conformance::membership::TableConnections;
use std::sync::Arc;

macro_rules! define {
    ($($case:ident),* $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            TestDatabase::with(async |options| {
                let mut stores = Vec::new();
                for _ in 0..3 {
                    stores.push(Arc::new(ServerStore::open(&options).await.unwrap()));
                }
                let connections: TableConnections = stores.iter().map(|store| store.clone() as _).collect();
                crate::conformance::membership::$case(connections).await;
                for store in stores {
                    close(store).await;
                }
            })
            .await;
        }
    )*};
}
crate::each_membership_case!(define);

macro_rules! define_odd {
    ($($case:ident),* $(,)?) => {$(
        #[tokio::test]
        async fn $case() {
            TestDatabase::with(async |options| {
                let store = Arc::new(ServerStore::open(&options).await.unwrap());
                let run = async |sql: &'static str| super::dialect::run(&options, sql).await;
                crate::conformance::membership::malformed::$case(vec![store.clone()], run).await;
                close(store).await;
            })
            .await;
        }
    )*};
}
define_odd!(
    rows_that_cannot_be_read_are_named_and_the_others_go_on,
    a_lease_whose_row_cannot_be_read_is_taken_and_is_in_nobodys_way,
);
