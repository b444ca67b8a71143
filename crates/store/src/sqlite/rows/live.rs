//! Open occurrences.

use super::insert;
use crate::codecs::{self, input_column};
use crate::codes::{StateColumns, limiter_column};
use crate::counters::Counters;
use crate::fault::Fault;
use crate::layout::{LIVE, LiveColumns};
use crate::rows::LiveRow;
use punctual_core::occurrence::Live;
use punctual_core::time::Timestamp;
use rusqlite::{Row, Statement, params, params_from_iter};
use std::sync::LazyLock;

pub(crate) fn read_live(row: &Row<'_>) -> Result<LiveRow, Fault> {
    codecs::read_live(row, 0)
}

pub(crate) static INSERT_LIVE: LazyLock<String> = LazyLock::new(|| insert("INSERT", &LIVE));
/// Writes all columns of an existing live row, including its lane and times.
pub(crate) static REPLACE_LIVE: LazyLock<String> = LazyLock::new(|| insert("REPLACE", &LIVE));

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
    statement.execute(params_from_iter(LiveColumns::of(row).into_cells()))?;
    Ok(())
}

/// Writes everything that can change while an occurrence is open, except the columns that control verbs change.
pub(crate) const UPDATE_LIVE: &str = "UPDATE live SET state = ?3, gates = ?4, rank = ?5, available_at = ?6, \
     attempt = ?7, charged = ?8, epoch = ?9, session = ?10, claimed_at = ?11, cancel_requested = ?12, \
     job_version = ?13, look_at = ?14, limiter = ?15, line = ?16, input = ?17 WHERE job = ?1 AND occurrence = ?2";

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
        live.available_at.to_stored(),
        live.attempt,
        live.charged,
        live.epoch.0,
        columns.session.map(|session| session.0),
        columns.claimed_at.map(Timestamp::to_stored),
        columns.cancel_requested,
        live.job_version,
        live.look_at().map(Timestamp::to_stored),
        limiter_column(live.limiter),
        limiter_column(live.line),
        input_column(live.input.as_deref()),
    ])?;
    Ok(())
}
