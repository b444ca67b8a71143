//! The tables as a verb sees them: row by row, inside a transaction that someone else opens and commits.
//!
//! The verbs in `verbs/` are written once, over this trait, so that every database behaves alike by construction.
//! SQLite answers each call with a statement, because a statement costs it a microsecond. Databases on the other side
//! of a network answer from a draft: rows that were fetched together, and changes that are written together. An adapter
//! must not decide anything here: it finds, keeps and removes.
//!
//! Whoever changes the state of a live row notes it in the tally; adapters do so inside these methods, verbs do not.

use crate::fault::Fault;
use crate::tally::{self, Tally};
use punctual_core::gates::Gate;
use punctual_core::ids::{Epoch, ExecutionId, JobId, OccurrenceId, SessionId};
use punctual_core::job::{Job, JobMark, JobStatus, Settings};
use punctual_core::lifecycle::Status;
use punctual_core::limiter::{LimiterId, LimiterUse, Line};
use punctual_core::notes::{Checkpoint, LastNote, Note};
use punctual_core::occurrence::{Finished, Live, Terms, Ties};
use punctual_core::placing::Place;
use punctual_core::ports::{
    DeadLetter, Lane, LeaseRef, NewRequest, QueueRow, RequestKey, SessionOpening, StoredAnswer,
};
use punctual_core::rank::Shares;
use punctual_core::schedule::{Present, ScheduleState, SkipRange};
use punctual_core::session::SessionMode;
use punctual_core::time::Timestamp;

pub(crate) trait Rows {
    // What is remembered between transactions, and what this one has counted.
    fn shares(&mut self) -> &mut Shares;
    fn tally(&mut self) -> &mut Tally;

    // Names.
    /// The number and shared name of a lane, which is created if it is new. Nobody deletes it before the transaction ends.
    fn intern_lane(&mut self, queue: &str, job_type: &str) -> Result<(i64, Lane), Fault>;
    fn lane(&mut self, number: i64) -> Result<Lane, Fault>;
    /// The numbers of all lanes in which something may be queued and that lead through these queues (all, if none is named)
    /// to these job types, in order.
    fn lanes_matching(&mut self, queues: &[String], job_types: &[String]) -> Result<Vec<i64>, Fault>;
    /// The lanes through this queue in which something is queued, by name. Where others write at the same time it may be
    /// out of date.
    fn queued_lanes_of(&mut self, queue: &str) -> Result<Vec<Lane>, Fault>;
    /// The number of the session's worker; `None` if the session is gone.
    fn worker_of(&mut self, session: SessionId) -> Result<Option<i64>, Fault>;

    // Queues of which something is set.
    fn queue(&mut self, queue: &str) -> Result<Option<QueueRow>, Fault>;
    fn put_queue(&mut self, row: &QueueRow) -> Result<(), Fault>;
    fn delete_queue(&mut self, queue: &str) -> Result<(), Fault>;
    /// How many executions of this queue have not started, as this transaction sees it.
    fn unstarted_of(&mut self, queue: &str) -> Result<u64, Fault>;
    /// What was set for a queue when it was last seen: a hint that may be out of date, for which nothing is fetched.
    fn queue_as_seen(&mut self, queue: &str) -> Result<Option<QueueRow>, Fault>;

    // Limits.
    /// How the limiter of a line is used, as this transaction sees it. From here on nobody else lets anything through
    /// the limits of this queue.
    fn limiter(&mut self, line: &Line) -> Result<LimiterUse, Fault>;
    /// Keeps the time that the last start was counted for.
    fn set_last_start(&mut self, limiter: LimiterId, at: Timestamp) -> Result<(), Fault>;
    /// The first `count` of those who wait in a line, by rank. Where others hold some of them it may be fewer.
    fn first_in_line(&mut self, line: &Line, count: usize) -> Result<Vec<LiveRow>, Fault>;

    /// The last `count` of what is queued in a queue before a place, the last one first. Where others write at the same
    /// time, some may not be queued any more.
    fn last_queued(&mut self, queue: &str, before: Place, count: usize) -> Result<Vec<Place>, Fault>;

