//! A ready queue between nodes that loses, delays, duplicates and forges hints, and drops connections. Hints only
//! wake: the auditor's rules hold whatever arrives.

use crate::lock;
use crate::random::Rng;
use crate::workload::{JOB_TYPES, QUEUES};
use crate::world::World;
use async_trait::async_trait;
use punctual_core::ports::{Lane, ReadyHint, ReadyQueue, ReadyQueueError};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Forged hints, lost connections and rejected calls, per thousand calls. Also without other faults: none of them may
/// break a rule.
const FORGED_PER_MILLE: u64 = 100;
const DROPPED_PER_MILLE: u64 = 20;
const REFUSED_PER_MILLE: u64 = 50;

/// The broker. It belongs to the world: crashes of nodes do not touch it.
pub struct SimBroker {
    world: Arc<World>,
    rng: Mutex<Rng>,
    /// The connection of each node.
    connections: Mutex<BTreeMap<usize, UnboundedSender<ReadyHint>>>,
}

impl SimBroker {
    pub fn new(world: Arc<World>, rng: Rng) -> Arc<Self> {
        Arc::new(SimBroker { world, rng: Mutex::new(rng), connections: Mutex::default() })
    }

    /// One node's access.
    pub fn access(self: &Arc<Self>, node: usize) -> Arc<dyn ReadyQueue> {
        Arc::new(NodeReadyQueue { broker: self.clone(), node, inbox: tokio::sync::Mutex::default() })
    }

    fn chance(&self, per_mille: u64) -> bool {
        lock(&self.rng).per_mille(per_mille)
    }

    fn refuses(&self) -> Result<(), ReadyQueueError> {
        if !self.chance(REFUSED_PER_MILLE) {
            return Ok(());
        }
        self.world.count("calls to the broker that failed");
        Err(ReadyQueueError::Unavailable("it cannot be reached".to_owned()))
    }

    /// Sends copies of a hint to a node, none if it is lost.
    fn send(self: &Arc<Self>, node: usize, hint: &ReadyHint) {
        let faults = self.world.network_faults();
        let copies = match (self.chance(faults.message_lost), self.chance(faults.message_doubled)) {
            (true, _) => {
                self.world.count("hints lost");
                0
            }
            (false, true) => {
                self.world.count("hints doubled");
                2
            }
            (false, false) => 1,
        };
        for _ in 0..copies {
            let delay = match self.chance(faults.message_delayed) {
                true => lock(&self.rng).millis(0, faults.delay_ms_max),
                false => lock(&self.rng).millis(0, 5),
            };
            self.deliver(node, hint.clone(), delay);
        }
    }

    fn deliver(self: &Arc<Self>, node: usize, hint: ReadyHint, delay: Duration) {
        let broker = self.clone();
        self.world.executor.spawn_in_world(async move {
            broker.world.executor.sleep(delay).await;
            let connection = lock(&broker.connections).get(&node).cloned();
            if connection.is_some_and(|connection| connection.send(hint).is_ok()) {
                broker.world.count("hints delivered");
            }
        });
    }

    /// Lanes that may have no work, or may not exist.
    fn forged(&self) -> ReadyHint {
        let mut rng = lock(&self.rng);
        if rng.per_mille(300) {
            return ReadyHint::AnyLane;
        }
        let queue = if rng.per_mille(200) { "nowhere" } else { *rng.pick(&QUEUES) };
        ReadyHint::Lanes([Lane::new(queue, *rng.pick(&JOB_TYPES))].into())
    }
}

struct NodeReadyQueue {
    broker: Arc<SimBroker>,
    node: usize,
    inbox: tokio::sync::Mutex<Option<UnboundedReceiver<ReadyHint>>>,
}

#[async_trait]
impl ReadyQueue for NodeReadyQueue {
    fn kind(&self) -> &'static str {
        "simulated"
    }

    async fn publish(&self, hint: ReadyHint) -> Result<(), ReadyQueueError> {
        self.broker.refuses()?;
        let others: Vec<usize> =
            lock(&self.broker.connections).keys().copied().filter(|node| *node != self.node).collect();
        for node in others {
            self.broker.send(node, &hint);
            if self.broker.chance(FORGED_PER_MILLE) {
                self.broker.world.count("hints forged");
                let forged = self.broker.forged();
                self.broker.deliver(node, forged, Duration::ZERO);
            }
            if self.broker.chance(DROPPED_PER_MILLE) {
                self.broker.world.count("connections to the broker dropped");
                lock(&self.broker.connections).remove(&node);
            }
        }
        Ok(())
    }

    async fn receive(&self) -> Result<ReadyHint, ReadyQueueError> {
        let mut inbox = self.inbox.lock().await;
        let Some(connected) = inbox.as_mut() else {
            self.broker.refuses()?;
            let (sender, receiver) = unbounded_channel();
            lock(&self.broker.connections).insert(self.node, sender);
            *inbox = Some(receiver);
            return Ok(ReadyHint::AnyLane);
        };
        match connected.recv().await {
            Some(hint) => Ok(hint),
            None => {
                *inbox = None;
                Err(ReadyQueueError::Unavailable("the connection was dropped".to_owned()))
            }
        }
    }
}
