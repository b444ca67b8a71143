//! The store: the single source of truth.
//!
//! Every verb takes many items, runs as one transaction, locks rows in the order of their keys, and returns
//! one outcome per item, in the order of the items. Between reading and writing it asks the rules in this
//! crate (`begin`, `ScheduleState::plan`, `Standing::apply`, the functions of `Live`) what to do: a store
//! does compare-and-swap and decides nothing. `now` is a parameter; no store reads its own clock inside a
//! verb.
//!
//! An `Err` means that nothing is known: the transaction may or may not have been committed. Every verb can
//! be repeated safely, because it names the state that it expects; only a trigger adds an occurrence each
//! time.

use crate::control::{Refusal, Verb};
use crate::health::WorkerCondition;
use crate::ids::{Epoch, ExecutionId, JobId, OccurrenceId, SegmentSet, SessionId};
use crate::job::{Job, JobStatus, Priority};
use crate::lifecycle::Status;
use crate::limiter::{LimiterId, LimiterUse, Line};
use crate::notes::{Checkpoint, Note, NoteAnswer, Noted};
use crate::occurrence::{Finished, Live, Origin};
use crate::ports::{
    Admitted, Assignment, Denial, Depth, ExecutionQuery, ExecutionView, ExecutionWalk, FinishedPage,
    HistorySpan, Horizon, JobCounts, LeaseRef, ListedExecution, LogLine, NotedClock, OpenExecution, Page,
    PausedQueue, Pausing, QueueRow, Report, ReportAnswer, Retained, Retired, Retirement, RunningPlace,
    SessionOpening, StoreFigures, StoreHealth, Token, WorkerAbout,
};
use crate::queue::{QueueFull, QueueSettings};
use crate::schedule::{ScheduleState, SkipRange};
use crate::session::{Pulse, SessionDraining, SessionMode, SessionOrder};
use crate::time::Timestamp;
use async_trait::async_trait;
use std::sync::Arc;

#[async_trait]
pub trait Store: Send + Sync {
    /// The store's clock: the time that all nodes use.
    async fn clock(&self) -> Result<Timestamp, StoreError>;

    // Submitting jobs.
    async fn submit(&self, now: Timestamp, jobs: Vec<NewJob>) -> Result<Vec<SubmitOutcome>, StoreError>;

    // Passing of time.
    /// What becomes due in these segments up to `until`, earliest first, at most `limit` of each kind and
    /// segment.
    async fn due(&self, segments: SegmentSet, until: Timestamp, limit: usize)
    -> Result<Vec<Due>, StoreError>;
    async fn fire(&self, now: Timestamp, fires: Vec<Fire>) -> Result<Vec<FireOutcome>, StoreError>;
    /// Opens the time gates of waiting attempts and ends expired ones.
    async fn look(&self, now: Timestamp, looks: Vec<Look>) -> Result<Vec<LookOutcome>, StoreError>;
    /// Releases or skips up to `limit` dependents of finished jobs that the commit which finished them has
    /// not processed.
    async fn resolve(&self, now: Timestamp, limit: usize) -> Result<Resolved, StoreError>;

    // Handing out work and taking results.
    async fn claim(&self, now: Timestamp, claims: Vec<Claim>) -> Result<Vec<ClaimOutcome>, StoreError>;
    async fn report(&self, now: Timestamp, reports: Vec<Report>) -> Result<Vec<ReportOutcome>, StoreError>;
    /// Stores the notes of handlers; one answer per note.
    async fn note(&self, now: Timestamp, notes: Vec<Note>) -> Result<Vec<NoteAnswer>, StoreError>;
    /// Returns unstarted executions. Per item its commit effects, or `None` if the lease is no longer held.
    async fn give_back(
        &self,
        now: Timestamp,
        session: SessionId,
        leases: Vec<LeaseRef>,
    ) -> Result<Vec<Option<Begun>>, StoreError>;
    /// Uses up the poll sequence number and gives back all leases of the session that are not in `held`.
    async fn resync(&self, now: Timestamp, resync: Resync) -> Result<ResyncOutcome, StoreError>;

