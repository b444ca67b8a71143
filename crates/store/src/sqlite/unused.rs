//! Deletes names that nothing refers to: lanes without jobs, and workers that neither a session nor history
//! refers to. Each step checks a bounded number, starting where the last one ended. See decision 0026.
//!
//! The highest number of each table stays, because the next one follows it: no number is reused.

use super::rows::{all, limit, one};
use super::tx::Tx;
use crate::fault::Fault;
use punctual_core::ports::Horizon;
use rusqlite::params;

/// Every live or future occurrence in a lane belongs to a job of this lane.
pub(crate) const FORGET_LANES: &str = "DELETE FROM lanes WHERE id > ?1 AND id <= ?2 \
     AND id <> (SELECT max(id) FROM lanes) AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.lane = lanes.id) \
     AND NOT EXISTS (SELECT 1 FROM lane_tallies WHERE lane_tallies.lane = lanes.id) RETURNING id";
const FORGET_LANE: &str = "DELETE FROM lanes WHERE id = ?1 AND id < (SELECT max(id) FROM lanes) \
     AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.lane = lanes.id) \
     AND NOT EXISTS (SELECT 1 FROM lane_tallies WHERE lane_tallies.lane = lanes.id)";
const LANES_LOOKED_AT: &str =
    "SELECT max(id), count(*) FROM (SELECT id FROM lanes WHERE id > ?1 ORDER BY id LIMIT ?2)";
pub(crate) const NOTE_UNUSED_WORKERS: &str = "UPDATE workers SET unused_since = ?3 \
     WHERE id > ?1 AND id <= ?2 AND unused_since IS NULL \
     AND id NOT IN (SELECT worker FROM sessions)";
pub(crate) const FORGET_WORKERS: &str = "DELETE FROM workers WHERE id > ?1 AND id <= ?2 \
     AND id <> (SELECT max(id) FROM workers) AND unused_since < ?3 AND id NOT IN (SELECT worker FROM sessions)";
const WORKERS_LOOKED_AT: &str =
    "SELECT max(id), count(*) FROM (SELECT id FROM workers WHERE id > ?1 ORDER BY id LIMIT ?2)";

/// The numbers up to which names were checked. If the process ends, the check starts over.
#[derive(Debug, Default)]
pub(crate) struct UnusedCursors {
    lanes: i64,
    workers: i64,
}

/// Checks up to `count` lanes. Returns whether any was deleted and more are to be checked.
pub(super) fn delete_lanes(tx: &mut Tx<'_>, count: usize) -> Result<bool, Fault> {
    let after = tx.memory.unused.lanes;
    let page = CheckedPage::after(tx, LANES_LOOKED_AT, after, count)?;
    let bounds = params![after, page.last];
    let gone = all(&mut *tx.conn.prepare_cached(FORGET_LANES)?, bounds, |row| Ok(row.get::<_, i64>(0)?))?;
    for lane in &gone {
        tx.memory.lanes.remove(*lane);
    }
    tx.memory.unused.lanes = page.next();
    Ok(page.is_full && !gone.is_empty())
}

/// Deletes the given lanes that nothing refers to.
pub(super) fn forget_these_lanes(tx: &mut Tx<'_>, lanes: impl IntoIterator<Item = i64>) -> Result<(), Fault> {
    for lane in lanes {
        if tx.conn.prepare_cached(FORGET_LANE)?.execute([lane])? > 0 {
            tx.memory.lanes.remove(lane);
        }
    }
    Ok(())
}

/// Checks up to `count` workers. Returns whether any was deleted and more are to be checked.
pub(super) fn delete_workers(tx: &mut Tx<'_>, horizon: Horizon, count: usize) -> Result<bool, Fault> {
    let after = tx.memory.unused.workers;
    let page = CheckedPage::after(tx, WORKERS_LOOKED_AT, after, count)?;
    let before = params![after, page.last, horizon.workers().as_micros()];
    let gone = tx.conn.prepare_cached(FORGET_WORKERS)?.execute(before)?;
    let now = params![after, page.last, horizon.now().as_micros()];
    tx.conn.prepare_cached(NOTE_UNUSED_WORKERS)?.execute(now)?;
    tx.memory.unused.workers = page.next();
    Ok(page.is_full && gone > 0)
}

/// The numbers that a step checks.
struct CheckedPage {
    /// The last of them; zero if there are none.
    last: i64,
    is_full: bool,
}

impl CheckedPage {
    fn after(tx: &Tx<'_>, sql: &str, after: i64, count: usize) -> Result<Self, Fault> {
        let looked_at = one(&mut *tx.conn.prepare_cached(sql)?, params![after, limit(count)], |row| {
            Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, i64>(1)?))
        })?;
        let (last, rows) = looked_at.unwrap_or_default();
        Ok(CheckedPage { last: last.unwrap_or_default(), is_full: rows > 0 && rows == limit(count) })
    }

    /// Where the next step begins: after these, or at the start again.
    fn next(&self) -> i64 {
        if self.is_full { self.last } else { 0 }
    }
}
