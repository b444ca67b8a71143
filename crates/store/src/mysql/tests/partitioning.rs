//! Partitions are created before they are needed, and dropped as a whole.

use super::database::TestDatabase;
use super::database::{query, run};
use super::dialect::{logs, maintenance, tables};
use super::fixture::{at, finished, id, write};
use crate::mysql::MySqlOptions;
use crate::mysql::connection::Connection;
use crate::mysql::migrate::prepare;
use crate::unit_of_work::{EndedRow, WriteSet};
use punctual_core::limits;
use punctual_core::ports::{Horizon, LogLine, LogStream};
use punctual_core::time::Timestamp;
use std::time::Duration;

async fn names(options: &MySqlOptions, table: &str) -> Vec<String> {
    let sql = format!(
        "SELECT partition_name FROM information_schema.partitions WHERE table_schema = DATABASE() \
         AND table_name = '{table}' ORDER BY partition_ordinal_position"
    );
    query(options, &sql).await
}

fn by_day(options: &MySqlOptions) -> MySqlOptions {
    MySqlOptions { partition_width: limits::PARTITION_WIDTH, ..options.clone() }
}

fn horizon(time: Timestamp) -> Horizon {
    Horizon { history: time, requests: at(0) }
}

fn ended(number: u32, completed_at: Timestamp) -> WriteSet {
    let history = vec![EndedRow { finished: finished(number, completed_at), worker: None }];
    WriteSet { history, ..WriteSet::default() }
}

async fn now(options: &MySqlOptions) -> Timestamp {
    let sql = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
    Timestamp::from_micros(query::<i64>(options, sql).await[0])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_are_created_ahead_and_once() {
    TestDatabase::with(async |options| {
        let options = by_day(&options);
        prepare(&options).await.unwrap();
        for table in ["history", "log_lines"] {
            let made = names(&options, table).await;
            assert_eq!(made.len() as i64, limits::PARTITIONS_AHEAD + 3, "{made:?}");
            assert_eq!((made[0].as_str(), made[made.len() - 1].as_str()), ("p_first", "p_rest"));
        }
        prepare(&options).await.unwrap();
        let made = names(&options, "history").await.len() as i64;
        assert!(made - limits::PARTITIONS_AHEAD <= 4, "a day may have passed between the two: {made}");
    })
    .await;
}

/// As on a cluster, where a check may not have seen a change that another node has just made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_concurrent_definition_is_not_an_error() {
    TestDatabase::with(async |options| {
        let options = by_day(&options);
        prepare(&options).await.unwrap();
        let mut connection = Connection::defining(&options.target().unwrap()).await.unwrap();
        let gone = "ALTER TABLE log_lines DROP PARTITION p_7";
        assert!(!connection.define(gone).await.unwrap());
        let there = "ALTER TABLE log_lines REORGANIZE PARTITION p_rest INTO (PARTITION p_first VALUES LESS THAN \
                     (9000000000000000000), PARTITION p_rest VALUES LESS THAN MAXVALUE)";
        assert!(!connection.define(there).await.unwrap());
        assert!(connection.define("ALTER TABLE log_lines DROP PARTITION p_first").await.unwrap());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_time_has_a_partition() {
    TestDatabase::with(async |options| {
        let options = by_day(&options);
        let mut tables = tables(&options).await;
        let now = now(&options).await;
        let far = now.plus(Duration::from_secs(400 * 24 * 3_600));
        for (number, time) in (1..).zip([at(1), now, far]) {
            write(&mut tables, &ended(number, time)).await;
        }
        for (partition, expected) in [("p_first", 1), ("p_rest", 1)] {
            let sql = format!("SELECT COUNT(*) FROM history PARTITION ({partition})");
            assert_eq!(query::<i64>(&options, &sql).await, [expected], "{partition}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_partitions_are_dropped_and_positions_are_never_reused() {
    TestDatabase::with(async |options| {
        let options = by_day(&options);
        let mut tables = tables(&options).await;
        let (maintenance, logs) = (maintenance(&options), logs(&options));
        let now = now(&options).await;
        for number in 1..=3 {
            write(&mut tables, &ended(number, now)).await;
            logs.append(&[line(number, now)]).await.unwrap();
        }
        let last = query::<i64>(&options, "SELECT MAX(place) FROM history").await[0];
        let days = names(&options, "history").await.len();
        let kept = maintenance.retain(horizon(now), 10).await.unwrap();
        assert_eq!((kept.history, kept.logs), (0, 0), "rows in a partition with newer rows stay");
        let later = now.plus(Duration::from_secs(24 * 3_600));
        let gone = maintenance.retain(horizon(later), 10).await.unwrap();
        assert_eq!((gone.history, gone.logs, gone.more), (3, 3, false));
        assert!(names(&options, "history").await.len() < days);
        assert_eq!(query::<i64>(&options, "SELECT retained FROM history_bounds").await, [last]);
        let next = "SELECT auto_increment FROM information_schema.tables \
             WHERE table_schema = DATABASE() AND table_name = 'history'";
        // MySQL returns cached values unless it analyzes the table again.
        run(&options, "ANALYZE TABLE history").await;
        assert!(query::<i64>(&options, next).await[0] > last);
        write(&mut tables, &ended(4, later)).await;
        assert!(query::<i64>(&options, "SELECT MIN(place) FROM history").await[0] > last);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_is_in_use_keeps_its_partitions_for_now() {
    TestDatabase::with(async |options| {
        let options = by_day(&options);
        let mut tables = tables(&options).await;
        let maintenance = maintenance(&options);
        let now = now(&options).await;
        write(&mut tables, &ended(1, now)).await;
        let mut reader = super::database::client(&options).await;
        use mysql_async::prelude::Queryable;
        // It is idle as long as maintenance waits for it, which MariaDB would end.
        reader.query_drop("SET @waits = 1 /*M!, idle_transaction_timeout = 0 */").await.unwrap();
        reader.query_drop("BEGIN").await.unwrap();
        let _: Vec<i64> = reader.query("SELECT place FROM history").await.unwrap();
        let later = now.plus(Duration::from_secs(24 * 3_600));
        let kept = maintenance.retain(horizon(later), 10).await.unwrap();
        assert_eq!(kept.history, 0);
        reader.query_drop("COMMIT").await.unwrap();
        assert_eq!(maintenance.retain(horizon(later), 10).await.unwrap().history, 1);
    })
    .await;
}

fn line(number: u32, timestamp: Timestamp) -> LogLine {
    LogLine {
        number: 0,
        execution: id(number).occurrence(1).attempt(1),
        timestamp,
        stream: LogStream::Stdout,
        message: "said".to_owned(),
    }
}
