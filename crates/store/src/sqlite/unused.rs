//! Deletes names that nothing refers to any more: lanes without jobs, and workers that neither a session nor history names.
//! A bounded number is looked at in each step, from where the last one ended. See decision 0026.
//!
//! The highest number of each table stays, because the next one follows it: no number is given twice.

use super::rows::{all, limit, one, time};
use super::tx::Tx;
use crate::fault::Fault;
use punctual_core::limits;
use punctual_core::time::Timestamp;
use rusqlite::params;

/// Whatever is live or to come in a lane belongs to a job of this lane.
pub(crate) const FORGET_LANES: &str = "DELETE FROM lanes WHERE id IN (SELECT id FROM lanes WHERE id > ?1 ORDER BY id LIMIT ?2) \
     AND id < (SELECT max(id) FROM lanes) AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.lane = lanes.id) \
     AND NOT EXISTS (SELECT 1 FROM lane_tallies WHERE lane_tallies.lane = lanes.id) RETURNING id";
const FORGET_LANE: &str = "DELETE FROM lanes WHERE id = ?1 AND id < (SELECT max(id) FROM lanes) \
     AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.lane = lanes.id) \
     AND NOT EXISTS (SELECT 1 FROM lane_tallies WHERE lane_tallies.lane = lanes.id)";
const LAST_LANE_LOOKED_AT: &str =
    "SELECT max(id) FROM (SELECT id FROM lanes WHERE id > ?1 ORDER BY id LIMIT ?2)";
pub(crate) const NOTE_UNUSED_WORKERS: &str = "UPDATE workers SET unused_since = ?3 \
     WHERE id IN (SELECT id FROM workers WHERE id > ?1 ORDER BY id LIMIT ?2) AND unused_since IS NULL \
     AND id NOT IN (SELECT worker FROM sessions)";
pub(crate) const FORGET_WORKERS: &str = "DELETE FROM workers WHERE id IN (SELECT id FROM workers WHERE id > ?1 ORDER BY id LIMIT ?2) \
     AND id < (SELECT max(id) FROM workers) AND unused_since < ?3 AND id NOT IN (SELECT worker FROM sessions)";
const LAST_WORKER_LOOKED_AT: &str =
    "SELECT max(id) FROM (SELECT id FROM workers WHERE id > ?1 ORDER BY id LIMIT ?2)";
/// History is appended to in the order of completion.
const OLDEST_HISTORY: &str = "SELECT completed_at FROM history ORDER BY seq LIMIT 1";

/// Up to which number names were looked at. Lost with the process, it begins again.
#[derive(Debug, Default)]
pub(crate) struct UnusedCursors {
    lanes: i64,
    workers: i64,
}

/// Looks at up to `count` names of each kind; whether any was deleted and more are to be looked at.
pub(super) fn forget_names(tx: &mut Tx<'_>, now: Timestamp, count: usize) -> Result<bool, Fault> {
    Ok(forget_lanes(tx, count)? | forget_workers(tx, now, count)?)
}

fn forget_lanes(tx: &mut Tx<'_>, count: usize) -> Result<bool, Fault> {
    let from = params![tx.memory.unused.lanes, limit(count)];
    let last = last_looked_at(tx, LAST_LANE_LOOKED_AT, tx.memory.unused.lanes, count)?;
    let gone = all(&mut *tx.conn.prepare_cached(FORGET_LANES)?, from, |row| Ok(row.get::<_, i64>(0)?))?;
    for lane in &gone {
        tx.memory.lanes.remove(*lane);
    }
    tx.memory.unused.lanes = last.unwrap_or_default();
    Ok(last.is_some() && !gone.is_empty())
}

/// Those of these lanes go that nothing refers to any more.
pub(super) fn forget_these_lanes(
    tx: &mut Tx<'_>,
    lanes: impl IntoIterator<Item = i64>,
) -> Result<(), Fault> {
    for lane in lanes {
        if tx.conn.prepare_cached(FORGET_LANE)?.execute([lane])? > 0 {
            tx.memory.lanes.remove(lane);
        }
    }
    Ok(())
}

fn forget_workers(tx: &mut Tx<'_>, now: Timestamp, count: usize) -> Result<bool, Fault> {
    let after = tx.memory.unused.workers;
    let last = last_looked_at(tx, LAST_WORKER_LOOKED_AT, after, count)?;
    let oldest = one(&mut *tx.conn.prepare_cached(OLDEST_HISTORY)?, [], |row| time(row, 0))?;
    let before = oldest.unwrap_or(now).min(now).minus(limits::WORKER_NAMES_KEPT);
    let gone = tx
        .conn
        .prepare_cached(FORGET_WORKERS)?
        .execute(params![after, limit(count), before.as_micros()])?;
    tx.conn.prepare_cached(NOTE_UNUSED_WORKERS)?.execute(params![after, limit(count), now.as_micros()])?;
    tx.memory.unused.workers = last.unwrap_or_default();
    Ok(last.is_some() && gone > 0)
}

/// The last number of those that are looked at; `None` if there are no more behind them.
fn last_looked_at(tx: &Tx<'_>, sql: &str, after: i64, count: usize) -> Result<Option<i64>, Fault> {
    let last = one(&mut *tx.conn.prepare_cached(sql)?, params![after, limit(count)], |row| {
        Ok(row.get::<_, Option<i64>>(0)?)
    })?;
    Ok(last.flatten())
}
