//! The tables as a verb sees them: row by row, inside a transaction that the caller opens and commits.
//!
//! The verbs in `verbs/` are written once, over this trait, so all databases behave the same by
//! construction. SQLite answers each call with a statement, because a statement costs it a microsecond.
//! Databases across a network answer from a unit of work: rows that were loaded together, and changes that
//! are written together. An adapter must not decide anything here: it finds, stores and removes.
//!
//! Every change of a live row's state must be recorded in the counters. Adapters do so inside these
//! methods; verbs do not.

use crate::counters::{self, Counters};
use crate::fault::Fault;
use punctual_core::gates::Gate;
use punctual_core::ids::{Epoch, ExecutionId, JobId, OccurrenceId, SessionId};
use punctual_core::job::{Job, JobStatus, Settings, StoredStatus};
use punctual_core::lifecycle::Status;
use punctual_core::limiter::{LimiterId, LimiterUse, WaitList};
use punctual_core::notes::{Checkpoint, LastNote, Note};
use punctual_core::occurrence::{Finished, Live, OccurrenceFlags, Terms};
use punctual_core::ports::{
    AuditEntry, DeadLetter, Lane, LeaseRef, NewRequest, QueueRow, RequestKey, SessionOpening, StoredAnswer,
};
use punctual_core::rank::Shares;
use punctual_core::readmission::QueuePosition;
use punctual_core::schedule::{Present, ScheduleState, SkipRange};
use punctual_core::session::SessionMode;
use punctual_core::time::Timestamp;

pub(crate) trait Rows {
    // State shared between transactions, and the counters of this one.
    fn shares(&mut self) -> &mut Shares;
    fn counters(&mut self) -> &mut Counters;

    // Names.
    /// The number and shared name of a lane, which is created if it is new. The lane cannot be deleted
    /// before the transaction ends.
    fn intern_lane(&mut self, queue: &str, job_type: &str) -> Result<(i64, Lane), Fault>;
    fn lane(&mut self, number: i64) -> Result<Lane, Fault>;
    /// The numbers, in order, of all lanes with these queues (all queues if none is named) and these job
    /// types in which executions may be queued.
    fn lanes_matching(&mut self, queues: &[String], job_types: &[String]) -> Result<Vec<i64>, Fault>;
    /// The lanes of this queue that have queued executions, by name. The result may be out of date if
    /// others write at the same time.
    fn queued_lanes_of(&mut self, queue: &str) -> Result<Vec<Lane>, Fault>;
    /// The number of the session's worker; `None` if the session is gone.
    fn worker_of(&mut self, session: SessionId) -> Result<Option<i64>, Fault>;

    // Queues that have settings.
    fn queue(&mut self, queue: &str) -> Result<Option<QueueRow>, Fault>;
    fn put_queue(&mut self, row: &QueueRow) -> Result<(), Fault>;
    fn delete_queue(&mut self, queue: &str) -> Result<(), Fault>;
    /// How many executions of this queue have not started, as seen by this transaction.
    fn unstarted_of(&mut self, queue: &str) -> Result<u64, Fault>;
    /// The settings of a queue when it was last read. A hint that may be out of date; nothing is loaded for
    /// it.
    fn queue_as_seen(&mut self, queue: &str) -> Result<Option<QueueRow>, Fault>;

    // Limits.
    /// The use of a wait list's limiter, as seen by this transaction. From here on no other transaction
    /// admits anything through the limits of this queue.
    fn limiter(&mut self, line: &WaitList) -> Result<LimiterUse, Fault>;
    /// Stores the time for which the last start was counted.
    fn set_last_start(&mut self, limiter: LimiterId, at: Timestamp) -> Result<(), Fault>;
    /// The first `count` executions on a wait list, by rank. May return fewer if other transactions have
    /// locked some.
    fn first_on_wait_list(&mut self, line: &WaitList, count: usize) -> Result<Vec<LiveRow>, Fault>;

    /// The last `count` queued executions of a queue before a position, the last one first. If others write
    /// at the same time, some may no longer be queued.
    fn last_queued(
        &mut self,
        queue: &str,
        before: QueuePosition,
        count: usize,
    ) -> Result<Vec<QueuePosition>, Fault>;

