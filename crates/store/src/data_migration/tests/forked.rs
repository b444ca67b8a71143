//! Copies that are turned into independent stores.

use super::{WalkedStore, address, migrated};
use crate::conformance::membership::moved::{be_in_a_cluster, is_forgotten};
use crate::data_migration::{DataMigrationError, StoreAddress, StoreRole, fork};
use crate::mysql::{self, MySqlStore};
use crate::postgres::{self, PostgresStore};
use crate::sqlite::tests::{open, opening};
use punctual_core::ports::{ClaimOutcome, DocumentKind, Store};

#[tokio::test]
async fn nothing_runs_in_an_embedded_store_that_was_forked() {
    let walked = WalkedStore::new(11, 150).await;
    be_in_a_cluster(&open(walked.dir.path())).await;
    let forked = fork(&walked.address(), walked.now).await.unwrap();
    let store = open(walked.dir.path());
    is_forgotten(&store).await;
    let error = fork(&walked.address(), walked.now).await.unwrap_err();
    assert!(matches!(error, DataMigrationError::InUse { end: StoreRole::Copy, .. }), "{error}");
    is_harmless(&walked, &store, &forked.queues).await;
    let nowhere = tempfile::tempdir().unwrap();
    let error = fork(&address(nowhere.path()), walked.now).await.unwrap_err();
    assert!(matches!(error, DataMigrationError::NoStore(_)), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_runs_in_a_postgres_database_that_was_forked() {
    let walked = &WalkedStore::new(11, 150).await;
    be_in_a_cluster(&open(walked.dir.path())).await;
    postgres::tests::database::TestDatabase::with(async |options| {
        let copy = StoreAddress::Postgres(options.clone());
        migrated(&walked.address(), &copy).await.unwrap();
        let store = PostgresStore::open(&options).await.unwrap();
        is_forgotten(&store).await;
        be_in_a_cluster(&store).await;
        store.close().await;
        let identity = copy.open(StoreRole::Copy).await.unwrap().identity().await.unwrap();
        let forked = fork(&copy, walked.now).await.unwrap();
        assert_ne!(copy.open(StoreRole::Copy).await.unwrap().identity().await.unwrap(), identity);
        let store = PostgresStore::open(&options).await.unwrap();
        is_forgotten(&store).await;
        let error = fork(&copy, walked.now).await.unwrap_err();
        assert!(matches!(error, DataMigrationError::InUse { end: StoreRole::Copy, .. }), "{error}");
        is_harmless(walked, &store, &forked.queues).await;
        store.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_runs_in_a_mysql_database_that_was_forked() {
    let walked = &WalkedStore::new(13, 150).await;
    be_in_a_cluster(&open(walked.dir.path())).await;
    mysql::tests::database::TestDatabase::with(async |options| {
        let copy = StoreAddress::MySql(options.clone());
        migrated(&walked.address(), &copy).await.unwrap();
        let store = MySqlStore::open(&options).await.unwrap();
        is_forgotten(&store).await;
        be_in_a_cluster(&store).await;
        store.close().await;
        let identity = copy.open(StoreRole::Copy).await.unwrap().identity().await.unwrap();
        let forked = fork(&copy, walked.now).await.unwrap();
        assert_ne!(copy.open(StoreRole::Copy).await.unwrap().identity().await.unwrap(), identity);
        let store = MySqlStore::open(&options).await.unwrap();
        is_forgotten(&store).await;
        is_harmless(walked, &store, &forked.queues).await;
        store.close().await;
    })
    .await;
}

/// It has queued executions but hands out none of them, and no worker of the original has a session.
async fn is_harmless(walked: &WalkedStore, store: &dyn Store, paused: &[String]) {
    let depths = store.depths().await.unwrap();
    assert!(depths.iter().any(|depth| depth.queued > 0), "the walk leaves something to claim: {depths:?}");
    for depth in &depths {
        assert!(
            paused.iter().any(|queue| queue == depth.lane.queue()),
            "{depth:?} is not paused: {paused:?}"
        );
    }
    assert_eq!(store.sessions().await.unwrap(), []);
    let stopped = store.document(DocumentKind::Cursor, "notify-stopped").await.unwrap();
    assert!(stopped.is_some(), "a copy must not notify the people of the original");
    assert_eq!(store.document(DocumentKind::Cursor, "notify").await.unwrap(), None);
    let session = store.open_session(walked.now, opening()).await.unwrap();
    let claim = punctual_core::ports::Claim {
        session,
        turn: 1,
        limit: 1_000,
        queues: vec![],
        job_types: depths.iter().map(|depth| depth.lane.job_type().to_owned()).collect(),
    };
    let claimed = store.claim(walked.now, vec![claim]).await.unwrap().remove(0);
    assert!(
        matches!(&claimed, ClaimOutcome::Claimed { assignments, .. } if assignments.is_empty()),
        "{claimed:?}"
    );
}
