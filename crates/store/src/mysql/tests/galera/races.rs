//! The races of the conformance suite, with a store on each node.

use super::Cluster;
use crate::conformance::counts_agree;
use crate::mysql::MySqlStore;
use crate::mysql::tests::database::client;
use crate::mysql::tests::integrity::problems;
use punctual_core::ports::Store;
use std::pin::Pin;
use std::sync::Arc;

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
    Cluster::with(async |cluster| {
        let mut stores = Vec::new();
        for options in cluster.nodes() {
            stores.push(Arc::new(MySqlStore::open(&options).await.unwrap()));
        }
        race(stores.iter().map(|store| store.clone() as Arc<dyn Store>).collect()).await;
        for (store, options) in stores.iter().zip(cluster.nodes()) {
            counts_agree(&**store).await;
            assert_eq!(problems(&mut client(&options).await).await, Vec::<String>::new());
        }
        for store in stores {
            Arc::into_inner(store).expect("this is the last reference").close().await;
        }
    })
    .await;
}
