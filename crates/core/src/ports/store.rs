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

use crate::calendar::Calendars;
use crate::gates::Gate;
use crate::health::WorkerCondition;
use crate::ids::{Epoch, ExecutionId, JobId, OccurrenceId, SegmentSet, SessionId};
use crate::job::{Job, JobStatus, Priority};
use crate::limiter::{LimiterId, LimiterUse, WaitList};
use crate::notes::{Checkpoint, Note, NoteAnswer, Noted};
use crate::occurrence::{Finished, Live, Origin, RunInput};
use crate::ports::{
    Admitted, AuditLog, Beat, BeatOutcome, CancelOutcome, Claim, ClaimOutcome, CommitEffects, Control,
    ControlOutcome, Denial, Depth, Directory, Due, ExecutionQuery, ExecutionView, ExecutionWalk,
    FinishedPage, FireOutcome, FireRequest, HistorySpan, Horizon, JobCounts, JobOwner, LeaseRef,
    ListedExecution, LogLine, LookOutcome, LookRequest, NewJob, NewRequest, NotedClock, OpenExecution, Page,
    PausedQueue, Pausing, QueueRow, Recovered, Report, ReportOutcome, RequestKey, RequestState, Resolved,
    Resync, ResyncOutcome, Retained, Retired, Retirement, RunTimesPage, RunningPlace, SessionOpening,
    StoreFigures, StoreHealth, StoredAnswer, SubmitOutcome, WorkerAbout, Write, WriteReply,
};
use crate::queue::{QueueChange, QueueSettings};
use crate::schedule::{ScheduleState, SkipRange};
use crate::session::{Pulse, SessionDraining, SessionMode, SessionOrder};
use crate::time::Timestamp;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Sends a write and unpacks the reply. A reply of another kind is a bug in the store.
macro_rules! written {
    ($store:expr, $write:expr, $reply:pat => $value:expr) => {
        match $store.write($write).await? {
            $reply => Ok($value),
            other => Err(StoreError::Broken(format!("a write was answered with {other:?}"))),
        }
    };
}

#[async_trait]
pub trait Store: Directory + AuditLog {
    /// The store's clock: the time that all nodes use.
    async fn clock(&self) -> Result<Timestamp, StoreError>;

    /// Runs one write verb. The methods below name the verbs; a store implements only this one.
    async fn write(&self, write: Write) -> Result<WriteReply, StoreError>;

    // Submitting jobs.
    async fn submit(&self, now: Timestamp, jobs: Vec<NewJob>) -> Result<Vec<SubmitOutcome>, StoreError> {
        written!(self, Write::Submit { now, jobs }, WriteReply::Submitted(outcomes) => outcomes)
    }

    // Passing of time.
    /// What becomes due in these segments up to `until`, earliest first, at most `limit` of each kind and
    /// segment.
    async fn due(&self, segments: SegmentSet, until: Timestamp, limit: usize)
    -> Result<Vec<Due>, StoreError>;
    async fn fire(&self, now: Timestamp, fires: Vec<FireRequest>) -> Result<Vec<FireOutcome>, StoreError> {
        self.fire_under(now, fires, Arc::default()).await
    }
    /// The same for schedules that name calendars.
    async fn fire_under(
        &self,
        now: Timestamp,
        fires: Vec<FireRequest>,
        calendars: Arc<Calendars>,
    ) -> Result<Vec<FireOutcome>, StoreError> {
        written!(self, Write::Fire { now, fires, calendars }, WriteReply::Fired(outcomes) => outcomes)
    }
    /// Opens the time gates of waiting attempts and ends expired ones.
    async fn look(&self, now: Timestamp, looks: Vec<LookRequest>) -> Result<Vec<LookOutcome>, StoreError> {
        written!(self, Write::Look { now, looks }, WriteReply::Looked(outcomes) => outcomes)
    }
    /// Releases or skips up to `limit` dependents of finished jobs that the commit which finished them has
    /// not processed.
    async fn resolve(&self, now: Timestamp, limit: usize) -> Result<Resolved, StoreError> {
        written!(self, Write::Resolve { now, limit }, WriteReply::Resolved(resolved) => resolved)
    }

