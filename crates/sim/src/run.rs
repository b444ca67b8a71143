//! One run: the seed decides topology, workload and faults. In the first phase everything may fail but no
//! rule may be broken; then all faults end, and everything must finish in bounded time.

use crate::auditor::{AuditResult, AuditViolation, Coverage};
use crate::calendar::{self, ClockChange};
use crate::clients::Clients;
use crate::cluster::SimCluster;
use crate::database::{SimDatabase, StoreKind};
use crate::executor::{SimExecutor, Stopped};
use crate::follower::{self, EventFollower};
use crate::host::true_time;
use crate::nemesis::Nemesis;
use crate::network::SimNetwork;
use crate::network_faults::NetworkFaults;
use crate::random::Rng;
use crate::topology::NodeTopology;
use crate::trace::Trace;
use crate::workload::{
    ClientBehaviour, SLOWEST_STEP, Workload, WorkloadSetting, starts_of, work_of, workload,
};
use crate::world::World;
use punctual_core::defects::{Defect, plant};
use punctual_core::lifecycle_coverage::{self, MoveCounts};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Runs without any fault, in a thousand.
const PEACEFUL_PER_MILLE: u64 = 60;
/// Runs in which queues have limits and owners have weights, in a thousand.
const LIMITED_PER_MILLE: u64 = 450;
/// How often the auditor checks for leases that no worker knows of, and for overdue work.
const ORPHAN_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// How often the auditor checks for work that is queued next to a waiting poll, or held by a worker without a
/// slot, and for wait lists that do not move.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_millis(1_000);

/// How long after the last stray message has arrived all its consequences are in the store: a few calls
/// without faults.
const STRAYS_APPLIED_WITHIN: Duration = Duration::from_secs(1);

/// The maximum time after the last fault until the segments are distributed: dead nodes are evicted, and
/// their segments are reassigned within a few ticks.
const DISTRIBUTED_WITHIN: Duration = Duration::from_secs(60);

/// The maximum time that one verb of a client may add.
const LONGEST_PER_ACTION: Duration = Duration::from_secs(120);

/// Runs in which the store's clock jumps, in a thousand.
const CLOCK_JUMPS_PER_MILLE: u64 = 200;
const DAY_US: i64 = 24 * 3_600 * 1_000_000;

/// What to run.
#[derive(Debug, Clone, Copy)]
pub struct SimOptions {
    pub seed: u64,
    /// The database under the store; `None` to let the seed decide.
    pub store: Option<StoreKind>,
    pub defect: Option<Defect>,
    /// Whether nodes send each other hints of queued work. It is not drawn from the seed, so that runs without hints
    /// stay the same.
    pub has_hints: bool,
    /// Whether to print every event as it happens.
    pub print: bool,
}

impl SimOptions {
    pub fn seed(seed: u64) -> Self {
        SimOptions { seed, store: None, defect: None, has_hints: false, print: false }
    }

    pub fn on(seed: u64, store: StoreKind) -> Self {
        SimOptions { store: Some(store), ..SimOptions::seed(seed) }
    }

    #[must_use]
    pub fn with_hints(self) -> Self {
        SimOptions { has_hints: true, ..self }
    }

    /// The database under the store. It is drawn from the seed alone, so that the rest of a run does not
    /// depend on how it is chosen.
    pub fn store(&self) -> StoreKind {
        self.store.unwrap_or_else(|| *Rng::new(self.seed).fork("store").pick(&StoreKind::ALL))
    }
}

/// The outcome of a run.
#[derive(Debug, Clone)]
pub struct RunOutcome {
    pub options: SimOptions,
    /// All events folded into one number.
    pub hash: u64,
    pub events: u64,
    pub polls: u64,
    pub virtual_time: Duration,
    pub coverage: Coverage,
    /// The entries of the life-cycle table that were used.
    pub moves: MoveCounts,
    pub violation: Option<AuditViolation>,
    pub last_events: Vec<String>,
}

