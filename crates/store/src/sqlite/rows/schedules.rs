//! Schedules.

use super::{decode, job_id, priority, text_or_none, time_or_none};
use crate::codes::{
    Code, ScheduleColumns, nominal_column, numbered_column, owner_column, read_owner, replay_column,
};
use crate::fault::Fault;
use punctual_core::ports::Lane;
use punctual_core::schedule::ScheduleState;
use punctual_core::time::Timestamp;
use rusqlite::{Row, Statement, params};
use std::borrow::Cow;

/// A schedule row whose lane name is not resolved yet.
pub(crate) struct StoredSchedule {
    state: ScheduleState,
    pub lane: i64,
}

macro_rules! schedule_columns {
    () => {
        "job, version, due_at, nominal, fired, job_version, lane, priority, overlap, owner, schedule, \
         replay, numbered, overlap_limit, max_open, expiry, ties"
    };
}
pub(crate) use schedule_columns;

impl StoredSchedule {
    pub fn read(row: &Row<'_>) -> Result<Self, Fault> {
        let (due_at, fired) = (time_or_none(row, 2)?, row.get(4)?);
        let columns = ScheduleColumns {
            nominal: row.get(3)?,
            schedule: text_or_none(row, 10)?.map(Cow::Borrowed),
            replay: text_or_none(row, 11)?.map(Cow::Borrowed),
            numbered: row.get(12)?,
            overlap_limit: row.get(13)?,
            max_open: row.get(14)?,
            expiry: text_or_none(row, 15)?.map(Cow::Borrowed),
            ties: row.get(16)?,
        };
        let parts = columns.read(due_at, fired, decode(row, 8, "schedules.overlap")?)?;
        let state = ScheduleState {
            job: job_id(row, 0)?,
            version: row.get(1)?,
            nominal: parts.nominal,
            due_at,
            replay: parts.replay,
            fired,
            numbered: parts.numbered,
            job_version: row.get(5)?,
            queue: String::new(),
            job_type: String::new(),
            owner: read_owner(row.get(9)?),
            priority: priority(row, 7)?,
            overlap: parts.overlap,
            expiry: parts.expiry,
            depends: parts.depends,
            awaited: parts.awaited,
            schedule: parts.schedule,
        };
        Ok(StoredSchedule { state, lane: row.get(6)? })
    }

    pub fn named(self, lane: &Lane) -> ScheduleState {
        let (queue, job_type) = (lane.queue().to_owned(), lane.job_type().to_owned());
        ScheduleState { queue, job_type, ..self.state }
    }
}

/// Writes a schedule, whether or not its job has one.
pub(crate) const PUT_SCHEDULE: &str = "REPLACE INTO schedules (job, segment, version, due_at, nominal, fired, job_version, lane, priority, \
     overlap, owner, schedule, replay, numbered, overlap_limit, max_open, expiry, ties) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)";

pub(crate) fn put_schedule(put: &mut Statement<'_>, state: &ScheduleState, lane: i64) -> Result<(), Fault> {
    let columns = ScheduleColumns::of(state)?;
    put.execute(params![
        state.job.as_bytes(),
        state.job.segment().index(),
        state.version,
        state.due_at.map(Timestamp::as_micros),
        columns.nominal,
        state.fired,
        state.job_version,
        lane,
        state.priority.get(),
        state.overlap.policy.code(),
        owner_column(&state.owner),
        columns.schedule,
        columns.replay,
        columns.numbered,
        columns.overlap_limit,
        columns.max_open,
        columns.expiry,
        columns.ties,
    ])?;
    Ok(())
}

/// Advances a schedule; columns that a fire does not change stay.
pub(crate) const ADVANCE_SCHEDULE: &str = "UPDATE schedules SET version = ?2, due_at = ?3, nominal = ?4, \
     fired = ?5, replay = ?6, numbered = ?7 WHERE job = ?1";

pub(crate) fn advance_schedule(update: &mut Statement<'_>, next: &ScheduleState) -> Result<(), Fault> {
    update.execute(params![
        next.job.as_bytes(),
        next.version,
        next.due_at.map(Timestamp::as_micros),
        nominal_column(next),
        next.fired,
        replay_column(next)?,
        numbered_column(next),
    ])?;
    Ok(())
}
