//! A store with several nodes uses the first usable one.

use super::Cluster;
use crate::mysql::MySqlStore;
use crate::mysql::tests::database::client;
use crate::mysql::tests::database::query;
use mysql_async::prelude::Queryable;
use punctual_core::ports::{Store, StoreError};
use punctual_core::time::Timestamp;
use std::time::Duration;

/// How often to check a condition.
const ASK_EVERY: Duration = Duration::from_millis(10);
const NOW: Timestamp = Timestamp::from_micros(1_763_195_400_000_000);

/// Calls until one succeeds: calls in flight when a node stops only get the error that the database is
/// unavailable.
pub(super) async fn eventually_succeeds<T>(
    what: &str,
    mut call: impl AsyncFnMut() -> Result<T, StoreError>,
) -> T {
    for _ in 0..1_000 {
        match call().await {
            Ok(answer) => return answer,
            // The pace of retries, not a wait for something.
            Err(StoreError::Unavailable(_)) => tokio::time::sleep(ASK_EVERY).await,
            Err(error) => panic!("{what}: {error}"),
        }
    }
    panic!("{what} never succeeded again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unusable_node_is_replaced_by_the_next_one() {
    Cluster::with(async |cluster| {
        let nodes = cluster.nodes();
        let store = MySqlStore::open(&cluster.through(&[0, 1, 2])).await.unwrap();
        store.probe(NOW).await.unwrap();
        store.clock().await.unwrap();
        let mut operator = client(&nodes[0]).await;
        operator.query_drop("SET GLOBAL wsrep_reject_queries = ALL").await.unwrap();
        let outcome = futures_util::FutureExt::catch_unwind(std::panic::AssertUnwindSafe(async {
            eventually_succeeds("a probe", async || store.probe(NOW).await).await;
            eventually_succeeds("a read", async || store.job_counts().await).await;
            eventually_succeeds("a write", async || store.lose_embedded_sessions(NOW).await).await;
            let opened = MySqlStore::open(&cluster.through(&[0, 1])).await.unwrap();
            opened.job_counts().await.unwrap();
            opened.close().await;
            let alone = MySqlStore::open(&cluster.through(&[0])).await.err().unwrap();
            let words = format!("{alone:?}");
            assert!(words.contains("1047") && words.contains("not part of its cluster"), "{words}");
        }))
        .await;
        operator.query_drop("SET GLOBAL wsrep_reject_queries = NONE").await.unwrap();
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
        store.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_have_separate_counter_rows() {
    Cluster::with(async |cluster| {
        for options in cluster.nodes() {
            let tables = crate::mysql::tests::dialect::tables(&options).await;
            drop(tables);
        }
        let numbers = "SELECT @@auto_increment_offset";
        let mut seen = Vec::new();
        for options in cluster.nodes() {
            seen.extend(query::<i64>(&options, numbers).await);
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 3, "each node has a different number");
        let shards: Vec<i64> =
            seen.iter().map(|node| crate::mysql::tables::shard_of(7, Some(*node))).collect();
        assert!(shards.windows(2).all(|pair| pair[0] != pair[1]), "{shards:?}");
    })
    .await;
}
