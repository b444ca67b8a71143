//! What a worker asks of the house. The engine implements it for workers in its own process, the HTTP client
//! for those elsewhere.
//!
//! Every poll carries the session's next *turn*. The store grants work for a turn at most once, so a doubled
//! or late message leases nothing. When an answer is lost, the worker does not know whether work was granted:
//! it resyncs under the following turn with the list of what it holds, and whatever else was leased to it goes
//! back unstarted.

use crate::health::WorkerCondition;
use crate::ids::{Epoch, ExecutionId, OccurrenceId, SessionId};
use crate::notes::{Checkpoint, Note, NoteAnswer};
use crate::occurrence::End;
use crate::ports::{Lane, LogLine};
use crate::slots::Demand;
use crate::time::Timestamp;
use async_trait::async_trait;
use std::time::Duration;

#[async_trait]
pub trait WorkerPort: Send + Sync {
    async fn open_session(&self, opening: SessionOpening) -> Result<SessionGrant, WorkerPortError>;
    /// Waits up to `poll.wait` for work. An empty answer leaves the turn unused.
    async fn poll(&self, poll: Poll) -> Result<Vec<Assignment>, WorkerPortError>;
    async fn beat(&self, heartbeat: Heartbeat) -> Result<BeatAnswer, WorkerPortError>;
    /// What waits in the lanes that a worker serves, for one that adapts to it. May be a moment old.
    async fn demand(&self, served: Served) -> Result<Demand, WorkerPortError>;
    async fn report(&self, reports: Vec<Report>) -> Result<Vec<ReportAnswer>, WorkerPortError>;
    /// Keeps what handlers have noted; one answer per note. Durable when it is answered.
    async fn note(&self, notes: Vec<Note>) -> Result<Vec<NoteAnswer>, WorkerPortError>;
    /// Returns unstarted executions to the queue.
    async fn give_back(&self, session: SessionId, leases: Vec<LeaseRef>) -> Result<(), WorkerPortError>;
    /// Uses up `turn` and returns to the queue all that the session holds in the store but not in `held`.
    async fn resync(&self, session: SessionId, turn: u64, held: Vec<LeaseRef>)
    -> Result<(), WorkerPortError>;
    /// Keeps lines that handlers of this session have written, in their order. The store numbers them. Lines
    /// that are sent again because the answer was lost may be kept twice.
    async fn append_logs(&self, session: SessionId, lines: Vec<LogLine>) -> Result<(), WorkerPortError>;
    /// Ends a session that holds nothing any more.
    async fn close_session(&self, session: SessionId) -> Result<(), WorkerPortError>;
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkerPortError {
    /// The house cannot be reached or cannot answer; what was asked may or may not have been done.
    #[error("the server is unavailable: {0}")]
    Unavailable(String),
    /// The session is lost or closed: stop all handlers and open a new one.
    #[error("the session is lost")]
    SessionLost,
    /// This turn was used already.
    #[error("the turn was used already")]
    StaleTurn,
}

/// Who a new session belongs to and how long it may fall silent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionOpening {
    /// The worker's name, stable over restarts.
    pub worker: String,
    pub lease: Duration,
    /// Whether the worker lives in the process that holds the store, and so dies with it.
    pub embedded: bool,
    pub job_types: Vec<String>,
    pub slots: u32,
    pub about: WorkerAbout,
}

/// What a worker says of itself for people to see; nothing is decided by it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkerAbout {
    /// The queues it serves; empty for all.
    pub queues: Vec<String>,
    pub version: Option<String>,
    pub host: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionGrant {
    pub session: SessionId,
    /// The time by which the house goes.
    pub now: Timestamp,
}

/// A session is alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    pub session: SessionId,
    /// Higher than in every earlier one of the session.
    pub beat: u64,
    /// How the worker is, now and then.
    pub condition: Option<WorkerCondition>,
    /// The worker is ending: it takes nothing new and goes when what runs has finished.
    pub draining: bool,
}

/// What a worker takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// Empty for all.
    pub queues: Vec<String>,
    pub job_types: Vec<String>,
}

impl Served {
    pub fn has(&self, lane: &Lane) -> bool {
        let serves_queue = self.queues.is_empty() || self.queues.iter().any(|queue| queue == lane.queue());
        serves_queue && self.job_types.iter().any(|job_type| job_type == lane.job_type())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Poll {
    pub session: SessionId,
    /// One more than the last turn that the session has used.
    pub turn: u64,
    /// How many executions it can take.
    pub capacity: usize,
    /// The queues it serves; empty for all.
    pub queues: Vec<String>,
    pub job_types: Vec<String>,
    pub wait: Duration,
}

/// A leased execution with all that a worker needs to run it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    pub execution: ExecutionId,
    pub epoch: Epoch,
    pub job_version: u32,
    pub name: String,
    pub job_type: String,
    pub queue: String,
    /// JSON text.
    pub payload: String,
    pub timeout: Duration,
    pub scheduled_time: Timestamp,
    pub available_at: Timestamp,
    /// The order in which a worker starts what it holds: lower first.
    pub rank: i64,
    /// What an earlier attempt of the occurrence has left.
    pub checkpoint: Option<Checkpoint>,
}

impl Assignment {
    pub fn lease(&self) -> LeaseRef {
        LeaseRef { execution: self.execution, epoch: self.epoch }
    }

    /// The same for every attempt of the occurrence.
    pub fn idempotency_key(&self) -> OccurrenceId {
        self.execution.occurrence
    }
}

/// One lease, named so that a later one cannot be mistaken for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseRef {
    pub execution: ExecutionId,
    pub epoch: Epoch,
}

/// How one execution ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    pub session: SessionId,
    pub lease: LeaseRef,
    pub end: End,
}

impl Report {
    /// The same with no time later than `now`.
    pub fn not_after(mut self, now: Timestamp) -> Self {
        self.end.completed_at = self.end.completed_at.min(now);
        self.end.started_at = self.end.started_at.map(|started_at| started_at.min(self.end.completed_at));
        self
    }

    /// The same with a result that can be kept.
    pub fn within_limits(self) -> Self {
        Report { end: self.end.within_limits(), ..self }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportAnswer {
    Accepted,
    /// This very report was accepted before; its answer had been lost.
    AlreadyAccepted,
    /// Another lease has taken over, or the occurrence is closed: the outcome counts for nothing.
    Stale,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BeatAnswer {
    /// The time by which the house goes.
    pub now: Timestamp,
    /// The last turn that the session has used. If the worker knows of none so high, a late copy of one of its
    /// polls was granted to nobody, and it must resync.
    pub turn: u64,
    /// Executions that the session holds and should stop.
    pub cancel: Vec<LeaseRef>,
    /// The worker is to finish what runs, give back what it has not started, and close its session.
    pub drain: bool,
}
