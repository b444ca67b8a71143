//! The names of lanes. Numbers are never reused, so a cached name stays valid.

use super::{AnyRow, FetchedRows, Query, ReadKind, Reads};
use crate::cells::get;
use crate::fault::Fault;
use crate::malformed::readable;
use crate::row_list;
use punctual_core::ports::Lane;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{PoisonError, RwLock};

/// Names of lanes to remember. Beyond this, all are discarded and looked up again.
const LANES_REMEMBERED_MAX: usize = 10_000;

/// Lanes by number, as far as the connections of a store have looked them up.
#[derive(Debug, Default)]
pub(crate) struct ReaderLanes(RwLock<BTreeMap<i64, Lane>>);

impl ReaderLanes {
    fn known(&self, numbers: &BTreeSet<i64>) -> LanesOfRows {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        LanesOfRows(numbers.iter().filter_map(|number| Some((*number, known.get(number)?.clone()))).collect())
    }

    fn learn(&self, number: i64, lane: Lane) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= LANES_REMEMBERED_MAX {
            known.clear();
        }
        known.insert(number, lane);
    }
}

/// The lanes that some rows refer to.
#[derive(Debug)]
pub(super) struct LanesOfRows(BTreeMap<i64, Lane>);

impl LanesOfRows {
    pub fn lane(&self, number: i64) -> Result<&Lane, Fault> {
        self.0.get(&number).ok_or_else(|| Fault::Missing(format!("lane {number}")))
    }
}

impl Reads<'_> {
    /// Resolves lanes; unknown ones are looked up.
    pub(super) async fn lanes(
        &mut self,
        numbers: impl IntoIterator<Item = i64> + Send,
    ) -> Result<LanesOfRows, Fault> {
        let numbers: BTreeSet<i64> = numbers.into_iter().collect();
        let mut named = self.lanes.known(&numbers);
        let unknown = row_list::numbers(numbers.into_iter().filter(|number| !named.0.contains_key(number)));
        if unknown.is_empty() {
            return Ok(named);
        }
        let fetched = self.rows(Query::listed(ReadKind::Lanes, unknown)).await?;
        let read =
            |row: &AnyRow| Ok((get(row, 0)?, Lane::new(get::<String>(row, 1)?, get::<String>(row, 2)?)));
        for (number, lane) in readable(fetched.iter().map(read))? {
            self.lanes.learn(number, lane.clone());
            named.0.insert(number, lane);
        }
        Ok(named)
    }

    /// The lanes whose numbers are in this column, which may be NULL.
    pub(super) async fn lanes_in(&mut self, rows: &FetchedRows, column: usize) -> Result<LanesOfRows, Fault> {
        let numbers = rows.iter().map(|row| get(row, column)).collect::<Result<Vec<Option<i64>>, _>>()?;
        self.lanes(numbers.into_iter().flatten()).await
    }
}
