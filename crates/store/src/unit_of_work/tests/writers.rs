//! The writers: every write gets a reply, whatever happens to the database.

use super::*;
use crate::fault::Fault;
use crate::unit_of_work::writers::Connect;
use crate::unit_of_work::{Tables, Writers};
use async_trait::async_trait;
use futures_util::FutureExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::Barrier;

#[derive(Default)]
struct Connections {
    tables: MemoryTables,
    made: AtomicUsize,
    is_away: AtomicBool,
}

#[async_trait]
impl Connect for Connections {
    async fn connect(&self, _writer: usize) -> Result<Box<dyn Tables>, Fault> {
        if self.is_away.load(Ordering::SeqCst) {
            return Err(Fault::Away("the database is unreachable".to_owned()));
        }
        self.made.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(self.tables.clone()))
    }
}

fn start(writers: usize) -> (Arc<Connections>, Writers) {
    let connections = Arc::new(Connections::default());
    let writers = Writers::start(writers, connections.clone(), &tokio_host(7));
    (connections, writers)
}

#[tokio::test]
async fn waiting_writes_share_transactions_and_all_are_answered() {
    let (connections, writers) = start(1);
    let writes = (0..200).map(|number| writers.write(submit([job(number)])));
    for reply in futures_util::future::join_all(writes).await {
        assert!(matches!(reply, Ok(WriteReply::Submitted(_))), "{reply:?}");
    }
    assert_eq!(connections.tables.database().jobs.len(), 200);
    let figures = writers.figures();
    let transactions = figures.transaction_writes.snapshot().count();
    assert_eq!(figures.transaction_time.snapshot().count(), transactions);
    assert!(transactions < 200, "{transactions}");
}

/// Connections whose transactions begin in pairs.
struct InPairs(MemoryTables, Arc<Barrier>);

#[async_trait]
impl Connect for InPairs {
    async fn connect(&self, _writer: usize) -> Result<Box<dyn Tables>, Fault> {
        self.1.wait().await;
        Ok(Box::new(self.0.clone()))
    }
}

#[tokio::test]
async fn writers_work_at_the_same_time() {
    let connections = Arc::new(InPairs(MemoryTables::default(), Arc::new(Barrier::new(2))));
    let writers = Writers::start(2, connections, &tokio_host(7));
    // Each fills a transaction, so neither waits for the other's.
    let full = |first: u64| submit((first..first + 2_000).map(job));
    let (one, other) = tokio::join!(writers.write(full(0)), writers.write(full(2_000)));
    assert!(one.is_ok() && other.is_ok());
}

#[tokio::test]
async fn several_writers_share_the_writes() {
    let (connections, writers) = start(4);
    let writes = (0..200).map(|number| writers.write(submit([job(number)])));
    for reply in futures_util::future::join_all(writes).await {
        assert!(reply.is_ok(), "{reply:?}");
    }
    writers.close().await;
    let database = connections.tables.database();
    assert_eq!((database.jobs.len(), database.lanes.len()), (200, 1));
}

#[tokio::test]
async fn an_unavailable_database_is_reported_at_once_and_used_again_later() {
    let (connections, writers) = start(2);
    connections.is_away.store(true, Ordering::SeqCst);
    for number in 0..20 {
        let reply = writers.write(submit([job(number)])).await;
        assert!(matches!(reply, Err(StoreError::Unavailable(_))), "{reply:?}");
    }
    connections.is_away.store(false, Ordering::SeqCst);
    while writers.write(submit([job(0)])).await.is_err() {
        tokio::task::yield_now().await;
    }
    assert_eq!(connections.tables.database().jobs.len(), 1);
}

#[tokio::test]
async fn a_connection_is_reopened_after_an_outage() {
    let (connections, writers) = start(1);
    writers.write(submit([job(0)])).await.unwrap();
    connections.tables.database().outages = 2;
    let reply = writers.write(submit([job(1)])).await;
    assert!(matches!(reply, Err(StoreError::Unavailable(_))), "{reply:?}");
    writers.write(submit([job(1)])).await.unwrap();
    assert_eq!(connections.made.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn cancelled_callers_do_not_matter_and_sent_writes_complete() {
    let (connections, writers) = start(1);
    for number in 0..10 {
        // It is sent at the first poll; the reply is not awaited.
        assert!(writers.write(submit([job(number)])).now_or_never().is_none());
    }
    writers.close().await;
    assert_eq!(connections.tables.database().jobs.len(), 10);
}
