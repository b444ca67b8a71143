//! The worker: claims executions through its port and runs handlers in slots, whose number may grow with the
//! waiting work.
//!
//! It owns sessions, slots, prefetch, its own health, timeouts, reports and the drain. It must not know the
//! engine or any store: the port may be a call within the process or an HTTP client. Its loop only receives
//! events; a synchronous state machine ([`session::WorkerSession`]) decides; a third step acts. Everything that
//! takes time is a task that ends by sending an event.

mod builtin;
mod condition;
#[cfg(feature = "http")]
pub mod http;
mod logs;
pub mod machine;
mod notes;
mod pace;
pub mod process;
mod results;
mod run;
mod session;
mod supervise;
#[cfg(test)]
mod tests;

pub use builtin::builtin_executors;

use futures_util::future::{Either, select};
use punctual_core::health::HealthLimits;
use punctual_core::limits;
use punctual_core::ports::{Executor, Host, Machine, Report, SessionOpening, WorkerAbout, WorkerPort};
use session::{Now, SessionEnd, SessionEvent, WorkerSession};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// The longest pause between two attempts to open a session.
const OPENING_PAUSE_MAX: Duration = Duration::from_secs(2);

/// The operator's settings.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    /// The worker's name, stable across restarts.
    pub name: String,
    /// Concurrent handlers; the minimum, if the number adapts.
    pub slots: usize,
    /// The maximum, if the number adapts to the waiting work.
    pub slots_max: Option<usize>,
    /// Maximum executions prefetched beyond the slots, so that a slot need not wait for the store. Fewer
    /// where runs take longer: no more than will start within [`limits::PREFETCH_TIME`].
    pub prefetch: usize,
    /// The queues it serves; empty for all.
    pub queues: Vec<String>,
    /// The program's version and the machine it runs on, shown to operators.
    pub version: Option<String>,
    pub host: Option<String>,
    /// The address of that machine, shown to operators.
    pub address: Option<String>,
    /// The health limits beyond which it accepts no new work.
    pub limits: HealthLimits,
    pub lease: Duration,
    /// Whether it runs in the process that holds the store, and so ends with it.
    pub embedded: bool,
    /// How long running handlers may take to finish during a drain.
    pub drain_grace: Duration,
    /// How long a poll waits for work before it is repeated.
    pub poll_wait: Duration,
    /// Pause after a failed call.
    pub error_pause: Duration,
}

impl Default for WorkerConfig {
    fn default() -> Self {
        WorkerConfig {
            name: "worker".to_owned(),
            slots: 16,
            slots_max: None,
            prefetch: 16,
            queues: Vec::new(),
            version: None,
            host: None,
            address: None,
            limits: HealthLimits::default(),
            lease: limits::SESSION_LEASE,
            embedded: false,
            drain_grace: Duration::from_secs(30),
            poll_wait: Duration::from_secs(20),
            error_pause: Duration::from_millis(200),
        }
    }
}

/// The most executions that a worker with this many slots may prefetch if it names its leases in requests to
/// a server: as many again may have ended and not be acknowledged.
pub fn prefetch_max(slots: usize) -> usize {
    limits::LEASES_NAMED_MAX.saturating_sub(slots) / 2
}

/// A worker, ready to run.
pub struct Worker {
    config: WorkerConfig,
    host: Host,
    port: Arc<dyn WorkerPort>,
    executors: BTreeMap<String, Arc<dyn Executor>>,
    machine: Option<Arc<dyn Machine>>,
}

impl Worker {
    /// A worker for the job types of these executors; of two for the same type the later one is used.
    pub fn new(
        config: WorkerConfig,
        host: Host,
        port: Arc<dyn WorkerPort>,
        executors: Vec<Arc<dyn Executor>>,
    ) -> Self {
        let executors = executors
            .into_iter()
            .flat_map(|executor| {
                executor.job_types().into_iter().map(move |job_type| (job_type, executor.clone()))
            })
            .collect();
        // Outside these bounds the server would apply a different lease than the worker.
        let lease = config.lease.clamp(limits::SESSION_LEASE_MIN, limits::SESSION_LEASE_MAX);
        Worker { config: WorkerConfig { lease, ..config }, host, port, executors, machine: None }
    }

    /// The same with measurements of its machine: without them it reports only its load and refuses nothing.
    pub fn on_machine(self, machine: Arc<dyn Machine>) -> Self {
        Worker { machine: Some(machine), ..self }
    }

    /// Works until `drain` becomes true, then finishes running executions, returns the others, and ends.
    ///
    /// After a lost session it opens a new one. Outcomes that could not be reported in the old session are
    /// sent in the new one: the server knows whether they still count.
    pub async fn run(self, mut drain: watch::Receiver<bool>) {
        let mut unreported = Vec::new();
        while let Some(opened) = self.open_session(&mut drain).await {
            match self.run_session(opened, unreported, drain.clone()).await {
                SessionEnd::Drained => return,
                SessionEnd::Lost(left) => unreported = left,
            }
        }
    }

    /// Opens a session, with any number of retries; `None` if the worker is stopped first.
    async fn open_session(&self, drain: &mut watch::Receiver<bool>) -> Option<session::OpenedSession> {
        let mut pause = self.config.error_pause;
        loop {
            if *drain.borrow() {
                return None;
            }
            let sent_at = self.host.clock.monotonic();
            let opening = SessionOpening {
                worker: self.config.name.clone(),
                lease: self.config.lease,
                embedded: self.config.embedded,
                job_types: self.executors.keys().cloned().collect(),
                slots: condition::slot_range(&self.config).min(),
                about: WorkerAbout {
                    queues: self.config.queues.clone(),
                    version: self.config.version.clone(),
                    host: self.config.host.clone(),
                },
                token: None,
            };
            match self.port.open_session(opening).await {
                Ok(grant) => {
                    return Some(session::OpenedSession { grant, sent_at, received: self.now() });
                }
                // Refused for good: the port has ended the worker and has said why.
                Err(_) if *drain.borrow() => return None,
                Err(error) => tracing::warn!(%error, "waiting for a session; retrying"),
            }
            let sleep = self.host.clock.sleep(pause);
            if let Either::Right((Err(_), _)) = select(sleep, pin!(drain.changed())).await {
                return None;
            }
            pause = (pause * 2).min(OPENING_PAUSE_MAX);
        }
    }

    fn now(&self) -> Now {
        Now { clock: self.host.clock.monotonic(), calendar: self.host.calendar.monotonic() }
    }

    async fn run_session(
        &self,
        opened: session::OpenedSession,
        unreported: Vec<Report>,
        drain: watch::Receiver<bool>,
    ) -> SessionEnd {
        let (events, mut inbox) = mpsc::unbounded_channel();
        let mut hands = run::SessionHands {
            worker: self,
            session: opened.grant.session,
            events,
            stops: BTreeMap::new(),
            poll: None,
        };
        hands.watch_drain(drain);
        let job_types = self.executors.keys().cloned().collect();
        let mut session = WorkerSession::new(self.config.clone(), job_types, opened, unreported);
        let mut event = SessionEvent::Opened;
        loop {
            for action in session.handle(event, self.now()) {
                hands.act(action);
            }
            if let Some(end) = session.take_end() {
                return end;
            }
            // The channel cannot close: `hands` holds a sender.
            let Some(next) = inbox.recv().await else { return SessionEnd::Drained };
            hands.ended(&next);
            event = next;
        }
    }
}
