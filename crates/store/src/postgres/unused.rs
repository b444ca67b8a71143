//! Deletes what nothing uses: lanes without jobs, counters of lanes that sum to zero, and workers that
//! neither a session nor history refers to. Each step checks a bounded number, starting where the last one
//! ended. See decision 0026.

use super::wire::{Call, Frame, Wire, column, value};
use crate::cells::get;
use crate::codecs::limit;
use crate::fault::Fault;
use crate::unit_of_work::LaneCache;
use punctual_core::ports::Horizon;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use tokio_postgres::Row;

/// Every live or future occurrence in a lane belongs to a job of this lane. Each lane is looked up
/// separately: a plan with joins would read all jobs.
pub(crate) const LANES_LOOKED_AT: &str = "SELECT page.id, (SELECT count(*) FROM \
     (SELECT 1 FROM jobs WHERE jobs.lane = page.id LIMIT 1) AS one) = 0, 1::bigint \
     FROM (SELECT id FROM lanes WHERE id > $1 ORDER BY id LIMIT $2) AS page ORDER BY page.id";
/// A transaction that is about to write the number of a lane has its row locked.
const LOCK_LANES: &str = "SELECT id FROM lanes WHERE id = ANY($1) ORDER BY id FOR UPDATE SKIP LOCKED";
/// A separate statement, so that it sees what earlier holders of the row locks have written.
const DELETE_LANES: &str = "DELETE FROM lanes WHERE id = ANY($1) \
     AND (SELECT count(*) FROM (SELECT 1 FROM jobs WHERE jobs.lane = lanes.id LIMIT 1) AS one) = 0 \
     AND (SELECT coalesce(sum(waiting), 0) = 0 AND coalesce(sum(queued), 0) = 0 AND coalesce(sum(running), 0) = 0 \
          FROM lane_tallies WHERE lane_tallies.lane = lanes.id) RETURNING id";
const DELETE_COUNTERS_OF_LANES: &str = "DELETE FROM lane_tallies WHERE lane = ANY($1)";

pub(crate) const COUNTERS_LOOKED_AT: &str = "SELECT lane, sum(waiting) = 0 AND sum(queued) = 0 AND sum(running) = 0, count(*) \
     FROM (SELECT * FROM lane_tallies WHERE lane > $1 ORDER BY lane, shard LIMIT $2) AS page \
     GROUP BY lane ORDER BY lane";
const LOCK_COUNTERS: &str = "SELECT lane, shard, waiting, queued, running FROM lane_tallies \
     WHERE lane = ANY($1) ORDER BY lane, shard FOR UPDATE SKIP LOCKED";
const DELETE_COUNTERS: &str = "DELETE FROM lane_tallies USING unnest($1::bigint[], $2::smallint[]) AS old(lane, shard) \
     WHERE lane_tallies.lane = old.lane AND lane_tallies.shard = old.shard";

const WORKERS_LOOKED_AT: &str = "SELECT id, 1::bigint FROM workers WHERE id > $1 ORDER BY id LIMIT $2";
const DELETE_WORKERS: &str = "DELETE FROM workers WHERE id = ANY($1) AND unused_since < $2 \
     AND id NOT IN (SELECT worker FROM sessions) RETURNING id";
const NOTE_UNUSED_WORKERS: &str = "UPDATE workers SET unused_since = $2 WHERE id = ANY($1) AND unused_since IS NULL \
     AND id NOT IN (SELECT worker FROM sessions)";
/// A worker's name is created before its session.
const NOTE_USED_WORKERS: &str = "UPDATE workers SET unused_since = NULL WHERE id = ANY($1) \
     AND unused_since IS NOT NULL AND id IN (SELECT worker FROM sessions)";

/// The numbers up to which names and counters were checked. If the process ends, the check starts over.
#[derive(Debug, Default)]
pub(crate) struct UnusedCursors {
    lanes: AtomicI64,
    counters: AtomicI64,
    workers: AtomicI64,
}

impl UnusedCursors {
    /// Checks up to `count` lanes. Returns whether any was deleted and more are to be checked.
    pub async fn delete_lanes(
        &self,
        wire: &mut Wire,
        known: &LaneCache,
        count: usize,
    ) -> Result<bool, Fault> {
        let page = next_page(wire, LANES_LOOKED_AT, &self.lanes, count).await?;
        Ok(delete_lanes(wire, known, marked(&page.rows)?).await? > 0 && page.is_full)
    }

    /// Checks up to `count` rows of counters. Returns whether more are to be checked.
    pub async fn delete_counters(&self, wire: &mut Wire, count: usize) -> Result<bool, Fault> {
        let page = next_page(wire, COUNTERS_LOOKED_AT, &self.counters, count).await?;
        if page.is_full && page.rows.len() > 1 {
            // The page may not hold all rows of its last lane: the next one starts with them.
            self.counters.fetch_sub(1, Ordering::Relaxed);
        }
        delete_lane_counters(wire, marked(&page.rows)?).await?;
        Ok(page.is_full)
    }

