//! Tests of several engines on one store, as in several processes: what one commits, another one runs, fires
//! or reports.

use punctual_client::host;
use punctual_coordination::StoreCoordination;
use punctual_core::cluster::Card;
use punctual_core::ids::JobId;
use punctual_core::job::{JobSpec, JobStatus};
use punctual_core::ports::{
    Clock, Coordination, CoordinationError, HeldLease, Host, Joining, LeaseName, MemberId, MembershipTable,
    ReadyHint, ReadyQueue, ReadyQueueError, Roster, Standing, Store, Take, Task,
};
use punctual_core::recurrence::RecurrenceSpec;
use punctual_core::schedule::{OverlapPolicy, Recurring, Schedule};
use punctual_core::time::{Monotonic, Timestamp};
use punctual_engine::{ClusterParticipation, Duties, Engine, EngineConfig, Touched};
use punctual_store::sqlite::{SqliteOptions, SqliteStore};
use punctual_worker::{Worker, WorkerConfig, builtin_executors};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::sync::{Mutex, broadcast, watch};
use tokio::task::JoinHandle;

/// How long an expected event may take. Generous, because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);
/// So long that anything earlier did not wait for it.
const NEVER: Duration = Duration::from_secs(3_600);

/// A store that several engines share.
struct SharedStore {
    store: Arc<dyn Store>,
    membership_table: Arc<dyn MembershipTable>,
    host: Host,
    _directory: TempDir,
}

impl SharedStore {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let host = host::this_machine().unwrap();
        let store = SqliteStore::open(&SqliteOptions::new(directory.path()), host.calendar.clone()).unwrap();
        let store = Arc::new(store);
        SharedStore { membership_table: store.clone(), store, host, _directory: directory }
    }

    /// One more process.
    async fn engine(&self, config: EngineConfig, ready_queue: Option<Arc<dyn ReadyQueue>>) -> Arc<Engine> {
        let engine = Engine::among_others(config, self.host.clone(), self.store.clone(), ready_queue);
        engine.start().await.unwrap();
        tokio::spawn(engine.clone().run());
        engine
    }

    /// One more scheduler of a cluster whose coordination can be cut off, and its loops.
    async fn member(&self, away: &Arc<AtomicBool>) -> (Arc<Engine>, JoinHandle<()>) {
        self.member_for(Duration::from_millis(500), away).await
    }

    /// The same, with this TTL.
    async fn member_for(&self, ttl: Duration, away: &Arc<AtomicBool>) -> (Arc<Engine>, JoinHandle<()>) {
        let coordination = StoreCoordination::new(self.membership_table.clone(), self.host.clock.clone());
        self.seated(ttl, Arc::new(Cuttable { coordination, is_away: away.clone() })).await
    }

    async fn seated(
        &self,
        ttl: Duration,
        coordination: Arc<dyn Coordination>,
    ) -> (Arc<Engine>, JoinHandle<()>) {
        let config = EngineConfig { member_ttl: ttl, ..sharing(Duties::Everything) };
        let participation = Some(ClusterParticipation { coordination, card: Card::default() });
        let engine = Engine::in_cluster(config, self.host.clone(), self.store.clone(), None, participation);
        engine.start().await.unwrap();
        let loops = tokio::spawn(engine.clone().run());
        (engine, loops)
    }

    /// A worker that runs until the sender is dropped; returns after it has a session.
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

/// Carries wake-ups between the engines of one test, as a database does between processes.
struct WakeLine {
    words: broadcast::Sender<ReadyHint>,
    heard: Mutex<broadcast::Receiver<ReadyHint>>,
    told: AtomicUsize,
    asked: AtomicUsize,
}

impl WakeLine {
    fn new(words: &broadcast::Sender<ReadyHint>) -> Arc<Self> {
        Arc::new(WakeLine {
            words: words.clone(),
            heard: Mutex::new(words.subscribe()),
            told: AtomicUsize::new(0),
            asked: AtomicUsize::new(0),
        })
    }
}

