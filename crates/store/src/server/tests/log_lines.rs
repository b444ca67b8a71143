//! The numbers of log lines.

use super::database::TestDatabase;
use super::dialect::{LINES, STORED_NUL, logs, query, tables};
use super::fixture::{at, id};
use punctual_core::ports::{LogLine, LogStream};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_are_numbered_by_their_time_and_never_twice() {
    TestDatabase::with(async |options| {
        drop(tables(&options).await);
        let (one, other) = (logs(&options), logs(&options));
        one.append(&[line(5, "a\0b"), line(5, "second"), line(4, "back")]).await.unwrap();
        // Another node takes over in the same microsecond, and then the first one continues.
        other.append(&[line(5, "other")]).await.unwrap();
        one.append(&[line(5, "again")]).await.unwrap();
        let rows = query(&options, &format!("SELECT number, message FROM {LINES} ORDER BY number")).await;
        let first = at(5).as_micros();
        let numbers: Vec<i64> = rows.iter().map(|row| row[0].parse::<i64>().unwrap() - first).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4]);
        let said: Vec<&str> = rows.iter().map(|row| row[1].as_str()).collect();
        assert_eq!(said, [&format!("a{STORED_NUL}b"), "second", "back", "other", "again"]);
    })
    .await;
}

fn line(seconds: i64, message: &str) -> LogLine {
    LogLine {
        number: 0,
        execution: id(1).occurrence(1).attempt(1),
        timestamp: at(seconds),
        stream: LogStream::Stdout,
        message: message.to_owned(),
    }
}
