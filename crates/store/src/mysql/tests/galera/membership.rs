//! The cases of the membership table with a store on each node.

use super::Cluster;
use crate::conformance::membership::TableConnections;
use crate::mysql::MySqlStore;
use std::sync::Arc;

macro_rules! define {
    ($($case:ident),* $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            Cluster::with(async |cluster| {
                let mut stores = Vec::new();
                for node in cluster.nodes() {
                    stores.push(Arc::new(MySqlStore::open(&node).await.unwrap()));
                }
                let connections: TableConnections = stores.iter().map(|store| store.clone() as _).collect();
                crate::conformance::membership::$case(connections).await;
                for store in stores.into_iter().filter_map(Arc::into_inner) {
                    store.close().await;
                }
            })
            .await;
        }
    )*};
}
crate::each_membership_case!(define);
