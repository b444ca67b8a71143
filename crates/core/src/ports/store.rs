//! The store: the one truth.
//!
//! Every verb takes many items, runs as one transaction, locks rows in the order of their keys, and answers
//! with an outcome per item, in the order of the items. Between reading and writing it asks the rules in this
//! crate (`begin`, `ScheduleState::plan`, `Standing::apply`, the functions of `Live`) what to do: a store
//! compares and swaps, it decides nothing. `now` is a parameter; no store calls a clock of its own inside a verb.
//!
//! An `Err` means that nothing is known: the transaction may or may not have been committed. Every verb can be
//! repeated safely, because it names what it expects to find; only a trigger adds an occurrence each time.

use crate::control::{Refusal, Verb};
use crate::health::WorkerCondition;
use crate::ids::{Epoch, ExecutionId, JobId, OccurrenceId, SegmentSet, SessionId};
use crate::job::{Job, JobStatus, Priority};
use crate::lifecycle::Status;
use crate::limiter::{LimiterId, LimiterUse, Line};
use crate::notes::{Checkpoint, Note, NoteAnswer, Noted};
use crate::occurrence::{Finished, Live, Origin};
use crate::placing::Placing;
use crate::ports::{
    Admitted, Assignment, Denial, Depth, ExecutionQuery, ExecutionView, ExecutionWalk, FinishedPage,
    HistorySpan, Horizon, JobCounts, LeaseRef, ListedExecution, LogLine, NotedClock, OpenExecution, Page,
    Report, ReportAnswer, Retained, Retired, Retirement, RunningPlace, SessionOpening, StoreFigures, Token,
    WorkerAbout,
};
use crate::queue::{QueueFull, QueueSettings};
use crate::schedule::{ScheduleState, SkipRange};
use crate::session::{Pulse, SessionDraining, SessionMode, SessionOrder};
use crate::time::Timestamp;
use async_trait::async_trait;
use std::sync::Arc;

#[async_trait]
pub trait Store: Send + Sync {
    /// The store's clock: the time that all nodes go by.
    async fn clock(&self) -> Result<Timestamp, StoreError>;

    // Jobs begin.
    async fn submit(&self, now: Timestamp, jobs: Vec<NewJob>) -> Result<Vec<SubmitOutcome>, StoreError>;

    // Time passes.
    /// What falls due in these segments up to `until`, earliest first, at most `limit` of each kind and
    /// segment.
    async fn due(&self, segments: SegmentSet, until: Timestamp, limit: usize)
    -> Result<Vec<Due>, StoreError>;
    async fn fire(&self, now: Timestamp, fires: Vec<Fire>) -> Result<Vec<FireOutcome>, StoreError>;
    /// Opens the time gates of waiting attempts and ends what has expired.
    async fn look(&self, now: Timestamp, looks: Vec<Look>) -> Result<Vec<LookOutcome>, StoreError>;
    /// Releases or skips up to `limit` dependents of jobs that have finished, as far as the commit that finished
    /// them has not done so.
    async fn resolve(&self, now: Timestamp, limit: usize) -> Result<Resolved, StoreError>;

    // Work is handed out and comes back.
    async fn claim(&self, now: Timestamp, claims: Vec<Claim>) -> Result<Vec<ClaimOutcome>, StoreError>;
    async fn report(&self, now: Timestamp, reports: Vec<Report>) -> Result<Vec<ReportOutcome>, StoreError>;
    /// Keeps what handlers have noted; one answer per note.
    async fn note(&self, now: Timestamp, notes: Vec<Note>) -> Result<Vec<NoteAnswer>, StoreError>;
    /// Returns unstarted executions. Per item what follows from it, or `None` if the lease is gone.
    async fn give_back(
        &self,
        now: Timestamp,
        session: SessionId,
        leases: Vec<LeaseRef>,
    ) -> Result<Vec<Option<Begun>>, StoreError>;
    /// Uses up the turn and gives back all leases of the session that are not in `held`.
    async fn resync(&self, now: Timestamp, resync: Resync) -> Result<ResyncOutcome, StoreError>;

