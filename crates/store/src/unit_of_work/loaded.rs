//! The rows that a database returned for a read set. A requested row that is missing here does not exist.

use crate::counters::LimiterCounts;
use crate::rows::{
    AssignedJob, EndedAttempt, JobKey, JobRow, JobTerms, LiveRow, RequestRow, ScheduleRow, SessionPlace,
};
use punctual_core::ids::{ExecutionId, JobId, OccurrenceId, SessionId};
use punctual_core::limiter::LimiterId;
use punctual_core::notes::{Checkpoint, LastNote};
use punctual_core::ports::{DeadLetter, Lane, LeaseRef, QueueRow, RequestKey};
use punctual_core::readmission::QueuePosition;
use punctual_core::schedule::SkipReason;
use punctual_core::time::Timestamp;

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct LoadedRows {
    /// Names of lanes: the requested ones, and perhaps others.
    pub lanes: Vec<(i64, Lane)>,
    /// The lanes that claims query, if they were requested; `None` also if nothing changed.
    pub lanes_to_ask: Option<LanesToAsk>,
    pub workers: Vec<(String, i64)>,
    pub new_sessions: Vec<SessionId>,

    /// The lanes to lock that exist.
    pub held_lanes: Vec<i64>,
    /// Requested by number, as lost sessions, or as embedded sessions; each appears once.
    pub sessions: Vec<LoadedSession>,
    pub jobs: Vec<JobRow>,
    pub terms: Vec<(JobId, JobTerms)>,
    pub schedules: Vec<ScheduleRow>,
    /// Open occurrences, for whatever reason they were requested; each appears once.
    pub live: Vec<LiveRow>,
    /// One list for each requested claim, in the same order: executions to claim, ordered by rank.
    pub claims: Vec<Vec<OccurrenceId>>,

    pub facts: Vec<(JobId, AssignedJob)>,
    pub cancels: Vec<(SessionId, LeaseRef)>,
    pub queues: Vec<QueueRow>,
    /// Queues without queued or running executions may be left out.
    pub started: Vec<(String, i64)>,
    /// Limiters without rows may be left out.
    pub limiters: Vec<LoadedLimiter>,
    /// One list for each request, in the same order: the last one first.
    pub last_queued: Vec<Vec<QueuePosition>>,
    /// With the number of queued executions in each.
    pub queued_lanes: Vec<(i64, Lane, i64)>,
    /// Queues whose counters are zero may be left out.
    pub unstarted: Vec<(String, u64)>,
    pub ended: Vec<(ExecutionId, EndedAttempt)>,
    pub skipped: Vec<LoadedSkip>,
    pub dead_letters: Vec<DeadLetter>,
    /// The latest dead letter of each job that has any.
    pub latest_dead_letters: Vec<DeadLetter>,
    pub dead_of_jobs: Vec<OccurrenceId>,
    pub keys: Vec<(JobKey, JobId)>,
    /// Ordered by child.
    pub parents: Vec<(JobId, JobId)>,
    /// Ordered by parent.
    pub children: Vec<(JobId, JobId)>,
    pub resolutions: Vec<(JobId, bool)>,
    pub last_notes: Vec<(OccurrenceId, LastNote)>,
    pub checkpoints: Vec<(OccurrenceId, Checkpoint)>,
    pub requests: Vec<(RequestKey, RequestRow)>,
}

/// The lanes that claims query.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct LanesToAsk {
    pub lanes: Vec<(i64, Lane)>,
    /// Whether these are all lanes, or only those with queued executions.
    pub are_all: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LoadedSession {
    pub id: SessionId,
    pub worker: i64,
    pub place: SessionPlace,
    pub beaten_at: Timestamp,
    pub lost: bool,
    pub embedded: bool,
}

/// The stored state of a limiter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LoadedLimiter {
    pub id: LimiterId,
    pub counts: LimiterCounts,
    pub last_at: Option<Timestamp>,
}

/// A range of skipped occurrences that may be extended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LoadedSkip {
    pub number: i64,
    pub job: JobId,
    pub last: Timestamp,
    pub reason: SkipReason,
}
