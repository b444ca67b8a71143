//! The machine of a node: its clocks, its randomness, its tasks.

use crate::executor::{Incarnation, SimExecutor};
use crate::lock;
use crate::random::{NodeRandom, Rng};
use punctual_core::ports::{Clock, Host, Spawn, Task};
use punctual_core::time::{Monotonic, Timestamp};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The true time, which the store and the auditor use.
pub fn true_time(executor: &SimExecutor) -> Timestamp {
    executor.starts_at().shifted(executor.now_us() as i64)
}

/// How far a node's wall clock is off, in microseconds. It survives the node's crashes and may change at any
/// moment.
pub type Skew = Arc<Mutex<i64>>;

/// A new host for one start of a node: with this skew, and a monotonic clock with a random origin.
pub fn host(executor: &SimExecutor, incarnation: Incarnation, skew: Skew, mut rng: Rng) -> Host {
    let monotonic_start_us = rng.below(1 << 40);
    let clock = Arc::new(NodeClock { executor: executor.clone(), skew, monotonic_start_us });
    Host {
        clock: clock.clone(),
        calendar: clock,
        random: Arc::new(NodeRandom::new(rng)),
        spawn: Arc::new(NodeSpawn { executor: executor.clone(), incarnation }),
    }
}

/// The clock and the tasks of a machine that never fails and whose clock is right: the database server's.
pub fn server(executor: &SimExecutor) -> (Arc<dyn Clock>, Arc<dyn Spawn>) {
    let clock = NodeClock { executor: executor.clone(), skew: Skew::default(), monotonic_start_us: 0 };
    (Arc::new(clock), Arc::new(WorldSpawn(executor.clone())))
}

struct WorldSpawn(SimExecutor);

impl Spawn for WorldSpawn {
    fn spawn(&self, task: Task) {
        self.0.spawn_in_world(task);
    }
}

struct NodeClock {
    executor: SimExecutor,
    skew: Skew,
    monotonic_start_us: u64,
}

impl Clock for NodeClock {
    fn wall(&self) -> Timestamp {
        true_time(&self.executor).shifted(*lock(&self.skew))
    }

    /// Continues while the node is paused, as for a stopped process.
    fn monotonic(&self) -> Monotonic {
        Monotonic::from_micros(self.monotonic_start_us + self.executor.now_us())
    }

    fn sleep(&self, duration: Duration) -> Task {
        Box::pin(self.executor.sleep(duration))
    }
}

struct NodeSpawn {
    executor: SimExecutor,
    incarnation: Incarnation,
}

impl Spawn for NodeSpawn {
    fn spawn(&self, task: Task) {
        self.executor.spawn(self.incarnation, task);
    }
}
