//! The lanes that the connections of one process remember: some names by number, and how many lanes there
//! are.
//!
//! Numbers are never reused, so a name that was read once stays valid. Lanes are numbered in the order of
//! creation, so a process that knows all lanes up to a number queries only those above it. It does so while
//! there are few lanes. If there are many, claims query only those with queued executions, no matter how
//! many lanes were ever used.

use super::loaded::LanesToAsk;
use crate::fault::Fault;
use punctual_core::ports::Lane;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Up to this many lanes, claims query all of them: querying an empty lane costs about as much as finding
/// out that it is empty.
pub(crate) const LANES_ASKED_MAX: usize = 128;
/// Names of lanes to remember. Beyond this, all are discarded and read again.
const LANES_REMEMBERED_MAX: usize = 10_000;
/// The search for lanes with work takes at most one part in this many of the time, however long one search
/// takes.
const LOOK_REST: u32 = 10;
/// How long it may take to notice that there are few lanes again.
const COUNTED_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// The names of some lanes.
pub(crate) type NamedLanes = BTreeMap<i64, Lane>;

/// The name of a lane that must be among these.
pub(crate) fn name_in(named: &NamedLanes, number: i64) -> Result<&Lane, Fault> {
    named.get(&number).ok_or_else(|| Fault::Missing(format!("lane {number}")))
}

#[derive(Debug, Default)]
pub(crate) struct LaneCache(Mutex<CachedLanes>);

#[derive(Debug)]
struct CachedLanes {
    names: NamedLanes,
    extent: LaneExtent,
}

impl Default for CachedLanes {
    fn default() -> Self {
        CachedLanes { names: NamedLanes::new(), extent: LaneExtent::Few(NamedLanes::new()) }
    }
}

/// How many lanes there are.
#[derive(Debug)]
enum LaneExtent {
    /// All of them as of the last read; some may have been deleted since.
    Few(NamedLanes),
    Many {
        counted_at: Instant,
        next_look: Option<Instant>,
    },
}

/// The read that is needed to know which lanes claims query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LanesToRead {
    /// Lanes above this number, one more than [`LANES_ASKED_MAX`].
    Above(i64),
    /// Lanes with queued executions.
    WithWork,
    /// Nothing, because the last read was recent.
    Nothing,
}

impl LaneCache {
    /// The known names of these lanes, and the numbers of the others.
    pub fn known(&self, numbers: &BTreeSet<i64>) -> (NamedLanes, Vec<i64>) {
        let known = self.lock();
        let name = |number: &i64| Some((*number, known.names.get(number)?.clone()));
        let named: NamedLanes = numbers.iter().filter_map(name).collect();
        let unknown = numbers.iter().filter(|number| !named.contains_key(number)).copied().collect();
        (named, unknown)
    }

    pub fn learn(&self, lanes: &[(i64, Lane)]) {
        let mut known = self.lock();
        if known.names.len() + lanes.len() > LANES_REMEMBERED_MAX {
            known.names.clear();
        }
        known.names.extend(lanes.iter().take(LANES_REMEMBERED_MAX).cloned());
    }

    /// Removes lanes that were deleted.
    pub fn forget(&self, numbers: &[i64]) {
        let mut known = self.lock();
        for number in numbers {
            known.names.remove(number);
            if let LaneExtent::Few(all) = &mut known.extent {
                all.remove(number);
            }
        }
    }

    /// What to read first.
    pub fn to_read(&self, now: Instant) -> LanesToRead {
        match &self.lock().extent {
            LaneExtent::Few(all) => LanesToRead::Above(all.last_key_value().map_or(0, |(number, _)| *number)),
            LaneExtent::Many { counted_at, .. } if now.duration_since(*counted_at) >= COUNTED_AGAIN_AFTER => {
                LanesToRead::Above(0)
            }
            LaneExtent::Many { next_look: Some(at), .. } if now < *at => LanesToRead::Nothing,
            LaneExtent::Many { .. } => LanesToRead::WithWork,
        }
    }

