//! Deletes what nothing uses: lanes without jobs, counters of lanes that sum to zero, and workers that
//! neither a session nor history refers to. Each step checks a bounded number, starting where the last one
//! ended. See decision 0026.

use super::connection::{Connection, for_update_of};
use super::lists::{documents, list, numbers};
use crate::cells::get;
use crate::codecs::limit;
use crate::fault::Fault;
use crate::server::list::{List, row};
use mysql_async::{Row, Value};
use punctual_core::ports::Horizon;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, Ordering};

/// Every live or future occurrence in a lane belongs to a job of this lane.
pub(crate) const LANES_LOOKED_AT: &str = "SELECT page.id, \
     EXISTS (SELECT 1 FROM jobs FORCE INDEX (jobs_lane) WHERE jobs.lane = page.id) = 0, 1 \
     FROM (SELECT id FROM lanes FORCE INDEX (PRIMARY) WHERE id > ? ORDER BY id LIMIT ?) AS page ORDER BY page.id";
/// A transaction that is about to write the number of a lane has its row locked.
const LOCK_LANES: &str = concat!(
    "SELECT lanes.id FROM ",
    list!(0 number int),
    " STRAIGHT_JOIN lanes FORCE INDEX (PRIMARY) ON lanes.id = given.number",
    for_update_of!("lanes"),
    " SKIP LOCKED"
);
/// A separate statement, so that it sees what earlier holders of the row locks have written.
const UNUSED_LANES: &str = concat!(
    "SELECT given.number FROM ",
    list!(0 number int),
    " WHERE NOT EXISTS (SELECT 1 FROM jobs FORCE INDEX (jobs_lane) WHERE jobs.lane = given.number) \
     AND (SELECT COALESCE(SUM(waiting), 0) = 0 AND COALESCE(SUM(queued), 0) = 0 AND COALESCE(SUM(running), 0) = 0 \
          FROM lane_tallies FORCE INDEX (PRIMARY) WHERE lane_tallies.lane = given.number)"
);
const DELETE_LANES: &str = concat!(
    "DELETE lanes FROM ",
    list!(0 number int),
    " STRAIGHT_JOIN lanes FORCE INDEX (PRIMARY) ON lanes.id = given.number"
);
const DELETE_COUNTERS_OF_LANES: &str = concat!(
    "DELETE lane_tallies FROM ",
    list!(0 number int),
    " STRAIGHT_JOIN lane_tallies FORCE INDEX (PRIMARY) ON lane_tallies.lane = given.number"
);

pub(crate) const COUNTERS_LOOKED_AT: &str = "SELECT lane, SUM(waiting) = 0 AND SUM(queued) = 0 AND SUM(running) = 0, COUNT(*) \
     FROM (SELECT * FROM lane_tallies FORCE INDEX (PRIMARY) WHERE lane > ? ORDER BY lane, shard LIMIT ?) AS page \
     GROUP BY lane ORDER BY lane";
const LOCK_COUNTERS: &str = concat!(
    "SELECT lane_tallies.lane, lane_tallies.shard, lane_tallies.waiting, lane_tallies.queued, lane_tallies.running FROM ",
    list!(0 number int),
    " STRAIGHT_JOIN lane_tallies FORCE INDEX (PRIMARY) ON lane_tallies.lane = given.number",
    for_update_of!("lane_tallies"),
    " SKIP LOCKED"
);
const DELETE_COUNTERS: &str = concat!(
    "DELETE lane_tallies FROM ",
    list!(0 lane int, 1 shard int),
    " STRAIGHT_JOIN lane_tallies FORCE INDEX (PRIMARY) ON lane_tallies.lane = given.lane \
     AND lane_tallies.shard = given.shard"
);

const WORKERS_LOOKED_AT: &str =
    "SELECT id, unused_since IS NULL, 1 FROM workers FORCE INDEX (PRIMARY) WHERE id > ? ORDER BY id LIMIT ?";
const WORKERS_OF_SESSIONS: &str = "SELECT DISTINCT worker FROM sessions";
const DELETE_WORKERS: &str = concat!(
    "DELETE workers FROM ",
    list!(0 number int, 1 bound int),
    " STRAIGHT_JOIN workers FORCE INDEX (PRIMARY) ON workers.id = given.number \
     WHERE workers.unused_since < given.bound AND NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.worker = workers.id)"
);
const NOTE_WORKERS: &str = concat!(
    "UPDATE ",
    list!(0 number int, 1 moment int),
    " STRAIGHT_JOIN workers FORCE INDEX (PRIMARY) ON workers.id = given.number SET workers.unused_since = given.moment"
);

/// The numbers up to which names and counters were checked. If the process ends, the check starts over.
#[derive(Debug, Default)]
pub(crate) struct UnusedCursors {
    lanes: AtomicI64,
    counters: AtomicI64,
    workers: AtomicI64,
}

impl UnusedCursors {
    /// Checks up to `count` lanes. Returns whether any was deleted and more are to be checked.
    pub async fn delete_lanes(&self, connection: &mut Connection, count: usize) -> Result<bool, Fault> {
        let page = next_page(connection, LANES_LOOKED_AT, &self.lanes, count).await?;
        Ok(delete_lanes(connection, marked(&page.rows)?).await? > 0 && page.is_full)
    }

