//! Several engines on one store, as several processes have them: what one commits, another one runs, fires or tells of.

use punctual_client::host;
use punctual_core::ids::JobId;
use punctual_core::job::{JobSpec, JobStatus};
use punctual_core::ports::{Heard, Host, Lane, Store, StoreError, Wakes};
use punctual_core::recurrence::RecurrenceSpec;
use punctual_core::schedule::{Recurring, Schedule};
use punctual_engine::{Duties, Engine, EngineConfig, Touched};
use punctual_store::sqlite::{SqliteOptions, SqliteStore};
use punctual_worker::{Worker, WorkerConfig, builtin_executors};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::sync::{Mutex, broadcast, watch};

/// How long anything that must come may take to come. Generous: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);
/// So long that what comes earlier did not wait for it.
const NEVER: Duration = Duration::from_secs(3_600);

/// A store that several engines share.
struct Shared {
    store: Arc<dyn Store>,
    host: Host,
    _directory: TempDir,
}

impl Shared {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let host = host::this_machine().unwrap();
        let store = SqliteStore::open(&SqliteOptions::new(directory.path()), host.calendar.clone()).unwrap();
        Shared { store: Arc::new(store), host, _directory: directory }
    }

    /// One more process.
    async fn engine(&self, config: EngineConfig, wakes: Option<Arc<dyn Wakes>>) -> Arc<Engine> {
        let engine = Engine::among_others(config, self.host.clone(), self.store.clone(), wakes);
        engine.start().await.unwrap();
        tokio::spawn(engine.clone().run());
        engine
    }

    /// Works until the sender is dropped, and waits for its session.
    async fn worker(&self, engine: &Arc<Engine>) -> watch::Sender<bool> {
        let (drain, draining) = watch::channel(false);
        let config = WorkerConfig { slots: 4, ..WorkerConfig::default() };
        let worker = Worker::new(config, self.host.clone(), engine.clone(), builtin_executors(&self.host));
        tokio::spawn(worker.run(draining));
        eventually("the worker has its session", async || !self.store.sessions().await.unwrap().is_empty())
            .await;
        drain
    }

    async fn succeeds(&self, job: JobId) {
        eventually("the job is done", async || {
            let view = self.store.job(job).await.unwrap().unwrap();
            view.status() == JobStatus::Completed
        })
        .await;
    }
}

