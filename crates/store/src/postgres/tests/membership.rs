//! One test per case of the membership table, each with several stores on one database.

use super::database::TestDatabase;
use crate::conformance::membership::Doors;
use crate::postgres::PostgresStore;
use std::sync::Arc;

macro_rules! define {
    ($($case:ident),* $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            TestDatabase::with(async |options| {
                let mut doors: Doors = Vec::new();
                for _ in 0..3 {
                    doors.push(Arc::new(PostgresStore::open(&options).await.unwrap()));
                }
                crate::conformance::membership::$case(doors).await;
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
                let doors: Doors = vec![Arc::new(PostgresStore::open(&options).await.unwrap())];
                let client = super::database::client(&options).await;
                let run = async |sql: &'static str| client.batch_execute(sql).await.unwrap();
                crate::conformance::membership::malformed::$case(doors, run).await;
            })
            .await;
        }
    )*};
}
define_odd!(
    rows_that_cannot_be_read_are_named_and_the_others_go_on,
    a_lease_whose_row_cannot_be_read_is_taken_and_is_in_nobodys_way,
);
