//! One test per case of the register, each with several stores on one database of each server.

use super::database::TestDatabase;
use crate::conformance::register::Doors;
use crate::mysql::MySqlStore;
use std::sync::Arc;

macro_rules! define {
    ($($case:ident),* $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            TestDatabase::with(async |options| {
                let mut stores = Vec::new();
                for _ in 0..3 {
                    stores.push(Arc::new(MySqlStore::open(&options).await.unwrap()));
                }
                let doors: Doors = stores.iter().map(|store| store.clone() as _).collect();
                crate::conformance::register::$case(doors).await;
                for store in stores.into_iter().filter_map(Arc::into_inner) {
                    store.close().await;
                }
            })
            .await;
        }
    )*};
}
crate::each_register_case!(define);