    // Sessions.
    async fn open_session(&self, now: Timestamp, opening: SessionOpening) -> Result<SessionId, StoreError>;
    async fn beat(&self, now: Timestamp, beats: Vec<Beat>) -> Result<Vec<BeatOutcome>, StoreError>;
    /// Stores a worker's condition in place of the previous one. A session that is gone is left unchanged.
    async fn keep_condition(&self, session: SessionId, condition: WorkerCondition) -> Result<(), StoreError>;
    /// All sessions that are neither lost nor closed.
    async fn sessions(&self) -> Result<Vec<SessionRow>, StoreError>;
    /// Marks these sessions lost if their counters have not changed since they were read. Per item whether it
    /// is lost now.
    async fn lose_sessions(&self, now: Timestamp, silent: Vec<Pulse>) -> Result<Vec<bool>, StoreError>;
    /// Marks all embedded sessions lost: called by the only process that uses the store, before it opens any.
    async fn lose_embedded_sessions(&self, now: Timestamp) -> Result<usize, StoreError>;
    /// Ends up to `limit` executions of lost sessions as LOST and retries them by the rules.
    async fn recover(&self, now: Timestamp, limit: usize) -> Result<Recovered, StoreError>;
    /// Executes an operator's command for a session: returns its new mode, or why not. `None` if it is lost,
    /// closed or never existed.
    async fn order_session(
        &self,
        session: SessionId,
        order: SessionOrder,
    ) -> Result<Option<Result<SessionMode, SessionDraining>>, StoreError>;
    /// How many executions each session holds; sessions without any are left out.
    async fn holdings(&self) -> Result<Vec<(SessionId, u64)>, StoreError>;
    /// Closes a session; executions that it still holds in the store are returned unstarted.
    async fn close_session(&self, now: Timestamp, session: SessionId) -> Result<ResyncOutcome, StoreError>;

    // Actions of users.
    async fn control(
        &self,
        now: Timestamp,
        controls: Vec<Control>,
    ) -> Result<Vec<ControlOutcome>, StoreError>;
    /// Cancels single executions.
    async fn cancel(
        &self,
        now: Timestamp,
        executions: Vec<ExecutionId>,
    ) -> Result<Vec<CancelOutcome>, StoreError>;
    /// Redrives dead-lettered occurrences.
    async fn redrive(
        &self,
        now: Timestamp,
        dead: Vec<OccurrenceId>,
    ) -> Result<Vec<ControlOutcome>, StoreError>;
    /// Deletes dead letters; per item whether it existed.
    async fn discard(&self, dead: Vec<OccurrenceId>) -> Result<Vec<bool>, StoreError>;
    /// Pauses or resumes a queue. A paused queue hands out no work, and its limits admit none. Returns what
    /// can be claimed again.
    async fn pause_queue(&self, now: Timestamp, queue: String, pausing: Pausing)
    -> Result<Begun, StoreError>;
    /// Stores the settings of a queue. If its limits become tighter, [`Self::admit`] re-admits its queued
    /// executions.
    async fn set_queue(&self, queue: String, settings: QueueSettings) -> Result<(), StoreError>;
    /// Admits executions from the front of these wait lists as far as there is room, up to `limit` of each.
    /// If the limits of a queue have become tighter, a call for the queue's own list re-admits up to `limit`
    /// executions instead, and the queue's lists are not served until re-admission is complete.
    async fn admit(&self, now: Timestamp, lines: Vec<Line>, limit: usize) -> Result<Admitted, StoreError>;
    /// Records that a request with this key is in progress, unless one is recorded already.
    async fn begin_request(&self, now: Timestamp, request: NewRequest) -> Result<RequestState, StoreError>;
    /// Stores the response to a request that was begun.
    async fn answer_request(&self, request: RequestKey, answer: StoredAnswer) -> Result<(), StoreError>;

