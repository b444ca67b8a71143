//! The limit on the total size of log lines: whole days are dropped first, then the logs of the executions
//! that ended first.

use super::database::{TestDatabase, client};
use super::dialect::{logs, tables};
use super::fixture::{at, finished, id, write};
use crate::postgres::{PostgresOptions, PostgresStore};
use crate::unit_of_work::{EndedRow, WriteSet};
use punctual_core::limits;
use punctual_core::ports::{LogLine, LogStream, Store};
use std::time::Duration;
use tokio_postgres::Client;

const LIMIT: u64 = limits::LOGS_BYTES_MIN;
/// Lines of one execution, about 200 bytes each.
const LINES: usize = 100;

fn limited(options: &PostgresOptions, partition_width: Duration) -> PostgresOptions {
    PostgresOptions { log_bytes_max: Some(LIMIT), partition_width, ..options.clone() }
}

fn lines(number: u32) -> Vec<LogLine> {
    let line = |n: usize| LogLine {
        number: 0,
        execution: id(number).occurrence(1).attempt(1),
        timestamp: at(number.into()),
        stream: LogStream::Stdout,
        message: format!("{number} {n} {}", "x".repeat(190)),
    };
    (0..LINES).map(line).collect()
}

/// The number of lines of each of these executions.
async fn kept(client: &Client, numbers: std::ops::RangeInclusive<u32>) -> Vec<i64> {
    let mut kept = Vec::new();
    for number in numbers {
        let job = uuid::Uuid::from_bytes(*id(number).as_bytes());
        let row = client.query_one("SELECT count(*) FROM lines WHERE job = $1", &[&job]).await.unwrap();
        kept.push(row.get(0));
    }
    kept
}

#[tokio::test]
async fn the_oldest_days_are_dropped_completely() {
    TestDatabase::with(async |options| {
        let options = limited(&options, Duration::from_secs(1));
        let store = PostgresStore::open(&options).await.unwrap();
        assert_eq!(store.logs_removed_until().await.unwrap(), None);
        let client = client(&options).await;
        for number in 1..=60 {
            store.append_logs(lines(number)).await.unwrap();
            let sql = "SELECT sum(pg_total_relation_size(to_regclass(name)))::bigint FROM partitions WHERE parent = 'lines'";
            let bytes: i64 = client.query_one(sql, &[]).await.unwrap().get(0);
            // Lines that are written between two checks of the size exceed the limit.
            assert!(bytes.unsigned_abs() <= LIMIT + LIMIT / 4, "{bytes} after {number}");
        }
        let kept = kept(&client, 1..=60).await;
        let gone = kept.iter().filter(|lines| **lines == 0).count();
        assert!(gone > 20 && kept.is_sorted() && kept[59] == LINES as i64, "the oldest were removed: {kept:?}");
        let figures = store.figures().await.unwrap();
        assert_eq!(figures.log_lines_removed, (gone * LINES) as u64, "every removed line is counted");
        assert_eq!(store.logs_removed_until().await.unwrap(), Some(at(gone as i64 + 1)), "the end of the last removed execution");
    })
    .await;
}

#[tokio::test]
async fn within_a_day_the_executions_that_ended_first_lose_their_logs() {
    TestDatabase::with(async |options| {
        let options = limited(&options, limits::PARTITION_WIDTH);
        let logs = logs(&options);
        let mut tables = tables(&options).await;
        let client = client(&options).await;
        // The log of a running execution is kept, no matter how old its lines are.
        logs.append(&lines(500)).await.unwrap();
        for number in 1..=120 {
            logs.append(&lines(number)).await.unwrap();
            let row = EndedRow { finished: finished(number, at(number.into())), worker: None };
            write(&mut tables, &WriteSet { history: vec![row], ..WriteSet::default() }).await;
        }
        let all = kept(&client, 1..=120).await;
        let gone = all.iter().filter(|lines| **lines == 0).count();
        assert!(
            gone > 40 && all.is_sorted() && all[119] == LINES as i64,
            "the executions that ended first were removed: {all:?}"
        );
        // The amount of lines stays constant after the limit was reached, although the database has not freed its
        // pages.
        let (least, most) = (LIMIT / 2, LIMIT * 5 / 4);
        let sql = "SELECT sum(octet_length(message) + 100)::bigint FROM lines";
        let bytes: i64 = client.query_one(sql, &[]).await.unwrap().get(0);
        assert!((least..=most).contains(&bytes.unsigned_abs()), "{bytes} of {LIMIT}: {all:?}");
        assert_eq!(kept(&client, 500..=500).await, [LINES as i64]);
        assert_eq!(logs.removed().lines, (gone * LINES) as u64, "every removed line is counted");
        let until: i64 = client.query_one("SELECT at FROM probe WHERE id = 3", &[]).await.unwrap().get(0);
        assert_eq!(until, at(gone as i64).as_micros(), "the end of the last removed execution");
    })
    .await;
}
