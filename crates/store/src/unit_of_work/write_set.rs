//! The write set of a transaction: each kind of change to each table as one list, for one statement.

use crate::counters::CounterChanges;
use crate::rows::{JobKey, JobRow, LiveRow, ScheduleRow, Spent};
use punctual_core::ids::{Epoch, JobId, OccurrenceId, SessionId};
use punctual_core::job::StoredStatus;
use punctual_core::notes::{Checkpoint, LastNote, Progress};
use punctual_core::occurrence::{Finished, Lease, Live, LiveState};
use punctual_core::ports::{AuditEntry, NewRequest, QueueRow, RequestKey, SessionOpening, StoredAnswer};
use punctual_core::schedule::SkipRange;
use punctual_core::session::SessionMode;
use punctual_core::time::Timestamp;

/// Lists are sorted by key, contain each key once, and may be written in the order of the fields.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct WriteSet {
    pub sessions_inserted: Vec<NewSession>,
    /// Complete states of sessions that were loaded.
    pub sessions_updated: Vec<SessionChange>,
    /// Sessions whose next heartbeat must look for leases to cancel, in whatever state they are. Sessions
    /// that no longer exist are ignored.
    pub attention: Vec<SessionId>,
    pub sessions_deleted: Vec<SessionId>,

    pub jobs_inserted: Vec<JobRow>,
    pub jobs_updated: Vec<JobRow>,
    /// Single columns of jobs that are not written whole.
    pub marks: Vec<(JobId, StoredStatus)>,
    pub numbered: Vec<Numbered>,
    pub tags_forgotten: Vec<JobId>,
    pub tags_put: Vec<(JobId, String)>,
    pub keys_freed: Vec<JobId>,
    /// Inserted, never overwritten: an unknown holder makes it a conflict.
    pub keys_held: Vec<(JobKey, JobId)>,
    /// Taken over from the finished job that had it.
    pub keys_taken: Vec<(JobKey, JobId)>,

    pub schedules_inserted: Vec<ScheduleRow>,
    pub schedules_updated: Vec<ScheduleRow>,
    pub schedules_deleted: Vec<JobId>,

    pub live_inserted: Vec<LiveRow>,
    /// Queued executions that were claimed. They are most of what is written, and few columns change.
    pub leased: Vec<Leased>,
    pub live_updated: Vec<LiveRow>,
    pub live_deleted: Vec<OccurrenceId>,

    /// In the order in which they ended.
    pub history: Vec<EndedRow>,
    pub skips_lengthened: Vec<(i64, SkipRange)>,
    pub skips_inserted: Vec<(JobId, SkipRange)>,

    pub new_dead_letters: Vec<NewDeadLetter>,
    pub deleted_dead_letters: Vec<OccurrenceId>,
    pub dead_forgotten: Vec<JobId>,

    pub dependencies_inserted: Vec<DependencyRow>,
    pub dependencies_deleted: Vec<DependencyRow>,
    pub parents_forgotten: Vec<JobId>,
    pub resolutions_inserted: Vec<(JobId, bool)>,
    pub resolutions_deleted: Vec<JobId>,

    pub notes: Vec<NoteChange>,
    pub checkpoints_put: Vec<(OccurrenceId, Checkpoint)>,
    pub checkpoints_deleted: Vec<OccurrenceId>,
    pub notes_forgotten: Vec<OccurrenceId>,
    /// Except those of occurrences that are still open after this transaction.
    pub notes_of_jobs_forgotten: Vec<JobId>,

    pub queues_put: Vec<QueueRow>,
    pub queues_deleted: Vec<String>,
    pub requests_inserted: Vec<(NewRequest, Timestamp)>,
    pub requests_answered: Vec<(RequestKey, StoredAnswer)>,
    pub audit: Vec<AuditEntry>,

    pub counts: CounterChanges,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NewSession {
    pub id: SessionId,
    pub worker: i64,
    pub opening: SessionOpening,
    pub opened_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SessionChange {
    pub id: SessionId,
    pub turn: u64,
    pub beat: u64,
    pub beaten_at: Timestamp,
    pub mode: SessionMode,
    pub attention: bool,
    pub lost: bool,
}

/// The columns that a claim changes in a queued occurrence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leased {
    pub id: OccurrenceId,
    pub session: SessionId,
    pub claimed_at: Timestamp,
    pub epoch: Epoch,
    pub job_version: u32,
}

impl Leased {
    /// `Some` if the row changed in nothing else.
    pub fn of(before: &LiveRow, now: &LiveRow) -> Option<Self> {
        let (LiveState::Queued, LiveState::Running(lease)) = (before.live.state, now.live.state) else {
            return None;
        };
        let leased = Leased {
            id: now.live.id,
            session: lease.session,
            claimed_at: lease.claimed_at,
            epoch: now.live.epoch,
            job_version: now.live.job_version,
        };
        (leased.onto(before.clone()) == *now).then_some(leased)
    }

    /// The row after the claim.
    pub fn onto(self, row: LiveRow) -> LiveRow {
        let Leased { session, claimed_at, epoch, job_version, .. } = self;
        let state = LiveState::Running(Lease { session, claimed_at, cancel_requested: false });
        LiveRow { live: Live { state, epoch, job_version, ..row.live }, ..row }
    }
}

/// The occurrence numbers that a job has assigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Numbered {
    pub job: JobId,
    pub numbered: u32,
    /// `None` unless its schedule is over.
    pub spent: Option<Spent>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EndedRow {
    pub finished: Finished,
    pub worker: Option<i64>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NewDeadLetter {
    pub finished: Finished,
    pub noted: bool,
    pub died_at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DependencyRow {
    pub parent: JobId,
    pub child: JobId,
}

/// The last note of an occurrence, and its progress if it has one; otherwise the stored progress stays.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NoteChange {
    pub id: OccurrenceId,
    pub attempt: u32,
    pub last: LastNote,
    pub noted_at: Timestamp,
    pub progress: Option<Progress>,
}
