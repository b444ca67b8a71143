//! Reads that only PostgreSQL has: what a follower sees while transactions are open; and reads while a
//! server is unreachable.

use super::database::{TestDatabase, client};
use crate::postgres::{OpenError, PostgresOptions, PostgresStore};
use crate::sqlite::tests::job;
use punctual_core::control::Verb;
use punctual_core::ids::JobId;
use punctual_core::ports::{Control, JobQuery, NewJob, Store, StoreError};
use punctual_core::time::Timestamp;
use tokio_postgres::Client;

/// Nothing listens there.
const NOWHERE: &str = "postgres://nobody@127.0.0.1:9/nothing";

fn now() -> Timestamp {
    Timestamp::from_micros(1_763_195_500_000_000)
}

async fn open(options: &PostgresOptions) -> PostgresStore {
    PostgresStore::open(options).await.unwrap()
}

async fn submit(store: &PostgresStore, number: u64) -> JobId {
    let job = job(number);
    store.submit(now(), vec![NewJob { job: job.clone(), reservation: None }]).await.unwrap();
    job.id
}

/// Submits a job and cancels it, which ends its execution.
async fn finish(store: &PostgresStore, number: u64) -> JobId {
    let job = submit(store, number).await;
    store.control(now(), vec![Control { job, verb: Verb::Cancel }]).await.unwrap();
    job
}

/// The jobs whose executions a follower gets from the start, and the position where a new follower starts.
async fn followed(store: &PostgresStore) -> (Vec<JobId>, u64) {
    let page = store.finished_after(0, 100).await.unwrap();
    let jobs = page.items.iter().map(|event| event.finished.id.occurrence.job).collect();
    (jobs, store.history_span().await.unwrap().ends_at)
}

async fn begin_writing(client: &Client) {
    client.batch_execute("BEGIN; SELECT pg_current_xact_id()").await.unwrap();
}

#[tokio::test]
async fn followers_see_nothing_after_an_open_transaction() {
    TestDatabase::with(async |options| {
        let store = open(&options).await;
        let first = finish(&store, 1).await;
        let open = client(&options).await;
        begin_writing(&open).await;
        let second = finish(&store, 2).await;
        let (jobs, ends_at) = followed(&store).await;
        assert_eq!(jobs, [first], "the second has a higher number than the transaction that is open");
        open.batch_execute("COMMIT").await.unwrap();
        let (jobs, ended_at) = followed(&store).await;
        assert_eq!(jobs, [first, second]);
        assert!(ends_at < ended_at);
    })
    .await;
}

#[tokio::test]
async fn transactions_of_other_databases_hold_nothing_back() {
    TestDatabase::with(async |options| {
        TestDatabase::with(async |elsewhere| {
            let store = open(&options).await;
            let other = client(&elsewhere).await;
            begin_writing(&other).await;
            let (one, two) = (finish(&store, 1).await, finish(&store, 2).await);
            assert_eq!(followed(&store).await.0, [one, two]);
        })
        .await;
    })
    .await;
}

/// The ids of all jobs that are listed.
async fn listed(store: &PostgresStore) -> Vec<JobId> {
    let page = store.jobs(JobQuery { limit: 10, ..JobQuery::default() }).await.unwrap();
    page.items.iter().map(|view| view.job.id).collect()
}

#[tokio::test]
async fn lists_are_read_from_the_primary_while_the_replica_is_unavailable() {
    TestDatabase::with(async |options| {
        let options = PostgresOptions { replica_url: Some(NOWHERE.to_owned()), ..options };
        let store = open(&options).await;
        let job = submit(&store, 1).await;
        assert_eq!(listed(&store).await, [job]);
        assert_eq!(listed(&store).await, [job], "without a second try");
    })
    .await;
}

#[tokio::test]
async fn an_unreachable_database_is_reported_as_unavailable() {
    let error = PostgresStore::open(&PostgresOptions::new(NOWHERE)).await.map(|_| ()).unwrap_err();
    assert!(matches!(&error, OpenError::Database { source: StoreError::Unavailable(_), .. }), "{error:?}");
}
