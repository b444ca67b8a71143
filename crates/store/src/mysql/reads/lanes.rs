//! The names of lanes, which rows refer to by number.

use punctual_core::ports::Lane;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lanes whose names are remembered; beyond, all are forgotten and looked up again.
const LANES_REMEMBERED_MAX: usize = 10_000;

pub(crate) const LANE: &str = "SELECT queue, job_type FROM lanes WHERE id = ?";

/// What the readers of one process have learned of lanes. A number is never given twice, so that it stays true.
#[derive(Debug, Default)]
pub(crate) struct LaneNames(Mutex<BTreeMap<i64, Lane>>);

impl LaneNames {
    pub fn get(&self, number: i64) -> Option<Lane> {
        self.known().get(&number).cloned()
    }

    pub fn learn(&self, number: i64, queue: String, job_type: String) -> Lane {
        let lane = Lane::new(queue, job_type);
        let mut known = self.known();
        if known.len() >= LANES_REMEMBERED_MAX {
            known.clear();
        }
        known.insert(number, lane.clone());
        lane
    }

    /// Nothing that is done under the lock leaves it half done.
    fn known(&self) -> MutexGuard<'_, BTreeMap<i64, Lane>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