    // Sessions.
    async fn open_session(&self, now: Timestamp, opening: SessionOpening) -> Result<SessionId, StoreError>;
    async fn beat(&self, now: Timestamp, beats: Vec<Beat>) -> Result<Vec<BeatOutcome>, StoreError>;
    /// Keeps what a worker says of itself, in place of what it said before. One that is gone is left alone.
    async fn keep_condition(&self, session: SessionId, condition: WorkerCondition) -> Result<(), StoreError>;
    /// All sessions that are neither lost nor closed.
    async fn sessions(&self) -> Result<Vec<SessionRow>, StoreError>;
    /// Marks these sessions lost if their counters still stand where they were seen. Per item whether it is
    /// lost now.
    async fn lose_sessions(&self, now: Timestamp, silent: Vec<Pulse>) -> Result<Vec<bool>, StoreError>;
    /// Marks all embedded sessions lost: called by the one process that holds the store, before it opens any.
    async fn lose_embedded_sessions(&self, now: Timestamp) -> Result<usize, StoreError>;
    /// Ends up to `limit` executions of lost sessions as LOST and retries them as the rules say.
    async fn recover(&self, now: Timestamp, limit: usize) -> Result<Recovered, StoreError>;
    /// Carries out what people ask of a session: what it is then, or why not. `None` if it is lost, closed or was
    /// never there.
    async fn order_session(
        &self,
        session: SessionId,
        order: SessionOrder,
    ) -> Result<Option<Result<SessionMode, SessionDraining>>, StoreError>;
    /// How many executions each session holds, of those that hold any.
    async fn holdings(&self) -> Result<Vec<(SessionId, u64)>, StoreError>;
    /// Closes a session; what it still holds in the store goes back unstarted.
    async fn close_session(&self, now: Timestamp, session: SessionId) -> Result<ResyncOutcome, StoreError>;

    // People act.
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
    /// Runs dead occurrences again.
    async fn redrive(
        &self,
        now: Timestamp,
        dead: Vec<OccurrenceId>,
    ) -> Result<Vec<ControlOutcome>, StoreError>;
    /// Deletes dead letters; per item whether it was there.
    async fn discard(&self, dead: Vec<OccurrenceId>) -> Result<Vec<bool>, StoreError>;
    /// Nothing of a paused queue is claimed or let through its limits. Answers with what can be claimed again.
    async fn pause_queue(&self, now: Timestamp, queue: String, pausing: Pausing)
    -> Result<Begun, StoreError>;
    /// Keeps what people have set for a queue. If its limits are tighter, what is queued is to take its place again, which
    /// [`Self::admit`] sees to.
    async fn set_queue(&self, queue: String, settings: QueueSettings) -> Result<(), StoreError>;
    /// Lets those at the heads of these lines go on for whom there is room, up to `limit` of each. The own line of a queue
    /// whose limits have become tighter does not move before so many at a time have taken their places again.
    async fn admit(&self, now: Timestamp, lines: Vec<Line>, limit: usize) -> Result<Admitted, StoreError>;
    /// Notes that a request with this key is under way, unless one was before.
    async fn begin_request(&self, now: Timestamp, request: NewRequest) -> Result<RequestState, StoreError>;
    /// Keeps the answer to a request that was begun.
    async fn answer_request(&self, request: RequestKey, answer: StoredAnswer) -> Result<(), StoreError>;

