//! The network between nodes: it loses, duplicates, delays and reorders requests and responses, and can be
//! cut between any two nodes. A request is carried out on the node that it reaches, and is lost when that
//! node crashes.

use crate::executor::Incarnation;
use crate::lock;
use crate::random::Rng;
use crate::world::World;
use async_trait::async_trait;
use futures_util::future::{Either, select};
use punctual_core::blobs::BlobReference;
use punctual_core::ids::SessionId;
use punctual_core::notes::{Note, NoteAnswer};
use punctual_core::ports::{
    Assignment, BeatAnswer, BlobError, BlobParts, Heartbeat, LeaseRef, LogLine, Poll, Report, ReportAnswer,
    Served, SessionGrant, SessionOpening, Task, WorkerPort, WorkerPortError,
};
use punctual_core::slots::Demand;
use punctual_engine::Engine;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// How long a caller waits for a response beyond the requested wait.
const ANSWER_WAIT: Duration = Duration::from_secs(3);

pub struct SimNetwork {
    world: Arc<World>,
    rng: Mutex<Rng>,
    engines: Mutex<BTreeMap<usize, (Incarnation, Arc<Engine>)>>,
    /// Pairs of nodes that cannot reach each other, the lower one first.
    cuts: Mutex<BTreeSet<(usize, usize)>>,
}

/// The sender of a message: a node, or a client, which no partition affects.
#[derive(Debug, Clone, Copy)]
pub enum Sender {
    Node(usize),
    Client,
}

/// A request to an engine.
type EngineCall<R> = Arc<dyn Fn(Arc<Engine>) -> Task<R> + Send + Sync>;
/// Receives the first response.
type FirstReply<R> = Arc<Mutex<Option<oneshot::Sender<R>>>>;

/// One copy of a request.
struct RequestCopy<R> {
    ask: EngineCall<R>,
    reply: FirstReply<R>,
    /// Changes when the sender has disconnected; `None` if that cannot be noticed.
    closed: Option<watch::Receiver<()>>,
}

/// The response, or `None` if the sender disconnected first.
async fn until_closed<R>(answer: Task<R>, closed: Option<watch::Receiver<()>>) -> Option<R> {
    let Some(mut closed) = closed else { return Some(answer.await) };
    match select(answer, pin!(closed.changed())).await {
        Either::Left((answer, _)) => Some(answer),
        Either::Right(_) => None,
    }
}

/// No response: the request may or may not have taken effect.
#[derive(Debug)]
pub struct NoAnswer;

impl SimNetwork {
    pub fn new(world: Arc<World>, rng: Rng) -> Arc<Self> {
        Arc::new(SimNetwork {
            world,
            rng: Mutex::new(rng),
            engines: Mutex::default(),
            cuts: Mutex::default(),
        })
    }

    /// Registers the engine that listens on a node.
    pub fn listen(&self, node: usize, incarnation: Incarnation, engine: Arc<Engine>) {
        lock(&self.engines).insert(node, (incarnation, engine));
    }

    /// The node is down: requests to it are refused.
    pub fn forget(&self, node: usize) {
        let engine = lock(&self.engines).remove(&node);
        drop(engine);
    }

    /// The engines that listen.
    pub fn engines(&self) -> Vec<Arc<Engine>> {
        lock(&self.engines).values().map(|(_, engine)| engine.clone()).collect()
    }

    pub fn cut(&self, one: usize, other: usize) {
        lock(&self.cuts).insert((one.min(other), one.max(other)));
    }

    pub fn heal(&self, one: usize, other: usize) {
        lock(&self.cuts).remove(&(one.min(other), one.max(other)));
    }

    pub fn mend_all(&self) {
        lock(&self.cuts).clear();
    }

