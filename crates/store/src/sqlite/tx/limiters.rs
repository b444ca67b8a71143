//! Limiters: how they are used, and who waits in their lines. Nobody else writes while this transaction is open.

use super::Tx;
use super::names::lanes_through;
use crate::fault::Fault;
use crate::rows::LiveRow;
use crate::sqlite::rows::{all, limit, live_columns, one, read_live, time};
use crate::sqlite::tally;
use crate::tally::shown;
use punctual_core::limiter::{LimiterId, LimiterUse, Line};
use punctual_core::time::Timestamp;
use rusqlite::params;

const LAST_START: &str = "SELECT last_at FROM limiter_paces WHERE limiter = ?1";
const SET_LAST_START: &str = "INSERT INTO limiter_paces (limiter, last_at) VALUES (?1, ?2) \
     ON CONFLICT (limiter) DO UPDATE SET last_at = ?2";
pub(crate) const FIRST_IN_LINE: &str = concat!(
    "SELECT ",
    live_columns!(),
    " FROM live WHERE live.line = ?1 ORDER BY live.rank, live.job, live.occurrence LIMIT ?2"
);

pub(super) fn limiter(tx: &mut Tx<'_>, line: &Line) -> Result<LimiterUse, Fault> {
    let id = line.id();
    let [waiting, in_use] = tx.memory.tally.of_limiter(id, tally::limiter(tx.conn, id)?);
    let in_use = if line.key.is_some() { in_use } else { started(tx, &line.queue)? };
    let last_at = one(&mut *tx.conn.prepare_cached(LAST_START)?, [id.number()], |row| time(row, 0))?;
    Ok(LimiterUse { waiting: shown(waiting), in_use: shown(in_use), last_at })
}

/// What of a queue is queued or runs.
fn started(tx: &mut Tx<'_>, queue: &str) -> Result<i64, Fault> {
    let mut started = 0;
    for (lane, _) in lanes_through(tx, queue)? {
        started += tx.memory.tally.started(lane, tally::started(tx.conn, lane)?);
    }
    Ok(started)
}

pub(super) fn set_last_start(tx: &mut Tx<'_>, limiter: LimiterId, at: Timestamp) -> Result<(), Fault> {
    tx.conn.prepare_cached(SET_LAST_START)?.execute(params![limiter.number(), at.as_micros()])?;
    Ok(())
}

pub(super) fn first_in_line(tx: &mut Tx<'_>, line: &Line, count: usize) -> Result<Vec<LiveRow>, Fault> {
    let mut select = tx.conn.prepare_cached(FIRST_IN_LINE)?;
    all(&mut select, params![line.id().number(), limit(count)], read_live)
}