    // People look.
    async fn job(&self, id: JobId) -> Result<Option<JobView>, StoreError>;
    async fn jobs(&self, query: JobQuery) -> Result<Page<JobView, JobId>, StoreError>;
    /// The finished executions of a job, latest occurrence and attempt first.
    async fn history(
        &self,
        job: JobId,
        before: Option<ExecutionId>,
        limit: usize,
    ) -> Result<Page<Finished, ExecutionId>, StoreError>;
    async fn execution(&self, id: ExecutionId) -> Result<Option<ExecutionView>, StoreError>;
    /// What finished after a place in history, in the order of the commits.
    async fn finished_after(&self, after: u64, limit: usize) -> Result<FinishedPage, StoreError>;
    /// How far history reaches: the places between which it can be followed.
    async fn history_span(&self) -> Result<HistorySpan, StoreError>;
    /// How these occurrences stand, of those that are open.
    async fn open_executions(&self, ids: Vec<OccurrenceId>) -> Result<Vec<OpenExecution>, StoreError>;
    /// Executions of all jobs that stand in one way, a page at a time.
    async fn executions(
        &self,
        query: ExecutionQuery,
    ) -> Result<Page<ListedExecution, ExecutionWalk>, StoreError>;
    /// What runs, a page at a time, in an order of the store's own.
    async fn running(
        &self,
        after: Option<RunningPlace>,
        limit: usize,
    ) -> Result<Page<OpenExecution, RunningPlace>, StoreError>;
    /// What is noted of the open and dead occurrences of a job up to this number, latest first.
    async fn notes(&self, job: JobId, up_to: u32, limit: usize) -> Result<Vec<Noted>, StoreError>;
    /// The checkpoint that an open or dead occurrence has.
    async fn checkpoint(&self, occurrence: OccurrenceId) -> Result<Option<Checkpoint>, StoreError>;
    /// Ranges of occurrences that did not run, latest first.
    async fn skipped(&self, job: JobId, limit: usize) -> Result<Vec<SkipRange>, StoreError>;
    /// Latest first.
    async fn dead_letters(&self, query: DeadLetterQuery) -> Result<Page<DeadLetter, u64>, StoreError>;
    /// The queues that are paused or have settings of their own, by name.
    async fn queues(&self) -> Result<Vec<QueueRow>, StoreError>;
    /// Lines in which somebody waits, `limit` after that of this limiter. The first page has those besides whose queue has places
    /// taken again.
    async fn waiting_lines(
        &self,
        after: Option<LimiterId>,
        limit: usize,
    ) -> Result<Page<Line, LimiterId>, StoreError>;
    /// How these limiters are used, in their order.
    async fn limiters(&self, lines: Vec<Line>) -> Result<Vec<LimiterUse>, StoreError>;
    /// The queues that are paused.
    async fn paused_queues(&self) -> Result<Vec<PausedQueue>, StoreError>;
    /// How many executions of the same lane go before this queued one, counted up to `limit`; `None` if it is
    /// not queued.
    async fn ahead(&self, occurrence: OccurrenceId, limit: usize) -> Result<Option<usize>, StoreError>;
    /// How much is live, by lane: from counts that are kept, so that a look costs what the lanes in use are.
    async fn depths(&self) -> Result<Vec<Depth>, StoreError>;
    /// How many jobs there are, by status. Deleted ones are not counted.
    async fn job_counts(&self) -> Result<JobCounts, StoreError>;
    /// How the store has fared since it was opened; what an adapter does not know is zero.
    async fn figures(&self) -> Result<StoreFigures, StoreError>;

