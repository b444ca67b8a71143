//! The write set of a transaction as lists of rows, in the order of the fields of [`WriteSet`], so that rows
//! that are not locked yet are always written in the same order. Most changes are described by their
//! columns alone, and each dialect makes the statement from that.

use crate::cells::{Cell, CellValue};
use crate::codes::fired_column;
use crate::counter_mismatch::{CounterTable, MismatchRow};
use crate::counters::{CounterChanges, JobTally, LaneCounts, LimiterCounts, StoredCounts};
use crate::fault::Fault;
use crate::layout::{
    AUDIT, AuditColumns, CHECKPOINTS, Column, DEAD_LETTERS, DEPENDENCIES, HistoryColumns, JOB_KEYS, JOB_TAGS,
    JOBS, JobColumns, LIMITER_PACES, LIMITER_TALLIES, LIVE, Layout, LiveColumns, NOTES, QUEUES, REQUESTS,
    RESOLUTIONS, SCHEDULES, SESSION_CONDITIONS, SESSIONS, SHARDED_JOB_TALLY, SHARDED_LANE_TALLIES, SKIPPED,
    ScheduleColumns,
};
use crate::new_rows::{
    dead_letter_cells, integer, key_cells, note_cells, progress_cells, queue_cells, request_cells,
    session_cells, skipped_cells,
};
use crate::row_list::{List, row};
use crate::rows::JobKey;
use crate::server::connection::ServerConnection;
use crate::unit_of_work::{NoteChange, WriteSet};
use punctual_core::ids::{JobId, OccurrenceId, SessionId};
use punctual_core::ports::AuditEntry;

