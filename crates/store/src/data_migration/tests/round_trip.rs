//! A migration through all databases and back.

use super::{WalkedStore, address, migrated};
use crate::conformance::{PORTION, counts_agree};
use crate::data_migration::{CopyStart, Migrated, StoreAddress};
use crate::mysql::{MySqlOptions, MySqlStore};
use crate::postgres::{PostgresOptions, PostgresStore};
use crate::sqlite::tests::{open, opening};
use crate::{mysql, postgres};
use punctual_core::ports::Store;

/// Enough steps for everything to happen.
const STEPS: usize = 250;
const RECOVERED_MAX: usize = 1_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_arrives_on_every_database_and_comes_back_0() {
    round_trip(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_arrives_on_every_database_and_comes_back_1() {
    round_trip(1).await;
}

async fn round_trip(seed: u64) {
    let walked = &WalkedStore::new(seed, STEPS).await;
    walked.lose_sessions();
    let expected = &walked.seen_in(&open(walked.dir.path())).await;
    postgres::tests::database::TestDatabase::with(async |postgres| {
        let postgres = &PostgresOptions { partition_width: PORTION, ..postgres };
        mysql::tests::database::TestDatabase::with(async |mysql| {
            let mysql = MySqlOptions { partition_width: PORTION, ..mysql };
            // The second server of the same kind gets the same store from PostgreSQL.
            if Postgres(postgres).is_empty().await {
                let first =
                    migrated(&walked.address(), &StoreAddress::Postgres(postgres.clone())).await.unwrap();
                assert!(first.tables.iter().filter(|table| table.rows > 0).count() > 15, "{first:?}");
                Postgres(postgres).check(walked, expected).await;
            }
            let second =
                migrated(&StoreAddress::Postgres(postgres.clone()), &StoreAddress::MySql(mysql.clone()))
                    .await
                    .unwrap();
            check_mysql(&mysql, walked, expected).await;
            let back = tempfile::tempdir().unwrap();
            let third = migrated(&StoreAddress::MySql(mysql), &address(back.path())).await.unwrap();
            assert_eq!(
                (third.beginning, &third),
                (CopyStart::New, &second),
                "the checksums have not changed"
            );
            check_return(walked, back.path(), expected).await;
        })
        .await;
    })
    .await;
}

struct Postgres<'a>(&'a PostgresOptions);

impl Postgres<'_> {
    async fn is_empty(&self) -> bool {
        let client = postgres::tests::database::client(self.0).await;
        client.query_opt("SELECT 1 FROM jobs LIMIT 1", &[]).await.unwrap().is_none()
    }

    async fn check(&self, walked: &WalkedStore, expected: &str) {
        let store = PostgresStore::open(self.0).await.unwrap();
        alike(&walked.seen_in(&store).await, expected);
        counts_agree(&store).await;
        store.close().await;
        let client = postgres::tests::database::client(self.0).await;
        assert_eq!(postgres::tests::integrity::problems(&client).await, Vec::<String>::new());
    }
}

async fn check_mysql(options: &MySqlOptions, walked: &WalkedStore, expected: &str) {
    let store = MySqlStore::open(options).await.unwrap();
    alike(&walked.seen_in(&store).await, expected);
    counts_agree(&store).await;
    store.close().await;
    let mut client = mysql::tests::database::client(options).await;
    assert_eq!(mysql::tests::integrity::problems(&mut client).await, Vec::<String>::new());
    client.disconnect().await.unwrap();
}

/// The returned store continues exactly like the original.
async fn check_return(walked: &WalkedStore, back: &std::path::Path, expected: &str) {
    let came_back = open(back);
    alike(&walked.seen_in(&came_back).await, expected);
    assert_eq!(came_back.integrity_check().await.unwrap(), Vec::<String>::new());
    drop(came_back);
    // A copy, because the other servers follow after this one.
    let copy = tempfile::tempdir().unwrap();
    let Migrated { beginning, .. } = migrated(&walked.address(), &address(copy.path())).await.unwrap();
    assert_eq!(beginning, CopyStart::New);
    let (came_back, stayed) = (open(back), open(copy.path()));
    for store in [&came_back, &stayed] {
        store.recover(walked.now, RECOVERED_MAX).await.unwrap();
    }
    alike(&walked.seen_in(&came_back).await, &walked.seen_in(&stayed).await);
    let session = came_back.open_session(walked.now, opening()).await.unwrap();
    assert_eq!(
        session,
        stayed.open_session(walked.now, opening()).await.unwrap(),
        "no number is assigned twice"
    );
}

/// The first lines that differ.
fn alike(one: &str, other: &str) {
    let lines = || one.lines().zip(other.lines()).enumerate();
    if let Some((place, (found, expected))) = lines().find(|(_, (found, expected))| found != expected) {
        let before: Vec<&str> = one.lines().skip(place.saturating_sub(20)).take(20).collect();
        panic!("line {place} is {found}, but was {expected}; before it:\n{}", before.join("\n"));
    }
    assert_eq!(one.len(), other.len());
}
