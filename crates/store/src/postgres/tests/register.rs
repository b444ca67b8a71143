//! One test per case of the register, each with several stores on one database.

use super::database::TestDatabase;
use crate::conformance::register::Doors;
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
                crate::conformance::register::$case(doors).await;
            })
            .await;
        }
    )*};
}
crate::each_register_case!(define);