    // Logs.
    async fn append_logs(&self, lines: Vec<LogLine>) -> Result<(), StoreError>;
    async fn logs(
        &self,
        execution: ExecutionId,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Page<LogLine, u64>, StoreError>;

    /// The last lines of an execution, in their order.
    async fn last_logs(&self, execution: ExecutionId, count: usize) -> Result<Vec<LogLine>, StoreError>;

    /// Lines written before this time may have been removed, because all lines together had reached their limit; `None` if
    /// none were.
    async fn logs_removed_until(&self) -> Result<Option<Timestamp>, StoreError>;

    // Housekeeping.
    /// The store's clock as [`Self::clock`] tells it, with the note that [`Self::note_clock`] has left.
    async fn noted_clock(&self) -> Result<NotedClock, StoreError>;
    /// Notes durably that retention has found the clock steady at this time.
    async fn note_clock(&self, at: Timestamp) -> Result<(), StoreError>;
    /// Deletes up to `limit` rows each of history, skipped ranges, logs and request answers that are old.
    async fn retain(&self, horizon: Horizon, limit: usize) -> Result<Retained, StoreError>;
    /// Marks finished jobs without dead letters for deletion, looking at up to `limit` of them.
    async fn retire(&self, now: Timestamp, retirement: Retirement) -> Result<Retired, StoreError>;
    /// Deletes up to `limit` rows of jobs that were deleted, and whose last execution ended, before this time.
    /// Whether there is more.
    async fn purge(&self, before: Timestamp, limit: usize) -> Result<bool, StoreError>;
    /// Writes a trifle durably: whether it can is what readiness means.
    async fn probe(&self, now: Timestamp) -> Result<(), StoreError>;
    async fn put_token(&self, token: Token) -> Result<(), StoreError>;
    /// Keeps a token unless there is one with its id. Whichever is there then: of many who call, all get the same.
    async fn add_token(&self, token: Token) -> Result<Token, StoreError>;
    async fn token(&self, id: &str) -> Result<Option<Token>, StoreError>;
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It cannot be reached or cannot write now; whether the call took effect is unknown.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// It answers and refuses, in its own words. Whoever may can mend that while others wait, so it counts as unavailable.
    #[error("the store is unavailable: {0}: {1}")]
    Denied(Denial, String),
    /// It answered in a way that our code does not expect: a defect or a damaged file.
    #[error("the store failed: {0}")]
    Broken(String),
}

impl StoreError {
    pub fn is_retryable(&self) -> bool {
        matches!(self, StoreError::Unavailable(_) | StoreError::Denied(..))
    }
}

/// The way that an execution takes to its worker: its queue and job type, shared so that a million waiting
/// entries name it once.
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

/// A free place at a worker that is waiting for an answer to its poll. Work committed with a valid offer is
/// leased to it in the same transaction; with one that is no longer valid it is queued.
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
    /// A job with this id is there already: an earlier try of the same submit had been committed.
    AlreadyThere,
    /// A job of this owner has its `idempotency_key`: that one is meant.
    Existing(JobId),
    /// An unfinished job of this owner has its `unique_key`.
    KeyTaken(JobId),
    /// A job in `depends_on` cannot be depended on.
    BadParent {
        parent: JobId,
        problem: ParentProblem,
    },
    /// It would join a queue that holds as much as it may.
    QueueFull {
        queue: String,
        full: QueueFull,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParentProblem {
    NotThere,
    /// Only jobs that run once succeed or fail as a whole.
    Recurring,
}

/// What a commit brought about: where work appeared, what is due next, what ended unstarted.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Begun {
    /// Work leased to the offer.
    pub assigned: Vec<(Offer, Assignment)>,
    /// The lanes in which something is claimable now.
    pub queued: Vec<Lane>,
    /// What will fall due next because of this.
    pub due: Vec<Due>,
    /// Executions that ended without having started: cancelled, skipped or expired.
    pub ended: Vec<(ExecutionId, Status)>,
    /// The lines in which something came to wait.
    pub joined: Vec<Line>,
    /// The lines that may have room, if anybody waits in them.
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

/// Something that falls due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    pub at: Timestamp,
    pub lane: Lane,
    pub what: DueKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DueKind {
    /// A schedule is to be fired, if it still has this version.
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
        /// Occurrences that came into being, with their nominal times.
        occurrences: Vec<(OccurrenceId, Timestamp)>,
        skipped: u64,
    },
    /// Someone else fired it, it was changed, or it is gone.
    Conflict,
    /// By the time given it is not due yet.
    NotDue,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    pub occurrence: OccurrenceId,
    pub attempt: u32,
    /// A free place, and the lane that it was found to serve: the job may have another one by now.
    pub offer: Option<(Offer, Lane)>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum LookOutcome {
    Opened(Begun),
    Expired(Begun),
    /// The gate is open already, another attempt is under way, or the occurrence is closed.
    Conflict,
    /// By the time given it is not due yet.
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
        /// In the order of rank. Empty leaves the turn unused.
        assignments: Vec<Assignment>,
        /// What follows from executions that had expired before they could be claimed.
        begun: Begun,
    },
    StaleTurn,
    SessionLost,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ReportOutcome {
    pub answer: ReportAnswer,
    /// Whether another attempt is to come.
    pub is_retried: bool,
    /// Where that queues or when it is due, and what else follows.
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
    /// What follows from each lease that went back.
    GivenBack(Vec<Begun>),
    StaleTurn,
    SessionLost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beat {
    pub session: SessionId,
    pub beat: u64,
    /// Its worker is ending: from now on the session drains, as if people had ordered it.
    pub draining: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BeatOutcome {
    /// Counted; with it the leases whose cancel is requested.
    Counted {
        /// The last turn that the session has used.
        turn: u64,
        cancel: Vec<LeaseRef>,
        /// Whether its worker is to finish and close it.
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
    /// What it told last; nothing before its first word.
    pub condition: Option<WorkerCondition>,
    pub mode: SessionMode,
    pub opened_at: Timestamp,
    /// When the last beat was written, by the writer's clock: for people to read, never to decide by.
    pub beaten_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Recovered {
    /// Executions that ended LOST.
    pub lost: Vec<ExecutionId>,
    /// How many of them another attempt follows.
    pub retried: usize,
    /// What follows from it: retries, mostly.
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
    /// There is no such job or dead letter.
    NotThere,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Controlled {
    pub begun: Begun,
    /// The version of the job by now.
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
    /// It has ended before.
    Finished,
    NotThere,
}

/// Whether a queue hands out work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pausing {
    Pause,
    Resume,
}

/// A queue of which something is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueRow {
    pub queue: String,
    pub paused_at: Option<Timestamp>,
    pub settings: QueueSettings,
    /// What is queued is to take its place again, because limits have become tighter. Nobody outside is told.
    pub placing: Option<Placing>,
}

impl QueueRow {
    /// A queue of which nothing is set.
    pub fn unset(queue: &str) -> Self {
        QueueRow {
            queue: queue.to_owned(),
            paused_at: None,
            settings: QueueSettings::default(),
            placing: None,
        }
    }

    /// Whether nothing goes through its limits for now: what a paused queue would let through could not start, and
    /// would all start at once when it is resumed. While places are taken again, who goes first is not known.
    pub fn holds_its_lines(&self) -> bool {
        self.paused_at.is_some() || self.placing.is_some()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PausedQueue {
    pub queue: String,
    pub paused_at: Timestamp,
}

/// The name that a client gave to one of its requests, so that repeating it does nothing twice.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestKey {
    /// The id of the token that was used.
    pub token: String,
    pub key: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRequest {
    pub request: RequestKey,
    /// What was asked, so that a key used for something else is noticed.
    pub fingerprint: [u8; 32],
    /// Randomness that ids of this request are derived from, in every try of it.
    pub seed: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestState {
    /// Not answered yet: begun by this call or by an earlier one, whose time and seed count.
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

/// A job with what its status is derived from.
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

/// Which jobs to list, latest first.
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
    /// All of these must be among its tags.
    pub tags: Vec<String>,
    /// In its name, job type or one of its tags, in any case; or its id begins with it.
    pub text: Option<String>,
}

/// When a job runs, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduleKind {
    Immediate,
    OneTime,
    Recurring,
}

/// An occurrence that failed for good.
#[derive(Debug, Clone, PartialEq)]
pub struct DeadLetter {
    /// Counts dead letters; the cursor of their list.
    pub number: u64,
    pub occurrence: OccurrenceId,
    pub job_name: String,
    pub job_type: String,
    pub queue: String,
    pub attempts: u32,
    /// The last lease epoch: another attempt goes on from it.
    pub epoch: Epoch,
    pub scheduled_time: Timestamp,
    pub origin: Origin,
    pub died_at: Timestamp,
    pub error: Option<String>,
    /// Whether there are notes of the occurrence, for another attempt.
    pub noted: bool,
}

/// Which dead letters to list, latest first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeadLetterQuery {
    pub before: Option<u64>,
    pub limit: usize,
    pub job: Option<JobId>,
    pub name: Option<String>,
    pub job_type: Option<String>,
    pub queue: Option<String>,
    /// Those that died from this time on.
    pub died_from: Option<Timestamp>,
    /// Those that died before this time.
    pub died_until: Option<Timestamp>,
    /// Those whose error contains this text.
    pub error: Option<String>,
}
