//! Sources and targets that must be rejected, and stores that must not be opened.

use super::{WalkedStore, address, change, migrated};
use crate::data_migration::copy::DataMigration;
use crate::data_migration::{DataMigrationError, Migrated, StoreAddress, StoreRole};
use crate::mysql::{self, MySqlStore};
use crate::postgres::{self, PostgresStore};
use crate::sqlite::tests::{job, open, opening};
use crate::sqlite::{SqliteOptions, SqliteStore};
use punctual_core::ports::{NewJob, Store};
use std::error::Error;
use std::time::Duration;

const UNFINISHED: &str = "INSERT INTO moving (name, value) VALUES ('source', 'elsewhere')";

#[tokio::test]
async fn an_embedded_store_that_is_open_or_missing_is_rejected() {
    let walked = WalkedStore::new(7, 20).await;
    let dir = tempfile::tempdir().unwrap();
    let store = open(walked.dir.path());
    let error = migrated(&walked.address(), &address(dir.path())).await.unwrap_err();
    assert!(matches!(error, DataMigrationError::InUse { end: StoreRole::Source, .. }), "{error}");
    let error = migrated(&address(dir.path()), &walked.address()).await.unwrap_err();
    assert!(matches!(error, DataMigrationError::NoStore(_)), "{error}");
    drop(store);
    let served = tempfile::tempdir().unwrap();
    open(served.path()).submit(walked.now, vec![NewJob { job: job(1), reservation: None }]).await.unwrap();
    let error = migrated(&walked.address(), &address(served.path())).await.unwrap_err();
    assert_eq!(error, DataMigrationError::TargetServed { table: "lanes", rows: 1 });
    assert!(
        error.is_refusal() && open(served.path()).job(job(1).id).await.unwrap().is_some(),
        "nothing was lost"
    );
}

#[tokio::test]
async fn an_unfinished_copy_is_neither_opened_nor_a_source_nor_a_target_for_another_source() {
    let walked = WalkedStore::new(8, 20).await;
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    change(dir.path(), "CREATE TABLE moving (name TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL) STRICT");
    change(dir.path(), UNFINISHED);
    let Err(error) =
        SqliteStore::open(&SqliteOptions::new(dir.path()), std::sync::Arc::new(crate::sqlite::tests::Still))
    else {
        panic!("it was opened")
    };
    assert!(error.source().unwrap().to_string().contains("repeat `punctual migrate-data`"), "{error:?}");
    let beside = tempfile::tempdir().unwrap();
    let error = migrated(&address(dir.path()), &address(beside.path())).await.unwrap_err();
    assert_eq!(error, DataMigrationError::SourceUnfinished);
    let error = migrated(&walked.address(), &address(dir.path())).await.unwrap_err();
    assert_eq!(error, DataMigrationError::OtherSource("elsewhere".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_database_in_use_or_unfinished_is_rejected() {
    postgres::tests::database::TestDatabase::with(async |options| {
        let client = postgres::tests::database::client(&options).await;
        let store = PostgresStore::open(&options).await.unwrap();
        is_refused_while_used(&store, &StoreAddress::Postgres(options.clone())).await;
        store.close().await;
        client
            .batch_execute("CREATE TABLE moving (name text PRIMARY KEY, value text NOT NULL)")
            .await
            .unwrap();
        client.batch_execute(UNFINISHED).await.unwrap();
        let Err(error) = PostgresStore::open(&options).await else { panic!("it was opened") };
        assert!(error.source().unwrap().to_string().contains("repeat `punctual migrate-data`"), "{error:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mysql_database_in_use_or_unfinished_is_rejected() {
    mysql::tests::database::TestDatabase::with(async |options| {
        use mysql_async::prelude::Queryable;
        let store = MySqlStore::open(&options).await.unwrap();
        is_refused_while_used(&store, &StoreAddress::MySql(options.clone())).await;
        store.close().await;
        let mut client = mysql::tests::database::client(&options).await;
        client
            .query_drop("CREATE TABLE moving (name VARCHAR(100) PRIMARY KEY, value TEXT NOT NULL)")
            .await
            .unwrap();
        client.query_drop(UNFINISHED).await.unwrap();
        let opened = MySqlStore::open(&options).await;
        client.query_drop("DROP TABLE moving").await.unwrap();
        client.disconnect().await.unwrap();
        let Err(error) = opened else { panic!("it was opened") };
        assert!(error.source().unwrap().to_string().contains("repeat `punctual migrate-data`"), "{error:?}");
    })
    .await;
}

/// With an open store, and a session that sends heartbeats.
async fn is_refused_while_used(store: &dyn Store, shared: &StoreAddress) {
    let now = store.clock().await.unwrap();
    store.open_session(now, opening()).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let error = at_once(shared, &address(dir.path())).await.unwrap_err();
    assert!(matches!(error, DataMigrationError::InUse { end: StoreRole::Source, .. }), "{error}");
    let walked = WalkedStore::new(9, 5).await;
    let error = at_once(&walked.address(), shared).await.unwrap_err();
    assert!(matches!(error, DataMigrationError::InUse { end: StoreRole::Target, .. }), "{error}");
}

/// Without waiting for processes to disconnect.
async fn at_once(from: &StoreAddress, to: &StoreAddress) -> Result<Migrated, DataMigrationError> {
    let (source, target) = (from.open(StoreRole::Source).await?, to.open(StoreRole::Target).await?);
    DataMigration { source, target, report_progress: &mut |_| (), leave_max: Duration::ZERO }.run().await
}
