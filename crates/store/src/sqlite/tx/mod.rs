//! The rows of an open transaction: each call of [`Rows`] is a statement, prepared once per connection. It
//! finds, stores and removes; it must not decide anything.

mod claims;
mod dependencies;
mod history;
mod jobs;
mod limiters;
mod live;
mod names;
mod notes;
mod requests;
mod schedules;
mod sessions;

pub(crate) use {claims::FIRST_OF_LANE, history::from_dead_letters, live::DELETE_LIVE, notes::CHECKPOINT};
#[cfg(test)]
pub(crate) use {
    claims::LAST_OF_LANE, claims::NEXT_OF_LANE, dependencies::CHILDREN, dependencies::FORGET_PARENTS,
    dependencies::HAS_PARENT, history::DEAD_LETTER, history::LATEST_DEAD_LETTER, history::LENGTHEN_SKIPPED,
    jobs::FORGET_TAGS, jobs::IS_UNFINISHED, limiters::FIRST_IN_LINE, live::COUNT_OPEN, live::FIRST_BEHIND,
    live::HAS_OPEN_NOT_IN_LINE, live::LIVE_OF_SESSION, notes::FORGET_NOTES, schedules::SCHEDULE_OF_JOB,
};

use super::audit;
use super::core::CoreMemory;
use crate::counters::Counters;
use crate::fault::Fault;
use crate::rows::{
    AssignedJob, EndedAttempt, JobKey, JobRow, JobTerms, LiveRow, OpenCount, RequestRow, Rows,
};
use crate::rows::{ScheduleRow, SessionPlace, Spent};
use punctual_core::gates::Gate;
use punctual_core::ids::{ExecutionId, JobId, OccurrenceId, SessionId};
use punctual_core::job::{Job, JobStatus, StoredStatus};
use punctual_core::limiter::{LimiterId, LimiterUse, WaitList};
use punctual_core::notes::{Checkpoint, LastNote, Note};
use punctual_core::occurrence::{Finished, Live, OccurrenceFlags};
use punctual_core::ports::{
    AuditEntry, DeadLetter, Lane, LeaseRef, NewRequest, QueueRow, RequestKey, SessionOpening, StoredAnswer,
};
use punctual_core::rank::Shares;
use punctual_core::readmission::QueuePosition;
use punctual_core::schedule::{ScheduleState, SkipRange};
use punctual_core::session::SessionMode;
use punctual_core::time::Timestamp;
use rusqlite::{CachedStatement, Connection};

/// An open transaction, with the state of the core.
pub(crate) struct Tx<'conn> {
    pub conn: &'conn Connection,
    pub memory: &'conn mut CoreMemory,
    hot: Hot<'conn>,
}

impl<'conn> Tx<'conn> {
    pub fn new(conn: &'conn Connection, memory: &'conn mut CoreMemory) -> Self {
        Tx { conn, memory, hot: Hot::default() }
    }
}

/// The statements that every job needs. They are kept for the transaction, because looking them up in the
/// statement cache costs a good part of what running them does.
#[derive(Default)]
struct Hot<'conn> {
    insert_job: Option<CachedStatement<'conn>>,
    insert_live: Option<CachedStatement<'conn>>,
    find_live: Option<CachedStatement<'conn>>,
    update_live: Option<CachedStatement<'conn>>,
    place_live: Option<CachedStatement<'conn>>,
    delete_live: Option<CachedStatement<'conn>>,
    find_claimable: Option<CachedStatement<'conn>>,
    append_history: Option<CachedStatement<'conn>>,
}

/// The statement in a slot of the hot ones.
fn hot_statement<'a, 'conn>(
    conn: &'conn Connection,
    place: &'a mut Option<CachedStatement<'conn>>,
    sql: &str,
) -> Result<&'a mut CachedStatement<'conn>, Fault> {
    Ok(match place {
        Some(statement) => statement,
        None => place.insert(conn.prepare_cached(sql)?),
    })
}

/// Methods that call the function of the same name in the module for their table; all may fail.
macro_rules! by_table {
    ($($table:ident { $($name:ident($($argument:ident: $type:ty),*) -> $found:ty;)* })*) => {$($(
        fn $name(&mut self, $($argument: $type),*) -> Result<$found, Fault> {
            $table::$name(self, $($argument),*)
        }
    )*)*};
}