    // Reads for users.
    async fn job(&self, id: JobId) -> Result<Option<JobView>, StoreError>;
    async fn jobs(&self, query: JobQuery) -> Result<Page<JobView, JobId>, StoreError>;
    /// The finished executions of a job, latest occurrence and attempt first.
    async fn history(
        &self,
        job: JobId,
        before: Option<ExecutionId>,
        limit: usize,
    ) -> Result<Page<Finished, ExecutionId>, StoreError>;
    /// All executions of a job, open and finished in one order: latest occurrence and attempt first. An
    /// execution keeps its position when it finishes, so that pages neither repeat nor lose one that finishes
    /// between them.
    async fn executions_of_job(
        &self,
        job: JobId,
        before: Option<ExecutionId>,
        limit: usize,
    ) -> Result<Page<ExecutionView, ExecutionId>, StoreError>;
    async fn execution(&self, id: ExecutionId) -> Result<Option<ExecutionView>, StoreError>;
    /// Executions that finished after a position in history, in commit order.
    async fn finished_after(&self, after: u64, limit: usize) -> Result<FinishedPage, StoreError>;
    /// The positions between which history can be followed.
    async fn history_span(&self) -> Result<HistorySpan, StoreError>;
    /// The current state of these occurrences, without those that are not open.
    async fn open_executions(&self, ids: Vec<OccurrenceId>) -> Result<Vec<OpenExecution>, StoreError>;
    /// Executions of all jobs in one state, a page at a time.
    async fn executions(
        &self,
        query: ExecutionQuery,
    ) -> Result<Page<ListedExecution, ExecutionWalk>, StoreError>;
    /// Running executions, a page at a time, in an order that the store chooses.
    async fn running(
        &self,
        after: Option<RunningPlace>,
        limit: usize,
    ) -> Result<Page<OpenExecution, RunningPlace>, StoreError>;
    /// The notes of the open and dead-lettered occurrences of a job up to this number, latest first.
    async fn notes(&self, job: JobId, up_to: u32, limit: usize) -> Result<Vec<Noted>, StoreError>;
    /// The checkpoint of an open or dead-lettered occurrence.
    async fn checkpoint(&self, occurrence: OccurrenceId) -> Result<Option<Checkpoint>, StoreError>;
    /// Ranges of occurrences that did not run, latest first.
    async fn skipped(&self, job: JobId, limit: usize) -> Result<Vec<SkipRange>, StoreError>;
    /// Latest first.
    async fn dead_letters(&self, query: DeadLetterQuery) -> Result<Page<DeadLetter, u64>, StoreError>;
    /// The queues that are paused or have settings, ordered by name.
    async fn queues(&self) -> Result<Vec<QueueRow>, StoreError>;
    /// Wait lists that are not empty, up to `limit` after that of this limiter. The first page also has those
    /// of queues with a re-admission in progress.
    async fn waiting_lines(
        &self,
        after: Option<LimiterId>,
        limit: usize,
    ) -> Result<Page<Line, LimiterId>, StoreError>;
    /// The use of these limiters, in their order.
    async fn limiters(&self, lines: Vec<Line>) -> Result<Vec<LimiterUse>, StoreError>;
    /// The queues that are paused.
    async fn paused_queues(&self) -> Result<Vec<PausedQueue>, StoreError>;
    /// How many executions of the same lane go before this queued one, counted up to `limit`; `None` if it is
    /// not queued.
    async fn ahead(&self, occurrence: OccurrenceId, limit: usize) -> Result<Option<usize>, StoreError>;
    /// The number of live executions by lane. Read from maintained counters, so that the cost depends on the
    /// lanes in use.
    async fn depths(&self) -> Result<Vec<Depth>, StoreError>;
    /// How many jobs there are, by status. Deleted ones are not counted.
    async fn job_counts(&self) -> Result<JobCounts, StoreError>;
    /// Statistics since the store was opened; values that an adapter does not know are zero.
    async fn figures(&self) -> Result<StoreFigures, StoreError>;
    /// Failures that the store has counted and damage that it has found. Does not query the database, so that
    /// it works when the database does not answer.
    fn health(&self) -> StoreHealth {
        StoreHealth::default()
    }

