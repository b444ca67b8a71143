//! Which positions in history can still appear.
//!
//! A position is built from the number of the transaction that wrote the row. Transactions do not commit in
//! the order of their numbers. So only positions below every open transaction may be shown: a follower
//! never goes back.

use super::PostgresReading;
use super::statements::{BOUNDS, LAST_PLACE};
use crate::cells::{get, read};
use crate::fault::Fault;
use crate::postgres::wire::value;
use crate::reads::HistoryBounds;
use futures_util::future::try_join;
use punctual_core::ports::HistorySpan;
use std::collections::BTreeSet;

/// The open transactions: the lowest, the first unassigned, and those in between; and the offset between
/// numbers and positions.
const SNAPSHOT: &str = "SELECT pg_current_snapshot()::text, (SELECT place_base FROM punctual)";
/// Transactions that are known to belong to another database of the same server: they write no history here.
const ELSEWHERE: &str = "SELECT backend_xid::text::bigint FROM pg_stat_activity WHERE backend_xid IS NOT NULL \
     AND datid <> (SELECT oid FROM pg_database WHERE datname = current_database())";
/// The bits by which a transaction's number is shifted in a position; the lower bits number the rows within
/// it.
const PLACE_BITS: u32 = 20;

impl PostgresReading<'_> {
    /// Not within a transaction: each statement must see what was committed before it.
    pub(super) async fn span(&self) -> Result<HistorySpan, Fault> {
        let bound = self.first_open().await?;
        let (bounds, last) =
            try_join(self.one(BOUNDS, vec![]), self.one(LAST_PLACE, vec![value(bound)])).await?;
        let bounds = bounds.ok_or_else(|| Fault::Missing("history_bounds".to_owned()))?;
        let HistoryBounds { given, retained } = HistoryBounds::read(&bounds)?;
        let last = last.map_or(Ok(0), |row| read(&row, 0, "history.place"))?;
        // The last rows may have been deleted with their job, or by retention.
        let ends_at = last.max(given).max(retained).min(u64::try_from(bound - 1).unwrap_or(0));
        Ok(HistorySpan { begins_after: retained, ends_at })
    }

    /// The position below which no new row can appear: that of the first open transaction of this database.
    pub(super) async fn first_open(&self) -> Result<i64, Fault> {
        let first = self.snapshot().await?;
        if first.running.is_empty() {
            return Ok(first.place_of(first.next));
        }
        // A transaction that is open in both snapshots, and is not seen in another database in between, may
        // write history here. One that has ended by the second snapshot is visible to later reads.
        //
        // Both statements must be prepared by now, so that they run in this order. Otherwise the server takes
        // the snapshot first, and a foreign transaction that ends after it looks like one of this database.
        self.statements.prepare(self.client, ELSEWHERE).await?;
        let (elsewhere, second) = try_join(self.all(ELSEWHERE, vec![]), self.snapshot()).await?;
        let elsewhere: BTreeSet<i64> = elsewhere.iter().map(|row| get(row, 0)).collect::<Result<_, _>>()?;
        let may_write = |number: &&i64| second.is_running(**number) && !elsewhere.contains(&short(**number));
        let lowest = first.running.iter().filter(may_write).min();
        Ok(first.place_of(lowest.copied().unwrap_or(first.next)))
    }

    async fn snapshot(&self) -> Result<TransactionSnapshot, Fault> {
        let row = self.one(SNAPSHOT, vec![]).await?.ok_or_else(|| Fault::Missing("punctual".to_owned()))?;
        TransactionSnapshot::read(get(&row, 0)?, get(&row, 1)?)
    }
}

/// Transactions as one statement saw them.
#[derive(Debug, PartialEq, Eq)]
struct TransactionSnapshot {
    /// Open transactions with numbers below `next`.
    running: BTreeSet<i64>,
    /// All from here on were not assigned, or had not ended.
    next: i64,
    place_base: i64,
}

impl TransactionSnapshot {
    /// Reads `lowest:next:one,two,…`.
    fn read(text: &str, place_base: i64) -> Result<Self, Fault> {
        let damaged = || Fault::damaged("pg_current_snapshot", text);
        let number = |text: &str| text.parse::<i64>().map_err(|_| damaged());
        let mut parts = text.split(':').skip(1);
        let (Some(next), Some(running)) = (parts.next(), parts.next()) else { return Err(damaged()) };
        let running = running.split(',').filter(|number| !number.is_empty()).map(number);
        Ok(TransactionSnapshot {
            next: number(next)?,
            running: running.collect::<Result<_, _>>()?,
            place_base,
        })
    }

    fn is_running(&self, number: i64) -> bool {
        number >= self.next || self.running.contains(&number)
    }

    /// The first position of a transaction.
    fn place_of(&self, number: i64) -> i64 {
        (number + self.place_base) << PLACE_BITS
    }
}

/// A transaction's number as the activity view shows it: without the wraparound epoch.
fn short(number: i64) -> i64 {
    number & i64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_parsed_from_the_databases_format() {
        let snapshot = TransactionSnapshot::read("745:752:745,748", 3).unwrap();
        assert_eq!(
            snapshot,
            TransactionSnapshot { running: BTreeSet::from([745, 748]), next: 752, place_base: 3 }
        );
        assert!(snapshot.is_running(745) && snapshot.is_running(752) && !snapshot.is_running(746));
        assert_eq!(snapshot.place_of(745), 748 << 20);
        assert!(TransactionSnapshot::read("752:752:", 0).unwrap().running.is_empty());
        for damaged in ["", "1", "1:2", "1:x:", "1:2:y"] {
            assert!(TransactionSnapshot::read(damaged, 0).is_err(), "{damaged}");
        }
    }

    #[test]
    fn numbers_are_compared_without_their_wraparound_epoch() {
        assert_eq!(short((7 << 32) + 745), 745);
    }
}