    // Jobs.
    fn is_job_there(&mut self, job: JobId) -> Result<bool, Fault>;
    /// The whole job, even if it is deleted.
    fn job(&mut self, job: JobId) -> Result<Option<JobRow>, Fault>;
    fn terms_of(&mut self, job: JobId) -> Result<Option<JobTerms>, Fault>;
    fn mark_of(&mut self, job: JobId) -> Result<Option<StoredStatus>, Fault> {
        Ok(self.terms_of(job)?.map(|terms| terms.mark))
    }
    /// The current status of a job; `None` if it is deleted or does not exist.
    fn status_of(&mut self, job: JobId) -> Result<Option<JobStatus>, Fault> {
        let Some(mark) = self.mark_of(job)? else { return Ok(None) };
        Ok(counters::status(mark, self.is_unfinished(job)?))
    }
    /// The job's data that an assignment contains.
    fn facts_of(&mut self, job: JobId, lane: &Lane) -> Result<Option<AssignedJob>, Fault>;
    /// Returns whether it was written: not if the id exists already.
    fn insert_job(&mut self, job: &Job, lane: i64) -> Result<bool, Fault>;
    fn update_job(&mut self, job: &Job, lane: i64) -> Result<(), Fault>;
    fn set_mark(&mut self, job: JobId, mark: StoredStatus) -> Result<(), Fault>;
    /// Stores the last occurrence number that was assigned.
    fn set_numbered(&mut self, job: JobId, numbered: u32) -> Result<(), Fault>;
    /// Stores the facts of an ended schedule that the job must remember.
    fn keep_spent(&mut self, job: JobId, spent: Spent) -> Result<(), Fault>;
    /// Whether the job has open or future occurrences.
    fn is_unfinished(&mut self, job: JobId) -> Result<bool, Fault>;
    fn put_tags(&mut self, job: JobId, tags: &[String]) -> Result<(), Fault>;
    fn forget_tags(&mut self, job: JobId) -> Result<(), Fault>;

    // Keys of jobs.
    fn key_holder(&mut self, key: &JobKey) -> Result<Option<JobId>, Fault>;
    /// Gives the key to the job, even if another job had it.
    fn hold_key(&mut self, key: &JobKey, job: JobId) -> Result<(), Fault>;
    fn free_keys(&mut self, job: JobId) -> Result<(), Fault>;

    // Schedules.
    fn schedule(&mut self, job: JobId) -> Result<Option<ScheduleRow>, Fault>;
    /// Writes a schedule, whether or not its job has one.
    fn put_schedule(&mut self, state: &ScheduleState, lane: i64) -> Result<(), Fault>;
    /// Advances a schedule; columns that a fire does not change stay.
    fn advance_schedule(&mut self, next: &ScheduleState) -> Result<(), Fault>;
    fn delete_schedule(&mut self, job: JobId) -> Result<(), Fault>;
    /// Records that other jobs depend on this one, if it has a schedule.
    fn set_schedule_awaited(&mut self, job: JobId) -> Result<(), Fault>;

    // Open occurrences.
    fn live(&mut self, id: OccurrenceId) -> Result<Option<LiveRow>, Fault>;
    /// All open occurrences of a job by number, at most `OPEN_OF_JOB_MAX`.
    fn open_of_job(&mut self, job: JobId) -> Result<Vec<LiveRow>, Fault>;
    /// How many occurrences of a job are open, and how many of these wait behind the overlap gate; counts
    /// at most `OPEN_OF_JOB_MAX`.
    fn count_open(&mut self, job: JobId) -> Result<OpenCount, Fault>;
    /// The first occurrence of a job that waits behind this gate. Occurrences opened by a replay come last.
    fn first_behind(&mut self, job: JobId, gate: Gate) -> Result<Option<LiveRow>, Fault>;
    /// Whether an occurrence is open that does not wait behind the overlap gate.
    fn has_open_not_waiting(&mut self, job: JobId) -> Result<bool, Fault>;
    fn insert_live(&mut self, row: &LiveRow) -> Result<(), Fault>;
    /// Writes everything that can change while an occurrence is open, except the columns that control verbs change.
    fn update_live(&mut self, was: &LiveRow, live: &Live) -> Result<(), Fault>;
    /// Like [`Self::update_live`], for a row whose state does not change.
    fn update_live_in_state(&mut self, live: &Live) -> Result<(), Fault>;
    /// Writes the whole row, which was `was` before and stays in its lane.
    fn replace_live(&mut self, was: &Live, row: &LiveRow) -> Result<(), Fault>;
    /// Does nothing if the row does not exist: an occurrence that was skipped before it fired has none.
    fn delete_live(&mut self, row: &LiveRow) -> Result<(), Fault>;
    /// Sets flags on one row.
    fn add_live_flags(&mut self, id: OccurrenceId, flags: OccurrenceFlags) -> Result<(), Fault>;
    /// Sets flags on all open occurrences of a job.
    fn add_flags_to_open(&mut self, job: JobId, flags: OccurrenceFlags) -> Result<(), Fault>;
    /// Clears `is_sole` on the job's rows.
    fn forget_sole(&mut self, job: JobId) -> Result<(), Fault>;
    /// Moves all open occurrences of a job to another lane. Returns whether there were any.
    fn move_open_of_job(&mut self, job: JobId, lane: i64) -> Result<bool, Fault>;
    /// The first `count` queued executions in claim order over all these lanes: by rank, equal ranks by
    /// key. With concurrent claims it may return fewer, and not exactly the first.
    fn lowest(&mut self, lanes: &[i64], count: usize) -> Result<Vec<OccurrenceId>, Fault>;
    /// An execution returned by [`Self::lowest`], with the job's data that an assignment contains.
    fn claimable(&mut self, id: OccurrenceId) -> Result<Option<(LiveRow, AssignedJob)>, Fault>;
    /// Up to `count` executions that a session has leased.
    fn held_by(&mut self, session: SessionId, count: usize) -> Result<Vec<LiveRow>, Fault>;
    /// The session's leases for which a cancel was requested.
    fn cancels_of(&mut self, session: SessionId) -> Result<Vec<LeaseRef>, Fault>;

