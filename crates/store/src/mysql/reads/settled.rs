//! Which positions in history can still appear.
//!
//! Positions are AUTO_INCREMENT numbers, which are assigned before transactions commit: a row may appear
//! below an existing one. So a follower does not go past a missing number until the row after it has
//! existed for two seconds. By then the number was abandoned, or its row was deleted, or its transaction
//! has taken longer than any of ours should: **a follower may miss what such a transaction appends**; lists
//! and lookups still show it. Where Galera assigns only every n-th number, each step is such a gap, and
//! every row is reported after it has settled.
//!
//! The database's own clock tells how long a row has existed (`appended_at`). The end time of its execution
//! comes from a worker.

use super::MySqlReading;
use super::statements::{BOUNDS, RECENT};
use crate::cells::{get, read};
use crate::codecs::{counter, limit};
use crate::fault::Fault;
use crate::malformed::skip_malformed;
use crate::reads::HistoryBounds;
use punctual_core::ports::HistorySpan;
use std::collections::BTreeSet;

/// Rows of [`RECENT`] to fetch at a time, and to read in all. If more rows have not settled, the reported
/// end of history is where the read ended: a follower that starts there gets some events that are not quite
/// new.
const RECENT_AT_ONCE: usize = 1_000;
const RECENT_LOOKED_AT_MAX: usize = 20_000;

impl MySqlReading {
    /// Within a snapshot.
    pub(super) async fn span(&mut self) -> Result<HistorySpan, Fault> {
        let row =
            self.one(BOUNDS, vec![]).await?.ok_or_else(|| Fault::Missing("history_bounds".to_owned()))?;
        let bounds = HistoryBounds::read(&row)?;
        let ends_at = last_settled(bounds.deleted(), &self.recent().await?).max(bounds.deleted());
        Ok(HistorySpan { begins_after: bounds.retained, ends_at })
    }

    /// The positions after the last settled row, and that row's.
    async fn recent(&mut self) -> Result<Recent, Fault> {
        let (mut recent, mut before) = (Recent::default(), i64::MAX);
        while recent.places.len() < RECENT_LOOKED_AT_MAX {
            let rows = self.all(RECENT, vec![before.into(), limit(RECENT_AT_ONCE).into()]).await?;
            for row in &rows {
                let Some(place) = skip_malformed(read(row, 0, "history.place"))? else { continue };
                if get::<bool>(row, 1)? {
                    recent.base = Some(place);
                    return Ok(recent);
                }
                recent.places.insert(place);
                before = counter(place);
            }
            if rows.len() < RECENT_AT_ONCE {
                return Ok(recent);
            }
        }
        recent.base = recent.places.first().copied();
        Ok(recent)
    }
}

/// The end of history.
#[derive(Debug, Default)]
struct Recent {
    /// A position up to which everything has settled; `None` if all of history is recent.
    base: Option<u64>,
    /// The positions after it.
    places: BTreeSet<u64>,
}

/// The last position before the first missing number that may still appear.
fn last_settled(deleted: u64, recent: &Recent) -> u64 {
    let mut last = recent.base.unwrap_or(0);
    for place in &recent.places {
        if *place > last.max(deleted) + 1 {
            break;
        }
        last = last.max(*place);
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(base: Option<u64>, places: &[u64], deleted: u64, expected: u64) {
        let recent = Recent { base, places: places.iter().copied().collect() };
        assert_eq!(last_settled(deleted, &recent), expected, "{recent:?} deleted {deleted}");
    }

    #[test]
    fn history_ends_before_the_first_number_that_may_still_appear() {
        check(None, &[], 0, 0);
        check(None, &[1, 2, 3], 0, 3);
        check(None, &[2, 3], 0, 0);
        check(Some(7), &[8, 9, 11, 12], 0, 9);
        check(Some(7), &[], 0, 7);
        check(Some(7), &[9], 0, 7);
    }

    #[test]
    fn deleted_rows_are_not_gaps() {
        check(None, &[3, 4], 2, 4);
        check(Some(7), &[10, 11, 13], 9, 11);
        check(Some(7), &[9, 12], 10, 9);
    }
}
