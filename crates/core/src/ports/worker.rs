//! What a worker asks of the server. The engine implements it for workers in its own process, the HTTP client
//! for remote ones.
//!
//! Every poll carries the session's next *poll sequence number* (`turn`). The store grants work for a number
//! at most once, so a duplicate or late message leases nothing. When an answer is lost, the worker does not
//! know whether work was granted: it resyncs with the following number and the list of what it holds, and
//! everything else that was leased to it is returned unstarted.

use crate::blobs::BlobReference;
use crate::health::WorkerCondition;
use crate::ids::{Epoch, ExecutionId, OccurrenceId, SessionId};
use crate::job::ResultOverflow;
use crate::notes::{Checkpoint, Note, NoteAnswer};
use crate::occurrence::ReportedEnd;
use crate::ports::{BlobError, BlobParts, Lane, LogLine};
use crate::slots::Demand;
use crate::time::Timestamp;
use crate::trace_context::{RunTrace, TraceContext};
use async_trait::async_trait;
use std::time::Duration;

#[async_trait]
pub trait WorkerPort: Send + Sync {
    async fn open_session(&self, opening: SessionOpening) -> Result<SessionGrant, WorkerPortError>;
    /// Waits up to `poll.wait` for work. With an empty answer, the poll sequence number stays unused.
    async fn poll(&self, poll: Poll) -> Result<Vec<Assignment>, WorkerPortError>;
    async fn beat(&self, heartbeat: Heartbeat) -> Result<BeatAnswer, WorkerPortError>;
    /// The demand in the lanes that a worker serves, for one that adapts to it. May be slightly outdated.
    async fn demand(&self, served: Served) -> Result<Demand, WorkerPortError>;
    async fn report(&self, reports: Vec<Report>) -> Result<Vec<ReportAnswer>, WorkerPortError>;
    /// Stores the notes of handlers; one answer per note. Durable when answered.
    async fn note(&self, notes: Vec<Note>) -> Result<Vec<NoteAnswer>, WorkerPortError>;
    /// Returns unstarted executions to the queue.
    async fn give_back(&self, session: SessionId, leases: Vec<LeaseRef>) -> Result<(), WorkerPortError>;
    /// Uses up `turn` and returns to the queue everything that the session holds in the store but not in
    /// `held`.
    async fn resync(&self, session: SessionId, turn: u64, held: Vec<LeaseRef>)
    -> Result<(), WorkerPortError>;
    /// Stores lines that handlers of this session have written, in order. The store numbers them. Lines that
    /// are sent again because the answer was lost may be stored twice.
    async fn append_logs(&self, session: SessionId, lines: Vec<LogLine>) -> Result<(), WorkerPortError>;
    /// Stores the result of a running execution as a blob. It counts once a report contains the reference.
    async fn store_result(
        &self,
        session: SessionId,
        lease: LeaseRef,
        parts: Box<dyn BlobParts>,
    ) -> Result<BlobReference, BlobError>;
    /// Closes a session that no longer holds anything.
    async fn close_session(&self, session: SessionId) -> Result<(), WorkerPortError>;
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkerPortError {
    /// The server cannot be reached or cannot answer; the call may or may not have taken effect.
    #[error("a request to the server failed: {0}")]
    Unavailable(String),
    /// The session is lost or closed: stop all handlers and open a new one.
    #[error("the session is lost")]
    SessionLost,
    /// This poll sequence number was already used.
    #[error("the turn was used already")]
    StaleTurn,
}

/// The worker of a new session, and how long it may be silent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionOpening {
    /// The worker's name, stable across restarts.
    pub worker: String,
    pub lease: Duration,
    /// Whether the worker runs in the process that owns the store, and so dies with it.
    pub embedded: bool,
    pub job_types: Vec<String>,
    pub slots: u32,
    pub about: WorkerAbout,
    /// The token that opens it; `None` for a worker that reaches the store itself.
    pub token: Option<String>,
}

/// What a worker declares about itself, for users; no rule depends on it.
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
    /// The server's time.
    pub now: Timestamp,
}

/// A heartbeat of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    pub session: SessionId,
    /// Higher than in every earlier heartbeat of the session.
    pub beat: u64,
    /// The worker's condition, sent from time to time.
    pub condition: Option<WorkerCondition>,
    /// The worker is shutting down: it accepts no new work and leaves when its running handlers have
    /// finished.
    pub draining: bool,
}

/// The work that a worker accepts.
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
    /// One more than the last poll sequence number that the session has used.
    pub turn: u64,
    /// How many executions it can accept.
    pub capacity: usize,
    /// The queues it serves; empty for all.
    pub queues: Vec<String>,
    pub job_types: Vec<String>,
    pub wait: Duration,
}

/// A leased execution with everything that a worker needs to run it.
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
    /// The order in which a worker starts the executions that it holds: lower first.
    pub rank: i64,
    /// The checkpoint of an earlier attempt of the occurrence.
    pub checkpoint: Option<Checkpoint>,
    pub result_overflow: ResultOverflow,
    /// How the run relates to the trace of the request that asked for it. A handler gets the place of its attempt.
    pub trace: Option<RunTrace>,
}

impl Assignment {
    pub fn lease(&self) -> LeaseRef {
        LeaseRef { execution: self.execution, epoch: self.epoch }
    }

    /// The place of the attempt in a trace, which its handler may continue.
    pub fn trace_context(&self) -> Option<&TraceContext> {
        self.trace.as_ref().filter(|trace| !trace.is_linked).map(|trace| &trace.context)
    }

    /// The same for every attempt of the occurrence.
    pub fn idempotency_key(&self) -> OccurrenceId {
        self.execution.occurrence
    }
}

/// One lease, named so that it cannot be confused with a later one.
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
    pub end: ReportedEnd,
}

impl Report {
    /// The same report with no time later than `now`.
    pub fn not_after(mut self, now: Timestamp) -> Self {
        self.end.completed_at = self.end.completed_at.min(now);
        self.end.started_at = self.end.started_at.map(|started_at| started_at.min(self.end.completed_at));
        self
    }

    /// The same report with a result within the limits.
    pub fn within_limits(self) -> Self {
        Report { end: self.end.within_limits(), ..self }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportAnswer {
    Accepted,
    /// This report was already accepted; its answer was lost.
    AlreadyAccepted,
    /// Another lease has taken over, or the occurrence is closed: the outcome is ignored.
    Stale,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BeatAnswer {
    /// The server's time.
    pub now: Timestamp,
    /// The last poll sequence number that the session has used. If it is higher than the worker's own, a late
    /// copy of one of its polls was granted work that the worker does not know of, and it must resync.
    pub turn: u64,
    /// Executions that the session holds and should stop.
    pub cancel: Vec<LeaseRef>,
    /// The worker must finish its running executions, give back unstarted ones, and close its session.
    pub drain: bool,
}