    /// Sends a request to the engine of a node and waits for the response, at most this long.
    pub async fn ask<R: Send + 'static>(
        self: &Arc<Self>,
        from: Sender,
        to: usize,
        wait: Duration,
        ask: EngineCall<R>,
    ) -> Result<R, NoAnswer> {
        let (sender, answer) = oneshot::channel();
        let reply: FirstReply<R> = Arc::new(Mutex::new(Some(sender)));
        let copies = if self.draws(|network_faults| network_faults.message_doubled)
            && matches!(from, Sender::Node(_))
        {
            self.world.count("messages doubled");
            2
        } else {
            1
        };
        // The sender keeps its end of the reply channel, so that a lost message leaves it waiting. When it
        // gives up, the other side may notice the closed connection and drops the request.
        let (connection, closed) = watch::channel(());
        let notices = lock(&self.rng).per_mille(500);
        for _ in 0..copies {
            let closed = notices.then(|| closed.clone());
            self.clone().send(from, to, RequestCopy { ask: ask.clone(), reply: reply.clone(), closed });
        }
        let limit = self.world.executor.sleep(wait + ANSWER_WAIT);
        let answer = match select(answer, limit).await {
            Either::Left((answer, _)) => answer.map_err(|_| NoAnswer),
            Either::Right(_) => Err(NoAnswer),
        };
        drop(connection);
        answer
    }

    fn send<R: Send + 'static>(self: Arc<Self>, from: Sender, to: usize, request: RequestCopy<R>) {
        let executor = self.world.executor.clone();
        let Some(transit) = self.transit(from, to) else { return };
        executor.clone().spawn_in_world(async move {
            executor.sleep(transit).await;
            let engine = lock(&self.engines).get(&to).cloned();
            let Some((incarnation, engine)) = engine else {
                // No engine listens there: the connection is refused, and the sender learns it at once.
                return drop(lock(&request.reply).take());
            };
            let network = self.clone();
            executor.clone().spawn(
                incarnation,
                Box::pin(async move {
                    let RequestCopy { ask, reply, closed } = request;
                    let Some(answer) = until_closed(ask(engine), closed).await else {
                        return network.world.count("connections closed by the sender");
                    };
                    let Some(transit) = network.transit(from, to) else {
                        return network.world.count("answers lost");
                    };
                    executor.clone().spawn_in_world(async move {
                        executor.sleep(transit).await;
                        if let Some(sender) = lock(&reply).take() {
                            let _ = sender.send(answer);
                        }
                    });
                }),
            );
        });
    }

    /// How long one message takes, or `None` if it gets lost.
    fn transit(&self, from: Sender, to: usize) -> Option<Duration> {
        let is_cut = match from {
            Sender::Node(from) => lock(&self.cuts).contains(&(from.min(to), from.max(to))),
            Sender::Client => false,
        };
        if is_cut || self.draws(|network_faults| network_faults.message_lost) {
            self.world.count("messages lost");
            return None;
        }
        let network_faults = self.world.network_faults();
        let mut rng = lock(&self.rng);
        let delayed = rng.per_mille(network_faults.message_delayed);
        let transit = if delayed { rng.millis(1, network_faults.delay_ms_max) } else { rng.millis(0, 5) };
        self.world.travels(transit);
        Some(transit)
    }

    fn draws(&self, chance: impl Fn(&crate::network_faults::NetworkFaults) -> u64) -> bool {
        let network_faults = self.world.network_faults();
        lock(&self.rng).per_mille(chance(&network_faults))
    }

    /// A scheduler to talk to: one that listens, or any if none does.
    pub fn any_scheduler(&self, schedulers: usize) -> usize {
        let listening: Vec<usize> = lock(&self.engines).keys().copied().collect();
        let mut rng = lock(&self.rng);
        if listening.is_empty() { rng.index(schedulers) } else { *rng.pick(&listening) }
    }
}

/// The port of a worker that reaches its schedulers over the network.
pub struct WorkerLink {
    network: Arc<SimNetwork>,
    node: usize,
    schedulers: usize,
    target: Mutex<usize>,
}

impl WorkerLink {
    pub fn new(network: Arc<SimNetwork>, node: usize, schedulers: usize) -> Self {
        let target = network.any_scheduler(schedulers);
        WorkerLink { network, node, schedulers, target: Mutex::new(target) }
    }