    // Handing out work and taking results.
    async fn claim(&self, now: Timestamp, claims: Vec<Claim>) -> Result<Vec<ClaimOutcome>, StoreError> {
        written!(self, Write::Claim { now, claims }, WriteReply::Claimed(outcomes) => outcomes)
    }
    async fn report(&self, now: Timestamp, reports: Vec<Report>) -> Result<Vec<ReportOutcome>, StoreError> {
        written!(self, Write::Report { now, reports }, WriteReply::Reported(outcomes) => outcomes)
    }
    /// Stores the notes of handlers; one answer per note.
    async fn note(&self, now: Timestamp, notes: Vec<Note>) -> Result<Vec<NoteAnswer>, StoreError> {
        written!(self, Write::Note { now, notes }, WriteReply::Noted(answers) => answers)
    }
    /// Returns unstarted executions. Per item its commit effects, or `None` if the lease is no longer held.
    async fn give_back(
        &self,
        now: Timestamp,
        session: SessionId,
        leases: Vec<LeaseRef>,
    ) -> Result<Vec<Option<CommitEffects>>, StoreError> {
        written!(self, Write::GiveBack { now, session, leases }, WriteReply::GivenBack(effects) => effects)
    }
    /// Uses up the poll sequence number and gives back all leases of the session that are not in `held`.
    async fn resync(&self, now: Timestamp, resync: Resync) -> Result<ResyncOutcome, StoreError> {
        written!(self, Write::Resync { now, resync }, WriteReply::Resynced(outcome) => outcome)
    }

    // Sessions.
    async fn open_session(&self, now: Timestamp, opening: SessionOpening) -> Result<SessionId, StoreError> {
        written!(self, Write::OpenSession { now, opening }, WriteReply::SessionOpened(session) => session)
    }
    async fn beat(&self, now: Timestamp, beats: Vec<Beat>) -> Result<Vec<BeatOutcome>, StoreError> {
        written!(self, Write::Beat { now, beats }, WriteReply::Beaten(outcomes) => outcomes)
    }
    /// Stores a worker's condition in place of the previous one. A session that is gone is left unchanged.
    async fn keep_condition(&self, session: SessionId, condition: WorkerCondition) -> Result<(), StoreError>;
    /// All sessions that are neither lost nor closed.
    async fn sessions(&self) -> Result<Vec<SessionRow>, StoreError>;
    /// Marks these sessions lost if their counters have not changed since they were read. Per item whether it
    /// is lost now.
    async fn lose_sessions(&self, now: Timestamp, silent: Vec<Pulse>) -> Result<Vec<bool>, StoreError> {
        written!(self, Write::LoseSessions { now, silent }, WriteReply::SessionsLost(lost) => lost)
    }
    /// Marks all embedded sessions lost: called by the only process that uses the store, before it opens any.
    async fn lose_embedded_sessions(&self, now: Timestamp) -> Result<usize, StoreError> {
        written!(self, Write::LoseEmbeddedSessions { now }, WriteReply::EmbeddedSessionsLost(lost) => lost)
    }
    /// Ends up to `limit` executions of lost sessions as LOST and retries them by the rules.
    async fn recover(&self, now: Timestamp, limit: usize) -> Result<Recovered, StoreError> {
        written!(self, Write::Recover { now, limit }, WriteReply::Recovered(recovered) => recovered)
    }
    /// Executes an operator's command for a session: returns its new mode, or why not. `None` if it is lost,
    /// closed or never existed.
    async fn order_session(
        &self,
        session: SessionId,
        order: SessionOrder,
    ) -> Result<Option<Result<SessionMode, SessionDraining>>, StoreError> {
        written!(self, Write::OrderSession { session, order }, WriteReply::SessionOrdered(mode) => mode)
    }
    /// The token with which a session was opened, also if it is lost; `None` if it has none, is closed or
    /// unknown.
    async fn token_of_session(&self, session: SessionId) -> Result<Option<String>, StoreError>;
    /// How many executions each session holds; sessions without any are left out.
    async fn holdings(&self) -> Result<Vec<(SessionId, u64)>, StoreError>;
    /// Closes a session; executions that it still holds in the store are returned unstarted.
    async fn close_session(&self, now: Timestamp, session: SessionId) -> Result<ResyncOutcome, StoreError> {
        written!(self, Write::CloseSession { now, session }, WriteReply::SessionClosed(outcome) => outcome)
    }