/// Runs one seed to its end or to the first broken rule.
pub fn simulate(options: SimOptions) -> RunOutcome {
    let _planted = Planted::new(options.defect);
    lifecycle_coverage::take();
    let mut rng = Rng::new(options.seed);
    let mut topology = NodeTopology::drawn(&mut rng.fork("topology"));
    topology.has_hints = options.has_hints;
    let drawn = NetworkFaults::drawn(&mut rng.fork("weather"));
    // Some runs have no faults at all: then nothing may be late or lost either.
    let network_faults = if rng.per_mille(PEACEFUL_PER_MILLE) { NetworkFaults::calm() } else { drawn };
    let (starts_at, change) = calendar::drawn(&mut rng.fork("calendar"));
    let executor = SimExecutor::new(rng.fork("executor"), topology.nodes(), starts_at);
    let world = Arc::new(World::new(executor, Trace::new(options.print), network_faults));
    let store = options.store();
    if let Err(violation) = run(&world, &mut rng, store, topology, network_faults, change) {
        world.object(violation);
    }
    world.executor.shut_down();
    let (hash, events, last_events) = world.traced();
    RunOutcome {
        options,
        hash,
        events,
        polls: world.executor.polls(),
        virtual_time: Duration::from_micros(world.executor.now_us()),
        coverage: world.ask(|auditor| auditor.coverage().clone()),
        moves: lifecycle_coverage::take(),
        violation: world.violation(),
        last_events,
    }
}

/// A defect that is planted for the duration of one run.
struct Planted;

impl Planted {
    fn new(defect: Option<Defect>) -> Self {
        plant(defect);
        Planted
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        plant(None);
    }
}

fn run(
    world: &Arc<World>,
    rng: &mut Rng,
    store: StoreKind,
    topology: NodeTopology,
    network_faults: NetworkFaults,
    change: Option<ClockChange>,
) -> AuditResult {
    world.note(format_args!("{store:?} {topology:?} {network_faults:?}"));
    if store != StoreKind::Sqlite {
        world.tell(|auditor| auditor.transactions_overlap());
    }
    let network = SimNetwork::new(world.clone(), rng.fork("network"));
    let database = SimDatabase::new(world.clone(), store, rng.fork("database"))
        .map_err(|error| AuditViolation { rule: "the store opens", detail: error.to_string() })?;
    let cluster = SimCluster::new(world.clone(), network, database, topology, rng.fork("nodes"));
    let nemesis = Nemesis::new(cluster.clone(), rng.fork("nemesis"), network_faults);
    let setting = WorkloadSetting {
        faults_for: rng.millis(8_000, 45_000),
        change,
        mood: ClientBehaviour::drawn(rng),
        is_limited: rng.per_mille(LIMITED_PER_MILLE) && store == StoreKind::Sqlite,
    };
    let clients = Clients::new(cluster.clone(), rng.fork("clients"), setting);
    let workload = workload(&mut rng.fork("workload"), true_time(&world.executor), setting);
    let deadline = deadline(&cluster.topology, &workload, setting);

    let peaceful = network_faults == NetworkFaults::calm();
    if peaceful {
        nemesis.rest();
        world.tell(|auditor| auditor.peace_begins());
    }
    nemesis.set_clocks();
    world.executor.spawn_in_world(look_for_orphans(world.clone()));
    world.executor.spawn_in_world(look_for_idle_hands(world.clone()));
    let follower = EventFollower {
        world: world.clone(),
        database: cluster.database.clone(),
        rng: Mutex::new(rng.fork("follower")),
    };
    world.executor.spawn_in_world(follower.run());
    world.tell(|auditor| auditor.history_is_kept_for(cluster.topology.engine.history_kept));
    let mut clock_rng = rng.fork("store clock");
    if !peaceful && clock_rng.per_mille(CLOCK_JUMPS_PER_MILLE) {
        world.executor.spawn_in_world(jump_store_clock(world.clone(), clock_rng, setting.faults_for));
    }
    (0..cluster.topology.nodes()).for_each(|node| cluster.start(node));
    clients.begin(workload);
    world.executor.spawn_in_world(nemesis.clone().run());
    let faults_end_us = setting.faults_for.as_micros() as u64;
    go(world, faults_end_us, || false)?;
    if world.is_broken() {
        return Ok(());
    }

    nemesis.heal();
    clients.tidy_up();
    let all_done_by_us = faults_end_us + deadline.as_micros() as u64;
    // Messages sent during faults may arrive much later: a submit whose client has given up still creates a
    // job.
    let strays_arrived_us = world.all_arrived_at_us() + STRAYS_APPLIED_WITHIN.as_micros() as u64;
    let has_strays = || world.executor.now_us() < strays_arrived_us;
    let drained = || !has_strays() && clients.are_done() && world.ask(|auditor| auditor.is_drained());
    if go(world, all_done_by_us, drained)? == Stopped::TimeUp {
        return Err(AuditViolation {
            rule: "without faults everything finishes",
            detail: format!("after {deadline:?}: {}", world.ask(|auditor| auditor.left_over())),
        });
    }
    segments_are_distributed(world, &cluster)?;
    leave(world, &cluster)?;
    if peaceful {
        world.ask(|auditor| auditor.nothing_was_lost())?;
    }
    compare(world, &cluster, &clients)
}