    // Logs.
    async fn append_logs(&self, lines: Vec<LogLine>) -> Result<(), StoreError>;
    async fn logs(
        &self,
        execution: ExecutionId,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Page<LogLine, u64>, StoreError>;

    /// The last lines of an execution, in order.
    async fn last_logs(&self, execution: ExecutionId, count: usize) -> Result<Vec<LogLine>, StoreError>;

    /// Lines written before this time may have been removed, because the limit for all lines was reached;
    /// `None` if none were.
    async fn logs_removed_until(&self) -> Result<Option<Timestamp>, StoreError>;

    // Maintenance.
    /// The store's clock as in [`Self::clock`], with the record that [`Self::note_clock`] has written.
    async fn noted_clock(&self) -> Result<NotedClock, StoreError>;
    /// Records durably that retention found the clock steady at this time.
    async fn note_clock(&self, at: Timestamp) -> Result<(), StoreError>;
    /// Deletes up to `limit` rows each of old history, skipped ranges, logs and request responses.
    async fn retain(&self, horizon: Horizon, limit: usize) -> Result<Retained, StoreError>;
    /// Deletes counters and names of lanes that nothing uses, checking up to `limit` of each. Needs no clock.
    /// Returns whether there may be more.
    async fn delete_unused(&self, limit: usize) -> Result<bool, StoreError>;
    /// Marks finished jobs without dead letters for deletion, checking up to `limit` of them.
    async fn retire(&self, now: Timestamp, retirement: Retirement) -> Result<Retired, StoreError>;
    /// Deletes up to `limit` rows of jobs that were deleted, and whose last execution ended, before this
    /// time. Returns whether there are more.
    async fn purge(&self, before: Timestamp, limit: usize) -> Result<bool, StoreError>;
    /// Writes a small row durably: the readiness check.
    async fn probe(&self, now: Timestamp) -> Result<(), StoreError>;
    async fn put_token(&self, token: Token) -> Result<(), StoreError>;
    /// Stores a token unless one with its id exists, and returns the stored one: concurrent callers all get
    /// the same.
    async fn add_token(&self, token: Token) -> Result<Token, StoreError>;
    async fn token(&self, id: &str) -> Result<Option<Token>, StoreError>;
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It cannot be reached or cannot write now; whether the call took effect is unknown.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// It answers but denies access, with its own message. An operator can fix that while callers wait, so it
    /// counts as unavailable.
    #[error("the store is unavailable: {0}: {1}")]
    Denied(Denial, String),
    /// It answered in an unexpected way: a defect or a damaged file.
    #[error("the store failed: {0}")]
    Broken(String),
}

impl StoreError {
    pub fn is_retryable(&self) -> bool {
        matches!(self, StoreError::Unavailable(_) | StoreError::Denied(..))
    }
}

/// The queue and job type of an execution. Shared, so that a million waiting entries store it once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(Arc<(String, String)>);

impl Lane {
    pub fn new(queue: impl Into<String>, job_type: impl Into<String>) -> Self {
        Lane(Arc::new((queue.into(), job_type.into())))
    }

    pub fn queue(&self) -> &str {
        &self.0.0
    }

