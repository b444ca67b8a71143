//! Partitions are created before they are needed, and dropped as a whole.

use super::database::{TestDatabase, client};
use super::dialect::{logs, maintenance, tables};
use super::fixture::{at, finished, id, write};
use crate::postgres::PostgresStore;
use crate::postgres::guard::{Duty, WriterGuard};
use crate::unit_of_work::{EndedRow, WriteSet};
use punctual_core::limits;
use punctual_core::ports::{Horizon, LogLine, LogStream, Store};
use std::time::Duration;
use tokio_postgres::Client;

const DAY: Duration = Duration::from_secs(24 * 3_600);

async fn names(client: &Client, parent: &str) -> Vec<String> {
    let sql =
        "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = $1::text::regclass ORDER BY 1";
    client.query(sql, &[&parent]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn partitions_are_created_ahead_and_once() {
    TestDatabase::with(async |mut options| {
        options.partition_width = DAY;
        let maintenance = maintenance(&options);
        let client = client(&options).await;
        maintenance.open().await.unwrap();
        for parent in ["history", "lines"] {
            let made = names(&client, parent).await;
            assert_eq!(made.len() as i64, limits::PARTITIONS_AHEAD + 1, "{made:?}");
        }
        // A day may have passed between the two.
        super::dialect::maintenance(&options).open().await.unwrap();
        let made = names(&client, "history").await.len() as i64;
        assert!(made - limits::PARTITIONS_AHEAD <= 2, "{made}");
    })
    .await;
}

/// PostgreSQL may lose the notice in a session that reads the list while a partition is attached.
#[tokio::test]
async fn sessions_are_notified_again_of_a_new_partition_after_reading_the_old_list() {
    TestDatabase::with(async |options| {
        let (busy, observer) = (client(&options).await, client(&options).await);
        let sleeping = "SELECT pg_sleep(0.5), (SELECT count(*) FROM history)";
        let asleep = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query = $1";
        let is_asleep =
            async || observer.query_one(asleep, &[&sleeping]).await.unwrap().get::<_, i64>(0) == 1;
        let made = async {
            while !is_asleep().await {}
            let history = vec![EndedRow { finished: finished(1, at(1)), worker: None }];
            write(&mut tables(&options).await, &WriteSet { history, ..WriteSet::default() }).await;
            assert!(!is_asleep().await, "the new partition was used before the statement ended");
        };
        let (_, slept) = futures_util::future::join(made, busy.query(sleeping, &[])).await;
        slept.unwrap();
        let are_notified = "SELECT bool_and(pg_attribute.xmin::text::bigint > pg_inherits.xmin::text::bigint) \
             FROM pg_attribute, pg_inherits WHERE attrelid = 'history'::regclass AND attname = 'job' \
             AND inhparent = 'history'::regclass";
        assert!(observer.query_one(are_notified, &[]).await.unwrap().get::<_, bool>(0));
    })
    .await;
}

#[tokio::test]
async fn narrower_partitions_fill_the_gaps_between_wider_ones() {
    TestDatabase::with(async |mut options| {
        let ended = |number, seconds| {
            let history = vec![EndedRow { finished: finished(number, at(seconds)), worker: None }];
            WriteSet { history, ..WriteSet::default() }
        };
        options.partition_width = Duration::from_secs(7);
        write(&mut tables(&options).await, &ended(1, 100)).await;
        options.partition_width = Duration::from_secs(50);
        let mut wide = tables(&options).await;
        for (number, seconds) in (2..).zip(80..130) {
            write(&mut wide, &ended(number, seconds)).await;
        }
        let sql = "SELECT count(*), (SELECT count(*) FROM history) FROM partitions WHERE parent = 'history'";
        let row = client(&options).await.query_one(sql, &[]).await.unwrap();
        assert!(row.get::<_, i64>(0) <= 5, "limited by its neighbours: {row:?}");
        assert_eq!(row.get::<_, i64>(1), 51);
    })
    .await;
}

#[tokio::test]
async fn old_partitions_are_dropped_with_their_records() {
    TestDatabase::with(async |options| {
        let client = client(&options).await;
        let (maintenance, logs) = (maintenance(&options), logs(&options));
        let mut tables = tables(&options).await;
        for number in 1..=3 {
            let row = EndedRow { finished: finished(number, at(number.into())), worker: None };
            write(&mut tables, &WriteSet { history: vec![row], ..WriteSet::default() }).await;
            logs.append(&[line(number, i64::from(number), "said")]).await.unwrap();
        }
        let places = client.query("SELECT place FROM history ORDER BY place", &[]).await.unwrap();
        let horizon = |seconds| Horizon { history: at(seconds), requests: at(0) };
        let retained = maintenance.retain(horizon(3), 1).await.unwrap();
        assert_eq!((retained.history, retained.logs, retained.more), (1, 1, true));
        let retained = maintenance.retain(horizon(3), 10).await.unwrap();
        assert_eq!((retained.history, retained.logs, retained.more), (1, 1, false));
        let bounds = client.query_one("SELECT retained FROM history_bounds", &[]).await.unwrap();
        assert_eq!(bounds.get::<_, i64>(0), places[1].get::<_, i64>(0));
        let left = "SELECT (SELECT count(*) FROM history), (SELECT count(*) FROM lines), \
             (SELECT count(*) FROM partitions WHERE leaves)";
        let left = client.query_one(left, &[]).await.unwrap();
        assert_eq!((left.get(0), left.get(1), left.get(2)), (1_i64, 1_i64, 0_i64));
    })
    .await;
}

#[tokio::test]
async fn an_interrupted_drop_is_completed() {
    TestDatabase::with(async |options| {
        let client = client(&options).await;
        let mut tables = tables(&options).await;
        let row = EndedRow { finished: finished(1, at(1)), worker: None };
        write(&mut tables, &WriteSet { history: vec![row], ..WriteSet::default() }).await;
        let name = names(&client, "history").await.remove(0);
        client.batch_execute("UPDATE partitions SET leaves = true").await.unwrap();
        client.batch_execute(&format!("ALTER TABLE history DETACH PARTITION {name}")).await.unwrap();
        let horizon = Horizon { history: at(60), requests: at(0) };
        maintenance(&options).retain(horizon, 10).await.unwrap();
        let gone = client.query_one("SELECT to_regclass($1) IS NULL", &[&name]).await.unwrap();
        assert!(gone.get::<_, bool>(0), "{name} is still there");
        let noted = client.query_opt("SELECT 1 FROM partitions WHERE name = $1", &[&name]).await.unwrap();
        assert!(noted.is_none());
    })
    .await;
}

#[tokio::test]
async fn one_node_at_a_time_drops_partitions_and_followers_do_not_wait_for_it() {
    TestDatabase::with(async |options| {
        let maintenance = maintenance(&options);
        let mut tables = tables(&options).await;
        let row = |number| EndedRow { finished: finished(number, at(number.into())), worker: None };
        write(&mut tables, &WriteSet { history: vec![row(1)], ..WriteSet::default() }).await;
        let guard = WriterGuard::take(&options.target().unwrap(), Duty::Retention).await.unwrap().unwrap();
        let horizon = Horizon { history: at(60), requests: at(0) };
        let retained = maintenance.retain(horizon, 10).await.unwrap();
        assert_eq!((retained.history, retained.more), (0, false), "another process is doing it");
        // Rows written meanwhile are visible at once, although the other transaction is open.
        write(&mut tables, &WriteSet { history: vec![row(2)], ..WriteSet::default() }).await;
        let latest = client(&options).await.query_one("SELECT max(place) FROM history", &[]).await.unwrap();
        let store = PostgresStore::open(&options).await.unwrap();
        let span = store.history_span().await.unwrap();
        assert_eq!(span.ends_at, latest.get::<_, i64>(0).unsigned_abs());
        store.close().await;
        guard.must_be_held().await.unwrap();
        guard.release().await.unwrap();
        assert_eq!(maintenance.retain(horizon, 10).await.unwrap().history, 2);
    })
    .await;
}

#[tokio::test]
async fn a_guard_that_lost_its_connection_is_no_longer_exclusive() {
    TestDatabase::with(async |options| {
        let target = options.target().unwrap();
        let guard = WriterGuard::take(&target, Duty::Retention).await.unwrap().unwrap();
        assert!(WriterGuard::take(&target, Duty::Retention).await.unwrap().is_none());
        let end = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity \
             WHERE datname = current_database() AND application_name = 'punctual-guard'";
        client(&options).await.batch_execute(end).await.unwrap();
        guard.must_be_held().await.unwrap_err();
        let next = WriterGuard::take(&target, Duty::Retention).await.unwrap();
        next.expect("the lock ended with the connection").release().await.unwrap();
    })
    .await;
}

fn line(number: u32, seconds: i64, message: &str) -> LogLine {
    LogLine {
        number: 0,
        execution: id(number).occurrence(1).attempt(1),
        timestamp: at(seconds),
        stream: LogStream::Stdout,
        message: message.to_owned(),
    }
}