    /// Adds lanes above a number; `None` if there are too many to query them all.
    pub fn read_above(&self, above: i64, lanes: Vec<(i64, Lane)>, now: Instant) -> Option<LanesToAsk> {
        self.learn(&lanes);
        let mut known = self.lock();
        let mut all = match &mut known.extent {
            LaneExtent::Few(all) if above > 0 => std::mem::take(all),
            _ => NamedLanes::new(),
        };
        all.extend(lanes);
        if all.len() > LANES_ASKED_MAX {
            let next_look = match known.extent {
                LaneExtent::Many { next_look, .. } => next_look,
                LaneExtent::Few(_) => None,
            };
            known.extent = LaneExtent::Many { counted_at: now, next_look };
            return None;
        }
        let lanes = all.iter().map(|(number, lane)| (*number, lane.clone())).collect();
        known.extent = LaneExtent::Few(all);
        Some(LanesToAsk { lanes, are_all: true })
    }

    /// Adds the lanes that had queued executions when they were read.
    pub fn read_with_work(&self, lanes: Vec<(i64, Lane)>, began: Instant, ended: Instant) -> LanesToAsk {
        self.learn(&lanes);
        let mut known = self.lock();
        if let LaneExtent::Many { next_look, .. } = &mut known.extent {
            *next_look = Some(ended + ended.duration_since(began).saturating_mul(LOOK_REST));
        }
        LanesToAsk { lanes, are_all: false }
    }

    fn lock(&self) -> MutexGuard<'_, CachedLanes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(numbers: std::ops::Range<i64>) -> Vec<(i64, Lane)> {
        numbers.map(|number| (number, Lane::new(format!("q{number}"), "noop"))).collect()
    }

    #[test]
    fn few_lanes_are_all_queried_and_only_new_ones_are_read() {
        let (known, now) = (LaneCache::default(), Instant::now());
        assert_eq!(known.to_read(now), LanesToRead::Above(0));
        known.read_above(0, lanes(1..4), now).unwrap();
        assert_eq!(known.to_read(now), LanesToRead::Above(3));
        let asked = known.read_above(3, lanes(4..6), now).unwrap();
        assert_eq!((asked.lanes.len(), asked.are_all), (5, true));
        known.forget(&[2]);
        assert_eq!(known.read_above(5, vec![], now).unwrap().lanes.len(), 4);
    }

    #[test]
    fn of_many_lanes_those_with_work_are_queried_and_long_searches_are_rare() {
        let (known, now) = (LaneCache::default(), Instant::now());
        assert_eq!(known.read_above(0, lanes(1..LANES_ASKED_MAX as i64 + 2), now), None);
        assert_eq!(known.to_read(now), LanesToRead::WithWork);
        let ended = now + Duration::from_secs(1);
        let asked = known.read_with_work(lanes(7..9), now, ended);
        assert_eq!((asked.lanes.len(), asked.are_all), (2, false));
        assert_eq!(known.to_read(ended + Duration::from_secs(9)), LanesToRead::Nothing);
        assert_eq!(known.to_read(ended + Duration::from_secs(10)), LanesToRead::WithWork);
        // From time to time it checks whether there are few lanes again.
        assert_eq!(known.to_read(now + COUNTED_AGAIN_AFTER), LanesToRead::Above(0));
        assert!(known.read_above(0, lanes(1..4), now).unwrap().are_all);
    }

    #[test]
    fn a_bounded_number_of_names_is_remembered() {
        let known = LaneCache::default();
        for start in 0..30 {
            known.learn(&lanes(start * 1_000..(start + 1) * 1_000));
        }
        assert!(known.lock().names.len() <= LANES_REMEMBERED_MAX);
        assert_eq!(known.known(&[29_999].into()).0.len(), 1);
    }
}
