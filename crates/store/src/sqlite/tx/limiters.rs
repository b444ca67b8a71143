//! Limiters: their use and their wait lists. No other transaction writes while this one is open.

use super::Tx;
use super::names::lanes_through;
use crate::counters::{LimiterCounts, shown};
use crate::fault::Fault;
use crate::layout::sqlite_live_columns as live_columns;
use crate::rows::LiveRow;
use crate::sqlite::rows::{bound, read_live, up_to};
use punctual_core::limiter::{LimiterId, LimiterUse, WaitList};
use punctual_core::time::Timestamp;
use rusqlite::params;

pub(crate) const FIRST_IN_LINE: &str = concat!(
    "SELECT ",
    live_columns!(),
    " FROM live WHERE live.line = ?1 ORDER BY live.rank, live.job, live.occurrence LIMIT ?2"
);

pub(super) fn limiter(tx: &mut Tx<'_>, line: &WaitList) -> Result<LimiterUse, Fault> {
    let id = line.id();
    let written = tx.memory.written.limiter(tx.conn, id)?;
    let LimiterCounts { waiting, in_use } = tx.memory.counters.of_limiter(id, written.counts);
    let in_use = if line.key.is_some() { in_use } else { started(tx, &line.queue)? };
    let last_at = tx.memory.counters.last_start(id, written.last_at);
    Ok(LimiterUse { waiting: shown(waiting), in_use: shown(in_use), last_at })
}

/// Queued and running executions of a queue.
fn started(tx: &mut Tx<'_>, queue: &str) -> Result<i64, Fault> {
    let mut started = 0;
    for (lane, _) in lanes_through(tx, queue)? {
        let written = tx.memory.active(tx.conn)?.counts(lane).started();
        started = [written, tx.memory.counters.started(lane)].into_iter().fold(started, i64::saturating_add);
    }
    Ok(started)
}

pub(super) fn set_last_start(tx: &mut Tx<'_>, limiter: LimiterId, at: Timestamp) -> Result<(), Fault> {
    tx.memory.counters.paced(limiter, at);
    Ok(())
}

pub(super) fn first_on_wait_list(
    tx: &mut Tx<'_>,
    line: &WaitList,
    count: usize,
) -> Result<Vec<LiveRow>, Fault> {
    let mut select = tx.conn.prepare_cached(FIRST_IN_LINE)?;
    up_to(count, &mut select, params![line.id().number(), bound(count)], read_live)
}