    // Actions of users.
    async fn control(
        &self,
        now: Timestamp,
        controls: Vec<Control>,
    ) -> Result<Vec<ControlOutcome>, StoreError> {
        written!(self, Write::Control { now, controls }, WriteReply::Controlled(outcomes) => outcomes)
    }
    /// Cancels single executions.
    async fn cancel(
        &self,
        now: Timestamp,
        executions: Vec<ExecutionId>,
    ) -> Result<Vec<CancelOutcome>, StoreError> {
        written!(self, Write::Cancel { now, executions }, WriteReply::Cancelled(outcomes) => outcomes)
    }
    /// Redrives dead-lettered occurrences.
    async fn redrive(
        &self,
        now: Timestamp,
        dead: Vec<OccurrenceId>,
    ) -> Result<Vec<ControlOutcome>, StoreError> {
        written!(self, Write::Redrive { now, dead }, WriteReply::Redriven(outcomes) => outcomes)
    }
    /// Deletes dead letters; per item whether it existed.
    async fn discard(&self, dead: Vec<OccurrenceId>) -> Result<Vec<bool>, StoreError> {
        written!(self, Write::Discard { dead }, WriteReply::Discarded(outcomes) => outcomes)
    }
    /// Pauses or resumes a queue. A paused queue hands out no work, and its limits admit none. Returns what
    /// can be claimed again.
    async fn pause_queue(
        &self,
        now: Timestamp,
        queue: String,
        pausing: Pausing,
    ) -> Result<CommitEffects, StoreError> {
        written!(self, Write::PauseQueue { now, queue, pausing }, WriteReply::QueuePaused(effects) => effects)
    }
    /// Stores the settings of a queue. If its limits become tighter, [`Self::admit`] re-admits its queued
    /// executions.
    async fn set_queue(&self, queue: String, settings: QueueSettings) -> Result<(), StoreError> {
        let change = QueueChange::Replace(settings);
        written!(self, Write::SetQueue { queue, change }, WriteReply::QueueSet => ())
    }
    /// Admits executions from the front of these wait lists as far as there is room, up to `limit` of each.
    /// If the limits of a queue have become tighter, a call for the queue's own list re-admits up to `limit`
    /// executions instead, and the queue's lists are not served until re-admission is complete.
    async fn admit(
        &self,
        now: Timestamp,
        lines: Vec<WaitList>,
        limit: usize,
    ) -> Result<Admitted, StoreError> {
        written!(self, Write::Admit { now, lines, limit }, WriteReply::Admitted(admitted) => admitted)
    }
    /// Records that a request with this key is in progress, unless one is recorded already.
    async fn begin_request(&self, now: Timestamp, request: NewRequest) -> Result<RequestState, StoreError> {
        written!(self, Write::BeginRequest { now, request }, WriteReply::RequestBegun(state) => state)
    }
    /// Stores the response to a request that was begun.
    async fn answer_request(&self, request: RequestKey, answer: StoredAnswer) -> Result<(), StoreError> {
        written!(self, Write::AnswerRequest { request, answer }, WriteReply::RequestAnswered => ())
    }

