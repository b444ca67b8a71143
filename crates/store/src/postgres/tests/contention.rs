//! A database that is reachable but cannot serve requests: deadlocks, statements that take too long, exhausted
//! connections, and a read-only server.

use super::database::{TestDatabase, client};
use super::fixture::{at, id};
use super::integrity::problems;
use super::proxy::Proxy;
use super::waiting::eventually;
use crate::postgres::{PostgresOptions, PostgresStore};
use punctual_core::control::Verb;
use punctual_core::job::{Job, JobSpec, JobStatus, StoredStatus};
use punctual_core::ports::{Control, ControlOutcome, NewJob, Store, StoreError};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::Client;

/// A limit for statements that a test waits for.
const SOON: Duration = Duration::from_millis(200);

fn new_job(number: u32) -> NewJob {
    let (id, at) = (id(number), at(0));
    let spec = JobSpec::named("report");
    let job = Job {
        id,
        version: 1,
        mark: StoredStatus::Active,
        numbered: None,
        fired: 0,
        created_at: at,
        updated_at: at,
        spec,
    };
    NewJob { job, reservation: None }
}

/// A store with two jobs.
async fn open(options: &PostgresOptions) -> Arc<PostgresStore> {
    let store = Arc::new(PostgresStore::open(options).await.unwrap());
    store.submit(at(1), vec![new_job(1), new_job(2)]).await.unwrap();
    store
}

fn pause(numbers: &[u32]) -> Vec<Control> {
    numbers.iter().map(|number| Control { job: id(*number), verb: Verb::Pause }).collect()
}

/// Locks the row of a job in the transaction that is open.
async fn lock(client: &Client, number: u32) {
    let sql = "SELECT 1 FROM jobs WHERE id = $1::text::uuid FOR UPDATE";
    client.query_one(sql, &[&uuid::Uuid::from_bytes(*id(number).as_bytes()).to_string()]).await.unwrap();
}

/// Waits until a transaction waits for a lock in this database.
async fn until_a_transaction_waits(client: &Client) {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let waits = async || client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) > 0;
    eventually("a transaction waits for a lock", waits).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_loses_a_deadlock_is_retried() {
    TestDatabase::with(async |options| {
        let store = open(&options).await;
        let (other, watcher) = (client(&options).await, client(&options).await);
        // The store must detect the deadlock first.
        other.batch_execute("BEGIN; SET LOCAL deadlock_timeout = '60s'").await.unwrap();
        lock(&other, 2).await;
        let call = tokio::spawn({
            let store = store.clone();
            async move { store.control(at(2), pause(&[1, 2])).await }
        });
        until_a_transaction_waits(&watcher).await;
        lock(&other, 1).await;
        other.batch_execute("COMMIT").await.unwrap();
        let outcomes = call.await.unwrap().unwrap();
        assert!(outcomes.iter().all(|outcome| matches!(outcome, ControlOutcome::Done(_))), "{outcomes:?}");
        for number in [1, 2] {
            assert_eq!(store.job(id(number)).await.unwrap().unwrap().status(), JobStatus::Paused);
        }
        assert_eq!(problems(&watcher).await, Vec::<String>::new());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_takes_too_long_is_an_outage_and_changes_nothing() {
    TestDatabase::with(async |options| {
        let store = open(&PostgresOptions { statement_timeout: SOON, ..options.clone() }).await;
        let other = client(&options).await;
        other.batch_execute("BEGIN").await.unwrap();
        lock(&other, 2).await;
        let error = store.control(at(2), pause(&[1, 2])).await.unwrap_err();
        assert!(error.is_retryable(), "{error}");
        other.batch_execute("COMMIT").await.unwrap();
        assert_eq!(store.job(id(1)).await.unwrap().unwrap().status(), JobStatus::Active);
        store.control(at(2), pause(&[1, 2])).await.unwrap();
        assert_eq!(store.job_counts().await.unwrap().paused, 2);
        assert_eq!(problems(&other).await, Vec::<String>::new());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_share_a_small_pool() {
    TestDatabase::with(async |options| {
        let store = open(&PostgresOptions { statement_timeout: SOON, readers: 1, ..options.clone() }).await;
        let other = client(&options).await;
        other.batch_execute("BEGIN; LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE").await.unwrap();
        let read_by_many = async || futures_util::future::join_all((0..8).map(|_| store.job(id(1)))).await;
        for seen in read_by_many().await {
            assert!(seen.is_err_and(|error| error.is_retryable()), "no reader can read it");
        }
        other.batch_execute("COMMIT").await.unwrap();
        for seen in read_by_many().await {
            assert!(seen.unwrap().is_some());
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_server_is_reported_with_advice() {
    TestDatabase::with(async |options| {
        let (proxy, through) = Proxy::before(&options).await;
        let store = open(&through).await;
        let set = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', \
             current_database()); END $$";
        client(&options).await.batch_execute(set).await.unwrap();
        proxy.cut();
        until_advised(async || store.submit(at(1), vec![new_job(3)]).await).await;
        until_advised(async || store.probe(at(1)).await).await;
        // It may be a standby that lags behind, and decisions depend on reads.
        until_advised(async || store.job(id(1)).await).await;
        let error = PostgresStore::open(&options).await.map(|_| ()).unwrap_err();
        let source = error.source().map(ToString::to_string).unwrap_or_default();
        assert!(source.contains("give the address of the primary"), "{error}: {source}");
    })
    .await;
}

/// Calls until the error says that the server is read-only: the cut connections may be reported first.
async fn until_advised<T>(call: impl AsyncFn() -> Result<T, StoreError>) {
    eventually("the error says that the server is read-only", async || {
        let error = call().await.map(|_| ()).unwrap_err();
        assert!(error.is_retryable(), "{error}");
        error.to_string().contains("give the address of the primary")
    })
    .await;
}
