//! Starts and stops nodes: each with the real engine, the real worker, or both.

use crate::coordination::{CoordinationService, NodeCoordination, SEGMENTS};
use crate::database::SimDatabase;
use crate::executor::{Home, Incarnation};
use crate::handlers::Handlers;
use crate::host::{Skew, host};
use crate::lock;
use crate::network::{SimNetwork, WorkerLink};
use crate::observed_port::ObservedPort;
use crate::random::Rng;
use crate::ready_queue::SimBroker;
use crate::store_connection::NodeStore;
use crate::topology::{NodeTopology, WorkerPlan};
use crate::world::World;
use punctual_core::cluster::Card;
use punctual_core::ports::{Executor, Host, WorkerPort};
use punctual_engine::{ClusterParticipation, ClusterSnapshot, Engine};
use punctual_worker::Worker;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

/// How long a node waits before it retries to read the store's time.
const START_PAUSE: Duration = Duration::from_millis(200);

/// How long a drained worker stays down.
const RESTART_PAUSE: Duration = Duration::from_secs(2);

pub struct SimCluster {
    pub world: Arc<World>,
    pub network: Arc<SimNetwork>,
    pub database: Arc<SimDatabase>,
    pub coordination: Arc<CoordinationService>,
    broker: Option<Arc<SimBroker>>,
    pub topology: NodeTopology,
    rng: Mutex<Rng>,
    nodes: Vec<Mutex<SimNode>>,
}

/// The state that survives a node's crashes, and handles to what runs on it now.
struct SimNode {
    skew: Skew,
    drain: watch::Sender<bool>,
    drained: Arc<Mutex<bool>>,
}

impl SimCluster {
    pub fn new(
        world: Arc<World>,
        network: Arc<SimNetwork>,
        database: Arc<SimDatabase>,
        topology: NodeTopology,
        mut rng: Rng,
    ) -> Arc<Self> {
        let coordination = CoordinationService::new(world.clone(), rng.fork("coordination"));
        // Forked only where it is used, so that runs without hints stay the same.
        let broker = topology.has_hints.then(|| SimBroker::new(world.clone(), rng.fork("broker")));
        let node =
            || SimNode { skew: Skew::default(), drain: watch::Sender::new(false), drained: Arc::default() };
        let nodes = (0..topology.nodes()).map(|_| Mutex::new(node())).collect();
        let rng = Mutex::new(rng);
        Arc::new(SimCluster { world, network, database, coordination, broker, topology, rng, nodes })
    }

    pub fn home(node: usize) -> Home {
        Home::node(node)
    }

    /// Starts a node that is down, as a new process on the same machine.
    pub fn start(self: &Arc<Self>, node: usize) {
        let executor = &self.world.executor;
        let incarnation = executor.start(Self::home(node));
        self.world.note(format_args!("node {node} starts"));
        let mut entry = lock(&self.nodes[node]);
        let rng = lock(&self.rng).fork("node");
        let host = host(executor, incarnation, entry.skew.clone(), rng);
        let (sender, drain) = watch::channel(false);
        (entry.drain, entry.drained) = (sender, Arc::default());
        let drained = entry.drained.clone();
        drop(entry);
        let cluster = self.clone();
        executor.spawn(
            incarnation,
            Box::pin(async move { cluster.run_node(node, incarnation, host, drain, drained).await }),
        );
    }

    async fn run_node(
        self: Arc<Self>,
        node: usize,
        incarnation: Incarnation,
        host: Host,
        mut drain: watch::Receiver<bool>,
        drained: Arc<Mutex<bool>>,
    ) {
        let plan = self.topology.workers[node].clone();
        let mut scheduler = None;
        let port: Arc<dyn WorkerPort> = if node < self.topology.schedulers {
            let engine = self.run_engine(node, incarnation, host.clone()).await;
            self.network.listen(node, incarnation, engine.clone());
            scheduler = Some(engine.clone());
            engine
        } else {
            Arc::new(WorkerLink::new(self.network.clone(), node, self.topology.schedulers))
        };
        if let Some(WorkerPlan { config, job_types }) = plan {
            let port = Arc::new(ObservedPort { world: self.world.clone(), node, port });
            let slots = config.slots;
            let handlers: Arc<dyn Executor> =
                Arc::new(Handlers { world: self.world.clone(), node, job_types, slots });
            loop {
                let worker = Worker::new(config.clone(), host.clone(), port.clone(), vec![handlers.clone()]);
                worker.run(drain.clone()).await;
                if *drain.borrow() {
                    break;
                }
                // An operator has drained it: the machine's supervisor starts it again.
                self.world.count("workers drained by order");
                self.world.executor.sleep(RESTART_PAUSE).await;
            }
            self.world.note(format_args!("node {node} is drained"));
        }
        if let Some(engine) = scheduler
            && drain.wait_for(|drains| *drains).await.is_ok()
        {
            engine.hand_over().await;
            self.world.note(format_args!("node {node} has handed over"));
            self.world.count("schedulers that handed over");
        }
        *lock(&drained) = true;
    }