    /// Checks up to `count` rows of counters. Returns whether more are to be checked.
    pub async fn delete_counters(&self, connection: &mut Connection, count: usize) -> Result<bool, Fault> {
        let page = next_page(connection, COUNTERS_LOOKED_AT, &self.counters, count).await?;
        if page.is_full && page.rows.len() > 1 {
            // The page may not hold all rows of its last lane: the next one starts with them.
            self.counters.fetch_sub(1, Ordering::Relaxed);
        }
        delete_lane_counters(connection, marked(&page.rows)?).await?;
        Ok(page.is_full)
    }

    /// Checks up to `count` workers. Returns whether any was deleted and more are to be checked.
    pub async fn delete_workers(
        &self,
        connection: &mut Connection,
        horizon: Horizon,
        count: usize,
    ) -> Result<bool, Fault> {
        let page = next_page(connection, WORKERS_LOOKED_AT, &self.workers, count).await?;
        if page.rows.is_empty() {
            return Ok(false);
        }
        let in_use = connection.all(WORKERS_OF_SESSIONS, vec![]).await?;
        let in_use = in_use.iter().map(|row| get(row, 0)).collect::<Result<BTreeSet<i64>, _>>()?;
        let (mut unused, mut to_note) = (Vec::new(), Vec::new());
        for row in &page.rows {
            let (worker, is_noted): (i64, bool) = (get(row, 0)?, !get::<bool>(row, 1)?);
            match (in_use.contains(&worker), is_noted) {
                // A worker's name is created before its session.
                (true, true) => to_note.push((worker, None)),
                (false, false) => to_note.push((worker, Some(horizon.now().as_micros()))),
                (false, true) => unused.push(worker),
                (true, false) => {}
            }
        }
        let mut gone = 0;
        let bound = horizon.workers().as_micros();
        for list in documents(&List::of(unused.iter().map(|worker| row![*worker, bound]))) {
            gone += connection.run(DELETE_WORKERS, vec![list]).await?;
        }
        let lists = documents(&List::of(to_note.iter().map(|(worker, moment)| row![*worker, *moment])));
        for list in lists {
            connection.run(NOTE_WORKERS, vec![list]).await?;
        }
        connection.commit().await?;
        Ok(gone > 0 && page.is_full)
    }
}

/// Deletes the given lanes that nothing refers to. Returns their number. On the nodes of a cluster it
/// deletes none, because locks do not extend to other nodes.
pub(crate) async fn delete_lanes(connection: &mut Connection, unused: Vec<i64>) -> Result<usize, Fault> {
    if unused.is_empty() || connection.node().is_some() {
        return Ok(0);
    }
    connection.begin().await?;
    let mut gone = 0;
    for list in numbers(unused) {
        let locked = read_numbers(&connection.all(LOCK_LANES, vec![list]).await?)?;
        for list in numbers(locked) {
            let unused = read_numbers(&connection.all(UNUSED_LANES, vec![list]).await?)?;
            gone += unused.len();
            for list in numbers(unused) {
                connection.run(DELETE_COUNTERS_OF_LANES, vec![list.clone()]).await?;
                connection.run(DELETE_LANES, vec![list]).await?;
            }
        }
    }
    connection.commit().await?;
    Ok(gone)
}

/// Deletes counter rows of these lanes that sum to zero, skipping locked ones: the remaining rows have the
/// same sum.
async fn delete_lane_counters(connection: &mut Connection, lanes: Vec<i64>) -> Result<(), Fault> {
    if lanes.is_empty() {
        return Ok(());
    }
    connection.begin().await?;
    let mut locked: BTreeMap<i64, (Vec<i64>, [i64; 3])> = BTreeMap::new();
    for list in numbers(lanes) {
        for row in connection.all(LOCK_COUNTERS, vec![list]).await? {
            let (shards, sum) = locked.entry(get(&row, 0)?).or_default();
            shards.push(get(&row, 1)?);
            for (sum, column) in sum.iter_mut().zip(2..) {
                *sum += get::<i64>(&row, column)?;
            }
        }
    }
    locked.retain(|_, (_, sum)| *sum == [0; 3]);
    let keys: Vec<(i64, i64)> = locked
        .into_iter()
        .flat_map(|(lane, (shards, _))| shards.into_iter().map(move |shard| (lane, shard)))
        .collect();
    let lists = documents(&List::of(keys.iter().map(|(lane, shard)| row![*lane, *shard])));
    for list in lists {
        connection.run(DELETE_COUNTERS, vec![list]).await?;
    }
    connection.commit().await?;
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
    connection: &mut Connection,
    sql: &str,
    cursor: &AtomicI64,
    count: usize,
) -> Result<Page, Fault> {
    let bounds = vec![Value::Int(cursor.load(Ordering::Relaxed)), limit(count).into()];
    let rows = connection.all(sql, bounds).await?;
    connection.commit().await?;
    // The last column says how many rows of the table each result covers.
    let mut looked_at = 0;
    for row in &rows {
        looked_at += get::<i64>(row, 2)?;
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
        if get::<bool>(row, 1)? {
            numbers.push(get(row, 0)?);
        }
    }
    Ok(numbers)
}

fn read_numbers(rows: &[Row]) -> Result<Vec<i64>, Fault> {
    rows.iter().map(|row| get(row, 0)).collect()
}
