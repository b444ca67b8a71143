//! Open occurrences.

use super::{Tx, hot_statement};
use crate::fault::Fault;
use crate::layout::sqlite_live_columns as live_columns;
use crate::reads::ReadKind;
use crate::rows::{LiveRow, OpenCount};
use crate::sqlite::reads::statements::statement;
use crate::sqlite::rows::{
    self, FORGET_SOLE, INSERT_LIVE, PLACE_LIVE, REPLACE_LIVE, UPDATE_LIVE, all, bound, job_id, limit, one,
    one_readable, read_live, up_to,
};
use punctual_core::gates::Gate;
use punctual_core::ids::{Epoch, JobId, OccurrenceId, SessionId};
use punctual_core::limits;
use punctual_core::occurrence::{Live, OccurrenceFlags};
use punctual_core::ports::LeaseRef;
use rusqlite::params;

const OPEN_OF_JOB: &str = statement(ReadKind::OpenOfJobs);
const FIND_LIVE: &str =
    concat!("SELECT ", live_columns!(), " FROM live WHERE live.job = ?1 AND live.occurrence = ?2");
pub(crate) const COUNT_OPEN: &str = "SELECT count(*), coalesce(sum(behind), 0), coalesce(sum(replayed), 0), \
     coalesce(sum(behind AND replayed), 0) \
     FROM (SELECT state = 0 AND (gates & 4) = 4 AS behind, (ties & 16) = 16 AS replayed \
     FROM live WHERE job = ?1 LIMIT ?2)";
pub(crate) const FIRST_BEHIND: &str = concat!(
    "SELECT ",
    live_columns!(),
    " FROM live WHERE live.job = ?1 AND live.state = 0 AND (live.gates & ?2) = ?2 \
     AND (live.ties & 16) = ?3 ORDER BY live.occurrence LIMIT ?4"
);
pub(crate) const HAS_OPEN_NOT_IN_LINE: &str =
    "SELECT 1 FROM live WHERE job = ?1 AND NOT (state = 0 AND (gates & 4) = 4) LIMIT 1";
pub(crate) const DELETE_LIVE: &str = "DELETE FROM live WHERE job = ?1 AND occurrence = ?2";
pub(crate) const LIVE_OF_SESSION: &str =
    concat!("SELECT ", live_columns!(), " FROM live WHERE live.session = ?1 AND live.state = 2 LIMIT ?2");
const CANCELS_OF_SESSION: &str = "SELECT job, occurrence, attempt, epoch FROM live \
     WHERE session = ?1 AND state = 2 AND cancel_requested = 1";

pub(super) fn live(tx: &mut Tx<'_>, id: OccurrenceId) -> Result<Option<LiveRow>, Fault> {
    let find = hot_statement(tx.conn, &mut tx.hot.find_live, FIND_LIVE)?;
    one_readable(find, params![id.job.as_bytes(), id.number], read_live)
}

pub(super) fn open_of_job(tx: &mut Tx<'_>, job: JobId) -> Result<Vec<LiveRow>, Fault> {
    let bounds = params![job.as_bytes(), bound(limits::OPEN_OF_JOB_MAX)];
    let mut open =
        up_to(limits::OPEN_OF_JOB_MAX, &mut *tx.conn.prepare_cached(OPEN_OF_JOB)?, bounds, read_live)?;
    open.reverse();
    Ok(open)
}

pub(super) fn count_open(tx: &mut Tx<'_>, job: JobId) -> Result<OpenCount, Fault> {
    // More occurrences may be open than the current limit allows, and each that waits counts.
    let bound = limit(limits::OPEN_OF_JOB_MAX);
    let counts = one(&mut *tx.conn.prepare_cached(COUNT_OPEN)?, params![job.as_bytes(), bound], |row| {
        let count = |column: usize| Ok::<_, rusqlite::Error>(row.get::<_, u32>(column)? as usize);
        Ok(OpenCount { open: count(0)?, behind: count(1)?, replayed: count(2)?, replayed_behind: count(3)? })
    })?;
    Ok(counts.unwrap_or_default())
}

pub(super) fn first_behind(tx: &mut Tx<'_>, job: JobId, gate: Gate) -> Result<Option<LiveRow>, Fault> {
    let mut find = tx.conn.prepare_cached(FIRST_BEHIND)?;
    let replayed = OccurrenceFlags { replayed: true, ..OccurrenceFlags::default() };
    for flags in [0, replayed.bits()] {
        let key = params![job.as_bytes(), gate as u8, flags, bound(1)];
        if let Some(first) = up_to(1, &mut find, key, read_live)?.pop() {
            return Ok(Some(first));
        }
    }
    Ok(None)
}

