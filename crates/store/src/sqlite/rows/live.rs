//! Open occurrences.

use super::{decode, job_id, priority, time, time_or_none};
use crate::codes::{Code, StateColumns, limiter_column, live_ties, read_limiter, read_live_ties};
use crate::counters::Counters;
use crate::fault::Fault;
use crate::rows::LiveRow;
use punctual_core::ids::Epoch;
use punctual_core::occurrence::Live;
use punctual_core::time::Timestamp;
use rusqlite::{Row, Statement, params};

/// The columns of `live` in the order in which [`read_live`] expects them at the start of a row.
macro_rules! live_columns {
    () => {
        "live.job, live.occurrence, live.lane, live.state, live.gates, live.rank, live.priority, \
         live.available_at, live.scheduled_time, live.origin, live.job_version, live.attempt, live.charged, \
         live.epoch, live.session, live.claimed_at, live.cancel_requested, live.expires_at, live.ties, \
         live.limiter, live.line"
    };
}
pub(crate) use live_columns;

/// The number of columns in [`live_columns`]: the index of the next one.
pub(crate) const LIVE_COLUMNS: usize = 21;

pub(crate) fn read_live(row: &Row<'_>) -> Result<LiveRow, Fault> {
    let (ties, is_sole) = read_live_ties(row.get(18)?)?;
    let state = StateColumns {
        state: row.get(3)?,
        gates: row.get(4)?,
        session: row.get(14)?,
        claimed_at: row.get(15)?,
        cancel_requested: row.get(16)?,
    };
    let live = Live {
        id: job_id(row, 0)?.occurrence(row.get(1)?),
        state: state.read()?,
        rank: row.get(5)?,
        priority: priority(row, 6)?,
        available_at: time(row, 7)?,
        scheduled_time: time(row, 8)?,
        origin: decode(row, 9, "live.origin")?,
        job_version: row.get(10)?,
        attempt: row.get(11)?,
        charged: row.get(12)?,
        epoch: Epoch(row.get(13)?),
        expires_at: time_or_none(row, 17)?,
        ties,
        limiter: read_limiter(row.get(19)?)?,
        line: read_limiter(row.get(20)?)?,
    };
    Ok(LiveRow { live, lane: row.get(2)?, is_sole })
}

macro_rules! whole_live_row {
    () => {
        " INTO live (job, occurrence, segment, lane, state, gates, rank, priority, available_at, \
         scheduled_time, origin, job_version, attempt, charged, epoch, session, claimed_at, cancel_requested, \
         expires_at, look_at, ties, limiter, line) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, \
         ?22, ?23)"
    };
}
pub(crate) const INSERT_LIVE: &str = concat!("INSERT", whole_live_row!());
/// Writes all columns of an existing live row, including its lane and times.
pub(crate) const REPLACE_LIVE: &str = concat!("REPLACE", whole_live_row!());

/// Inserts a new row.
pub(crate) fn insert_live(
    insert: &mut Statement<'_>,
    counters: &mut Counters,
    row: &LiveRow,
) -> Result<(), Fault> {
    write_whole(insert, row)?;
    counters.opened(row.lane, &row.live);
    Ok(())
}

/// Writes the whole row, which was `was` before and stays in its lane.
pub(crate) fn replace_live(
    replace: &mut Statement<'_>,
    counters: &mut Counters,
    was: &Live,
    row: &LiveRow,
) -> Result<(), Fault> {
    write_whole(replace, row)?;
    counters.moved((row.lane, was), (row.lane, &row.live));
    Ok(())
}

/// Clears `is_sole` on the job's rows.
pub(crate) const FORGET_SOLE: &str = "UPDATE live SET ties = ties & 127 WHERE job = ?1 AND ties > 127";

fn write_whole(statement: &mut Statement<'_>, row: &LiveRow) -> Result<(), Fault> {
    let live = &row.live;
    let columns = StateColumns::of(live.state);
    statement.execute(params![
        live.id.job.as_bytes(),
        live.id.number,
        live.id.job.segment().index(),
        row.lane,
        columns.state,
        columns.gates,
        live.rank,
        live.priority.get(),
        live.available_at.as_micros(),
        live.scheduled_time.as_micros(),
        live.origin.code(),
        live.job_version,
        live.attempt,
        live.charged,
        live.epoch.0,
        columns.session,
        columns.claimed_at,
        columns.cancel_requested,
        live.expires_at.map(Timestamp::as_micros),
        live.look_at().map(Timestamp::as_micros),
        live_ties(row),
        limiter_column(live.limiter),
        limiter_column(live.line),
    ])?;
    Ok(())
}

/// Writes everything that can change while an occurrence is open, except what control verbs change.
pub(crate) const UPDATE_LIVE: &str = "UPDATE live SET state = ?3, gates = ?4, rank = ?5, available_at = ?6, \
     attempt = ?7, charged = ?8, epoch = ?9, session = ?10, claimed_at = ?11, cancel_requested = ?12, \
     job_version = ?13, look_at = ?14, limiter = ?15, line = ?16 WHERE job = ?1 AND occurrence = ?2";

/// Writes only the columns of a row's place; all others are unchanged. Executions leave wait lists by the
/// thousand, and indexes on columns that are not named cost nothing.
pub(crate) const PLACE_LIVE: &str =
    "UPDATE live SET state = ?3, gates = ?4, line = ?5 WHERE job = ?1 AND occurrence = ?2";

/// Whether only the place of a row that has not started has changed.
pub(crate) fn is_only_placed(was: &Live, live: &Live) -> bool {
    !live.is_running()
        && !was.is_running()
        && was.look_at() == live.look_at()
        && Live { state: live.state, line: live.line, ..was.clone() } == *live
}

/// Like [`update_live`], for a row that [`is_only_placed`].
pub(crate) fn place_live(
    place: &mut Statement<'_>,
    counters: &mut Counters,
    was: &LiveRow,
    live: &Live,
) -> Result<(), Fault> {
    let StateColumns { state, gates, .. } = StateColumns::of(live.state);
    place.execute(params![
        live.id.job.as_bytes(),
        live.id.number,
        state,
        gates,
        limiter_column(live.line)
    ])?;
    counters.moved((was.lane, &was.live), (was.lane, live));
    Ok(())
}

/// Writes the changes of a row that stays in its lane.
pub(crate) fn update_live(
    update: &mut Statement<'_>,
    counters: &mut Counters,
    was: &LiveRow,
    live: &Live,
) -> Result<(), Fault> {
    update_in_state(update, live)?;
    counters.moved((was.lane, &was.live), (was.lane, live));
    Ok(())
}

/// Like [`update_live`], for a row whose state does not change.
pub(crate) fn update_in_state(update: &mut Statement<'_>, live: &Live) -> Result<(), Fault> {
    let columns = StateColumns::of(live.state);
    update.execute(params![
        live.id.job.as_bytes(),
        live.id.number,
        columns.state,
        columns.gates,
        live.rank,
        live.available_at.as_micros(),
        live.attempt,
        live.charged,
        live.epoch.0,
        columns.session,
        columns.claimed_at,
        columns.cancel_requested,
        live.job_version,
        live.look_at().map(Timestamp::as_micros),
        limiter_column(live.limiter),
        limiter_column(live.line),
    ])?;
    Ok(())
}
