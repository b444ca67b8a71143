//! The names of lanes, which rows refer to by number.

use crate::fault::Fault;
use crate::mysql::rows::get;
use mysql_async::Row;
use punctual_core::ports::Lane;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(super) const ALL: &str = "SELECT id, queue, job_type FROM lanes";

/// What the readers of one process have learned of lanes. Lanes are neither renumbered nor deleted, so that it stays
/// true.
#[derive(Debug, Default)]
pub(crate) struct LaneNames(Mutex<BTreeMap<i64, Lane>>);

impl LaneNames {
    pub fn get(&self, number: i64) -> Option<Lane> {
        self.known().get(&number).cloned()
    }

    /// Learns from rows of [`ALL`].
    pub fn learn(&self, rows: &[Row]) -> Result<(), Fault> {
        let mut known = self.known();
        for row in rows {
            let (queue, job_type): (String, String) = (get(row, 1)?, get(row, 2)?);
            known.entry(get(row, 0)?).or_insert_with(|| Lane::new(queue, job_type));
        }
        Ok(())
    }

    /// Nothing that is done under the lock leaves it half done.
    fn known(&self) -> MutexGuard<'_, BTreeMap<i64, Lane>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
