//! What the write verbs of the store take and return.

use crate::control::{Refusal, Verb};
use crate::ids::{ExecutionId, JobId, OccurrenceId, SessionId};
use crate::job::Job;
use crate::lifecycle::Status;
use crate::limiter::WaitList;
use crate::ports::{Assignment, LeaseRef, ReportAnswer};
use crate::queue::QueueFull;
use crate::time::Timestamp;
use std::sync::Arc;

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
pub struct SlotReservation {
    pub session: SessionId,
    pub turn: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct NewJob {
    pub job: Job,
    pub reservation: Option<SlotReservation>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum SubmitOutcome {
    Created(CommitEffects),
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
pub struct CommitEffects {
    /// Work leased to the slot reservation.
    pub assigned: Vec<(SlotReservation, Assignment)>,
    /// The lanes in which executions became claimable.
    pub queued: Vec<Lane>,
    /// What becomes due next because of this commit.
    pub due: Vec<Due>,
    /// Executions that ended without having started, including leased ones: cancelled, skipped or expired.
    pub ended: Vec<(ExecutionId, Status)>,
    /// The wait lists that executions have joined.
    pub joined: Vec<WaitList>,
    /// The wait lists that may have room, if they are not empty.
    pub freed: Vec<WaitList>,
}

impl CommitEffects {
    pub fn add(&mut self, other: CommitEffects) {
        self.assigned.extend(other.assigned);
        self.queued.extend(other.queued);
        self.due.extend(other.due);
        self.ended.extend(other.ended);
        self.joined.extend(other.joined);
        self.freed.extend(other.freed);
    }

    /// When the next attempt of an occurrence is due, if it waits for its time.
    pub fn due_time(&self, of: OccurrenceId) -> Option<Timestamp> {
        self.due.iter().find_map(|due| match due.what {
            DueKind::Live { occurrence, .. } if occurrence == of => Some(due.at),
            _ => None,
        })
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
pub struct FireRequest {
    pub job: JobId,
    pub version: u32,
    pub reservation: Option<SlotReservation>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum FireOutcome {
    Fired {
        effects: CommitEffects,
        /// New occurrences, with their nominal times.
        occurrences: Vec<(OccurrenceId, Timestamp)>,
        skipped: u64,
    },
    /// Another node fired it, it was changed, or it no longer exists.
    Conflict,
    /// It is not due yet at the given time.
    NotDue,
    /// Its schedule names a calendar about which the caller has said nothing. Nothing was changed.
    UnknownCalendar(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookRequest {
    pub occurrence: OccurrenceId,
    pub attempt: u32,
    /// A slot reservation, and the lane that its worker serves: the job may have another lane by now.
    pub reservation: Option<(SlotReservation, Lane)>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum LookOutcome {
    Opened(CommitEffects),
    Expired(CommitEffects),
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
        effects: CommitEffects,
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
    pub effects: CommitEffects,
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
    GivenBack(Vec<CommitEffects>),
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

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Recovered {
    /// Executions of lost sessions that ended, with the recorded status: LOST, or CANCELLED if a cancel was
    /// requested.
    pub ended: Vec<(ExecutionId, Status)>,
    /// Those of them that are followed by another attempt.
    pub retried: Vec<ExecutionId>,
    /// The commit effects: mostly retries.
    pub effects: CommitEffects,
    /// Whether there is more to recover than the limit allowed.
    pub more: bool,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Resolved {
    pub effects: CommitEffects,
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
    pub effects: CommitEffects,
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
    Cancelled(CommitEffects),
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
