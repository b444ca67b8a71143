//! What a database found of what was wanted. What was wanted and is not here is not there.

use crate::rows::{
    Ended, JobFacts, JobKey, JobRow, JobTerms, LiveRow, RequestRow, ScheduleRow, SessionPlace,
};
use crate::tally::LimiterCounts;
use punctual_core::ids::{ExecutionId, JobId, OccurrenceId, SessionId};
use punctual_core::limiter::LimiterId;
use punctual_core::notes::{Checkpoint, LastNote};
use punctual_core::placing::Place;
use punctual_core::ports::{DeadLetter, Lane, LeaseRef, QueueRow, RequestKey};
use punctual_core::schedule::SkipReason;
use punctual_core::time::Timestamp;

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Found {
    /// Names of lanes: those that were wanted, and perhaps others.
    pub lanes: Vec<(i64, Lane)>,
    /// The lanes that claims are to ask, if they were wanted; `None` also if there is nothing new to say of them.
    pub lanes_to_ask: Option<LanesToAsk>,
    pub workers: Vec<(String, i64)>,
    pub new_sessions: Vec<SessionId>,

    /// Those of the lanes to be held that are there.
    pub held_lanes: Vec<i64>,
    /// Wanted by number, because they are lost, or because they are embedded; each once.
    pub sessions: Vec<FoundSession>,
    pub jobs: Vec<JobRow>,
    pub terms: Vec<(JobId, JobTerms)>,
    pub schedules: Vec<ScheduleRow>,
    /// Open occurrences, whatever they were wanted for; each once.
    pub live: Vec<LiveRow>,
    /// One for each of the wanted claims, in their order: what may be claimed, in the order of rank.
    pub claims: Vec<Vec<OccurrenceId>>,

    pub facts: Vec<(JobId, JobFacts)>,
    pub cancels: Vec<(SessionId, LeaseRef)>,
    pub queues: Vec<QueueRow>,
    /// Queues of which nothing is queued or runs may be left out.
    pub started: Vec<(String, i64)>,
    /// Limiters of which nothing is kept may be left out.
    pub limiters: Vec<FoundLimiter>,
    /// One for each of those that were wanted, in their order: the last one first.
    pub last_queued: Vec<Vec<Place>>,
    /// With how much is queued in each.
    pub queued_lanes: Vec<(i64, Lane, i64)>,
    /// Queues of which nothing is counted may be left out.
    pub unstarted: Vec<(String, u64)>,
    pub ended: Vec<(ExecutionId, Ended)>,
    pub skipped: Vec<FoundSkip>,
    pub dead_letters: Vec<DeadLetter>,
    /// The latest dead letter of each job that has any.
    pub latest_dead_letters: Vec<DeadLetter>,
    pub dead_of_jobs: Vec<OccurrenceId>,
    pub keys: Vec<(JobKey, JobId)>,
    /// By child.
    pub parents: Vec<(JobId, JobId)>,
    /// By parent.
    pub children: Vec<(JobId, JobId)>,
    pub resolutions: Vec<(JobId, bool)>,
    pub last_notes: Vec<(OccurrenceId, LastNote)>,
    pub checkpoints: Vec<(OccurrenceId, Checkpoint)>,
    pub requests: Vec<(RequestKey, RequestRow)>,
}

/// The lanes that claims are to ask.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct LanesToAsk {
    pub lanes: Vec<(i64, Lane)>,
    /// Whether these are all that there are, or only those in which something is queued.
    pub are_all: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FoundSession {
    pub id: SessionId,
    pub worker: i64,
    pub place: SessionPlace,
    pub beaten_at: Timestamp,
    pub lost: bool,
    pub embedded: bool,
}

/// What is kept of a limiter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FoundLimiter {
    pub id: LimiterId,
    pub counts: LimiterCounts,
    pub last_at: Option<Timestamp>,
}

/// A range of skipped occurrences that may be lengthened.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FoundSkip {
    pub number: i64,
    pub job: JobId,
    pub last: Timestamp,
    pub reason: SkipReason,
}