/// The clock of the store's machine is months off for some seconds at a time, as seen by retention. The other
/// loops do not see it: otherwise everything due within months would fire at once.
async fn jump_store_clock(world: Arc<World>, mut rng: Rng, until: Duration) {
    loop {
        world.executor.sleep(rng.millis(1_000, 15_000)).await;
        if world.executor.now_us() >= until.as_micros() as u64 {
            return;
        }
        let days = rng.between(31, 400) as i64;
        let skew_us = days * DAY_US * if rng.per_mille(800) { 1 } else { -1 };
        world.count("jumps of the store's clock");
        world.set_store_skew(skew_us);
        world.executor.sleep(rng.millis(200, 15_000)).await;
        world.set_store_skew(0);
    }
}

/// Without faults, all segments are distributed evenly and one node leads; or every node owns everything.
fn segments_are_distributed(world: &Arc<World>, cluster: &Arc<SimCluster>) -> AuditResult {
    if world.is_broken() {
        return Ok(());
    }
    let until_us = world.executor.now_us() + DISTRIBUTED_WITHIN.as_micros() as u64;
    if go(world, until_us, || cluster.distribution_problem().is_none())? == Stopped::TimeUp {
        return Err(AuditViolation {
            rule: "without faults every segment has one scheduler, their shares differ by one at most, and one leads",
            detail: cluster.distribution_problem().unwrap_or_default(),
        });
    }
    Ok(())
}

async fn look_for_orphans(world: Arc<World>) {
    loop {
        world.executor.sleep(ORPHAN_CHECK_INTERVAL).await;
        world.audit(|auditor| auditor.no_orphans());
        world.audit(|auditor| auditor.nothing_is_overdue());
    }
}

async fn look_for_idle_hands(world: Arc<World>) {
    loop {
        world.executor.sleep(IDLE_CHECK_INTERVAL).await;
        world.audit(|auditor| auditor.no_idle_polls());
        world.audit(|auditor| auditor.no_stuck_wait_lists());
        world.audit(|auditor| auditor.no_hoarding());
    }
}

/// How long after the last fault everything must be done: the time of all handlers in sequence as if there
/// were one slot, the waits and fires of the longest job in sequence, what each verb may have added, the
/// delay of the slowest remaining rate, and a few minutes for lost sessions to be noticed and connections to
/// be retried.
fn deadline(topology: &NodeTopology, workload: &Workload, setting: WorkloadSetting) -> Duration {
    let jobs = || workload.submissions.iter().flat_map(|submission| &submission.jobs);
    // A client may have submitted each of them several times.
    let work: Duration = jobs().map(work_of).sum::<Duration>() * 4;
    let longest = jobs().map(work_of).max().unwrap_or_default().min(LONGEST_PER_ACTION);
    let actions = longest * workload.actions.len() as u32;
    let starts = jobs().map(starts_of).sum::<u32>() * 4 + workload.actions.len() as u32;
    let paced = if setting.is_limited { SLOWEST_STEP * starts } else { Duration::ZERO };
    Duration::from_secs(240) + work + actions + paced + topology.lease_max() * 2
}