    async fn run_engine(&self, node: usize, incarnation: Incarnation, host: Host) -> Arc<Engine> {
        let writers = self.database.writers(node, &host);
        let store = Arc::new(NodeStore { database: self.database.clone(), node, writers });
        let clock = host.clock.clone();
        let coordination = Arc::new(NodeCoordination { service: self.coordination.clone(), node });
        let card = Card { node_id: format!("node-{node}"), ..Card::default() };
        let participation =
            self.topology.is_coordinated.then_some(ClusterParticipation { coordination, card });
        let ready_queue = self.broker.as_ref().map(|broker| broker.access(node));
        // Hints that are lost are found as soon as without hints.
        let mut config = self.topology.engine.clone();
        config.dispatch_interval_hearing = config.dispatch_interval;
        let engine = Engine::in_cluster(config, host, store, ready_queue, participation);
        while engine.start().await.is_err() {
            clock.sleep(START_PAUSE).await;
        }
        self.world.executor.spawn(incarnation, Box::pin(engine.clone().run()));
        engine
    }

    /// The node's process ends abruptly.
    pub fn crash(&self, node: usize) {
        self.world.executor.crash(Self::home(node));
        self.after_crash(node);
    }

    /// Cleans up after a crash that the executor has carried out.
    pub fn after_crash(&self, node: usize) {
        self.network.forget(node);
        self.world.note(format_args!("node {node} is down"));
    }

    pub fn pause(&self, node: usize) {
        self.world.executor.pause(Self::home(node));
        self.world.note(format_args!("node {node} is paused"));
        self.world.tell(|auditor| auditor.node_paused(node));
    }

    pub fn resume(&self, node: usize) {
        self.world.note(format_args!("node {node} is resumed"));
        self.world.tell(|auditor| auditor.node_resumed(node));
        self.world.executor.resume(Self::home(node));
    }

    /// Sets a node's wall clock.
    pub fn set_skew(&self, node: usize, skew_us: i64) {
        *lock(&lock(&self.nodes[node]).skew) = skew_us;
        self.world.note(format_args!("node {node} is {skew_us} us off"));
    }

    /// Corrects a clock that is so wrong that the node fires nothing.
    pub fn set_clock_right(&self, node: usize) {
        let skew = lock(&self.nodes[node]).skew.clone();
        let limit = self.topology.engine.clock_offset_max;
        let mut skew = lock(&skew);
        if Duration::from_micros(skew.unsigned_abs()) >= limit {
            *skew = 0;
        }
    }

    /// Returns a problem unless all segments are distributed evenly and schedulers agree with coordination.
    pub fn distribution_problem(&self) -> Option<String> {
        let believed: Vec<ClusterSnapshot> =
            self.network.engines().iter().map(|engine| engine.cluster()).collect();
        let shares: Vec<usize> = believed.iter().map(|cluster| cluster.segments).collect();
        if !self.topology.is_coordinated || self.coordination.is_away() {
            let is_everything = believed.iter().all(|cluster| cluster.segments == SEGMENTS && cluster.leads);
            return (!is_everything).then(|| format!("without coordination, schedulers own {shares:?}"));
        }
        let (mut held, leaders) = self.coordination.segment_counts();
        let mut shares: Vec<usize> = shares.into_iter().filter(|share| *share > 0).collect();
        held.sort_unstable();
        shares.sort_unstable();
        let leading = believed.iter().filter(|cluster| cluster.leads).count();
        let differ = held.last().unwrap_or(&0) - held.first().unwrap_or(&0);
        let segments_are_distributed =
            held.iter().sum::<usize>() == SEGMENTS && held.len() == believed.len() && differ <= 1;
        let is_believed = held == shares && (leaders, leading) == (1, 1);
        (!segments_are_distributed || !is_believed).then(|| {
            format!(
                "coordination says {held:?} and {leaders} leaders, schedulers own {shares:?}, {leading} lead"
            )
        })
    }

    /// Asks the worker of a node to drain.
    pub fn drain(&self, node: usize) {
        lock(&self.nodes[node]).drain.send_replace(true);
        self.world.note(format_args!("node {node} is asked to drain"));
        self.world.tell(|auditor| auditor.node_drained(node));
    }

    pub fn is_draining(&self, node: usize) -> bool {
        *lock(&self.nodes[node]).drain.borrow()
    }

    pub fn is_drained(&self, node: usize) -> bool {
        *lock(&lock(&self.nodes[node]).drained)
    }

    pub fn lease_of(&self, node: usize) -> Option<Duration> {
        self.topology.workers[node].as_ref().map(|plan| plan.config.lease)
    }
}
