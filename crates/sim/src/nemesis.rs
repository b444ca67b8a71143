//! Causes faults on nodes: crashes at any await, pauses beyond the lease, drains, clock jumps, partitions,
//! storms at the store. Then repairs everything at once.

use crate::auditor::RESUME_GRACE;
use crate::cluster::SimCluster;
use crate::executor::NodeFault;
use crate::lock;
use crate::network_faults::NetworkFaults;
use crate::random::Rng;
use futures_util::future::select;
use punctual_core::time::duration_micros;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Polls within which a scheduled crash or pause happens.
const BLOW_POLLS_MAX: u64 = 400;
/// The maximum error of a wall clock.
const SKEW_US_MAX: u64 = 300_000_000;

/// The relative frequency of each kind of fault; 0 for never.
#[derive(Debug, Clone, Copy)]
struct Appetite {
    crash: u64,
    pause: u64,
    drain: u64,
    skew: u64,
    partition: u64,
    storm: u64,
    blackout: u64,
    /// Coordination is unavailable, or evicts a member that is alive.
    absence: u64,
    too_early: u64,
    /// The longest time between two faults.
    quiet_ms_max: u64,
}

pub struct Nemesis {
    cluster: Arc<SimCluster>,
    rng: Mutex<Rng>,
    appetite: Appetite,
    network_faults: NetworkFaults,
    state: Mutex<NemesisState>,
}

struct NemesisState {
    over: bool,
    /// Nodes that are affected by a fault now.
    busy: Vec<bool>,
}

impl Nemesis {
    pub fn new(cluster: Arc<SimCluster>, mut rng: Rng, network_faults: NetworkFaults) -> Arc<Self> {
        let mut weight = |max: u64| if rng.per_mille(600) { rng.between(1, max) } else { 0 };
        let appetite = Appetite {
            crash: weight(8),
            pause: weight(6),
            drain: weight(3),
            skew: weight(3),
            partition: weight(5),
            storm: weight(2),
            blackout: weight(2),
            absence: weight(3),
            too_early: weight(4),
            quiet_ms_max: rng.between(300, 8_000),
        };
        let busy = vec![false; cluster.topology.nodes()];
        let state = Mutex::new(NemesisState { over: false, busy });
        Arc::new(Nemesis { cluster, rng: Mutex::new(rng), appetite, network_faults, state })
    }

    /// Causes no faults, except for wrong clocks.
    pub fn rest(&self) {
        lock(&self.state).over = true;
    }

    /// Sets wrong clocks at the start.
    pub fn set_clocks(&self) {
        if self.appetite.skew > 0 {
            for node in 0..self.cluster.topology.nodes() {
                self.jump(node);
            }
        }
    }

    /// Causes faults until the fault phase is over.
    pub async fn run(self: Arc<Self>) {
        let executor = self.cluster.world.executor.clone();
        loop {
            let quiet = lock(&self.rng).millis(50, self.appetite.quiet_ms_max);
            executor.sleep(quiet).await;
            if lock(&self.state).over {
                return;
            }
            self.strike();
        }
    }

    fn strike(self: &Arc<Self>) {
        let Appetite { crash, pause, drain, skew, partition, storm, blackout, absence, too_early, .. } =
            self.appetite;
        let total = crash + pause + drain + skew + partition + storm + blackout + absence + too_early;
        if total == 0 {
            return;
        }
        let mut left = lock(&self.rng).below(total);
        let mut falls_on = |weight: u64| {
            let hit = left < weight;
            left = left.wrapping_sub(weight);
            hit
        };
        let node = lock(&self.rng).index(self.cluster.topology.nodes());
        let nemesis = self.clone();
        let executor = &self.cluster.world.executor;
        if falls_on(crash) {
            self.on_free(node, executor, async move { nemesis.crash(node).await });
        } else if falls_on(pause) {
            self.on_free(node, executor, async move { nemesis.pause(node).await });
        } else if falls_on(drain) {
            self.on_free(node, executor, async move { nemesis.drain(node).await });
        } else if falls_on(skew) {
            self.jump(node);
        } else if falls_on(partition) {
            executor.spawn_in_world(async move { nemesis.partition(node).await });
        } else if falls_on(storm) {
            executor.spawn_in_world(async move { nemesis.storm().await });
        } else if falls_on(absence) {
            executor.spawn_in_world(async move { nemesis.absence().await });
        } else if falls_on(too_early) {
            self.cluster.coordination.evict_early();
        } else {
            self.blackout();
        }
    }

    /// Crashes all nodes that are not affected by another fault, at the same moment.
    fn blackout(self: &Arc<Self>) {
        self.cluster.world.count("blackouts");
        self.cluster.database.restart();
        for node in 0..self.cluster.topology.nodes() {
            let nemesis = self.clone();
            let downtime = lock(&self.rng).millis(0, 10_000);
            self.on_free(
                node,
                &self.cluster.world.executor,
                async move { nemesis.restart(node, downtime).await },
            );
        }
    }

    async fn restart(&self, node: usize, downtime: Duration) {
        if self.is_over() {
            return;
        }
        self.cluster.crash(node);
        self.cluster.world.count("crashes");
        self.cluster.world.executor.sleep(downtime).await;
        if !self.is_over() {
            self.cluster.start(node);
        }
    }

    /// Applies a fault to a node unless another one affects it already.
    fn on_free(
        self: &Arc<Self>,
        node: usize,
        executor: &crate::executor::SimExecutor,
        deed: impl Future<Output = ()> + Send + 'static,
    ) {
        if std::mem::replace(&mut lock(&self.state).busy[node], true) {
            return;
        }
        let nemesis = self.clone();
        executor.spawn_in_world(async move {
            deed.await;
            lock(&nemesis.state).busy[node] = false;
        });
    }