    // History.
    fn append_history(&mut self, finished: &Finished, worker: Option<i64>) -> Result<(), Fault>;
    /// How a finished attempt ended, and under which lease.
    fn ended(&mut self, execution: ExecutionId) -> Result<Option<EndedAttempt>, Fault>;
    /// Extends the skipped range of a job that ends at `last` and has the same reason. Returns whether
    /// there is one.
    fn lengthen_skipped(&mut self, job: JobId, last: Timestamp, by: &SkipRange) -> Result<bool, Fault>;
    fn insert_skipped(&mut self, job: JobId, range: &SkipRange) -> Result<(), Fault>;

    // Dead letters. The counters include their number; adapters record it there.
    fn dead_letter(&mut self, id: OccurrenceId) -> Result<Option<DeadLetter>, Fault>;
    fn latest_dead_letter(&mut self, job: JobId) -> Result<Option<DeadLetter>, Fault>;
    fn insert_dead_letter(&mut self, finished: &Finished, noted: bool, now: Timestamp) -> Result<(), Fault>;
    /// Deletes a dead letter. Returns whether it existed.
    fn delete_dead_letter(&mut self, id: OccurrenceId) -> Result<bool, Fault>;
    fn forget_dead_letters(&mut self, job: JobId) -> Result<(), Fault>;

    // Dependencies.
    fn insert_dependency(&mut self, parent: JobId, child: JobId) -> Result<(), Fault>;
    fn delete_dependency(&mut self, parent: JobId, child: JobId) -> Result<(), Fault>;
    fn has_parent(&mut self, child: JobId) -> Result<bool, Fault>;
    fn forget_parents(&mut self, child: JobId) -> Result<(), Fault>;
    /// Up to `count` children of a job.
    fn children(&mut self, parent: JobId, count: usize) -> Result<Vec<JobId>, Fault>;
    /// A finished job whose children are not all resolved, and whether it succeeded.
    fn next_resolution(&mut self) -> Result<Option<(JobId, bool)>, Fault>;
    /// Does nothing if there is one already.
    fn insert_resolution(&mut self, parent: JobId, succeeded: bool) -> Result<(), Fault>;
    fn delete_resolution(&mut self, parent: JobId) -> Result<(), Fault>;

    // Notes.
    fn last_note(&mut self, id: OccurrenceId) -> Result<Option<LastNote>, Fault>;
    fn checkpoint(&mut self, id: OccurrenceId) -> Result<Option<Checkpoint>, Fault>;
    /// Stores the contents of a note: its number, its progress if any, its checkpoint. A null checkpoint
    /// deletes the stored one.
    fn keep_note(&mut self, note: &Note, last: LastNote, now: Timestamp) -> Result<(), Fault>;
    /// Deletes the notes and the checkpoint of an occurrence.
    fn forget_notes(&mut self, id: OccurrenceId) -> Result<(), Fault>;
    /// Deletes the notes of a deleted job, except those of open occurrences.
    fn forget_notes_of_job(&mut self, job: JobId) -> Result<(), Fault>;