    pub fn job_type(&self) -> &str {
        &self.0.1
    }
}

/// A slot reservation: a free slot of a worker whose poll waits for an answer. Work committed with a valid
/// reservation is leased to it in the same transaction; with an invalid one it is queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offer {
    pub session: SessionId,
    pub turn: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct NewJob {
    pub job: Job,
    pub offer: Option<Offer>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum SubmitOutcome {
    Created(Begun),
    /// A job with this id already exists: an earlier attempt of the same submit was committed.
    AlreadyThere,
    /// A job of this owner already has its `idempotency_key`: that job is returned.
    Existing(JobId),
    /// An unfinished job of this owner has its `unique_key`.
    KeyTaken(JobId),
    /// A job in `depends_on` cannot be depended on.
    BadParent {
        parent: JobId,
        problem: ParentProblem,
    },
    /// Its queue is at its maximum depth.
    QueueFull {
        queue: String,
        full: QueueFull,
    },
    /// A row that this job needs cannot be read, for this reason. The job was not stored.
    Unreadable(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParentProblem {
    NotThere,
    /// Only jobs that run once succeed or fail as a whole.
    Recurring,
}

/// The commit effects: where work appeared, what is due next, what ended unstarted.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Begun {
    /// Work leased to the slot reservation.
    pub assigned: Vec<(Offer, Assignment)>,
    /// The lanes in which executions became claimable.
    pub queued: Vec<Lane>,
    /// What becomes due next because of this commit.
    pub due: Vec<Due>,
    /// Executions that ended without having started, including leased ones: cancelled, skipped or expired.
    pub ended: Vec<(ExecutionId, Status)>,
    /// The wait lists that executions have joined.
    pub joined: Vec<Line>,
    /// The wait lists that may have room, if they are not empty.
    pub freed: Vec<Line>,
}

impl Begun {
    pub fn add(&mut self, other: Begun) {
        self.assigned.extend(other.assigned);
        self.queued.extend(other.queued);
        self.due.extend(other.due);
        self.ended.extend(other.ended);
        self.joined.extend(other.joined);
        self.freed.extend(other.freed);
    }
}

/// A due time and what it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    pub at: Timestamp,
    pub lane: Lane,
    pub what: DueKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DueKind {
    /// A schedule must be fired, if it still has this version.
    Schedule { job: JobId, version: u32 },
    /// The time gate of an attempt opens, or it expires.
    Live { occurrence: OccurrenceId, attempt: u32 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fire {
    pub job: JobId,
    pub version: u32,
    pub offer: Option<Offer>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum FireOutcome {
    Fired {
        begun: Begun,
        /// New occurrences, with their nominal times.
        occurrences: Vec<(OccurrenceId, Timestamp)>,
        skipped: u64,
    },
    /// Another node fired it, it was changed, or it no longer exists.
    Conflict,
    /// It is not due yet at the given time.
    NotDue,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    pub occurrence: OccurrenceId,
    pub attempt: u32,
    /// A slot reservation, and the lane that its worker serves: the job may have another lane by now.
    pub offer: Option<(Offer, Lane)>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum LookOutcome {
    Opened(Begun),
    Expired(Begun),
    /// The gate is already open, another attempt is in progress, or the occurrence is closed.
    Conflict,
    /// It is not due yet at the given time.
    NotDue,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub session: SessionId,
    pub turn: u64,
    pub limit: usize,
    /// Empty for all.
    pub queues: Vec<String>,
    pub job_types: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ClaimOutcome {
    Claimed {
        /// In the order of rank. If empty, the poll sequence number stays unused.
        assignments: Vec<Assignment>,
        /// The effects of executions that had expired before they could be claimed.
        begun: Begun,
    },
    StaleTurn,
    SessionLost,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ReportOutcome {
    pub answer: ReportAnswer,
    /// The status in history, CANCELLED if a cancel was requested before; `None` if this report wrote
    /// nothing.
    pub recorded: Option<Status>,
    /// Whether another attempt follows.
    pub is_retried: bool,
    /// Where it is queued or when it is due, and the other effects.
    pub begun: Begun,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resync {
    pub session: SessionId,
    pub turn: u64,
    pub held: Vec<LeaseRef>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ResyncOutcome {
    /// The commit effects of each lease that was given back.
    GivenBack(Vec<Begun>),
    StaleTurn,
    SessionLost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beat {
    pub session: SessionId,
    pub beat: u64,
    /// Its worker is shutting down: the session drains from now on, as if an operator had ordered it.
    pub draining: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BeatOutcome {
    /// Counted, with the leases whose cancel is requested.
    Counted {
        /// The last poll sequence number that the session has used.
        turn: u64,
        cancel: Vec<LeaseRef>,
        /// Whether its worker must finish and close it.
        drain: bool,
    },
    SessionLost,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    pub pulse: Pulse,
    pub worker: String,
    pub embedded: bool,
    pub job_types: Vec<String>,
    pub slots: u32,
    pub about: WorkerAbout,
    /// Its last report; `None` before the first one.
    pub condition: Option<WorkerCondition>,
    pub mode: SessionMode,
    pub opened_at: Timestamp,
    /// When the last heartbeat was written, by the writer's clock: for users to read, never for decisions.
    pub beaten_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Recovered {
    /// Executions of lost sessions that ended, with the recorded status: LOST, or CANCELLED if a cancel was
    /// requested.
    pub ended: Vec<(ExecutionId, Status)>,
    /// How many of them are followed by another attempt.
    pub retried: usize,
    /// The commit effects: mostly retries.
    pub begun: Begun,
    /// Whether there is more to recover than the limit allowed.
    pub more: bool,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Resolved {
    pub begun: Begun,
    /// Dependents that were released or skipped.
    pub dependents: usize,
    /// Whether there is more to resolve than the limit allowed.
    pub more: bool,
}

/// One verb for one job.
#[derive(Debug, Clone, PartialEq)]
pub struct Control {
    pub job: JobId,
    pub verb: Verb,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ControlOutcome {
    Done(Controlled),
    Refused(Refusal),
    /// The job or dead letter does not exist.
    NotThere,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Controlled {
    pub begun: Begun,
    /// The current version of the job.
    pub version: u32,
    /// The execution that the verb added.
    pub added: Option<ExecutionId>,
    /// Running executions that were asked to stop.
    pub asked: Vec<ExecutionId>,
    /// Occurrences that were skipped.
    pub skipped: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub enum CancelOutcome {
    /// It had not started and has ended.
    Cancelled(Begun),
    /// It runs and is asked to stop.
    Asked,
    /// It had already ended.
    Finished,
    NotThere,
}

/// The key that a client gave to a request, so that repeating it does nothing twice.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestKey {
    /// The id of the token that was used.
    pub token: String,
    pub key: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRequest {
    pub request: RequestKey,
    /// A hash of the request, so that reuse of the key for a different one is detected.
    pub fingerprint: [u8; 32],
    /// Randomness from which the ids of this request are derived, in every attempt.
    pub seed: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestState {
    /// Not answered yet: begun by this call or by an earlier one, whose time and seed apply.
    Begun {
        at: Timestamp,
        seed: u64,
        is_new: bool,
    },
    Answered(StoredAnswer),
    /// The key was used for a different request.
    Mismatch,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAnswer {
    pub status: u16,
    pub location: Option<String>,
    pub body: String,
}

/// A job with the data from which its status is derived.
#[derive(Debug, Clone, PartialEq)]
pub struct JobView {
    pub job: Job,
    pub schedule: Option<ScheduleState>,
    /// Its open occurrences, latest first, at most [`OPEN_IN_VIEW_MAX`].
    pub open: Vec<Live>,
    pub last_finished: Option<Finished>,
}

/// Open occurrences that a [`JobView`] shows.
pub const OPEN_IN_VIEW_MAX: usize = 10;

impl JobView {
    pub fn status(&self) -> JobStatus {
        self.job.mark.status(self.schedule.is_some(), !self.open.is_empty())
    }
}

/// Filter for a list of jobs, latest first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct JobQuery {
    pub before: Option<JobId>,
    pub limit: usize,
    pub status: Option<JobStatus>,
    pub name: Option<String>,
    pub job_type: Option<String>,
    pub queue: Option<String>,
    pub owner: Option<String>,
    pub priority: Option<Priority>,
    pub schedule: Option<ScheduleKind>,
    /// The job must have all of these tags.
    pub tags: Vec<String>,
    /// Contained in its name, job type or one of its tags, ignoring case; or a prefix of its id.
    pub text: Option<String>,
}

/// The kind of a job's schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduleKind {
    Immediate,
    OneTime,
    Recurring,
}

/// An occurrence that failed finally.
#[derive(Debug, Clone, PartialEq)]
pub struct DeadLetter {
    /// Numbers the dead letters; the cursor of their list.
    pub number: u64,
    pub occurrence: OccurrenceId,
    pub job_name: String,
    pub job_type: String,
    pub queue: String,
    pub attempts: u32,
    /// The last lease epoch: another attempt continues from it.
    pub epoch: Epoch,
    pub scheduled_time: Timestamp,
    pub origin: Origin,
    pub died_at: Timestamp,
    pub error: Option<String>,
    /// Whether the occurrence has notes for another attempt.
    pub noted: bool,
}

/// Filter for a list of dead letters, latest first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeadLetterQuery {
    pub before: Option<u64>,
    pub limit: usize,
    pub job: Option<JobId>,
    pub name: Option<String>,
    pub job_type: Option<String>,
    pub queue: Option<String>,
    /// Dead-lettered at this time or later.
    pub died_from: Option<Timestamp>,
    /// Dead-lettered before this time.
    pub died_until: Option<Timestamp>,
    /// The error contains this text.
    pub error: Option<String>,
}
