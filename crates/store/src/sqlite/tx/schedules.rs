//! Schedules.

use super::Tx;
use crate::codes::FLAG_AWAITED;
use crate::fault::Fault;
use crate::layout::sqlite_schedule_columns as schedule_columns;
use crate::malformed::skip_malformed;
use crate::rows::ScheduleRow;
use crate::sqlite::rows::{self, ADVANCE_SCHEDULE, PUT_SCHEDULE, one_readable, read_schedule};
use punctual_core::ids::JobId;
use punctual_core::schedule::ScheduleState;
use rusqlite::params;

pub(crate) const SCHEDULE_OF_JOB: &str =
    concat!("SELECT ", schedule_columns!(), " FROM schedules WHERE job = ?1");

pub(super) fn schedule(tx: &mut Tx<'_>, job: JobId) -> Result<Option<ScheduleRow>, Fault> {
    let mut select = tx.conn.prepare_cached(SCHEDULE_OF_JOB)?;
    let found = one_readable(&mut select, [job.as_bytes()], read_schedule)?;
    let Some(row) = found else { return Ok(None) };
    let lane = skip_malformed(tx.memory.lane(tx.conn, row.lane))?;
    Ok(lane.map(|lane| row.named(&lane)))
}

pub(super) fn put_schedule(tx: &mut Tx<'_>, state: &ScheduleState, lane: i64) -> Result<(), Fault> {
    rows::put_schedule(&mut *tx.conn.prepare_cached(&PUT_SCHEDULE)?, state, lane)
}

pub(super) fn advance_schedule(tx: &mut Tx<'_>, next: &ScheduleState) -> Result<(), Fault> {
    rows::advance_schedule(&mut *tx.conn.prepare_cached(ADVANCE_SCHEDULE)?, next)
}

pub(super) fn delete_schedule(tx: &mut Tx<'_>, job: JobId) -> Result<(), Fault> {
    tx.conn.prepare_cached("DELETE FROM schedules WHERE job = ?1")?.execute([job.as_bytes()])?;
    Ok(())
}

pub(super) fn set_schedule_awaited(tx: &mut Tx<'_>, job: JobId) -> Result<(), Fault> {
    tx.conn
        .prepare_cached("UPDATE schedules SET ties = ties | ?2 WHERE job = ?1")?
        .execute(params![job.as_bytes(), FLAG_AWAITED])?;
    Ok(())
}
