//! Work that was locked at the moment of a claim.

use crate::cluster::Cluster;
use crate::server::{PATIENCE, eventually};
use punctual_client::host;
use punctual_core::job::JobSpec;
use punctual_core::ports::{
    Poll, ReadyHint, ReadyQueue, ReadyQueueError, SessionOpening, Store, WorkerAbout, WorkerPort,
};
use punctual_engine::{Duties, Engine, EngineConfig};
use punctual_store::postgres::{PostgresOptions, PostgresStore};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio_postgres::NoTls;

/// So long that anything earlier did not wait for it.
const NEVER: Duration = Duration::from_secs(3_600);

/// Wake-ups that work but never arrive.
#[derive(Default)]
struct Silence {
    asked: AtomicUsize,
}

#[async_trait::async_trait]
impl ReadyQueue for Silence {
    fn kind(&self) -> &'static str {
        "memory"
    }

    async fn publish(&self, _: ReadyHint) -> Result<(), ReadyQueueError> {
        Ok(())
    }

    async fn receive(&self) -> Result<ReadyHint, ReadyQueueError> {
        match self.asked.fetch_add(1, Ordering::Relaxed) {
            0 => Ok(ReadyHint::AnyLane),
            _ => std::future::pending().await,
        }
    }
}

/// An engine on the store that scans for work only where it has reason to, and receives wake-ups.
async fn engine(store: &Arc<PostgresStore>) -> Arc<Engine> {
    let config = EngineConfig {
        dispatch_interval_hearing: NEVER,
        dispatch_interval_min: NEVER,
        ..EngineConfig::default().sharing_store(Duties::OwnCommits)
    };
    let silence = Arc::new(Silence::default());
    let host = host::this_machine().unwrap();
    let engine = Engine::among_others(config, host, store.clone(), Some(silence.clone()));
    engine.start().await.unwrap();
    tokio::spawn(engine.clone().run());
    eventually("others are heard", async || silence.asked.load(Ordering::Relaxed) > 1).await;
    engine
}

/// How many calls have been carried out.
async fn writes(store: &PostgresStore) -> u64 {
    store.figures().await.unwrap().transaction_writes.sum
}

#[tokio::test]
async fn what_was_locked_when_it_was_to_be_claimed_is_claimed_soon_after_it_is_free() {
    Cluster::with(async |cluster| {
        let store = Arc::new(PostgresStore::open(&PostgresOptions::new(&cluster.url)).await.unwrap());
        let engine = engine(&store).await;
        let submitted = engine.submit(vec![JobSpec::named("noop")]).await.remove(0).unwrap();
        let opening = SessionOpening {
            worker: "patient".to_owned(),
            job_types: vec!["noop".to_owned()],
            lease: Duration::from_secs(600),
            embedded: false,
            slots: 1,
            about: WorkerAbout::default(),
            token: None,
        };
        let session = engine.open_session(opening).await.unwrap().session;

        let (other, connection) = tokio_postgres::connect(&cluster.url, NoTls).await.unwrap();
        tokio::spawn(connection);
        other.batch_execute("BEGIN").await.unwrap();
        assert_eq!(other.query("SELECT 1 FROM live FOR UPDATE", &[]).await.unwrap().len(), 1);
        let before = writes(&store).await;
        let (queues, job_types) = (vec![], vec!["noop".to_owned()]);
        let poll = Poll { session, turn: 1, capacity: 1, queues, job_types, wait: NEVER };
        let polling = tokio::spawn({
            let engine = engine.clone();
            async move { engine.poll(poll).await }
        });
        eventually("it was passed over", async || writes(&store).await > before).await;
        other.batch_execute("COMMIT").await.unwrap();

        let answer =
            tokio::time::timeout(PATIENCE, polling).await.expect("a claim long before the next look");
        let assignments = answer.unwrap().unwrap();
        let jobs: Vec<_> = assignments.iter().map(|one| one.execution.occurrence.job).collect();
        assert_eq!(jobs, [submitted.job]);
    })
    .await;
}
