//! The races of the conformance suite, run between three nodes that share a database.

use super::database::TestDatabase;
use super::dialect::{ServerStore, close, problems};
use crate::conformance::counts_agree;
use punctual_core::ports::Store;
use std::pin::Pin;
use std::sync::Arc;

/// Stores on one database, each with its own connections and caches.
const NODES: usize = 3;

type Race = fn(Vec<Arc<dyn Store>>) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// Selects the races from all cases.
macro_rules! define {
    (racing { $($case:ident),* $(,)? } $($rest:tt)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            check(|stores| Box::pin(crate::conformance::racing::between_nodes::$case(stores))).await;
        })*
    };
    ($module:ident { $($case:tt)* } $($rest:tt)*) => { define! { $($rest)* } };
}
crate::each_conformance_case!(define);

async fn check(race: Race) {
    TestDatabase::with(async |options| {
        let mut stores = Vec::new();
        for _ in 0..NODES {
            stores.push(Arc::new(ServerStore::open(&options).await.unwrap()));
        }
        race(stores.iter().map(|store| store.clone() as Arc<dyn Store>).collect()).await;
        counts_agree(&*stores[0]).await;
        assert_eq!(problems(&options).await, Vec::<String>::new());
        for store in stores {
            close(store).await;
        }
    })
    .await;
}
