//! The limit on the total size of log lines: whole days are dropped first, then the logs of the executions
//! that ended first.

use super::database::TestDatabase;
use super::database::{query, run};
use super::dialect::{logs, tables};
use super::fixture::{finished, id, write};
use crate::mysql::MySqlOptions;
use crate::unit_of_work::{EndedRow, WriteSet};
use punctual_core::limits;
use punctual_core::ports::{LogLine, LogStream};
use punctual_core::time::Timestamp;
use std::time::Duration;

const LIMIT: u64 = limits::LOGS_BYTES_MIN;
/// Lines of one execution, about 200 bytes each.
const LINES: usize = 100;

fn limited(options: &MySqlOptions) -> MySqlOptions {
    MySqlOptions { log_bytes_max: Some(LIMIT), partition_width: limits::PARTITION_WIDTH, ..options.clone() }
}

fn lines(number: u32, timestamp: Timestamp) -> Vec<LogLine> {
    let line = |n: usize| LogLine {
        number: 0,
        execution: id(number).occurrence(1).attempt(1),
        timestamp,
        stream: LogStream::Stdout,
        message: format!("{number} {n} {}", "x".repeat(190)),
    };
    (0..LINES).map(line).collect()
}

async fn kept(options: &MySqlOptions, number: u32) -> i64 {
    let job = u128::from_be_bytes(*id(number).as_bytes());
    let sql = format!("SELECT COUNT(*) FROM log_lines WHERE job = UNHEX('{job:032x}')");
    query(options, &sql).await[0]
}

async fn now(options: &MySqlOptions) -> Timestamp {
    let sql = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
    Timestamp::from_micros(query::<i64>(options, sql).await[0])
}

async fn removed_until(options: &MySqlOptions) -> Vec<i64> {
    query(options, "SELECT at FROM probe WHERE id = 3").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_oldest_days_are_dropped_completely() {
    TestDatabase::with(async |options| {
        let options = limited(&options);
        // Creates the partitions of the next days.
        drop(tables(&options).await);
        let logs = logs(&options);
        let now = now(&options).await;
        let day = |number: u32| now.plus(limits::PARTITION_WIDTH * (number / 50));
        for number in 0..150 {
            logs.append(&lines(number, day(number))).await.unwrap();
            if number % 10 == 9 {
                // The server's own statistics would be updated only later.
                run(&options, "ANALYZE TABLE log_lines").await;
            }
        }
        logs.append(&lines(150, day(149))).await.unwrap();
        for number in 0..100 {
            assert_eq!(kept(&options, number).await, 0, "{number} is from an earlier day");
        }
        assert_eq!((kept(&options, 149).await, kept(&options, 150).await), (LINES as i64, LINES as i64));
        assert_eq!(logs.removed().lines, 100 * LINES as u64, "every removed line is counted");
        let until = Timestamp::from_micros(removed_until(&options).await[0]);
        assert!(day(50) < until && until <= day(100), "the end of the second day: {until}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn within_a_day_the_executions_that_ended_first_lose_their_logs() {
    TestDatabase::with(async |options| {
        let options = limited(&options);
        let mut tables = tables(&options).await;
        let logs = logs(&options);
        let now = now(&options).await;
        let ended_at = |number: u32| now.plus(Duration::from_micros(number.into()));
        // The log of a running execution is kept, no matter how old its lines are.
        logs.append(&lines(500, now)).await.unwrap();
        for number in 1..=120 {
            logs.append(&lines(number, now)).await.unwrap();
            let row = EndedRow { finished: finished(number, ended_at(number)), worker: None };
            write(&mut tables, &WriteSet { history: vec![row], ..WriteSet::default() }).await;
            if number % 5 == 0 {
                run(&options, "ANALYZE TABLE log_lines").await;
            }
        }
        let mut all = Vec::new();
        for number in 1..=120 {
            all.push(kept(&options, number).await);
        }
        let gone = all.iter().filter(|lines| **lines == 0).count();
        assert!(
            gone > 10 && all.is_sorted() && all[119] == LINES as i64,
            "the executions that ended first were removed: {all:?}"
        );
        let bytes: i64 =
            query(&options, "SELECT CAST(SUM(LENGTH(message)) AS SIGNED) FROM log_lines").await[0];
        assert!((LIMIT / 4..=LIMIT * 5 / 4).contains(&bytes.unsigned_abs()), "{bytes} of {LIMIT}: {all:?}");
        assert_eq!(kept(&options, 500).await, LINES as i64);
        assert_eq!(logs.removed().lines, (gone * LINES) as u64, "every removed line is counted");
        assert_eq!(
            removed_until(&options).await,
            [ended_at(gone as u32).as_micros()],
            "the end of the last removed execution"
        );
    })
    .await;
}