/// All workers shut down cleanly: their sessions are closed, and those of earlier incarnations have been
/// found lost.
fn leave(world: &Arc<World>, cluster: &Arc<SimCluster>) -> AuditResult {
    if world.is_broken() {
        return Ok(());
    }
    let nodes = cluster.topology.nodes();
    (0..nodes).for_each(|node| cluster.drain(node));
    let wait = cluster.topology.lease_max() * 3 + Duration::from_secs(30);
    let until_us = world.executor.now_us() + wait.as_micros() as u64;
    let left = || world.ask(|auditor| auditor.live_sessions() == 0 && auditor.active_runs() == 0);
    let gone = || left() && (0..nodes).all(|node| cluster.is_drained(node) || !has_worker(cluster, node));
    if go(world, until_us, gone)? == Stopped::TimeUp {
        let (sessions, runs) = world.ask(|auditor| (auditor.live_sessions(), auditor.active_runs()));
        let staying: Vec<usize> = (0..nodes).filter(|node| !cluster.is_drained(*node)).collect();
        return Err(AuditViolation {
            rule: "drained workers leave no sessions and no runs",
            detail: format!(
                "after {wait:?} {sessions} sessions and {runs} runs are left, nodes {staying:?} stay"
            ),
        });
    }
    Ok(())
}

fn has_worker(cluster: &SimCluster, node: usize) -> bool {
    cluster.topology.workers[node].is_some()
}

fn compare(world: &World, cluster: &SimCluster, clients: &Clients) -> AuditResult {
    if world.is_broken() {
        return Ok(());
    }
    let read = cluster.database.contents();
    let (contents, problems) =
        read.map_err(|error| AuditViolation { rule: "the store can be read", detail: error.to_string() })?;
    if !problems.is_empty() {
        return Err(AuditViolation { rule: "the store is sound", detail: format!("{problems:?}") });
    }
    if contents.jobs.len() > clients.jobs_max() {
        return Err(AuditViolation {
            rule: "every stored job was submitted",
            detail: format!("{} jobs of {} sent", contents.jobs.len(), clients.jobs_max()),
        });
    }
    follower::catch_up(world, &cluster.database)?;
    world.ask(|auditor| auditor.compare(&contents))?;
    let counted: Vec<_> = cluster.network.engines().iter().map(|engine| engine.counters()).collect();
    world.ask(|auditor| auditor.compare_counters(&counted))
}

/// Lets time pass until the condition holds, a rule is broken or time is up.
fn go(world: &World, until_us: u64, done: impl Fn() -> bool) -> Result<Stopped, AuditViolation> {
    match world.executor.run(until_us, || world.is_broken(), done) {
        Stopped::Panicked(message) => {
            Err(AuditViolation { rule: "no part of a node panics", detail: message })
        }
        Stopped::BusyLoop => Err(AuditViolation {
            rule: "no loop spins without time passing",
            detail: format!("at {} us", world.executor.now_us()),
        }),
        Stopped::Idle => Err(AuditViolation {
            rule: "the loops keep running",
            detail: format!("no task is ready and no timer is set after {} us", world.executor.now_us()),
        }),
        stopped => Ok(stopped),
    }
}

impl fmt::Display for RunOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seed = self.options.seed;
        let Some(violation) = &self.violation else {
            return write!(
                f,
                "seed {seed}: sound, hash {:016x}, {} events, {} polls, {:.0} s",
                self.hash,
                self.events,
                self.polls,
                self.virtual_time.as_secs_f64()
            );
        };
        for event in &self.last_events {
            writeln!(f, "  {event}")?;
        }
        let store = self.options.store.map(|store| format!(" --store {store:?}")).unwrap_or_default();
        let defect = self.options.defect.map(|defect| format!(" --defect {defect:?}")).unwrap_or_default();
        writeln!(f, "seed {seed}: BROKEN RULE: {}", violation.rule)?;
        writeln!(f, "  {}", violation.detail)?;
        write!(f, "replay: cargo run -p punctual-sim -- --seed {seed}{store}{defect} --trace")
    }
}
