//! What a transaction wants to have before it, and the order in which a database locks it.
//!
//! Rows are locked in one order by every transaction: sessions, then jobs, schedules and open occurrences, each by key,
//! and last the queues whose limits are to be kept.
//! A draft that finds, when that order has passed, that it needs an earlier kind of row begins again and fetches
//! everything it knows of in order. So two transactions wait for each other only where a row is written that was not
//! fetched, and then the database ends one of them and it is tried again.

use crate::rows::JobKey;
use punctual_core::ids::{ExecutionId, JobId, OccurrenceId, SessionId};
use punctual_core::limiter::LimiterId;
use punctual_core::placing::Place;
use punctual_core::ports::RequestKey;
use punctual_core::schedule::SkipReason;
use punctual_core::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// Rows to fetch. A row that is wanted and not there is answered with its absence, so that it is not wanted again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Wants {
    // Before anything is locked.
    /// Lanes by queue and job type; created, in a transaction of their own, if they are new.
    pub lanes: BTreeSet<(String, String)>,
    /// Lanes by number, which another process has created.
    pub lane_numbers: BTreeSet<i64>,
    /// The lanes that claims are to ask: those of other processes are learned of by it.
    pub lanes_to_ask: bool,
    /// Workers by name; created as lanes are.
    pub workers: BTreeSet<String>,
    /// How many numbers of new sessions are needed.
    pub new_sessions: usize,

    // Locked, in this order.
    /// Lanes whose numbers are to be written: nobody deletes them until the transaction ends. Whoever deletes lanes waits
    /// for no one, so that these may be locked at any time.
    pub held_lanes: BTreeSet<i64>,
    pub sessions: BTreeSet<SessionId>,
    /// All sessions that are lost.
    pub lost_sessions: bool,
    /// All embedded sessions.
    pub embedded_sessions: bool,
    /// Whole jobs.
    pub jobs: BTreeSet<JobId>,
    /// Mark and settings only; the row is locked all the same.
    pub terms: BTreeSet<JobId>,
    pub schedules: BTreeSet<JobId>,
    pub live: BTreeSet<OccurrenceId>,
    /// All that is open of these jobs, up to `OPEN_OF_JOB_MAX` of each.
    pub open_of_jobs: BTreeSet<JobId>,
    /// What these sessions hold, up to so many of each.
    pub held_by: BTreeMap<SessionId, usize>,
    /// Queued executions to claim: what others have locked is left out.
    pub claims: Vec<WantedClaims>,

    // Locked by nothing but the rows above, and read after them.
    /// What assignments take from these jobs.
    pub facts: BTreeSet<JobId>,
    pub cancels_of: BTreeSet<SessionId>,
    /// All queues of which something is set.
    pub queues: bool,
    /// What of these queues is queued or runs. Their rows are locked before it is read, after all other rows.
    pub limited_queues: BTreeSet<String>,
    /// Counts and last starts of these limiters, read under the locks of their queues.
    pub limiters: BTreeSet<LimiterId>,
    /// The heads of these lines, up to so many of each: what others have locked is left out, so that nobody who has the
    /// turn of a queue waits for anybody.
    pub lines: BTreeMap<LimiterId, usize>,
    /// The last in rank of what is queued in these queues before a place, up to so many of each. Their rows are locked, in
    /// a later round, before any of them is written.
    pub last_queued: BTreeMap<(String, Place), usize>,
    /// The lanes of these queues in which something is queued.
    pub queued_lanes_of: BTreeSet<String>,
    /// What of these queues has not started. Their rows are locked before it is read.
    pub unstarted: BTreeSet<String>,
    pub ended: BTreeSet<ExecutionId>,
    pub skipped: BTreeSet<(JobId, Timestamp, SkipReason)>,
    pub dead_letters: BTreeSet<OccurrenceId>,
    pub latest_dead_letters: BTreeSet<JobId>,
    /// The numbers of the occurrences of these jobs that are dead.
    pub dead_of_jobs: BTreeSet<JobId>,
    pub keys: BTreeSet<JobKey>,
    /// All jobs that these children still wait for.
    pub parents_of: BTreeSet<JobId>,
    /// Children of these parents, up to so many of each; their jobs are locked, in a later round, before
    /// `parents_of` them is read.
    pub children_of: BTreeMap<JobId, usize>,
    /// Jobs that have ended and whose children have not all been told; those that others have locked are left out.
    pub resolutions: bool,
    pub last_notes: BTreeSet<OccurrenceId>,
    pub checkpoints: BTreeSet<OccurrenceId>,
    pub requests: BTreeSet<RequestKey>,
}

/// So many of the lowest ranks over these lanes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WantedClaims {
    pub lanes: Vec<i64>,
    pub count: usize,
}
