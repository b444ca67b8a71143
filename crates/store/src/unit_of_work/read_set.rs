//! The read set of a transaction, and the order in which a database locks it.
//!
//! Every transaction locks rows in the same order: sessions, then jobs, schedules and open occurrences,
//! each by key, and last the queues whose limits apply. A unit of work that later needs an earlier kind of
//! row restarts and loads everything it knows of in order. So two transactions deadlock only if one writes
//! a row that was not loaded. The database then aborts one of them, and it is retried.

use crate::rows::JobKey;
use punctual_core::ids::{ExecutionId, JobId, OccurrenceId, SessionId};
use punctual_core::limiter::LimiterId;
use punctual_core::ports::RequestKey;
use punctual_core::readmission::QueuePosition;
use punctual_core::schedule::SkipReason;
use punctual_core::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// Rows to load. A requested row that does not exist is recorded as missing, so that it is not requested
/// again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ReadSet {
    // Before any lock.
    /// Lanes by queue and job type; new ones are created in a separate transaction.
    pub lanes: BTreeSet<(String, String)>,
    /// Lanes by number, which another process has created.
    pub lane_numbers: BTreeSet<i64>,
    /// The lanes that claims query, including those of other processes.
    pub lanes_to_ask: bool,
    /// Workers by name; created like lanes.
    pub workers: BTreeSet<String>,
    /// How many new session numbers are needed.
    pub new_sessions: usize,

    // Locked, in this order.
    /// Lanes whose numbers will be written: they cannot be deleted until the transaction ends. The deletion
    /// of lanes never waits for a lock, so these may be locked at any time.
    pub held_lanes: BTreeSet<i64>,
    pub sessions: BTreeSet<SessionId>,
    /// All sessions that are lost.
    pub lost_sessions: bool,
    /// All embedded sessions.
    pub embedded_sessions: bool,
    /// Whole jobs.
    pub jobs: BTreeSet<JobId>,
    /// Stored status and settings only; the row is still locked.
    pub terms: BTreeSet<JobId>,
    pub schedules: BTreeSet<JobId>,
    pub live: BTreeSet<OccurrenceId>,
    /// All open occurrences of these jobs, up to `OPEN_OF_JOB_MAX` of each.
    pub open_of_jobs: BTreeSet<JobId>,
    /// The executions that these sessions hold, up to this many of each.
    pub held_by: BTreeMap<SessionId, usize>,
    /// Queued executions to claim: those that others have locked are skipped.
    pub claims: Vec<RequestedClaims>,

    // Read after the rows above, and protected only by their locks.
    /// The data of these jobs that assignments contain.
    pub facts: BTreeSet<JobId>,
    pub cancels_of: BTreeSet<SessionId>,
    /// All queues that have settings.
    pub queues: bool,
    /// Queued and running executions of these queues. The rows of the queues are locked before this is
    /// read, after all other rows.
    pub limited_queues: BTreeSet<String>,
    /// Counters and last starts of these limiters, read under the locks of their queues.
    pub limiters: BTreeSet<LimiterId>,
    /// The heads of these wait lists, up to this many of each. Executions that others have locked are
    /// skipped, so that a transaction that has locked a queue never waits.
    pub lines: BTreeMap<LimiterId, usize>,
    /// The last queued executions by rank of these queues before a position, up to this many of each. Their
    /// rows are locked in a later round, before any of them is written.
    pub last_queued: BTreeMap<(String, QueuePosition), usize>,
    /// The lanes of these queues with queued executions.
    pub queued_lanes_of: BTreeSet<String>,
    /// Unstarted executions of these queues. The rows of the queues are locked before this is read.
    pub unstarted: BTreeSet<String>,
    pub ended: BTreeSet<ExecutionId>,
    pub skipped: BTreeSet<(JobId, Timestamp, SkipReason)>,
    pub dead_letters: BTreeSet<OccurrenceId>,
    pub latest_dead_letters: BTreeSet<JobId>,
    /// The occurrence numbers of these jobs' dead letters.
    pub dead_of_jobs: BTreeSet<JobId>,
    pub keys: BTreeSet<JobKey>,
    /// All jobs that these children still wait for.
    pub parents_of: BTreeSet<JobId>,
    /// Children of these parents, up to this many of each. Their jobs are locked in a later round, before
    /// their `parents_of` is read.
    pub children_of: BTreeMap<JobId, usize>,
    /// Finished jobs whose children are not all resolved; those that others have locked are skipped.
    pub resolutions: bool,
    pub last_notes: BTreeSet<OccurrenceId>,
    pub checkpoints: BTreeSet<OccurrenceId>,
    pub requests: BTreeSet<RequestKey>,
}

/// This many executions with the lowest ranks over these lanes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestedClaims {
    pub lanes: Vec<i64>,
    pub count: usize,
}