async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !condition().await {
        assert!(start.elapsed() < PATIENCE, "never came true: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn submit(engine: &Engine, schedule: Schedule) -> JobId {
    let mut spec = JobSpec::named("noop");
    spec.settings.schedule = schedule;
    let mut submitted = engine.submit(vec![spec]).await;
    submitted.pop().unwrap().unwrap().job
}

/// Carries words between the engines of one test, as a database does between processes.
struct Line {
    words: broadcast::Sender<BTreeSet<Lane>>,
    heard: Mutex<broadcast::Receiver<BTreeSet<Lane>>>,
    told: AtomicUsize,
    asked: AtomicUsize,
}

impl Line {
    fn new(words: &broadcast::Sender<BTreeSet<Lane>>) -> Arc<Self> {
        Arc::new(Line {
            words: words.clone(),
            heard: Mutex::new(words.subscribe()),
            told: AtomicUsize::new(0),
            asked: AtomicUsize::new(0),
        })
    }
}

#[async_trait::async_trait]
impl Wakes for Line {
    async fn tell(&self, lanes: BTreeSet<Lane>) -> Result<(), StoreError> {
        self.told.fetch_add(1, Ordering::Relaxed);
        let _ = self.words.send(lanes);
        Ok(())
    }

    async fn heard(&self) -> Result<Heard, StoreError> {
        // The line has just been made.
        if self.asked.fetch_add(1, Ordering::Relaxed) == 0 {
            return Ok(Heard::Anything);
        }
        match self.heard.lock().await.recv().await {
            Ok(lanes) => Ok(Heard::Queued(lanes)),
            Err(_) => Ok(Heard::Anything),
        }
    }
}

/// A line that is down.
#[derive(Default)]
struct Dead {
    asked: AtomicUsize,
}

#[async_trait::async_trait]
impl Wakes for Dead {
    async fn tell(&self, _: BTreeSet<Lane>) -> Result<(), StoreError> {
        Err(StoreError::Unavailable("the line is down".to_owned()))
    }

    async fn heard(&self) -> Result<Heard, StoreError> {
        // It was there, and then it broke.
        match self.asked.fetch_add(1, Ordering::Relaxed) {
            0 => Ok(Heard::Anything),
            _ => Err(StoreError::Unavailable("the line is down".to_owned())),
        }
    }
}

fn sharing(duties: Duties) -> EngineConfig {
    EngineConfig::default().sharing_store(duties)
}

#[tokio::test]
async fn work_that_one_process_queues_is_run_by_another_that_is_told() {
    let shared = Shared::new();
    let (words, _) = broadcast::channel(16);
    let (here, there) = (Line::new(&words), Line::new(&words));
    // Nobody looks by itself.
    let patient = EngineConfig {
        dispatch_interval: NEVER,
        dispatch_interval_hearing: NEVER,
        dispatch_interval_min: NEVER,
        ..sharing(Duties::OwnCommits)
    };
    let api = shared.engine(patient.clone(), Some(here.clone())).await;
    let working = shared.engine(patient, Some(there)).await;
    let _worker = shared.worker(&working).await;
    for _ in 0..3 {
        let job = submit(&api, Schedule::Immediate).await;
        shared.succeeds(job).await;
    }
    assert!(here.told.load(Ordering::Relaxed) > 0);
}

#[tokio::test]
async fn work_that_nobody_told_of_is_found_by_looks() {
    let shared = Shared::new();
    let api = shared.engine(sharing(Duties::OwnCommits), None).await;
    let working = shared.engine(sharing(Duties::OwnCommits), None).await;
    let _worker = shared.worker(&working).await;
    for _ in 0..3 {
        let job = submit(&api, Schedule::Immediate).await;
        shared.succeeds(job).await;
    }
}

#[tokio::test]
async fn a_process_that_can_no_longer_hear_looks_by_itself() {
    let shared = Shared::new();
    let api = shared.engine(sharing(Duties::OwnCommits), None).await;
    let dead = Arc::new(Dead::default());
    let trusting = EngineConfig {
        dispatch_interval_hearing: NEVER,
        dispatch_interval_min: NEVER,
        ..sharing(Duties::OwnCommits)
    };
    let working = shared.engine(trusting, Some(dead.clone())).await;
    let _worker = shared.worker(&working).await;
    eventually("the line is broken", async || dead.asked.load(Ordering::Relaxed) > 1).await;
    let job = submit(&api, Schedule::Immediate).await;
    shared.succeeds(job).await;
}

/// A claim passes over what others have locked just then, and nobody tells of it once more.
#[tokio::test]
async fn a_claim_that_found_nothing_is_followed_by_looks_before_long() {
    let shared = Shared::new();
    let patient = EngineConfig { dispatch_interval: NEVER, ..sharing(Duties::OwnCommits) };
    let api = shared.engine(patient.clone(), None).await;
    let working = shared.engine(patient, None).await;
    let _worker = shared.worker(&working).await;
    let job = submit(&api, Schedule::Immediate).await;
    shared.succeeds(job).await;
}

#[tokio::test]
async fn whoever_commits_a_time_that_is_near_fires_it() {
    let shared = Shared::new();
    // There is no scheduler.
    let api = shared.engine(sharing(Duties::OwnCommits), None).await;
    let working = shared.engine(sharing(Duties::OwnCommits), None).await;
    let _worker = shared.worker(&working).await;
    let job = submit(&api, Schedule::OneTime { at: api.now().plus(Duration::from_millis(200)) }).await;
    shared.succeeds(job).await;
    assert_eq!((api.counters().fired, working.counters().fired), (1, 0));
}

#[tokio::test]
async fn a_time_that_is_far_is_left_to_schedulers() {
    let shared = Shared::new();
    let near = EngineConfig { look_ahead: Duration::ZERO, ..sharing(Duties::OwnCommits) };
    let api = shared.engine(near, None).await;
    let job = submit(&api, Schedule::OneTime { at: api.now().plus(Duration::from_millis(50)) }).await;
    let due = api.now().plus(Duration::from_millis(50));
    eventually("its time has come", async || api.now() > due).await;
    let scheduler = shared.engine(sharing(Duties::Everything), None).await;
    let _worker = shared.worker(&scheduler).await;
    shared.succeeds(job).await;
    assert_eq!((api.counters().fired, scheduler.counters().fired), (0, 1));
}

#[tokio::test]
async fn two_schedulers_fire_every_occurrence_once() {
    let shared = Shared::new();
    let one = shared.engine(sharing(Duties::Everything), None).await;
    let two = shared.engine(sharing(Duties::Everything), None).await;
    let _worker = shared.worker(&two).await;
    let mut spec = RecurrenceSpec::interval("100ms", one.now());
    spec.end_at = Some(one.now().plus(Duration::from_secs(1)));
    let job = submit(&one, Recurring::new(spec).unwrap().into()).await;
    shared.succeeds(job).await;
    let ran = shared.store.history(job, None, 100).await.unwrap().items;
    let times: BTreeSet<_> = ran.iter().map(|finished| finished.scheduled_time).collect();
    let fired = one.counters().fired + two.counters().fired;
    assert!(!ran.is_empty());
    assert_eq!((ran.len() as u64, times.len()), (fired, ran.len()), "each of its times ran once");
}

#[tokio::test]
async fn listeners_are_told_of_what_another_process_runs() {
    let shared = Shared::new();
    let api = shared.engine(sharing(Duties::OwnCommits), None).await;
    let working = shared.engine(sharing(Duties::OwnCommits), None).await;
    let _worker = shared.worker(&working).await;
    let mut spec = JobSpec::named("sleep");
    spec.payload = "{\"ms\": 600000}".to_owned();
    let job = api.submit(vec![spec]).await.pop().unwrap().unwrap().job;
    // From here on only the other process commits.
    let mut listener = api.listen();
    let told = tokio::time::timeout(PATIENCE, async {
        loop {
            match listener.next().await {
                Touched::These(moved) if moved.contains(&job.occurrence(1)) => return,
                _ => {}
            }
        }
    });
    told.await.expect("the start is told");
}
