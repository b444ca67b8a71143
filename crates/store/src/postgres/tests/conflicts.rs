//! Conflicting transactions and broken connections: each is reported with the right kind of fault.

use super::database::{TestDatabase, client};
use super::dialect::{maintenance, tables};
use super::fixture::{at, fetch, finished, id, job, lane, queued, write};
use crate::postgres::PostgresOptions;
use crate::postgres::tables::{PostgresTables, SharedDatabase};
use crate::rows::{JobKey, KeyKind};
use crate::unit_of_work::{EndedRow, ReadSet, RequestedClaims, Tables, WriteSet};
use punctual_core::ports::{Horizon, QueueRow};
use punctual_core::queue::QueueSettings;

#[tokio::test]
async fn a_row_that_another_has_inserted_is_a_conflict() {
    TestDatabase::with(async |options| {
        let (mut one, mut other) = (tables(&options).await, tables(&options).await);
        let lane = lane(&mut one, "default").await;
        let key = JobKey { owner: "ann".to_owned(), kind: KeyKind::Unique, key: "k".to_owned() };
        let write_set = |number| WriteSet {
            jobs_inserted: vec![job(number, lane)],
            keys_held: vec![(key.clone(), id(number))],
            ..WriteSet::default()
        };
        let read_set =
            ReadSet { jobs: [id(1), id(2)].into(), keys: [key.clone()].into(), ..ReadSet::default() };
        for tables in [&mut one, &mut other] {
            tables.begin().await.unwrap();
            assert_eq!(tables.fetch(&read_set).await.unwrap().keys, [], "both see the key as free");
        }
        one.commit(&write_set(1)).await.unwrap();
        let fault = other.commit(&write_set(2)).await.unwrap_err();
        assert!(fault.is_conflict(), "{fault}");
        other.abandon().await;
        let found = fetch(&mut other, &read_set).await;
        assert_eq!((found.keys, found.jobs.len()), (vec![(key, id(1))], 1), "everything was rolled back");
    })
    .await;
}

#[tokio::test]
async fn a_deadlock_is_a_conflict() {
    TestDatabase::with(async |options| {
        let (mut one, mut other) = (tables(&options).await, tables(&options).await);
        let lane = lane(&mut one, "default").await;
        let jobs_inserted = vec![job(1, lane), job(2, lane)];
        write(&mut one, &WriteSet { jobs_inserted, ..WriteSet::default() }).await;
        let read_set = |number| ReadSet { jobs: [id(number)].into(), ..ReadSet::default() };
        for (tables, number) in [(&mut one, 1), (&mut other, 2)] {
            tables.begin().await.unwrap();
            tables.fetch(&read_set(number)).await.unwrap();
        }
        let crossing = (read_set(2), read_set(1));
        let (first, second) = tokio::join!(one.fetch(&crossing.0), async {
            let found = other.fetch(&crossing.1).await;
            other.abandon().await;
            found
        });
        let faults: Vec<_> = [first.err(), second.err()].into_iter().flatten().collect();
        assert!(faults.len() == 1 && faults[0].is_conflict(), "exactly one of them fails: {faults:?}");
        one.abandon().await;
    })
    .await;
}

#[tokio::test]
async fn a_claim_skips_locked_rows_and_takes_the_next() {
    TestDatabase::with(async |options| {
        let (mut one, mut other) = (tables(&options).await, tables(&options).await);
        let lane = lane(&mut one, "default").await;
        let jobs_inserted = (1..=4).map(|number| job(number, lane)).collect();
        let live_inserted = (1..=4).map(|number| queued(number, lane)).collect();
        write(&mut one, &WriteSet { jobs_inserted, live_inserted, ..WriteSet::default() }).await;
        let claims = |count| ReadSet {
            claims: vec![RequestedClaims { lanes: vec![lane], count }],
            ..ReadSet::default()
        };
        one.begin().await.unwrap();
        other.begin().await.unwrap();
        let ids = |numbers: [u32; 2]| numbers.map(|number| id(number).occurrence(1)).to_vec();
        assert_eq!(one.fetch(&claims(2)).await.unwrap().claims, [ids([1, 2])]);
        assert_eq!(other.fetch(&claims(2)).await.unwrap().claims, [ids([3, 4])]);
        assert_eq!(
            one.fetch(&claims(2)).await.unwrap().claims,
            [ids([1, 2])],
            "its own locks do not block it"
        );
        one.abandon().await;
        other.abandon().await;
    })
    .await;
}

