//! Followers of history do not go past a number whose row may still appear.

use super::database::{TestDatabase, client};
use crate::mysql::{MySqlOptions, MySqlStore};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use punctual_core::ports::{HistorySpan, Store};

/// Appends a row that has existed for this many seconds.
async fn append(conn: &mut Conn, seconds: u32) {
    let sql = "INSERT INTO history (job, occurrence, completed_at, scheduled_time, available_at, attempt, epoch, \
         job_version, status, origin, appended_at) \
         VALUES (UNHEX(REPLACE(UUID(), '-', '')), 1, 1, 1, 1, 1, 1, 1, 0, 0, UTC_TIMESTAMP(6) - INTERVAL ? SECOND)";
    conn.exec_drop(sql, (seconds,)).await.unwrap();
}

struct FollowedStore {
    store: MySqlStore,
    /// Connections of two writers.
    one: Conn,
    other: Conn,
}

impl FollowedStore {
    async fn open(options: &MySqlOptions) -> Self {
        let store = MySqlStore::open(options).await.unwrap();
        FollowedStore { store, one: client(options).await, other: client(options).await }
    }

    /// How far a follower gets, and the reported end of history.
    async fn check(&self, expected: u64) {
        let page = self.store.finished_after(0, 100).await.unwrap();
        assert_eq!((page.looked_to, page.more), (expected, false));
        let span = self.store.history_span().await.unwrap();
        assert_eq!(span, HistorySpan { begins_after: 0, ends_at: expected });
    }

    async fn close(self) {
        self.store.close().await;
        self.one.disconnect().await.unwrap();
        self.other.disconnect().await.unwrap();
    }
}

#[tokio::test]
async fn rows_after_an_open_transaction_are_held_back() {
    TestDatabase::with(async |options| {
        let mut followed = FollowedStore::open(&options).await;
        append(&mut followed.one, 0).await;
        followed.one.query_drop("START TRANSACTION").await.unwrap();
        append(&mut followed.one, 0).await;
        append(&mut followed.other, 0).await;
        followed.check(1).await;
        followed.one.query_drop("COMMIT").await.unwrap();
        followed.check(3).await;
        followed.close().await;
    })
    .await;
}

#[tokio::test]
async fn an_abandoned_number_is_skipped_once_the_next_row_has_settled() {
    TestDatabase::with(async |options| {
        let mut followed = FollowedStore::open(&options).await;
        followed.one.query_drop("START TRANSACTION").await.unwrap();
        append(&mut followed.one, 0).await;
        followed.one.query_drop("ROLLBACK").await.unwrap();
        append(&mut followed.other, 0).await;
        followed.check(0).await;
        followed
            .other
            .query_drop("UPDATE history SET appended_at = appended_at - INTERVAL 3 SECOND")
            .await
            .unwrap();
        followed.check(2).await;
        append(&mut followed.other, 0).await;
        followed.check(3).await;
        followed.close().await;
    })
    .await;
}

#[tokio::test]
async fn deleted_rows_are_not_waited_for() {
    TestDatabase::with(async |options| {
        let mut followed = FollowedStore::open(&options).await;
        for _ in 0..4 {
            append(&mut followed.one, 0).await;
        }
        followed.one.query_drop("DELETE FROM history WHERE place IN (2, 3)").await.unwrap();
        followed.check(1).await;
        followed.one.query_drop("UPDATE history_bounds SET given = 3").await.unwrap();
        followed.check(4).await;
        followed.close().await;
    })
    .await;
}

#[tokio::test]
async fn every_step_of_a_cluster_is_reported_when_it_has_settled() {
    TestDatabase::with(async |options| {
        let mut followed = FollowedStore::open(&options).await;
        followed
            .one
            .query_drop("SET SESSION auto_increment_increment = 3, auto_increment_offset = 2")
            .await
            .unwrap();
        for seconds in [9, 8, 7] {
            append(&mut followed.one, seconds).await;
        }
        followed.check(8).await;
        append(&mut followed.one, 0).await;
        followed.check(8).await;
        followed.close().await;
    })
    .await;
}