    async fn crash(&self, node: usize) {
        let downtime = lock(&self.rng).millis(0, 9_000);
        self.inject(node, NodeFault::Crash).await;
        self.restart(node, downtime).await;
    }

    /// Waits until a fault has happened between two polls of the node, or gives up because the node seems
    /// idle.
    async fn inject(&self, node: usize, fault: NodeFault) {
        let executor = &self.cluster.world.executor;
        let (polls, patience) = {
            let mut rng = lock(&self.rng);
            (rng.below(BLOW_POLLS_MAX), rng.millis(10, 2_000))
        };
        let happened = executor.fail_after(SimCluster::home(node), polls, fault);
        select(happened, executor.sleep(patience)).await;
        executor.disarm(SimCluster::home(node));
    }

    async fn pause(&self, node: usize) {
        let executor = &self.cluster.world.executor;
        let lease = self.cluster.lease_of(node);
        let longest = lease.map_or(9_000, |lease| lease.as_millis() as u64 * 3);
        let duration = lock(&self.rng).millis(50, longest);
        self.inject(node, NodeFault::Pause).await;
        if self.is_over() {
            return;
        }
        self.cluster.pause(node);
        if lease.is_some_and(|lease| duration > lease) {
            self.cluster.world.count("pauses beyond the lease");
        }
        executor.sleep(duration).await;
        if self.is_over() {
            return;
        }
        self.cluster.resume(node);
        self.expect_no_zombies(node).await;
    }

    async fn expect_no_zombies(&self, node: usize) {
        let world = &self.cluster.world;
        world.executor.sleep(RESUME_GRACE * 2).await;
        world.audit(|auditor| auditor.no_zombies_on(node));
    }

    async fn drain(&self, node: usize) {
        let executor = &self.cluster.world.executor;
        let (patience, downtime) = {
            let mut rng = lock(&self.rng);
            (rng.between(1, 80), rng.millis(0, 3_000))
        };
        self.cluster.drain(node);
        for _ in 0..patience {
            executor.sleep(Duration::from_millis(100)).await;
            if self.is_over() {
                return;
            }
            if self.cluster.is_drained(node) {
                self.cluster.world.count("workers drained");
                break;
            }
        }
        self.restart(node, downtime).await;
    }

    fn jump(&self, node: usize) {
        let skew_us = lock(&self.rng).between(0, 2 * SKEW_US_MAX) as i64 - SKEW_US_MAX as i64;
        // In a run without faults, no clock is so wrong that its node stops.
        let limit = duration_micros(self.cluster.topology.engine.clock_offset_max);
        let skew_us = if self.is_over() { skew_us % limit } else { skew_us };
        self.cluster.set_skew(node, skew_us);
        self.cluster.world.count("clocks set to a wrong time");
    }

    /// Cuts a node off from some of the others for a while.
    async fn partition(&self, node: usize) {
        let nodes = self.cluster.topology.nodes();
        let (from, duration) = {
            let mut rng = lock(&self.rng);
            let all = rng.per_mille(500);
            let from: Vec<usize> =
                (0..nodes).filter(|other| *other != node && (all || rng.per_mille(500))).collect();
            (from, rng.millis(100, 15_000))
        };
        self.cluster.world.note(format_args!("node {node} is cut off from {from:?}"));
        self.cluster.world.count("partitions");
        from.iter().for_each(|other| self.cluster.network.cut(node, *other));
        self.cluster.world.executor.sleep(duration).await;
        from.iter().for_each(|other| self.cluster.network.heal(node, *other));
    }

    /// Coordination does not answer for a while.
    async fn absence(&self) {
        let duration = lock(&self.rng).millis(200, 30_000);
        self.cluster.world.count("outages of coordination");
        self.cluster.coordination.set_away(true);
        self.cluster.world.executor.sleep(duration).await;
        if !self.is_over() {
            self.cluster.coordination.set_away(false);
        }
    }

    async fn storm(&self) {
        let world = &self.cluster.world;
        let duration = lock(&self.rng).millis(200, 5_000);
        world.note(format_args!("a storm begins"));
        world.set_network_faults(self.network_faults.storm());
        world.executor.sleep(duration).await;
        if !self.is_over() {
            world.set_network_faults(self.network_faults);
        }
    }

    fn is_over(&self) -> bool {
        lock(&self.state).over
    }

    /// Ends all faults: starts nodes that are down, resumes paused ones, repairs the network.
    pub fn heal(&self) {
        lock(&self.state).over = true;
        let cluster = &self.cluster;
        cluster.world.note(format_args!("all faults end"));
        cluster.world.set_network_faults(NetworkFaults::calm());
        cluster.world.tell(|auditor| auditor.calm_begins());
        cluster.network.mend_all();
        // Some services never come back: then every node continues alone.
        let is_gone = cluster.coordination.is_away() && lock(&self.rng).per_mille(400);
        cluster.coordination.set_away(is_gone);
        let executor = &cluster.world.executor;
        for node in 0..cluster.topology.nodes() {
            executor.disarm(SimCluster::home(node));
            cluster.set_clock_right(node);
            if executor.is_paused(SimCluster::home(node)) {
                cluster.resume(node);
            }
            // A worker that was asked to drain would not restart by itself.
            if executor.is_up(SimCluster::home(node)) && cluster.is_draining(node) {
                cluster.crash(node);
            }
            if !executor.is_up(SimCluster::home(node)) {
                cluster.start(node);
            }
        }
    }
}
