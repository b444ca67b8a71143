//! Work that one process does at a time, from several nodes.

use super::{Cluster, keep_the_others_busy};
use crate::mysql::exclusive_work::{DdlLock, LockWait};
use crate::mysql::maintenance::MySqlMaintenance;
use crate::mysql::migrate::{VERSION, up, verify};
use crate::mysql::tests::database::client;
use crate::mysql::tests::database::{query, run};
use crate::mysql::tests::dialect::maintenance;
use crate::mysql::{MySqlOptions, MySqlStore};
use futures_util::future::join_all;
use punctual_core::job::{Job, JobSpec, StoredStatus};
use punctual_core::ports::{Horizon, NewJob, Store};
use punctual_core::time::Timestamp;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_start_together_take_turns() {
    Cluster::with(async |cluster| {
        let nodes = cluster.nodes();
        let applied = join_all(nodes.iter().map(up)).await;
        let applied: Vec<String> = applied.into_iter().flat_map(Result::unwrap).collect();
        assert_eq!(applied.len(), VERSION, "each step was applied by one of them");
        for node in &nodes {
            assert_eq!(verify(node).await.unwrap(), Vec::<String>::new());
        }
        let holders = "SELECT COUNT(*) FROM turns WHERE holder IS NOT NULL";
        assert_eq!(query::<i64>(&nodes[0], holders).await, [0], "each lease was released");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_held_by_one_node_and_expires() {
    Cluster::with(async |cluster| {
        let nodes = cluster.nodes();
        up(&nodes[0]).await.unwrap();
        let take =
            async |node: usize| DdlLock::take(&nodes[node].target().unwrap(), LockWait::Short).await.unwrap();
        let first = take(0).await.expect("the lease is free");
        assert!(take(1).await.is_none() && take(0).await.is_none());
        first.end().await;
        let lost = take(1).await.expect("the lease was released");
        run(&nodes[1], "UPDATE turns SET held_until = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND").await;
        let next = take(2).await.expect("the lease has expired");
        lost.end().await;
        assert!(take(0).await.is_none(), "a former holder does not release the lock of another");
        next.end().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_are_created_and_dropped_by_all_nodes_at_once() {
    Cluster::with(async |cluster| {
        let narrow = |options: &MySqlOptions| MySqlOptions {
            partition_width: Duration::from_millis(1_000),
            ..options.clone()
        };
        let nodes: Vec<MySqlOptions> = cluster.nodes().iter().map(narrow).collect();
        up(&nodes[0]).await.unwrap();
        let nodes_maintenance: Vec<MySqlMaintenance> = nodes.iter().map(maintenance).collect();
        let horizon =
            Horizon { history: Timestamp::from_micros(i64::MAX / 2), requests: Timestamp::from_micros(0) };
        for _ in 0..3 {
            for kept in
                join_all(nodes_maintenance.iter().map(|maintenance| maintenance.retain(horizon, 1_000))).await
            {
                kept.unwrap();
            }
        }
    })
    .await;
}

/// A job that one node has acknowledged is visible through every node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acknowledged_commit_is_visible_on_all_nodes() {
    Cluster::with(async |cluster| {
        let nodes = cluster.nodes();
        let here = MySqlStore::open(&nodes[0]).await.unwrap();
        let there = MySqlStore::open(&nodes[1]).await.unwrap();
        for number in 0..5_u32 {
            let now = Timestamp::from_micros(1_763_195_400_000_000 + i64::from(number) * 1_000_000);
            let job = Job {
                id: punctual_core::ids::JobId::new(now, number.into()),
                version: 1,
                mark: StoredStatus::Active,
                numbered: None,
                fired: 0,
                created_at: now,
                updated_at: now,
                spec: JobSpec::named("report"),
            };
            keep_the_others_busy(&mut client(&nodes[0]).await).await;
            here.submit(now, vec![NewJob { job: job.clone(), reservation: None }]).await.unwrap();
            assert!(there.job(job.id).await.unwrap().is_some(), "by the {number}th reader");
        }
        here.close().await;
        there.close().await;
    })
    .await;
}