#[tokio::test]
async fn concurrent_settings_of_a_queue_are_not_overwritten() {
    TestDatabase::with(async |options| {
        let (mut one, mut other) = (tables(&options).await, tables(&options).await);
        let row = |paused_at, max_depth| QueueRow {
            paused_at,
            settings: QueueSettings::holding(max_depth),
            ..QueueRow::unset("mail")
        };
        let read_set = ReadSet { queues: true, ..ReadSet::default() };
        for tables in [&mut one, &mut other] {
            tables.begin().await.unwrap();
            tables.fetch(&read_set).await.unwrap();
        }
        let put = |row| WriteSet { queues_put: vec![row], ..WriteSet::default() };
        one.commit(&put(row(Some(at(1)), None))).await.unwrap();
        let fault = other.commit(&put(row(None, Some(5)))).await.unwrap_err();
        assert!(fault.is_conflict(), "{fault}");
        other.abandon().await;
        assert_eq!(fetch(&mut other, &read_set).await.queues, [row(Some(at(1)), None)]);
    })
    .await;
}

#[tokio::test]
async fn a_dropped_partition_is_a_conflict_and_created_again() {
    TestDatabase::with(async |options| {
        let shared = SharedDatabase::new(&options).unwrap();
        let mut tables = PostgresTables::connect(shared).await.unwrap();
        let ended = |number| {
            let history = vec![EndedRow { finished: finished(number, at(9)), worker: None }];
            WriteSet { history, ..WriteSet::default() }
        };
        write(&mut tables, &ended(1)).await;
        // Another node, which sends no notification.
        let horizon = Horizon { history: at(60), requests: at(0) };
        let retained = maintenance(&options).retain(horizon, 100).await.unwrap();
        assert_eq!(retained.history, 1);
        tables.begin().await.unwrap();
        let fault = tables.commit(&ended(2)).await.unwrap_err();
        assert!(fault.is_conflict(), "{fault}");
        tables.abandon().await;
        write(&mut tables, &ended(2)).await;
    })
    .await;
}

#[tokio::test]
async fn a_lost_connection_is_an_outage_and_is_reopened() {
    TestDatabase::with(async |options| {
        let mut tables = tables(&options).await;
        let read_set = ReadSet { queues: true, ..ReadSet::default() };
        tables.begin().await.unwrap();
        tables.fetch(&read_set).await.unwrap();
        end_others(&options).await;
        let fault = tables.fetch(&read_set).await.unwrap_err();
        assert!(fault.is_outage(), "{fault}");
        tables.abandon().await;
        assert_eq!(fetch(&mut tables, &read_set).await.queues, []);
    })
    .await;
}

async fn end_others(options: &PostgresOptions) {
    let sql = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity \
         WHERE datname = current_database() AND pid <> pg_backend_pid()";
    client(options).await.query(sql, &[]).await.unwrap();
}

#[tokio::test]
async fn a_read_only_server_is_reported_as_such() {
    TestDatabase::with(async |options| {
        let set = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', \
             current_database()); END $$";
        client(&options).await.batch_execute(set).await.unwrap();
        let shared = SharedDatabase::new(&options).unwrap();
        let fault = PostgresTables::connect(shared).await.map(|_| ()).unwrap_err();
        assert!(fault.is_outage(), "{fault}");
        assert!(fault.to_string().contains("give the address of the primary"), "{fault}");
    })
    .await;
}

#[tokio::test]
async fn an_unreachable_server_is_an_outage_without_secrets() {
    let options = PostgresOptions::new("postgres://ann:s3cret@127.0.0.1:1/payroll?sslmode=disable");
    let fault =
        PostgresTables::connect(SharedDatabase::new(&options).unwrap()).await.map(|_| ()).unwrap_err();
    assert!(fault.is_outage(), "{fault}");
    assert!(!fault.to_string().contains("s3cret") && !format!("{options:?}").contains("s3cret"), "{fault}");
}
