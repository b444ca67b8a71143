//! The names of lanes, which rows refer to by number.

use punctual_core::ports::Lane;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Names of lanes to remember. Beyond this, all are discarded and looked up again.
const LANES_REMEMBERED_MAX: usize = 10_000;

pub(crate) const LANE: &str = "SELECT queue, job_type FROM lanes WHERE id = ?";

/// Lanes that the readers of one process have looked up. Numbers are never reused, so a cached name stays
/// valid.
#[derive(Debug, Default)]
pub(crate) struct ReaderLanes(Mutex<BTreeMap<i64, Lane>>);

impl ReaderLanes {
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

    /// No operation under the lock can leave it in an inconsistent state.
    fn known(&self) -> MutexGuard<'_, BTreeMap<i64, Lane>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