    // Jobs.
    fn is_job_there(&mut self, job: JobId) -> Result<bool, Fault>;
    /// The whole job, even if it is deleted.
    fn job(&mut self, job: JobId) -> Result<Option<JobRow>, Fault>;
    fn terms_of(&mut self, job: JobId) -> Result<Option<JobTerms>, Fault>;
    fn mark_of(&mut self, job: JobId) -> Result<Option<JobMark>, Fault> {
        Ok(self.terms_of(job)?.map(|terms| terms.mark))
    }
    /// The status of a job as its rows stand; `None` if it is deleted or not there.
    fn status_of(&mut self, job: JobId) -> Result<Option<JobStatus>, Fault> {
        let Some(mark) = self.mark_of(job)? else { return Ok(None) };
        Ok(tally::status(mark, self.is_unfinished(job)?))
    }
    /// What an assignment takes from the job.
    fn facts_of(&mut self, job: JobId, lane: &Lane) -> Result<Option<JobFacts>, Fault>;
    /// Whether it was written: not if its id is there already.
    fn insert_job(&mut self, job: &Job, lane: i64) -> Result<bool, Fault>;
    fn update_job(&mut self, job: &Job, lane: i64) -> Result<(), Fault>;
    fn set_mark(&mut self, job: JobId, mark: JobMark) -> Result<(), Fault>;
    /// Keeps the last occurrence number that was given.
    fn set_numbered(&mut self, job: JobId, numbered: u32) -> Result<(), Fault>;
    /// Keeps what is to be remembered of a schedule that is over.
    fn keep_spent(&mut self, job: JobId, spent: Spent) -> Result<(), Fault>;
    /// Whether something of the job is open or still to come.
    fn is_unfinished(&mut self, job: JobId) -> Result<bool, Fault>;
    fn put_tags(&mut self, job: JobId, tags: &[String]) -> Result<(), Fault>;
    fn forget_tags(&mut self, job: JobId) -> Result<(), Fault>;

    // Keys of jobs.
    fn key_holder(&mut self, key: &JobKey) -> Result<Option<JobId>, Fault>;
    /// Gives the key to the job, whoever had it.
    fn hold_key(&mut self, key: &JobKey, job: JobId) -> Result<(), Fault>;
    fn free_keys(&mut self, job: JobId) -> Result<(), Fault>;

    // Schedules.
    fn schedule(&mut self, job: JobId) -> Result<Option<ScheduleRow>, Fault>;
    /// Writes a schedule, whether or not its job has one.
    fn put_schedule(&mut self, state: &ScheduleState, lane: i64) -> Result<(), Fault>;
    /// Moves a schedule on; what a fire does not change stays.
    fn advance_schedule(&mut self, next: &ScheduleState) -> Result<(), Fault>;
    fn delete_schedule(&mut self, job: JobId) -> Result<(), Fault>;
    /// Notes that other jobs depend on this one, if it has a schedule.
    fn set_schedule_awaited(&mut self, job: JobId) -> Result<(), Fault>;