#[async_trait::async_trait]
impl ReadyQueue for WakeLine {
    fn kind(&self) -> &'static str {
        "memory"
    }

    async fn publish(&self, hint: ReadyHint) -> Result<(), ReadyQueueError> {
        self.told.fetch_add(1, Ordering::Relaxed);
        let _ = self.words.send(hint);
        Ok(())
    }

    async fn receive(&self) -> Result<ReadyHint, ReadyQueueError> {
        // The connection has just been made.
        if self.asked.fetch_add(1, Ordering::Relaxed) == 0 {
            return Ok(ReadyHint::AnyLane);
        }
        Ok(self.heard.lock().await.recv().await.unwrap_or(ReadyHint::AnyLane))
    }
}

/// Broken wake-ups.
#[derive(Default)]
struct BrokenReadyQueue {
    asked: AtomicUsize,
}

#[async_trait::async_trait]
impl ReadyQueue for BrokenReadyQueue {
    fn kind(&self) -> &'static str {
        "memory"
    }

    async fn publish(&self, _: ReadyHint) -> Result<(), ReadyQueueError> {
        Err(ReadyQueueError::Unavailable("the line is down".to_owned()))
    }

    async fn receive(&self) -> Result<ReadyHint, ReadyQueueError> {
        // It worked once, and then it broke.
        match self.asked.fetch_add(1, Ordering::Relaxed) {
            0 => Ok(ReadyHint::AnyLane),
            _ => Err(ReadyQueueError::Unavailable("the line is down".to_owned())),
        }
    }
}

fn sharing(duties: Duties) -> EngineConfig {
    EngineConfig::default().sharing_store(duties)
}

