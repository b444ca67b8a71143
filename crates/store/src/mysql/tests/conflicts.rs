//! Conflicting transactions and broken connections: each is reported with the right kind of fault.

use super::database::{TestDatabase, client};
use super::database::{query, run};
use super::dialect::tables;
use super::fixture::{at, fetch, id, job, lane, queued, write};
use crate::data_migration::{MigrationSide, StoreRole};
use crate::mysql::export;
use crate::mysql::migrate::prepare;
use crate::mysql::tables::MySqlConnect;
use crate::mysql::{MySqlOptions, MySqlStore};
use crate::rows::{JobKey, KeyKind};
use crate::unit_of_work::{ReadSet, RequestedClaims, Tables, WriteSet};
use mysql_async::prelude::Queryable;
use punctual_core::job::StoredStatus;
use punctual_core::ports::{QueueRow, Store};
use punctual_core::queue::QueueSettings;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_stays_locked_is_a_conflict_and_the_connection_survives() {
    TestDatabase::with(async |mut options| {
        let mut one = tables(&options).await;
        options.statement_timeout = Duration::from_secs(1);
        let mut other = tables(&options).await;
        let lane = lane(&mut one, "default").await;
        let jobs_inserted = vec![job(1, lane), job(2, lane)];
        write(&mut one, &WriteSet { jobs_inserted, ..WriteSet::default() }).await;
        let read_set = |number| ReadSet { jobs: [id(number)].into(), ..ReadSet::default() };
        one.begin().await.unwrap();
        one.fetch(&read_set(2)).await.unwrap();
        other.begin().await.unwrap();
        other.fetch(&read_set(1)).await.unwrap();
        let fault = other.fetch(&read_set(2)).await.unwrap_err();
        assert!(fault.is_conflict() || fault.is_outage(), "{fault}");
        other.abandon().await;
        one.commit(&WriteSet { marks: vec![(id(2), StoredStatus::Failed)], ..WriteSet::default() })
            .await
            .unwrap();
        let found = fetch(&mut other, &ReadSet { jobs: [id(1), id(2)].into(), ..ReadSet::default() }).await;
        assert_eq!((found.jobs.len(), found.jobs[1].job.mark), (2, StoredStatus::Failed));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_lanes_are_claimed_from_in_the_order_of_rank() {
    TestDatabase::with(async |options| {
        let mut one = tables(&options).await;
        let mut lanes = Vec::new();
        for number in 0..70 {
            lanes.push(lane(&mut one, &format!("queue {number}")).await);
        }
        let jobs_inserted = (1..=140).map(|number| job(number, lanes[number as usize % 70])).collect();
        let live_inserted = (1..=140).map(|number| queued(number, lanes[number as usize % 70])).collect();
        write(&mut one, &WriteSet { jobs_inserted, live_inserted, ..WriteSet::default() }).await;
        let claims = |count| ReadSet {
            claims: vec![RequestedClaims { lanes: lanes.clone(), count }],
            ..ReadSet::default()
        };
        let ids = |numbers: std::ops::RangeInclusive<u32>| {
            numbers.map(|number| id(number).occurrence(1)).collect::<Vec<_>>()
        };
        one.begin().await.unwrap();
        assert_eq!(one.fetch(&claims(100)).await.unwrap().claims, [ids(1..=100)]);
        let mut other = tables(&options).await;
        other.begin().await.unwrap();
        let rest = other.fetch(&claims(100)).await.unwrap().claims.remove(0);
        assert_eq!(rest, ids(101..=140), "rows that the first transaction holds are skipped");
        one.abandon().await;
        other.abandon().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readiness_survives_a_connection_that_has_ended() {
    TestDatabase::with(async |options| {
        let store = MySqlStore::open(&options).await.unwrap();
        for now in [at(1), at(2), at(3)] {
            assert_eq!(store.clock().await.map(drop), Ok(()));
            assert_eq!(store.probe(now).await, Ok(()));
            end_others(&options).await;
        }
        store.close().await;
    })
    .await;
}

/// A server that lists connections also lists their statements, whatever bytes these contain.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_finds_other_connections_whatever_their_statements() {
    TestDatabase::with(async |options| {
        prepare(&options).await.unwrap();
        let mut side = export::open(&options, StoreRole::Source).await.unwrap();
        assert_eq!(side.users().await.unwrap(), None);
        let mut other = client(&options).await;
        let id = other.id();
        let speaking =
            tokio::spawn(async move { other.query_drop(&b"SELECT SLEEP(60) /* \x9a\x86\xa3 */"[..]).await });
        let mut watching = client(&options).await;
        let is_speaking = |row: &mysql_async::Row| {
            row.get::<u32, _>(0) == Some(id) && row.get::<String, _>(4).unwrap() != "Sleep"
        };
        let mut seen = false;
        while !seen && !speaking.is_finished() {
            let rows: Vec<mysql_async::Row> = watching.query("SHOW PROCESSLIST").await.unwrap();
            seen = rows.iter().any(is_speaking);
        }
        watching.disconnect().await.unwrap();
        let users = side.users().await.unwrap().expect("another connection is open");
        assert!(users.contains("other connections are open"), "{users}");
        run(&options, &format!("KILL {id}")).await;
        let _ = speaking.await;
    })
    .await;
}

async fn end_others(options: &MySqlOptions) {
    let sql = "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()";
    for id in query::<u64>(options, sql).await {
        run(options, &format!("KILL {id}")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_server_is_an_outage_without_secrets() {
    let options = MySqlOptions::new("mysql://ann:s3cret@127.0.0.1:1/payroll?ssl-mode=disabled");
    let fault = MySqlConnect::new(&options).unwrap().tables(0).await.map(|_| ()).unwrap_err();
    assert!(fault.is_outage(), "{fault}");
    assert!(!fault.to_string().contains("s3cret") && !format!("{options:?}").contains("s3cret"), "{fault}");
}