    /// Checks up to `count` workers. Returns whether any was deleted and more are to be checked.
    pub async fn delete_workers(
        &self,
        wire: &mut Wire,
        horizon: Horizon,
        count: usize,
    ) -> Result<bool, Fault> {
        let page = next_page(wire, WORKERS_LOOKED_AT, &self.workers, count).await?;
        if page.rows.is_empty() {
            return Ok(false);
        }
        let workers = page.rows.iter().map(|row| get(row, 0)).collect::<Result<Vec<i64>, _>>()?;
        let bounds = |time: i64| [value(workers.as_slice()), value(time)];
        let deletion = Call::new(DELETE_WORKERS, bounds(horizon.workers().as_micros()));
        let gone = wire.run_one(deletion).await?.len();
        wire.run_one(Call::new(NOTE_UNUSED_WORKERS, bounds(horizon.now().as_micros()))).await?;
        wire.run_one(Call::new(NOTE_USED_WORKERS, [value(workers.as_slice())])).await?;
        Ok(gone > 0 && page.is_full)
    }
}

/// Deletes the given lanes that nothing refers to. Returns their number.
pub(crate) async fn delete_lanes(
    wire: &mut Wire,
    known: &LaneCache,
    unused: Vec<i64>,
) -> Result<usize, Fault> {
    if unused.is_empty() {
        return Ok(0);
    }
    let locked = wire.run(Frame::Begin, vec![Call::new(LOCK_LANES, [value(unused)])]).await?.remove(0);
    let locked = locked.iter().map(|row| get(row, 0)).collect::<Result<Vec<i64>, _>>()?;
    let gone = wire.run_one(Call::new(DELETE_LANES, [value(locked)])).await?;
    let gone = gone.iter().map(|row| get(row, 0)).collect::<Result<Vec<i64>, _>>()?;
    let counters = Call::new(DELETE_COUNTERS_OF_LANES, [value(gone.as_slice())]);
    wire.run(Frame::Commit, vec![counters]).await?;
    known.forget(&gone);
    Ok(gone.len())
}

/// Deletes counter rows of these lanes that sum to zero, skipping locked ones: the remaining rows have the
/// same sum.
async fn delete_lane_counters(wire: &mut Wire, lanes: Vec<i64>) -> Result<(), Fault> {
    if lanes.is_empty() {
        return Ok(());
    }
    let rows = wire.run(Frame::Begin, vec![Call::new(LOCK_COUNTERS, [value(lanes)])]).await?.remove(0);
    let mut locked: BTreeMap<i64, (Vec<i16>, [i64; 3])> = BTreeMap::new();
    for row in &rows {
        let (shards, sum) = locked.entry(get(row, 0)?).or_default();
        shards.push(get(row, 1)?);
        for (sum, column) in sum.iter_mut().zip(2..) {
            *sum += get::<i64>(row, column)?;
        }
    }
    locked.retain(|_, (_, sum)| *sum == [0; 3]);
    let keys: Vec<(i64, i16)> = locked
        .into_iter()
        .flat_map(|(lane, (shards, _))| shards.into_iter().map(move |shard| (lane, shard)))
        .collect();
    let (lanes, shards) = (column(keys.iter().map(|key| key.0)), column(keys.iter().map(|key| key.1)));
    wire.run(Frame::Commit, vec![Call::new(DELETE_COUNTERS, [lanes, shards])]).await?;
    Ok(())
}

/// Rows that one step checks.
struct Page {
    rows: Vec<Row>,
    /// Whether more may follow.
    is_full: bool,
}

/// The rows after a cursor. Moves the cursor to the last of them, or back to the start if there are no
/// more.
async fn next_page(
    wire: &mut Wire,
    sql: &'static str,
    cursor: &AtomicI64,
    count: usize,
) -> Result<Page, Fault> {
    let bounds = [value(cursor.load(Ordering::Relaxed)), value(limit(count))];
    let rows = wire.run_one(Call::new(sql, bounds)).await?;
    // The last column says how many rows of the table each result covers.
    let mut looked_at = 0;
    for row in &rows {
        looked_at += get::<i64>(row, row.len() - 1)?;
    }
    let is_full = looked_at > 0 && looked_at == limit(count);
    let last = rows.last().filter(|_| is_full).map_or(Ok(0), |row| get(row, 0))?;
    cursor.store(last, Ordering::Relaxed);
    Ok(Page { rows, is_full })
}

/// The numbers of rows whose second column is true.
fn marked(rows: &[Row]) -> Result<Vec<i64>, Fault> {
    let mut numbers = Vec::new();
    for row in rows {
        if get(row, 1)? {
            numbers.push(get(row, 0)?);
        }
    }
    Ok(numbers)
}