    async fn ask<R: Send + 'static>(
        &self,
        wait: Duration,
        ask: impl Fn(Arc<Engine>) -> Task<Result<R, WorkerPortError>> + Send + Sync + 'static,
    ) -> Result<R, WorkerPortError> {
        let target = *lock(&self.target);
        let answer = self.network.ask(Sender::Node(self.node), target, wait, Arc::new(ask)).await;
        let moves_on = answer.is_err() || lock(&self.network.rng).per_mille(20);
        if moves_on {
            *lock(&self.target) = self.network.any_scheduler(self.schedulers);
        }
        answer.unwrap_or_else(|NoAnswer| Err(WorkerPortError::Unavailable("no answer".to_owned())))
    }
}

#[async_trait]
impl WorkerPort for WorkerLink {
    async fn open_session(&self, opening: SessionOpening) -> Result<SessionGrant, WorkerPortError> {
        self.ask(Duration::ZERO, move |engine| {
            let opening = opening.clone();
            Box::pin(async move { engine.open_session(opening).await })
        })
        .await
    }

    async fn poll(&self, poll: Poll) -> Result<Vec<Assignment>, WorkerPortError> {
        self.ask(poll.wait, move |engine| {
            let poll = poll.clone();
            Box::pin(async move { engine.poll(poll).await })
        })
        .await
    }

    async fn beat(&self, heartbeat: Heartbeat) -> Result<BeatAnswer, WorkerPortError> {
        self.ask(Duration::ZERO, move |engine| {
            let heartbeat = heartbeat.clone();
            Box::pin(async move { engine.beat(heartbeat).await })
        })
        .await
    }

    async fn demand(&self, served: Served) -> Result<Demand, WorkerPortError> {
        self.ask(Duration::ZERO, move |engine| {
            let served = served.clone();
            Box::pin(async move { engine.demand(served).await })
        })
        .await
    }

    async fn report(&self, reports: Vec<Report>) -> Result<Vec<ReportAnswer>, WorkerPortError> {
        self.ask(Duration::ZERO, move |engine| {
            let reports = reports.clone();
            Box::pin(async move { engine.report(reports).await })
        })
        .await
    }

    async fn note(&self, notes: Vec<Note>) -> Result<Vec<NoteAnswer>, WorkerPortError> {
        self.ask(Duration::ZERO, move |engine| {
            let notes = notes.clone();
            Box::pin(async move { engine.note(notes).await })
        })
        .await
    }

    async fn give_back(&self, session: SessionId, leases: Vec<LeaseRef>) -> Result<(), WorkerPortError> {
        self.ask(Duration::ZERO, move |engine| {
            let leases = leases.clone();
            Box::pin(async move { engine.give_back(session, leases).await })
        })
        .await
    }

    async fn resync(
        &self,
        session: SessionId,
        turn: u64,
        held: Vec<LeaseRef>,
    ) -> Result<(), WorkerPortError> {
        self.ask(Duration::ZERO, move |engine| {
            let held = held.clone();
            Box::pin(async move { engine.resync(session, turn, held).await })
        })
        .await
    }

    async fn append_logs(&self, session: SessionId, lines: Vec<LogLine>) -> Result<(), WorkerPortError> {
        self.ask(Duration::ZERO, move |engine| {
            let lines = lines.clone();
            Box::pin(async move { engine.append_logs(session, lines).await })
        })
        .await
    }

    /// Jobs of the simulator have no large results.
    async fn store_result(
        &self,
        _: SessionId,
        _: LeaseRef,
        _: Box<dyn BlobParts>,
    ) -> Result<BlobReference, BlobError> {
        Err(BlobError::Refused("the simulator has no blobs".to_owned()))
    }

    async fn close_session(&self, session: SessionId) -> Result<(), WorkerPortError> {
        self.ask(Duration::ZERO, move |engine| Box::pin(async move { engine.close_session(session).await }))
            .await
    }
}
