//! Schedules.

use super::insert;
use crate::codecs::{self, UnnamedSchedule};
use crate::codes::{nominal_column, numbered_column, replay_column};
use crate::fault::Fault;
use crate::layout::{SCHEDULES, ScheduleColumns};
use punctual_core::schedule::ScheduleState;
use punctual_core::time::Timestamp;
use rusqlite::{Row, Statement, params, params_from_iter};
use std::sync::LazyLock;

pub(crate) fn read_schedule(row: &Row<'_>) -> Result<UnnamedSchedule, Fault> {
    codecs::read_schedule(row, 0)
}

/// Writes a schedule, whether or not its job has one.
pub(crate) static PUT_SCHEDULE: LazyLock<String> = LazyLock::new(|| insert("REPLACE", &SCHEDULES));

pub(crate) fn put_schedule(put: &mut Statement<'_>, state: &ScheduleState, lane: i64) -> Result<(), Fault> {
    put.execute(params_from_iter(ScheduleColumns::of(state, lane)?.into_cells()))?;
    Ok(())
}

/// Advances a schedule; columns that a fire does not change stay.
pub(crate) const ADVANCE_SCHEDULE: &str = "UPDATE schedules SET version = ?2, due_at = ?3, nominal = ?4, \
     fired = ?5, replay = ?6, numbered = ?7 WHERE job = ?1";

pub(crate) fn advance_schedule(update: &mut Statement<'_>, next: &ScheduleState) -> Result<(), Fault> {
    update.execute(params![
        next.job.as_bytes(),
        next.version,
        next.due_at.map(Timestamp::to_stored),
        nominal_column(next).map(Timestamp::to_stored),
        next.fired,
        replay_column(next)?,
        numbered_column(next),
    ])?;
    Ok(())
}
