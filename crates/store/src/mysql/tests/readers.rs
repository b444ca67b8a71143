//! Connections for reads: when the server is unreachable, when all are in use, and when a caller gives up.

use super::database::{TestDatabase, client};
use crate::fault::Fault;
use crate::mysql::readers::{CONFLICTS_MAX, Readers, list, read};
use crate::mysql::{MySqlOptions, MySqlStore};
use crate::reads::Reads;
use futures_util::FutureExt;
use mysql_async::prelude::Queryable;
use punctual_core::ids::SegmentSet;
use punctual_core::ports::{JobCounts, StoreError};
use punctual_core::time::Timestamp;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// A port on which nothing listens: it was free a moment ago.
fn nowhere() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("mysql://u:p@127.0.0.1:{}/nothing", listener.local_addr().unwrap().port())
}

fn readers_of(options: &MySqlOptions, count: usize) -> Readers {
    let replica = options.replica().unwrap().map(|target| target.reading());
    Readers::new(options.target().unwrap().reading(), replica, count)
}

async fn clock(readers: &Readers) -> Result<Timestamp, StoreError> {
    read!(readers, reads => reads.clock())
}

async fn job_counts(readers: &Readers) -> Result<JobCounts, StoreError> {
    list!(readers, reads => reads.job_counts())
}

#[tokio::test]
async fn an_unreachable_server_is_unavailable() {
    let error = clock(&readers_of(&MySqlOptions::new(nowhere()), 1)).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
}

#[tokio::test]
async fn a_caller_gets_an_error_if_no_connection_becomes_free() {
    TestDatabase::with(async |options| {
        let mut readers = readers_of(&options, 2);
        readers.time_limit = Duration::from_millis(50);
        let first = readers.connection_of(readers.primary.current().1).await.unwrap();
        let second = readers.connection_of(readers.primary.current().1).await.unwrap();
        let error = clock(&readers).await.unwrap_err();
        assert!(matches!(&error, StoreError::Unavailable(why) if why.contains("within 0.05 s")), "{error}");
        first.give_back();
        readers.time_limit = Duration::from_secs(10);
        assert!(clock(&readers).await.is_ok());
        second.give_back();
        readers.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_caller_that_gives_up_leaves_no_answer_for_the_next_one() {
    TestDatabase::with(async |options| {
        MySqlStore::open(&options).await.unwrap().close().await;
        let readers = readers_of(&options, 1);
        let soon = Timestamp::from_micros(i64::MAX);
        for polls in 1..20 {
            let mut connection = readers.connection_of(readers.primary.current().1).await.unwrap();
            {
                let mut reads = Reads::new(&mut connection, readers.lanes());
                let mut due = std::pin::pin!(reads.due(SegmentSet::ALL, soon, 10));
                for _ in 0..polls {
                    if due.as_mut().now_or_never().is_some() {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
            }
            drop(connection);
            let now = clock(&readers).await.unwrap();
            assert!(now > Timestamp::from_micros(1_600_000_000_000_000), "{now:?} after {polls} polls");
        }
        readers.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_returned_connection_is_reused() {
    TestDatabase::with(async |options| {
        let readers = readers_of(&options, 1);
        let mut seen = Vec::new();
        for _ in 0..3 {
            let mut connection = readers.connection_of(readers.primary.current().1).await.unwrap();
            seen.push(connection.connection_number().await.unwrap());
            connection.give_back();
        }
        seen.dedup();
        assert_eq!(seen.len(), 1, "{seen:?}");
        readers.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_table_that_is_redefined_during_a_snapshot_is_a_conflict() {
    TestDatabase::with(async |options| {
        let mut reader = client(&options).await;
        let mut definer = client(&options).await;
        let make = ["DROP TABLE IF EXISTS redefined", "CREATE TABLE redefined (id INT PRIMARY KEY)"];
        for sql in make {
            definer.query_drop(sql).await.unwrap();
        }
        let begin = [
            "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
            "START TRANSACTION WITH CONSISTENT SNAPSHOT",
        ];
        for sql in begin {
            reader.query_drop(sql).await.unwrap();
        }
        definer.query_drop("ALTER TABLE redefined ENGINE = InnoDB").await.unwrap();
        let seen = reader.query_drop("SELECT * FROM redefined").await.map_err(Fault::from);
        assert!(seen.as_ref().is_err_and(Fault::is_conflict), "{seen:?}");
        reader.query_drop("COMMIT").await.unwrap();
        definer.query_drop("DROP TABLE redefined").await.unwrap();
        reader.disconnect().await.unwrap();
        definer.disconnect().await.unwrap();
    })
    .await;
}

/// A verb that gets this many conflicts before it succeeds.
async fn hindered(conflicts: &AtomicU32) -> Result<u32, Fault> {
    let left = conflicts.load(Relaxed);
    conflicts.store(left.saturating_sub(1), Relaxed);
    if left > 0 { Err(Fault::Conflict("a table".to_owned())) } else { Ok(left) }
}

#[tokio::test]
async fn a_verb_restarts_a_few_times_after_conflicts() {
    TestDatabase::with(async |options| {
        let readers = readers_of(&options, 1);
        let read = async |conflicts: u32| -> Result<u32, StoreError> {
            let conflicts = AtomicU32::new(conflicts);
            #[expect(unused_mut, unused_variables, reason = "the verb needs no connection")]
            let seen = read!(readers, reads => hindered(&conflicts));
            seen
        };
        assert_eq!(read(CONFLICTS_MAX).await, Ok(0));
        assert!(matches!(read(CONFLICTS_MAX + 1).await, Err(StoreError::Unavailable(_))));
        readers.close().await;
    })
    .await;
}

#[tokio::test]
async fn lists_are_read_from_the_primary_while_the_replica_is_unavailable() {
    TestDatabase::with(async |options| {
        MySqlStore::open(&options).await.unwrap().close().await;
        let options = MySqlOptions { replica_url: Some(nowhere()), ..options };
        let readers = readers_of(&options, 2);
        assert!(readers.replica().is_some());
        assert_eq!(job_counts(&readers).await.unwrap(), JobCounts::default());
        assert!(readers.replica().is_none(), "the replica is not tried for a while");
        assert_eq!(job_counts(&readers).await.unwrap(), JobCounts::default());
        readers.close().await;
    })
    .await;
}