    // Open occurrences.
    fn live(&mut self, id: OccurrenceId) -> Result<Option<LiveRow>, Fault>;
    /// All that is open of a job, in the order of the occurrences' numbers, at most `OPEN_OF_JOB_MAX`.
    fn open_of_job(&mut self, job: JobId) -> Result<Vec<LiveRow>, Fault>;
    /// How many are open of a job, and how many of these wait in line; of at most `OPEN_OF_JOB_MAX`.
    fn count_open(&mut self, job: JobId) -> Result<OpenCount, Fault>;
    /// The first occurrence of a job that waits behind this gate; those that a replay opened come last.
    fn first_behind(&mut self, job: JobId, gate: Gate) -> Result<Option<LiveRow>, Fault>;
    /// Whether an occurrence is open that does not wait in line.
    fn has_open_not_in_line(&mut self, job: JobId) -> Result<bool, Fault>;
    fn insert_live(&mut self, row: &LiveRow) -> Result<(), Fault>;
    /// Writes all of a row that can change while its occurrence is open, but by what people do to its job.
    fn update_live(&mut self, was: &LiveRow, live: &Live) -> Result<(), Fault>;
    /// As [`Self::update_live`], for a row that stays in the state it was in.
    fn update_live_in_state(&mut self, live: &Live) -> Result<(), Fault>;
    /// Writes all of a row that was there like this, in the same lane.
    fn replace_live(&mut self, was: &Live, row: &LiveRow) -> Result<(), Fault>;
    /// Nothing happens if it is not there: what was skipped before it fired has no row.
    fn delete_live(&mut self, row: &LiveRow) -> Result<(), Fault>;
    /// Adds ties to one row.
    fn tie_live(&mut self, id: OccurrenceId, ties: Ties) -> Result<(), Fault>;
    /// Adds ties to all open occurrences of a job.
    fn tie_open_of_job(&mut self, job: JobId, ties: Ties) -> Result<(), Fault>;
    /// Takes from all rows of a job the note that they are all that is left of it.
    fn forget_sole(&mut self, job: JobId) -> Result<(), Fault>;
    /// Moves all open occurrences of a job to another lane; whether there were any.
    fn move_open_of_job(&mut self, job: JobId, lane: i64) -> Result<bool, Fault>;
    /// The first `count` queued executions in claim order over all these lanes: by rank, equal ranks by key. Where
    /// others claim at the same time it may be fewer, and not exactly the first.
    fn lowest(&mut self, lanes: &[i64], count: usize) -> Result<Vec<OccurrenceId>, Fault>;
    /// One that [`Self::lowest`] has named, with what an assignment takes from its job.
    fn claimable(&mut self, id: OccurrenceId) -> Result<Option<(LiveRow, JobFacts)>, Fault>;
    /// Up to `count` executions that a session holds.
    fn held_by(&mut self, session: SessionId, count: usize) -> Result<Vec<LiveRow>, Fault>;
    /// The leases of a session whose cancel is requested.
    fn cancels_of(&mut self, session: SessionId) -> Result<Vec<LeaseRef>, Fault>;

    // History.
    fn append_history(&mut self, finished: &Finished, worker: Option<i64>) -> Result<(), Fault>;
    /// How a finished attempt ended, and under which lease.
    fn ended(&mut self, execution: ExecutionId) -> Result<Option<Ended>, Fault>;
    /// Lengthens the range of a job that ends at `last` and was skipped for the same reason; whether there is one.
    fn lengthen_skipped(&mut self, job: JobId, last: Timestamp, by: &SkipRange) -> Result<bool, Fault>;
    fn insert_skipped(&mut self, job: JobId, range: &SkipRange) -> Result<(), Fault>;

    // Dead letters. Their number is in the tally; adapters note it there.
    fn dead_letter(&mut self, id: OccurrenceId) -> Result<Option<DeadLetter>, Fault>;
    fn latest_dead_letter(&mut self, job: JobId) -> Result<Option<DeadLetter>, Fault>;
    fn bury(&mut self, finished: &Finished, noted: bool, now: Timestamp) -> Result<(), Fault>;
    /// Deletes a dead letter; whether it was there.
    fn unbury(&mut self, id: OccurrenceId) -> Result<bool, Fault>;
    fn forget_dead_letters(&mut self, job: JobId) -> Result<(), Fault>;

    // Dependencies.
    fn insert_dependency(&mut self, parent: JobId, child: JobId) -> Result<(), Fault>;
    fn delete_dependency(&mut self, parent: JobId, child: JobId) -> Result<(), Fault>;
    fn has_parent(&mut self, child: JobId) -> Result<bool, Fault>;
    fn forget_parents(&mut self, child: JobId) -> Result<(), Fault>;
    /// Up to `count` children of a job.
    fn children(&mut self, parent: JobId, count: usize) -> Result<Vec<JobId>, Fault>;
    /// A job that has ended and whose children have not all been told, and whether it succeeded.
    fn next_resolution(&mut self) -> Result<Option<(JobId, bool)>, Fault>;
    /// Nothing happens if there is one.
    fn insert_resolution(&mut self, parent: JobId, succeeded: bool) -> Result<(), Fault>;
    fn delete_resolution(&mut self, parent: JobId) -> Result<(), Fault>;