macro_rules! changes {
    ($($(#[$doc:meta])* $change:ident,)*) => {
        /// One kind of change to one table.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum TableChange { $($(#[$doc])* $change),* }

        impl TableChange {
            /// In the order of their numbers.
            pub const ALL: &[TableChange] = &[$(TableChange::$change),*];
        }
    };
}

changes! {
    InsertSessions,
    UpdateSessions,
    AskForAttention,
    DeleteSessions,
    DeleteConditions,
    InsertJobs,
    UpdateJobs,
    UpdateMarks,
    UpdateNumbered,
    DeleteTags,
    InsertTags,
    DeleteKeys,
    /// A key that another transaction has inserted meanwhile is a conflict, and never overwritten.
    InsertKeys,
    UpdateKeys,
    InsertSchedules,
    UpdateSchedules,
    DeleteSchedules,
    InsertLive,
    Lease,
    UpdateLive,
    DeleteLive,
    InsertHistory,
    LengthenSkipped,
    InsertSkipped,
    InsertDeadLetters,
    DeleteDeadLetters,
    ForgetDeadLetters,
    InsertDependencies,
    DeleteDependencies,
    ForgetParents,
    InsertResolutions,
    DeleteResolutions,
    /// Notes without progress: the progress that is stored stays.
    CountNotes,
    PutProgress,
    PutCheckpoints,
    DeleteCheckpoints,
    DeleteNotes,
    /// Except those of open occurrences.
    ForgetNotes,
    ForgetCheckpoints,
    PutQueues,
    DeleteQueues,
    SetLastStarts,
    InsertRequests,
    AnswerRequests,
    InsertAudit,
    AddToLanes,
    /// One row each and in order, so that transactions that add to several rows do not deadlock.
    AddToLimiters,
    ForgetLimiters,
    AddToJobs,
}

/// A change that follows from its columns. Lists have these columns in this order.
#[derive(Debug)]
pub(crate) enum ChangeShape {
    Insert {
        table: Layout,
        columns: &'static [Column],
        conflict: Conflict,
    },
    /// Sets all but the first columns, which are the key.
    Update {
        table: Layout,
        columns: Vec<Column>,
        key: usize,
    },
    Delete {
        table: Layout,
        by: Vec<Column>,
    },
    /// Each dialect has its own statement.
    Special,
}

/// The handling of a row whose key exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conflict {
    Fail,
    Ignore,
    /// This many columns after the key are overwritten.
    Replace(usize),
    /// The columns after the key are added.
    Add,
}

impl TableChange {
    pub fn shape(self) -> ChangeShape {
        use TableChange as C;
        match self {
            C::InsertSessions => insert(SESSIONS),
            C::UpdateSessions => {
                update(SESSIONS, 1, &["id", "turn", "beat", "beaten_at", "mode", "attention", "lost"])
            }
            C::DeleteSessions => delete(SESSIONS, &["id"]),
            C::DeleteConditions => delete(SESSION_CONDITIONS, &["session"]),
            C::InsertJobs => insert(JOBS),
            C::UpdateJobs => update_whole(JOBS),
            C::UpdateMarks => update(JOBS, 1, &["id", "mark"]),
            C::DeleteTags => delete(JOB_TAGS, &["job"]),
            C::InsertTags => {
                ChangeShape::Insert { table: JOB_TAGS, columns: JOB_TAGS.columns, conflict: Conflict::Ignore }
            }
            C::DeleteKeys => delete(JOB_KEYS, &["job"]),
            C::InsertKeys => insert(JOB_KEYS),
            C::UpdateKeys => update(JOB_KEYS, 3, &["owner", "kind", "key", "job"]),
            C::InsertSchedules => insert(SCHEDULES),
            C::UpdateSchedules => update_whole(SCHEDULES),
            C::DeleteSchedules => delete(SCHEDULES, &["job"]),
            C::InsertLive => insert(LIVE),
            C::UpdateLive => update_whole(LIVE),
            C::DeleteLive => delete(LIVE, &["job", "occurrence"]),
            C::InsertSkipped => insert_from(SKIPPED, 1),
            C::InsertDeadLetters => insert_from(DEAD_LETTERS, 1),
            C::DeleteDeadLetters => delete(DEAD_LETTERS, &["job", "occurrence"]),
            C::ForgetDeadLetters => delete(DEAD_LETTERS, &["job"]),
            C::InsertDependencies => insert(DEPENDENCIES),
            C::DeleteDependencies => delete(DEPENDENCIES, &["parent", "child"]),
            C::ForgetParents => delete(DEPENDENCIES, &["child"]),
            C::InsertResolutions => insert(RESOLUTIONS),
            C::DeleteResolutions => delete(RESOLUTIONS, &["parent"]),
            C::CountNotes => put(NOTES, 6, Conflict::Replace(3)),
            C::PutProgress => put(NOTES, 8, Conflict::Replace(6)),
            C::PutCheckpoints => put(CHECKPOINTS, 3, Conflict::Replace(1)),
            C::DeleteCheckpoints => delete(CHECKPOINTS, &["job", "occurrence"]),
            C::DeleteNotes => delete(NOTES, &["job", "occurrence"]),
            C::PutQueues => put(QUEUES, 5, Conflict::Replace(4)),
            C::DeleteQueues => delete(QUEUES, &["queue"]),
            C::SetLastStarts => put(LIMITER_PACES, 2, Conflict::Replace(1)),
            C::InsertRequests => put(REQUESTS, 5, Conflict::Fail),
            // All but the seal. A repeated write finds its entry.
            C::InsertAudit => put(AUDIT, AUDIT_WRITTEN, Conflict::Ignore),
            C::AddToLanes => add_to(SHARDED_LANE_TALLIES),
            C::AddToLimiters => add_to(LIMITER_TALLIES),
            C::AddToJobs => add_to(SHARDED_JOB_TALLY),
            C::AskForAttention
            | C::UpdateNumbered
            | C::Lease
            | C::InsertHistory
            | C::LengthenSkipped
            | C::ForgetNotes
            | C::ForgetCheckpoints
            | C::AnswerRequests
            | C::ForgetLimiters => ChangeShape::Special,
        }
    }
}

fn insert(table: Layout) -> ChangeShape {
    insert_from(table, 0)
}

/// The columns before this one get their values from the database.
fn insert_from(table: Layout, first: usize) -> ChangeShape {
    ChangeShape::Insert { table, columns: &table.columns[first..], conflict: Conflict::Fail }
}

/// The first columns.
fn put(table: Layout, count: usize, conflict: Conflict) -> ChangeShape {
    ChangeShape::Insert { table, columns: &table.columns[..count], conflict }
}

fn add_to(table: Layout) -> ChangeShape {
    put(table, table.columns.len(), Conflict::Add)
}

fn named(table: &Layout, names: &[&str]) -> Vec<Column> {
    names.iter().map(|name| table.columns[table.at(name)]).collect()
}

fn update(table: Layout, key: usize, names: &[&str]) -> ChangeShape {
    ChangeShape::Update { table, columns: named(&table, names), key }
}

/// All columns. A job's segment never changes.
fn update_whole(table: Layout) -> ChangeShape {
    ChangeShape::Update { table, columns: table.columns.to_vec(), key: table.key }
}

fn delete(table: Layout, by: &[&str]) -> ChangeShape {
    ChangeShape::Delete { table, by: named(&table, by) }
}

/// The columns that an update sets.
pub(crate) fn columns_to_set(columns: &[Column], key: usize) -> impl Iterator<Item = &Column> {
    columns[key..].iter().filter(|column| column.name != "segment")
}

/// The rows to remove with jobs that retention has found to be finished.
pub(crate) const CHANGES_OF_RETIRED: [TableChange; 4] = [
    TableChange::DeleteKeys,
    TableChange::ForgetParents,
    TableChange::ForgetNotes,
    TableChange::ForgetCheckpoints,
];

/// A change and its rows.
pub(crate) type Changed<'a> = (TableChange, List<'a>);