impl Rows for Tx<'_> {
    fn shares(&mut self) -> &mut Shares {
        &mut self.memory.shares
    }

    fn counters(&mut self) -> &mut Counters {
        &mut self.memory.counters
    }

    by_table! {
        names {
            intern_lane(queue: &str, job_type: &str) -> (i64, Lane);
            lane(number: i64) -> Lane;
            lanes_matching(queues: &[String], job_types: &[String]) -> Vec<i64>;
            queued_lanes_of(queue: &str) -> Vec<Lane>;
            worker_of(session: SessionId) -> Option<i64>;
            queue(queue: &str) -> Option<QueueRow>;
            put_queue(row: &QueueRow) -> ();
            delete_queue(queue: &str) -> ();
            unstarted_of(queue: &str) -> u64;
            queue_as_seen(queue: &str) -> Option<QueueRow>;
        }
        limiters {
            limiter(line: &WaitList) -> LimiterUse;
            set_last_start(limiter: LimiterId, at: Timestamp) -> ();
            first_on_wait_list(line: &WaitList, count: usize) -> Vec<LiveRow>;
        }
        jobs {
            is_job_there(job: JobId) -> bool;
            job(job: JobId) -> Option<JobRow>;
            terms_of(job: JobId) -> Option<JobTerms>;
            mark_of(job: JobId) -> Option<StoredStatus>;
            status_of(job: JobId) -> Option<JobStatus>;
            facts_of(job: JobId, lane: &Lane) -> Option<AssignedJob>;
            insert_job(job: &Job, lane: i64) -> bool;
            update_job(job: &Job, lane: i64) -> ();
            set_mark(job: JobId, mark: StoredStatus) -> ();
            set_numbered(job: JobId, numbered: u32) -> ();
            keep_spent(job: JobId, spent: Spent) -> ();
            is_unfinished(job: JobId) -> bool;
            put_tags(job: JobId, tags: &[String]) -> ();
            forget_tags(job: JobId) -> ();
            key_holder(key: &JobKey) -> Option<JobId>;
            hold_key(key: &JobKey, job: JobId) -> ();
            free_keys(job: JobId) -> ();
        }
        schedules {
            schedule(job: JobId) -> Option<ScheduleRow>;
            put_schedule(state: &ScheduleState, lane: i64) -> ();
            advance_schedule(next: &ScheduleState) -> ();
            delete_schedule(job: JobId) -> ();
            set_schedule_awaited(job: JobId) -> ();
        }
        live {
            live(id: OccurrenceId) -> Option<LiveRow>;
            open_of_job(job: JobId) -> Vec<LiveRow>;
            count_open(job: JobId) -> OpenCount;
            first_behind(job: JobId, gate: Gate) -> Option<LiveRow>;
            has_open_not_waiting(job: JobId) -> bool;
            insert_live(row: &LiveRow) -> ();
            update_live(was: &LiveRow, live: &Live) -> ();
            update_live_in_state(live: &Live) -> ();
            replace_live(was: &Live, row: &LiveRow) -> ();
            delete_live(row: &LiveRow) -> ();
            add_live_flags(id: OccurrenceId, flags: OccurrenceFlags) -> ();
            add_flags_to_open(job: JobId, flags: OccurrenceFlags) -> ();
            forget_sole(job: JobId) -> ();
            move_open_of_job(job: JobId, lane: i64) -> bool;
            held_by(session: SessionId, count: usize) -> Vec<LiveRow>;
            cancels_of(session: SessionId) -> Vec<LeaseRef>;
        }
        claims {
            last_queued(queue: &str, before: QueuePosition, count: usize) -> Vec<QueuePosition>;
            lowest(lanes: &[i64], count: usize) -> Vec<OccurrenceId>;
            claimable(id: OccurrenceId) -> Option<(LiveRow, AssignedJob)>;
        }
        history {
            append_history(finished: &Finished, worker: Option<i64>) -> ();
            ended(execution: ExecutionId) -> Option<EndedAttempt>;
            lengthen_skipped(job: JobId, last: Timestamp, by: &SkipRange) -> bool;
            insert_skipped(job: JobId, range: &SkipRange) -> ();
            dead_letter(id: OccurrenceId) -> Option<DeadLetter>;
            latest_dead_letter(job: JobId) -> Option<DeadLetter>;
            insert_dead_letter(finished: &Finished, noted: bool, now: Timestamp) -> ();
            delete_dead_letter(id: OccurrenceId) -> bool;
            forget_dead_letters(job: JobId) -> ();
        }
        dependencies {
            insert_dependency(parent: JobId, child: JobId) -> ();
            delete_dependency(parent: JobId, child: JobId) -> ();
            has_parent(child: JobId) -> bool;
            forget_parents(child: JobId) -> ();
            children(parent: JobId, count: usize) -> Vec<JobId>;
            next_resolution() -> Option<(JobId, bool)>;
            insert_resolution(parent: JobId, succeeded: bool) -> ();
            delete_resolution(parent: JobId) -> ();
        }
        notes {
            last_note(id: OccurrenceId) -> Option<LastNote>;
            checkpoint(id: OccurrenceId) -> Option<Checkpoint>;
            keep_note(note: &Note, last: LastNote, now: Timestamp) -> ();
            forget_notes(id: OccurrenceId) -> ();
            forget_notes_of_job(job: JobId) -> ();
        }
        sessions {
            session(session: SessionId) -> Option<SessionPlace>;
            insert_session(opening: &SessionOpening, now: Timestamp) -> SessionId;
            set_turn(session: SessionId, turn: u64) -> ();
            set_beat(session: SessionId, beat: u64, now: Timestamp) -> ();
            set_mode(session: SessionId, mode: SessionMode) -> ();
            set_attention(session: SessionId, attention: bool) -> ();
            lose_session(session: SessionId, beat: u64) -> bool;
            lose_embedded_sessions() -> usize;
            lost_sessions() -> Vec<SessionId>;
            delete_session(session: SessionId) -> ();
        }
        requests {
            request(key: &RequestKey) -> Option<RequestRow>;
            insert_request(request: &NewRequest, now: Timestamp) -> ();
            answer_request(key: &RequestKey, answer: &StoredAnswer) -> ();
        }
        audit {
            put_audit(entry: &AuditEntry) -> ();
        }
    }
}