    // Notes.
    fn last_note(&mut self, id: OccurrenceId) -> Result<Option<LastNote>, Fault>;
    fn checkpoint(&mut self, id: OccurrenceId) -> Result<Option<Checkpoint>, Fault>;
    /// Keeps what a note brings: its number, its progress if it has one, its checkpoint (none any more, if that is
    /// null).
    fn keep_note(&mut self, note: &Note, last: LastNote, now: Timestamp) -> Result<(), Fault>;
    /// The notes and the checkpoint of an occurrence go.
    fn forget_notes(&mut self, id: OccurrenceId) -> Result<(), Fault>;
    /// Those of a deleted job go, but for those of what is still open.
    fn forget_notes_of_job(&mut self, job: JobId) -> Result<(), Fault>;

    // Sessions.
    /// A session that is neither lost nor closed.
    fn session(&mut self, session: SessionId) -> Result<Option<SessionPlace>, Fault>;
    fn insert_session(&mut self, opening: &SessionOpening, now: Timestamp) -> Result<SessionId, Fault>;
    fn set_turn(&mut self, session: SessionId, turn: u64) -> Result<(), Fault>;
    fn set_beat(&mut self, session: SessionId, beat: u64, now: Timestamp) -> Result<(), Fault>;
    fn set_mode(&mut self, session: SessionId, mode: SessionMode) -> Result<(), Fault>;
    /// Whether the next beat has to look for leases that should be cancelled. A session that is gone needs none.
    fn set_attention(&mut self, session: SessionId, attention: bool) -> Result<(), Fault>;
    /// Marks a session lost whose counter stands here; whether it is lost now.
    fn lose_session(&mut self, session: SessionId, beat: u64) -> Result<bool, Fault>;
    /// Marks all embedded sessions lost; how many they were.
    fn lose_embedded_sessions(&mut self) -> Result<usize, Fault>;
    /// In the order of their numbers.
    fn lost_sessions(&mut self) -> Result<Vec<SessionId>, Fault>;
    fn delete_session(&mut self, session: SessionId) -> Result<(), Fault>;

    // Requests that carry a key.
    fn request(&mut self, key: &RequestKey) -> Result<Option<RequestRow>, Fault>;
    fn insert_request(&mut self, request: &NewRequest, now: Timestamp) -> Result<(), Fault>;
    /// Nothing happens if it is not there.
    fn answer_request(&mut self, key: &RequestKey, answer: &StoredAnswer) -> Result<(), Fault>;
}

/// An open occurrence beside the number of its lane.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LiveRow {
    pub live: Live,
    pub lane: i64,
    /// It is all that is left of an active job: when it has ended, the job is known to have ended without a look.
    /// Where it is not set, nothing is known. Whatever people do to the job takes it away.
    pub is_sole: bool,
}

/// What a job keeps of a schedule that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spent {
    /// The last occurrence number that was given.
    pub numbered: u32,
    /// How often it ran.
    pub fired: u32,
    /// When it was over. The job counts as changed then, so that a new schedule does not count from before it, whatever the
    /// time is where it is given.
    pub at: Timestamp,
}

/// A job beside the number of its lane.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JobRow {
    pub job: Job,
    pub lane: i64,
}

/// What is still to come of a job, beside the number of its lane.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScheduleRow {
    pub state: ScheduleState,
    pub lane: i64,
}

/// What the rules need to know of a job when one of its attempts ends, or another job depends on it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JobTerms {
    pub settings: Settings,
    pub mark: JobMark,
}

impl JobTerms {
    pub fn terms(&self) -> Terms<'_> {
        Terms { settings: &self.settings, mark: self.mark }
    }
}

/// What an assignment takes from the job itself.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JobFacts {
    pub name: String,
    pub payload: String,
    pub version: u32,
    pub settings: Settings,
}

impl From<&Job> for JobFacts {
    fn from(job: &Job) -> Self {
        let spec = &job.spec;
        JobFacts {
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
}

/// How a finished attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    pub epoch: Epoch,
    pub session: Option<SessionId>,
    pub status: Status,
}

/// A session as its turns and beats find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SessionPlace {
    /// The last turn that it has used.
    pub turn: u64,
    pub mode: SessionMode,
    pub beat: u64,
    pub attention: bool,
}

/// A request that was begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestRow {
    pub fingerprint: [u8; 32],
    pub begun_at: Timestamp,
    pub seed: u64,
    pub answer: Option<StoredAnswer>,
}