/// All changes of a transaction that are not empty; counters go to this shard.
pub(crate) fn changes(write_set: &WriteSet, shard: i64) -> Result<Vec<Changed<'_>>, Fault> {
    let mut changes = Vec::new();
    sessions(write_set, &mut changes)?;
    jobs(write_set, &mut changes)?;
    live(write_set, &mut changes);
    dead_letters_and_dependencies(write_set, &mut changes);
    notes(write_set, &mut changes);
    queues_and_requests(write_set, &mut changes)?;
    changes.extend(changes_of_counts(&write_set.counts, shard));
    changes.retain(|(_, list)| !list.is_empty());
    Ok(changes)
}

/// The changes of counters alone.
pub(crate) fn changes_of_counts<'a>(counts: &CounterChanges, shard: i64) -> Vec<Changed<'a>> {
    let lanes = counts.changed_lanes().map(|(lane, changes)| (row![lane, shard], changes));
    let limiters = counts.changed_limiters().map(|(id, changes)| (row![id], changes));
    let jobs = Some((row![shard], counts.jobs)).filter(|_| !counts.jobs.is_zero());
    let mut changes = vec![
        (TableChange::AddToLanes, List::of_counts(lanes)),
        (TableChange::AddToLimiters, List::of_counts(limiters)),
        (TableChange::ForgetLimiters, List::of(counts.lessened_limiters().into_iter().map(|id| row![id]))),
        (TableChange::AddToJobs, List::of_counts(jobs)),
    ];
    changes.retain(|(_, list)| !list.is_empty());
    changes
}

/// The changes that correct counters, in their first shard.
pub(crate) fn repairs<'a>(table: CounterTable, mismatches: &[MismatchRow]) -> Vec<Changed<'a>> {
    const SHARD: i64 = 0;
    let all = || mismatches.iter();
    match table {
        CounterTable::Lanes => {
            let lanes = all().map(|row| (row![row.key, SHARD], row.missing::<LaneCounts>()));
            vec![(TableChange::AddToLanes, List::of_counts(lanes))]
        }
        CounterTable::Limiters => {
            let limiters = all().map(|row| (row![row.key], row.missing::<LimiterCounts>()));
            vec![
                (TableChange::AddToLimiters, List::of_counts(limiters)),
                (TableChange::ForgetLimiters, List::of(all().map(|row| row![row.key]))),
            ]
        }
        CounterTable::Jobs => {
            let jobs = all().map(|row| (row![SHARD], row.missing::<JobTally>()));
            vec![(TableChange::AddToJobs, List::of_counts(jobs))]
        }
    }
}

fn ids<'a>(jobs: &[JobId]) -> List<'a> {
    List::of(jobs.iter().map(|job| row![*job]))
}

fn numbers<'a>(sessions: &[SessionId]) -> List<'a> {
    List::of(sessions.iter().map(|session| row![*session]))
}

fn occurrences<'a>(ids: &[OccurrenceId]) -> List<'a> {
    List::of(ids.iter().map(|id| row![id.job, id.number]))
}

