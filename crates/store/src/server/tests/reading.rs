//! Where reads come from: the primary, or a replica for lists; and the database's clock.

use super::database::TestDatabase;
use super::dialect::{CLOCK, Options, ServerStore, query};
use crate::sqlite::tests::job;
use punctual_core::ids::JobId;
use punctual_core::ports::{JobQuery, NewJob, Store};

async fn submit(store: &ServerStore, number: u64) -> JobId {
    let job = job(number);
    store.submit(job.created_at, vec![NewJob { job: job.clone(), reservation: None }]).await.unwrap();
    job.id
}

/// The ids of all jobs that are listed.
async fn listed(store: &ServerStore) -> Vec<JobId> {
    let page = store.jobs(JobQuery { limit: 10, ..JobQuery::default() }).await.unwrap();
    page.items.iter().map(|view| view.job.id).collect()
}

#[tokio::test]
async fn lists_are_read_from_the_replica_and_everything_else_from_the_primary() {
    TestDatabase::with(async |primary| {
        // Another database serves as a replica that is far behind.
        TestDatabase::with(async |replica| {
            let behind = ServerStore::open(&replica).await.unwrap();
            let old = submit(&behind, 1).await;
            behind.close().await;
            let options = Options { replica_url: Some(replica.url.clone()), ..primary.clone() };
            let store = ServerStore::open(&options).await.unwrap();
            let new = submit(&store, 2).await;
            assert_eq!(listed(&store).await, [old]);
            assert!(store.job(new).await.unwrap().is_some());
            assert!(store.job(old).await.unwrap().is_none());
            store.close().await;
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn the_clock_is_that_of_the_database() {
    TestDatabase::with(async |options| {
        let store = ServerStore::open(&options).await.unwrap();
        let asked = async || query(&options, CLOCK).await[0][0].parse::<i64>().unwrap();
        let before = asked().await;
        let read = store.clock().await.unwrap().as_micros();
        let after = asked().await;
        assert!(before <= read && read <= after, "{before} {read} {after}");
        store.close().await;
    })
    .await;
}
