//! The names of lanes. Numbers are never reused, so a cached name stays valid.

use super::Reads;
use crate::cells::get;
use crate::fault::Fault;
use deadpool_postgres::GenericClient;
use punctual_core::ports::Lane;
use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

const LANES: &str = "SELECT id, queue, job_type FROM lanes WHERE id = ANY ($1)";

/// Names of lanes to remember. Beyond this, all are discarded and looked up again.
const LANES_REMEMBERED_MAX: usize = 10_000;

/// Lanes by number, as far as the connections of a store have looked them up.
#[derive(Debug, Default)]
pub(crate) struct Lanes(RwLock<BTreeMap<i64, Lane>>);

impl Lanes {
    fn known(&self, numbers: impl Iterator<Item = i64>) -> LanesOfRows {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        LanesOfRows(numbers.filter_map(|number| Some((number, known.get(&number)?.clone()))).collect())
    }

    fn learn(&self, lanes: impl Iterator<Item = (i64, Lane)>) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for (number, lane) in lanes {
            if known.len() >= LANES_REMEMBERED_MAX {
                known.clear();
            }
            known.entry(number).or_insert(lane);
        }
    }
}

/// The lanes that some rows refer to.
#[derive(Debug, Default)]
pub(super) struct LanesOfRows(BTreeMap<i64, Lane>);

impl LanesOfRows {
    pub fn lane(&self, number: i64) -> Result<&Lane, Fault> {
        self.0.get(&number).ok_or_else(|| Fault::Missing(format!("lane {number}")))
    }
}

impl<C: GenericClient> Reads<'_, C> {
    /// Resolves lanes; unknown ones are looked up.
    pub(super) async fn named_lanes(
        &self,
        numbers: impl Iterator<Item = i64> + Clone,
    ) -> Result<LanesOfRows, Fault> {
        let mut named = self.lanes.known(numbers.clone());
        let mut unknown: Vec<i64> = numbers.filter(|number| !named.0.contains_key(number)).collect();
        if unknown.is_empty() {
            return Ok(named);
        }
        unknown.sort_unstable();
        unknown.dedup();
        for row in self.all(LANES, &[&unknown]).await? {
            let lane = Lane::new(get::<String>(&row, 1)?, get::<String>(&row, 2)?);
            named.0.insert(get(&row, 0)?, lane);
        }
        let learned = unknown.iter().filter_map(|number| Some((*number, named.0.get(number)?.clone())));
        self.lanes.learn(learned);
        Ok(named)
    }
}