fn sessions<'a>(write_set: &'a WriteSet, changes: &mut Vec<Changed<'a>>) -> Result<(), Fault> {
    let updated = write_set.sessions_updated.iter().map(|change| {
        let (beaten_at, mode) = (change.beaten_at, change.mode);
        row![change.id, change.turn, change.beat, beaten_at, mode, change.attention, change.lost]
    });
    let inserted = write_set.sessions_inserted.iter().map(|new| {
        let mut cells = [const { Cell::Null }; SESSIONS.columns.len()];
        cells[0] = new.id.into_cell();
        cells[1..].clone_from_slice(&session_cells(&new.opening, new.worker, new.opened_at)?);
        Ok(cells)
    });
    changes.extend([
        (TableChange::InsertSessions, List::try_of(inserted)?),
        (TableChange::UpdateSessions, List::of(updated)),
        (TableChange::AskForAttention, numbers(&write_set.attention)),
        (TableChange::DeleteSessions, numbers(&write_set.sessions_deleted)),
        (TableChange::DeleteConditions, numbers(&write_set.sessions_deleted)),
    ]);
    Ok(())
}

fn jobs<'a>(write_set: &'a WriteSet, changes: &mut Vec<Changed<'a>>) -> Result<(), Fault> {
    let jobs = |rows: &'a [crate::rows::JobRow]| {
        List::try_of(rows.iter().map(|row| Ok(JobColumns::of(row)?.into_cells())))
    };
    let schedules = |rows: &'a [crate::rows::ScheduleRow]| {
        List::try_of(rows.iter().map(|row| Ok(ScheduleColumns::of(&row.state, row.lane)?.into_cells())))
    };
    let numbered = write_set.numbered.iter().map(|change| {
        let fired = change.spent.and_then(|spent| fired_column(spent.fired));
        row![change.job, change.numbered, fired, change.spent.map(|spent| spent.at)]
    });
    changes.extend([
        (TableChange::InsertJobs, jobs(&write_set.jobs_inserted)?),
        (TableChange::UpdateJobs, jobs(&write_set.jobs_updated)?),
        (TableChange::UpdateMarks, List::of(write_set.marks.iter().map(|(job, mark)| row![*job, *mark]))),
        (TableChange::UpdateNumbered, List::of(numbered)),
        (TableChange::DeleteTags, ids(&write_set.tags_forgotten)),
        (
            TableChange::InsertTags,
            List::of(write_set.tags_put.iter().map(|(job, tag)| row![tag.as_str(), *job])),
        ),
        (TableChange::DeleteKeys, ids(&write_set.keys_freed)),
        (TableChange::InsertKeys, keys(&write_set.keys_held)),
        (TableChange::UpdateKeys, keys(&write_set.keys_taken)),
        (TableChange::InsertSchedules, schedules(&write_set.schedules_inserted)?),
        (TableChange::UpdateSchedules, schedules(&write_set.schedules_updated)?),
        (TableChange::DeleteSchedules, ids(&write_set.schedules_deleted)),
    ]);
    Ok(())
}

fn keys(keys: &[(JobKey, JobId)]) -> List<'_> {
    List::of(keys.iter().map(|(key, job)| key_cells(key, *job)))
}

fn live<'a>(write_set: &'a WriteSet, changes: &mut Vec<Changed<'a>>) {
    let rows =
        |rows: &'a [crate::rows::LiveRow]| List::of(rows.iter().map(|row| LiveColumns::of(row).into_cells()));
    let leased = write_set.leased.iter().map(|leased| {
        let [job, number, session, at] =
            row![leased.id.job, leased.id.number, leased.session, leased.claimed_at];
        [job, number, session, at, integer(leased.epoch.0), integer(leased.job_version)]
    });
    let history = write_set.history.iter().map(|row| {
        let [_place, rest @ ..] = HistoryColumns::of(&row.finished, row.worker).into_cells();
        rest
    });
    let lengthened = write_set.skips_lengthened.iter();
    let inserted = write_set.skips_inserted.iter();
    changes.extend([
        (TableChange::InsertLive, rows(&write_set.live_inserted)),
        (TableChange::Lease, List::of(leased)),
        (TableChange::UpdateLive, rows(&write_set.live_updated)),
        (TableChange::DeleteLive, occurrences(&write_set.live_deleted)),
        (TableChange::InsertHistory, List::of(history)),
        (
            TableChange::LengthenSkipped,
            List::of(lengthened.map(|(number, range)| row![*number, range.last, range.count])),
        ),
        (TableChange::InsertSkipped, List::of(inserted.map(|(job, range)| skipped_cells(*job, range)))),
    ]);
}