    // Reads for users.
    async fn job(&self, id: JobId) -> Result<Option<JobView>, StoreError>;
    async fn jobs(&self, query: JobQuery) -> Result<Page<JobView, JobId>, StoreError>;
    /// The job that was put by this name of this owner.
    async fn named_job(&self, owner: String, name: String) -> Result<Option<JobId>, StoreError>;
    /// The owners and lanes of these jobs, in any order, without those that are not stored.
    async fn job_owners(&self, jobs: Vec<JobId>) -> Result<Vec<JobOwner>, StoreError>;
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
    /// What executions that finished after a position add to roll-ups, in commit order. Those of purged jobs are
    /// left out.
    async fn run_times_after(&self, after: u64, limit: usize) -> Result<RunTimesPage, StoreError>;
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
    ) -> Result<Page<WaitList, LimiterId>, StoreError>;
    /// The use of these limiters, in their order.
    async fn limiters(&self, lines: Vec<WaitList>) -> Result<Vec<LimiterUse>, StoreError>;
    /// The queues that are paused, with the reserved ones of [`crate::cluster_pause`].
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

    /// The last lines of an execution, or those before the line with this number, in order.
    async fn last_logs(
        &self,
        execution: ExecutionId,
        before: Option<u64>,
        count: usize,
    ) -> Result<Vec<LogLine>, StoreError>;

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
}

/// How every log, response and command names a store without space.
pub const DISK_FULL: &str = "the disk of the store is full";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It cannot be reached or cannot write now; whether the call took effect is unknown.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// Its disk is full. An operator can free some space while callers wait, so it counts as unavailable.
    #[error("the store is unavailable: {}", DISK_FULL)]
    DiskFull,
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
        matches!(self, StoreError::Unavailable(_) | StoreError::DiskFull | StoreError::Denied(..))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    pub pulse: Pulse,
    pub worker: String,
    pub embedded: bool,
    pub job_types: Vec<String>,
    pub slots: u32,
    pub about: WorkerAbout,
    /// The token with which it was opened; `None` for a worker that reaches the store itself.
    pub token: Option<String>,
    /// Its last report; `None` before the first one.
    pub condition: Option<WorkerCondition>,
    pub mode: SessionMode,
    pub opened_at: Timestamp,
    /// When the last heartbeat was written, by the writer's clock: for users to read, never for decisions.
    pub beaten_at: Timestamp,
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

/// Gates whose opening time is unknown.
const UNTIMED: [Gate; 3] = [Gate::Dependency, Gate::Overlap, Gate::Paused];

impl JobView {
    pub fn status(&self) -> JobStatus {
        self.job.mark.status(self.schedule.is_some(), !self.open.is_empty())
    }

    /// When the next occurrence runs, if that is known: an occurrence that waits for another job, another
    /// occurrence or a resume has no time.
    pub fn next_run_time(&self) -> Option<Timestamp> {
        let has_time = |live: &&Live| {
            live.attempt == 1 && !live.is_running() && !UNTIMED.iter().any(|gate| live.is_closed_by(*gate))
        };
        let open = self.open.iter().filter(has_time).map(|live| live.available_at).min();
        open.or(self.schedule.as_ref().and_then(ScheduleState::runs_at))
    }

    /// Whether its latest finished execution failed. A recurring job is active nevertheless.
    pub fn is_failing(&self) -> bool {
        self.last_finished.as_ref().is_some_and(|last| last.status.is_failure())
    }
}

/// Filter for a list of jobs, latest first.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
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
    /// Contained in its name, job type or one of its tags, ignoring case; or a part of its id ([`JobId::has_part`]).
    pub text: Option<String>,
    /// Only jobs whose schedule has a further run, paused or not. Not with tags or a text.
    pub scheduled: bool,
}

/// The kind of a job's schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
    pub input: Option<Arc<RunInput>>,
}

/// Filter for a list of dead letters, latest first.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DeadLetterQuery {
    pub before: Option<u64>,
    pub limit: usize,
    pub job: Option<JobId>,
    pub name: Option<String>,
    pub job_type: Option<String>,
    pub queue: Option<String>,
    pub owner: Option<String>,
    /// Dead-lettered at this time or later.
    pub died_from: Option<Timestamp>,
    /// Dead-lettered before this time.
    pub died_until: Option<Timestamp>,
    /// The error contains this text.
    pub error: Option<String>,
}