#[tokio::test]
async fn work_that_one_process_queues_is_run_by_another_that_is_told() {
    let shared = SharedStore::new();
    let (words, _) = broadcast::channel(16);
    let (here, there) = (WakeLine::new(&words), WakeLine::new(&words));
    // No engine scans by itself.
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
    let shared = SharedStore::new();
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
    let shared = SharedStore::new();
    let api = shared.engine(sharing(Duties::OwnCommits), None).await;
    let dead = Arc::new(BrokenReadyQueue::default());
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

/// A claim skips rows that others have locked at that moment, and no further wake-up follows.
#[tokio::test]
async fn a_claim_that_found_nothing_is_followed_by_looks_before_long() {
    let shared = SharedStore::new();
    let patient = EngineConfig { dispatch_interval: NEVER, ..sharing(Duties::OwnCommits) };
    let api = shared.engine(patient.clone(), None).await;
    let working = shared.engine(patient, None).await;
    let _worker = shared.worker(&working).await;
    let job = submit(&api, Schedule::Immediate).await;
    shared.succeeds(job).await;
}

#[tokio::test]
async fn the_node_that_commits_a_near_time_fires_it() {
    let shared = SharedStore::new();
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
    let shared = SharedStore::new();
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
    let shared = SharedStore::new();
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

/// Every 100 ms, whatever the outcome of the last run.
async fn submit_frequent(engine: &Engine) -> JobId {
    let mut spec = JobSpec::named("noop");
    spec.settings.schedule = Recurring::new(RecurrenceSpec::interval("100ms", engine.now())).unwrap().into();
    spec.settings.overlap = OverlapPolicy::Allow;
    engine.submit(vec![spec]).await.pop().unwrap().unwrap().job
}

#[tokio::test]
async fn what_a_process_fires_by_its_own_commit_is_soon_left_to_schedulers() {
    let shared = SharedStore::new();
    let api = shared.engine(sharing(Duties::OwnCommits), None).await;
    let scheduler = shared.engine(sharing(Duties::Everything), None).await;
    submit_frequent(&api).await;
    let fired = |engine: &Engine| engine.counters().fired;
    eventually("the scheduler alone fires it", async || {
        let before = (fired(&api), fired(&scheduler));
        eventually("the scheduler goes on", async || fired(&scheduler) >= before.1 + 5).await;
        fired(&api) == before.0
    })
    .await;
}

#[tokio::test]
async fn a_scheduler_does_not_go_on_with_what_another_has_come_to_look_after() {
    let shared = SharedStore::new();
    let away = Arc::new(AtomicBool::new(false));
    let ttl = Duration::from_secs(2);
    let (first, _first_loops) = shared.member_for(ttl, &away).await;
    eventually("one has all", async || first.cluster().is_coordinated && first.cluster().segments == 64)
        .await;
    for _ in 0..40 {
        submit_frequent(&first).await;
    }
    let fired = |engine: &Engine| engine.counters().fired;
    eventually("the first fires all", async || fired(&first) >= 200).await;
    let (second, _second_loops) = shared.member_for(ttl, &away).await;
    eventually("two share evenly", async || shares(&[&first, &second]) == (vec![32, 32], 1)).await;
    // By then nothing is left of what was handed over.
    let before = fired(&second);
    eventually("the second fires its part", async || fired(&second) >= before + 500).await;

    let conflicts = |engine: &Engine| engine.counters().fire_conflicts;
    let before = (fired(&first) + fired(&second), conflicts(&first) + conflicts(&second));
    eventually("both go on", async || fired(&first) + fired(&second) >= before.0 + 1_000).await;
    let after = (fired(&first) + fired(&second), conflicts(&first) + conflicts(&second));
    let (fires, conflicts) = (after.0 - before.0, after.1 - before.1);
    assert!(conflicts * 10 < fires, "{conflicts} conflicts of {fires} fires");
}

#[tokio::test]
async fn listeners_are_told_of_what_another_process_runs() {
    let shared = SharedStore::new();
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
    told.await.expect("the start is reported");
}

/// The store's coordination, which does not answer while it is cut off.
struct Cuttable {
    coordination: StoreCoordination,
    is_away: Arc<AtomicBool>,
}

impl Cuttable {
    fn reach(&self) -> Result<&StoreCoordination, CoordinationError> {
        if self.is_away.load(Ordering::Relaxed) {
            return Err(CoordinationError::Unavailable("it is away".to_owned()));
        }
        Ok(&self.coordination)
    }
}

#[async_trait::async_trait]
impl Coordination for Cuttable {
    async fn join(&self, joining: Joining) -> Result<Standing, CoordinationError> {
        self.reach()?.join(joining).await
    }

    async fn beat(&self, member: &MemberId, card: String) -> Result<Standing, CoordinationError> {
        self.reach()?.beat(member, card).await
    }

    async fn look(&self) -> Result<Roster, CoordinationError> {
        self.reach()?.look().await
    }

    async fn take(&self, member: &MemberId, names: Vec<LeaseName>) -> Result<Vec<Take>, CoordinationError> {
        self.reach()?.take(member, names).await
    }

    async fn release(&self, member: &MemberId, held: Vec<HeldLease>) -> Result<Vec<bool>, CoordinationError> {
        self.reach()?.release(member, held).await
    }

    async fn leave(&self, member: &MemberId) -> Result<(), CoordinationError> {
        self.reach()?.leave(member).await
    }
}

/// How many segments each owns, fewest first, and how many lead.
fn shares(engines: &[&Arc<Engine>]) -> (Vec<usize>, usize) {
    let clusters = engines.iter().map(|engine| engine.cluster());
    let mut shares: Vec<usize> = clusters.map(|cluster| cluster.segments).collect();
    shares.sort_unstable();
    (shares, engines.iter().filter(|engine| engine.leads()).count())
}

/// The store's coordination, but too slow to give or take anything.
struct Stuck(StoreCoordination);

#[async_trait::async_trait]
impl Coordination for Stuck {
    async fn join(&self, joining: Joining) -> Result<Standing, CoordinationError> {
        self.0.join(joining).await
    }

    async fn beat(&self, member: &MemberId, card: String) -> Result<Standing, CoordinationError> {
        self.0.beat(member, card).await
    }

    async fn look(&self) -> Result<Roster, CoordinationError> {
        self.0.look().await
    }

    async fn take(&self, _: &MemberId, _: Vec<LeaseName>) -> Result<Vec<Take>, CoordinationError> {
        Err(CoordinationError::Unavailable("no answer in time".to_owned()))
    }

    async fn release(&self, _: &MemberId, _: Vec<HeldLease>) -> Result<Vec<bool>, CoordinationError> {
        Err(CoordinationError::Unavailable("no answer in time".to_owned()))
    }

    async fn leave(&self, member: &MemberId) -> Result<(), CoordinationError> {
        self.0.leave(member).await
    }
}

#[tokio::test]
async fn a_member_that_cannot_take_its_part_looks_after_everything() {
    let shared = SharedStore::new();
    let coordination = StoreCoordination::new(shared.membership_table.clone(), shared.host.clock.clone());
    let (engine, loops) = shared.seated(Duration::from_millis(500), Arc::new(Stuck(coordination))).await;
    eventually("it has tried twice", async || engine.counters().coordination_errors >= 2).await;
    for _ in 0..20 {
        let cluster = engine.cluster();
        assert_eq!((cluster.members, cluster.segments, cluster.is_coordinated), (1, 64, false));
        tokio::task::yield_now().await;
    }
    loops.abort();
}

#[tokio::test]
async fn schedulers_share_segments_out_and_go_on_alone_while_coordination_is_away() {
    let shared = SharedStore::new();
    let away = Arc::new(AtomicBool::new(false));
    let (first, first_loops) = shared.member(&away).await;
    let (second, _second_loops) = shared.member(&away).await;
    let (third, _third_loops) = shared.member(&away).await;
    let all = [&first, &second, &third];
    eventually("three share evenly", async || shares(&all) == (vec![21, 21, 22], 1)).await;
    let seen = first.nodes().await.unwrap().unwrap();
    assert_eq!((seen.len(), seen.iter().filter(|node| node.holdings.leads).count()), (3, 1));

    away.store(true, Ordering::Relaxed);
    eventually("each is responsible for everything", async || shares(&all) == (vec![64, 64, 64], 3)).await;
    away.store(false, Ordering::Relaxed);
    eventually("they share again", async || shares(&all) == (vec![21, 21, 22], 1)).await;

    first_loops.abort();
    eventually("two share what the dead one had", async || shares(&[&second, &third]) == (vec![32, 32], 1))
        .await;
    second.hand_over().await;
    let left = third.nodes().await.unwrap().unwrap();
    assert_eq!(left.len(), 1, "who leaves is not waited for");
    eventually("one has all", async || shares(&[&third]) == (vec![64], 1)).await;
}

/// A machine whose wall clock is off by this many microseconds.
struct SkewedClock {
    clock: Arc<dyn Clock>,
    by_us: AtomicI64,
}

impl Clock for SkewedClock {
    fn wall(&self) -> Timestamp {
        self.clock.wall().shifted(self.by_us.load(Ordering::Relaxed))
    }

    fn monotonic(&self) -> Monotonic {
        self.clock.monotonic()
    }

    fn sleep(&self, duration: Duration) -> Task {
        self.clock.sleep(duration)
    }
}

#[tokio::test]
async fn a_node_whose_clock_is_off_leaves_firing_to_others_until_it_is_right() {
    let shared = SharedStore::new();
    let clock = Arc::new(SkewedClock { clock: shared.host.clock.clone(), by_us: AtomicI64::new(45_000_000) });
    let host = Host { clock: clock.clone(), calendar: clock.clone(), ..shared.host.clone() };
    let off = Engine::new(sharing(Duties::Everything), host, shared.store.clone());
    off.start().await.unwrap();
    tokio::spawn(off.clone().run());
    assert!(off.cluster().is_off && off.cluster().segments == 0 && !off.leads());
    assert!(off.clock_offset_us() < -44_000_000, "{}", off.clock_offset_us());
    let job = submit(&off, Schedule::OneTime { at: off.now().plus(Duration::from_millis(50)) }).await;
    let right = shared.engine(sharing(Duties::Everything), None).await;
    let _worker = shared.worker(&right).await;
    shared.succeeds(job).await;
    assert_eq!((off.counters().fired, right.counters().fired), (0, 1));
    clock.by_us.store(0, Ordering::Relaxed);
    eventually("it fires again", async || !off.cluster().is_off && off.cluster().segments == 64).await;
}