fn dead_letters_and_dependencies<'a>(write_set: &'a WriteSet, changes: &mut Vec<Changed<'a>>) {
    let letters = write_set.new_dead_letters.iter();
    let letters = letters.map(|new| dead_letter_cells(&new.finished, new.noted, new.died_at));
    let pairs = |pairs: &[crate::unit_of_work::DependencyRow]| {
        List::of(pairs.iter().map(|pair| row![pair.parent, pair.child]))
    };
    let resolutions = write_set.resolutions_inserted.iter();
    changes.extend([
        (TableChange::InsertDeadLetters, List::of(letters)),
        (TableChange::DeleteDeadLetters, occurrences(&write_set.deleted_dead_letters)),
        (TableChange::ForgetDeadLetters, ids(&write_set.dead_forgotten)),
        (TableChange::InsertDependencies, pairs(&write_set.dependencies_inserted)),
        (TableChange::DeleteDependencies, pairs(&write_set.dependencies_deleted)),
        (TableChange::ForgetParents, ids(&write_set.parents_forgotten)),
        (
            TableChange::InsertResolutions,
            List::of(resolutions.map(|(parent, succeeded)| row![*parent, *succeeded])),
        ),
        (TableChange::DeleteResolutions, ids(&write_set.resolutions_deleted)),
    ]);
}

fn notes<'a>(write_set: &'a WriteSet, changes: &mut Vec<Changed<'a>>) {
    let without = write_set.notes.iter().filter(|note| note.progress.is_none());
    let counted = |note: &NoteChange| note_cells(note.id, note.last, note.noted_at, note.attempt);
    let progress = write_set.notes.iter();
    let progress = progress.filter_map(|note| Some(progress_cells(counted(note), note.progress.as_ref()?)));
    let put = write_set.checkpoints_put.iter();
    let forgotten = &write_set.notes_of_jobs_forgotten;
    changes.extend([
        (TableChange::CountNotes, List::of(without.map(counted))),
        (TableChange::PutProgress, List::of(progress)),
        (
            TableChange::PutCheckpoints,
            List::of(put.map(|(id, checkpoint)| row![id.job, id.number, checkpoint.as_json()])),
        ),
        (TableChange::DeleteCheckpoints, occurrences(&write_set.checkpoints_deleted)),
        (TableChange::DeleteNotes, occurrences(&write_set.notes_forgotten)),
        (TableChange::DeleteCheckpoints, occurrences(&write_set.notes_forgotten)),
        (TableChange::ForgetNotes, ids(forgotten)),
        (TableChange::ForgetCheckpoints, ids(forgotten)),
    ]);
}

/// The columns of `audit` before the seal.
const AUDIT_WRITTEN: usize = AUDIT.at("number");

/// All columns of new entries but the seal.
fn audit(entries: &[AuditEntry]) -> List<'_> {
    List::of(entries.iter().map(|entry| {
        let [written @ .., _number, _hash] = AuditColumns::of(entry).into_cells();
        written
    }))
}

fn queues_and_requests<'a>(write_set: &'a WriteSet, changes: &mut Vec<Changed<'a>>) -> Result<(), Fault> {
    let begun = write_set.requests_inserted.iter();
    let begun = begun.map(|(new, begun_at)| request_cells(new, *begun_at));
    let answered = write_set.requests_answered.iter().map(|(request, answer)| {
        let (token, key) = (request.token.as_str(), request.key.as_str());
        row![token, key, answer.status, answer.location.as_deref(), answer.body.as_str()]
    });
    let last_starts = write_set.counts.last_starts.iter();
    changes.extend([
        (TableChange::PutQueues, List::try_of(write_set.queues_put.iter().map(queue_cells))?),
        (
            TableChange::DeleteQueues,
            List::of(write_set.queues_deleted.iter().map(|queue| row![queue.as_str()])),
        ),
        (TableChange::SetLastStarts, List::of(last_starts.map(|(limiter, at)| row![limiter.number(), *at]))),
        (TableChange::InsertRequests, List::of(begun)),
        (TableChange::AnswerRequests, List::of(answered)),
        (TableChange::InsertAudit, audit(&write_set.audit)),
    ]);
    Ok(())
}

/// Inserts entries of the audit log, and commits the open transaction.
pub(crate) async fn commit_entries<C: ServerConnection>(
    connection: &mut C,
    entries: &[AuditEntry],
) -> Result<(), Fault> {
    connection.commit_changes(vec![], vec![(TableChange::InsertAudit, audit(entries))]).await
}