pub(super) fn has_open_not_waiting(tx: &mut Tx<'_>, job: JobId) -> Result<bool, Fault> {
    Ok(tx.conn.prepare_cached(HAS_OPEN_NOT_IN_LINE)?.exists([job.as_bytes()])?)
}

pub(super) fn insert_live(tx: &mut Tx<'_>, row: &LiveRow) -> Result<(), Fault> {
    let insert = hot_statement(tx.conn, &mut tx.hot.insert_live, &INSERT_LIVE)?;
    rows::insert_live(insert, &mut tx.memory.counters, row)?;
    tx.memory.touch_lane(tx.conn, row.lane, &row.live)
}

pub(super) fn update_live(tx: &mut Tx<'_>, was: &LiveRow, live: &Live) -> Result<(), Fault> {
    tx.memory.touch_lane(tx.conn, was.lane, live)?;
    if rows::is_only_placed(&was.live, live) {
        let place = hot_statement(tx.conn, &mut tx.hot.place_live, PLACE_LIVE)?;
        return rows::place_live(place, &mut tx.memory.counters, was, live);
    }
    let update = hot_statement(tx.conn, &mut tx.hot.update_live, UPDATE_LIVE)?;
    rows::update_live(update, &mut tx.memory.counters, was, live)
}

pub(super) fn update_live_in_state(tx: &mut Tx<'_>, live: &Live) -> Result<(), Fault> {
    rows::update_in_state(hot_statement(tx.conn, &mut tx.hot.update_live, UPDATE_LIVE)?, live)
}

pub(super) fn replace_live(tx: &mut Tx<'_>, was: &Live, row: &LiveRow) -> Result<(), Fault> {
    let mut replace = tx.conn.prepare_cached(&REPLACE_LIVE)?;
    rows::replace_live(&mut replace, &mut tx.memory.counters, was, row)?;
    tx.memory.touch_lane(tx.conn, row.lane, &row.live)
}

pub(super) fn delete_live(tx: &mut Tx<'_>, row: &LiveRow) -> Result<(), Fault> {
    let OccurrenceId { job, number } = row.live.id;
    let delete = hot_statement(tx.conn, &mut tx.hot.delete_live, DELETE_LIVE)?;
    if delete.execute(params![job.as_bytes(), number])? > 0 {
        tx.memory.counters.closed(row.lane, &row.live);
    }
    Ok(())
}

pub(super) fn add_live_flags(tx: &mut Tx<'_>, id: OccurrenceId, flags: OccurrenceFlags) -> Result<(), Fault> {
    tx.conn
        .prepare_cached("UPDATE live SET ties = ties | ?3 WHERE job = ?1 AND occurrence = ?2")?
        .execute(params![id.job.as_bytes(), id.number, flags.bits()])?;
    Ok(())
}

pub(super) fn add_flags_to_open(tx: &mut Tx<'_>, job: JobId, flags: OccurrenceFlags) -> Result<(), Fault> {
    tx.conn
        .prepare_cached("UPDATE live SET ties = ties | ?2 WHERE job = ?1 AND (ties & ?2) <> ?2")?
        .execute(params![job.as_bytes(), flags.bits()])?;
    Ok(())
}

pub(super) fn forget_sole(tx: &mut Tx<'_>, job: JobId) -> Result<(), Fault> {
    tx.conn.prepare_cached(FORGET_SOLE)?.execute([job.as_bytes()])?;
    Ok(())
}

pub(super) fn move_open_of_job(tx: &mut Tx<'_>, job: JobId, lane: i64) -> Result<bool, Fault> {
    let open = open_of_job(tx, job)?;
    let moved = tx
        .conn
        .prepare_cached("UPDATE live SET lane = ?2 WHERE job = ?1")?
        .execute(params![job.as_bytes(), lane])?;
    for row in &open {
        tx.memory.counters.moved((row.lane, &row.live), (lane, &row.live));
        tx.memory.touch_lane(tx.conn, lane, &row.live)?;
    }
    Ok(moved > 0)
}

pub(super) fn held_by(tx: &mut Tx<'_>, session: SessionId, count: usize) -> Result<Vec<LiveRow>, Fault> {
    let mut select = tx.conn.prepare_cached(LIVE_OF_SESSION)?;
    up_to(count, &mut select, params![session.0, bound(count)], read_live)
}

pub(super) fn cancels_of(tx: &mut Tx<'_>, session: SessionId) -> Result<Vec<LeaseRef>, Fault> {
    all(&mut *tx.conn.prepare_cached(CANCELS_OF_SESSION)?, [session.0], |row| {
        let execution = job_id(row, 0)?.occurrence(row.get(1)?).attempt(row.get(2)?);
        Ok(LeaseRef { execution, epoch: Epoch(row.get(3)?) })
    })
}