    // Sessions.
    /// A session that is neither lost nor closed.
    fn session(&mut self, session: SessionId) -> Result<Option<SessionPlace>, Fault>;
    fn insert_session(&mut self, opening: &SessionOpening, now: Timestamp) -> Result<SessionId, Fault>;
    fn set_turn(&mut self, session: SessionId, turn: u64) -> Result<(), Fault>;
    fn set_beat(&mut self, session: SessionId, beat: u64, now: Timestamp) -> Result<(), Fault>;
    fn set_mode(&mut self, session: SessionId, mode: SessionMode) -> Result<(), Fault>;
    /// Whether the next heartbeat must look for leases to cancel. Does nothing for a session that no longer
    /// exists.
    fn set_attention(&mut self, session: SessionId, attention: bool) -> Result<(), Fault>;
    /// Marks a session lost if its counter has this value. Returns whether it is lost now.
    fn lose_session(&mut self, session: SessionId, beat: u64) -> Result<bool, Fault>;
    /// Marks all embedded sessions lost. Returns how many there were.
    fn lose_embedded_sessions(&mut self) -> Result<usize, Fault>;
    /// Ordered by number.
    fn lost_sessions(&mut self) -> Result<Vec<SessionId>, Fault>;
    fn delete_session(&mut self, session: SessionId) -> Result<(), Fault>;

    // Requests that carry a key.
    fn request(&mut self, key: &RequestKey) -> Result<Option<RequestRow>, Fault>;
    fn insert_request(&mut self, request: &NewRequest, now: Timestamp) -> Result<(), Fault>;
    /// Does nothing if the request does not exist.
    fn answer_request(&mut self, key: &RequestKey, answer: &StoredAnswer) -> Result<(), Fault>;

    /// Does nothing if there is an entry with this id.
    fn put_audit(&mut self, entry: &AuditEntry) -> Result<(), Fault>;
}

/// An open occurrence with the number of its lane.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LiveRow {
    pub live: Live,
    pub lane: i64,
    /// Nothing else is left of its active job: when this occurrence ends, the job ends, and no lookup is
    /// needed. If it is not set, nothing is known. Every control verb on the job clears it.
    pub is_sole: bool,
}

/// The facts of an ended schedule that the job must remember.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spent {
    /// The last occurrence number that was assigned.
    pub numbered: u32,
    /// How often it fired.
    pub fired: u32,
    /// When the schedule ended. This time counts as a change of the job, so that a new schedule never
    /// counts from before it, whatever the clock of the node that sets it says.
    pub at: Timestamp,
}

/// A job with the number of its lane.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JobRow {
    pub job: Job,
    pub lane: i64,
}

/// A job's schedule with the number of its lane.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScheduleRow {
    pub state: ScheduleState,
    pub lane: i64,
}

/// The facts about a job that the rules need when one of its attempts ends, or when another job depends on it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JobTerms {
    pub settings: Settings,
    pub mark: StoredStatus,
}

impl JobTerms {
    pub fn terms(&self) -> Terms<'_> {
        Terms { settings: &self.settings, mark: self.mark }
    }
}

/// The job's data that an assignment contains.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AssignedJob {
    pub name: String,
    pub payload: String,
    pub version: u32,
    pub settings: Settings,
}

impl From<&Job> for AssignedJob {
    fn from(job: &Job) -> Self {
        let spec = &job.spec;
        AssignedJob {
            name: spec.name.clone(),
            payload: spec.payload.clone(),
            version: job.version,
            settings: spec.settings.clone(),
        }
    }
}

/// Open occurrences of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct OpenCount {
    pub open: usize,
    /// Those that wait behind the overlap gate.
    pub behind: usize,
    /// Those that a replay opened.
    pub replayed: usize,
    /// Those that a replay opened and that wait behind the overlap gate.
    pub replayed_behind: usize,
}

impl From<OpenCount> for Present {
    fn from(OpenCount { open, behind, replayed, replayed_behind }: OpenCount) -> Self {
        Present { open, behind, replayed, replayed_behind, ..Present::default() }
    }
}

/// A name that a user gave to a job.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JobKey {
    pub owner: String,
    pub kind: KeyKind,
    pub key: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum KeyKind {
    Idempotency,
    Unique,
    /// The job was put by its name.
    Name,
}

/// How a finished attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EndedAttempt {
    pub epoch: Epoch,
    pub session: Option<SessionId>,
    pub status: Status,
}

/// A session's state as its polls and heartbeats find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SessionPlace {
    /// The last poll sequence number that it has used.
    pub turn: u64,
    pub mode: SessionMode,
    pub beat: u64,
    pub attention: bool,
}

/// A request that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestRow {
    pub fingerprint: [u8; 32],
    pub begun_at: Timestamp,
    pub seed: u64,
    pub answer: Option<StoredAnswer>,
}
