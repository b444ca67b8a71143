//! Deletes unused rows: lanes without jobs, counters of lanes that sum to zero, and workers that neither a session
//! nor history refers to. Each step checks a bounded number, starting where the last one ended. See decision 0026.

use super::connection::{Argument, ServerCall, ServerConnection, TransactionFrame, value};
use crate::cells::get;
use crate::codecs::limit;
use crate::counters::{LaneCounts, StoredCounts};
use crate::fault::Fault;
use crate::row_list::{List, numbers, row};
use async_trait::async_trait;
use punctual_core::ports::Horizon;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};

/// The statements of a dialect. Those whose names end in `LOOKED_AT` read rows after a number, up to a
/// limit: the number, whether it is unused, and how many rows of the table the result covers.
#[async_trait]
pub(crate) trait UnusedStatements: ServerConnection {
    /// Every live or future occurrence in a lane belongs to a job of this lane.
    const LANES_LOOKED_AT: &'static str;
    /// A transaction that is about to write the number of a lane has its row locked.
    const LOCK_LANES: &'static str;
    /// Of locked lanes, those that nothing refers to. A separate statement, so that it sees what earlier
    /// holders of the row locks have written. It may also delete them.
    const UNUSED_LANES: &'static str;
    /// Delete the rest of them.
    const DELETE_LANES: &'static [&'static str];
    const COUNTERS_LOOKED_AT: &'static str;
    /// The lane, the shard, and the counters.
    const LOCK_COUNTERS: &'static str;
    const DELETE_COUNTERS: &'static str;
    const WORKERS_LOOKED_AT: &'static str;

    /// Whether locks prevent others from using a lane that is being deleted.
    fn can_delete_lanes(&self) -> bool;

    /// Deletes workers of a page that are unused for long enough. Records since when the others are unused.
    /// Returns the number of those deleted.
    async fn delete_workers(&mut self, page: Vec<Self::Row>, horizon: Horizon) -> Result<u64, Fault>;
}

/// The numbers up to which names and counters were checked. If the process ends, the check starts over.
#[derive(Debug, Default)]
pub(crate) struct UnusedCursors {
    lanes: AtomicI64,
    counters: AtomicI64,
    workers: AtomicI64,
}

impl UnusedCursors {
    /// Checks up to `count` lanes. Returns the deleted ones, and whether more are to be checked.
    pub async fn delete_lanes<C: UnusedStatements>(
        &self,
        connection: &mut C,
        count: usize,
    ) -> Result<(Vec<i64>, bool), Fault> {
        let page = next_page(connection, C::LANES_LOOKED_AT, &self.lanes, count).await?;
        Ok((delete_lanes(connection, page.unused()?).await?, page.is_full))
    }

    /// Checks up to `count` rows of counters. Returns whether more are to be checked.
    pub async fn delete_counters<C: UnusedStatements>(
        &self,
        connection: &mut C,
        count: usize,
    ) -> Result<bool, Fault> {
        let page = next_page(connection, C::COUNTERS_LOOKED_AT, &self.counters, count).await?;
        if page.is_full && page.rows.len() > 1 {
            // The page may not hold all rows of its last lane: the next one starts with them.
            self.counters.fetch_sub(1, Ordering::Relaxed);
        }
        delete_lane_counters(connection, page.unused()?).await?;
        Ok(page.is_full)
    }

    /// Checks up to `count` workers. Returns whether any was deleted and more are to be checked.
    pub async fn delete_workers<C: UnusedStatements>(
        &self,
        connection: &mut C,
        horizon: Horizon,
        count: usize,
    ) -> Result<bool, Fault> {
        let page = next_page(connection, C::WORKERS_LOOKED_AT, &self.workers, count).await?;
        if page.rows.is_empty() {
            return Ok(false);
        }
        Ok(connection.delete_workers(page.rows, horizon).await? > 0 && page.is_full)
    }
}

/// Deletes the given lanes that nothing refers to, and returns them.
pub(crate) async fn delete_lanes<C: UnusedStatements>(
    connection: &mut C,
    unused: Vec<i64>,
) -> Result<Vec<i64>, Fault> {
    if unused.is_empty() || !connection.can_delete_lanes() {
        return Ok(vec![]);
    }
    let of = |sql, lanes: &[i64]| ServerCall::new(sql, [Argument::Rows(numbers(lanes.iter().copied()))]);
    let locked = connection.send_one(TransactionFrame::Begin, of(C::LOCK_LANES, &unused)).await?.column()?;
    let gone = connection.send_one(TransactionFrame::None, of(C::UNUSED_LANES, &locked)).await?.column()?;
    connection
        .send(TransactionFrame::Commit, C::DELETE_LANES.iter().map(|sql| of(sql, &gone)).collect())
        .await?;
    Ok(gone)
}

/// Deletes counter rows of these lanes that sum to zero, skipping locked ones: the remaining rows have the
/// same sum.
async fn delete_lane_counters<C: UnusedStatements>(connection: &mut C, lanes: Vec<i64>) -> Result<(), Fault> {
    if lanes.is_empty() {
        return Ok(());
    }
    let lock = ServerCall::new(C::LOCK_COUNTERS, [Argument::Rows(numbers(lanes))]);
    let mut locked: BTreeMap<i64, (Vec<i64>, LaneCounts)> = BTreeMap::new();
    for row in connection.send_one(TransactionFrame::Begin, lock).await?.rows {
        let (shards, sum) = locked.entry(get(&row, 0)?).or_default();
        shards.push(get(&row, 1)?);
        sum.add(LaneCounts::read(2, |column| get(&row, column))?);
    }
    locked.retain(|_, (_, sum)| sum.is_zero());
    let keys =
        locked.iter().flat_map(|(lane, (shards, _))| shards.iter().map(move |shard| row![*lane, *shard]));
    let deletion = ServerCall::new(C::DELETE_COUNTERS, [Argument::Rows(List::of(keys))]);
    connection.send_one(TransactionFrame::Commit, deletion).await.map(drop)
}

/// Rows that one step checks.
struct CheckedPage<R> {
    rows: Vec<R>,
    /// Whether more may follow.
    is_full: bool,
}

impl<R: crate::cells::RowCells> CheckedPage<R> {
    fn unused(&self) -> Result<Vec<i64>, Fault> {
        let mut numbers = Vec::new();
        for row in &self.rows {
            if get(row, 1)? {
                numbers.push(get(row, 0)?);
            }
        }
        Ok(numbers)
    }
}

/// The rows after a cursor. Moves the cursor to the last of them, or back to the start if there are no
/// more.
async fn next_page<C: ServerConnection>(
    connection: &mut C,
    sql: &'static str,
    cursor: &AtomicI64,
    count: usize,
) -> Result<CheckedPage<C::Row>, Fault> {
    let bounds = [value(cursor.load(Ordering::Relaxed)), value(limit(count))];
    let rows = connection.send_alone(ServerCall::new(sql, bounds)).await?.rows;
    let mut looked_at = 0;
    for row in &rows {
        looked_at += get::<i64>(row, 2)?;
    }
    let is_full = looked_at > 0 && looked_at == limit(count);
    let last = rows.last().filter(|_| is_full).map_or(Ok(0), |row| get(row, 0))?;
    cursor.store(last, Ordering::Relaxed);
    Ok(CheckedPage { rows, is_full })
}
