//! Which queues and job types get their own label values. Users choose these names, and every new one costs a
//! metrics database a time series: beyond a bound, the rest are added up.

use punctual_core::limits::METRIC_LANES_MAX;
use punctual_core::ports::{Depth, Lane};
use punctual_core::time::{Timestamp, duration_micros};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The label of the rest.
pub(super) const OTHERS: &str = "(other)";

/// The live executions of one lane, or of all lanes without their own label values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct LaneFigures {
    pub queue: String,
    pub job_type: String,
    pub waiting: u64,
    pub queued: u64,
    pub running: u64,
    pub oldest_wait_us: i64,
}

impl LaneFigures {
    fn named(lane: &Lane) -> Self {
        let (queue, job_type) = (lane.queue().to_owned(), lane.job_type().to_owned());
        LaneFigures { queue, job_type, ..LaneFigures::default() }
    }

    fn add(&mut self, depth: &Depth, now: Timestamp) {
        self.waiting += depth.waiting;
        self.queued += depth.queued;
        self.running += depth.running;
        let waited = depth.oldest_queued.map_or(0, |since| duration_micros(now.since(since)));
        self.oldest_wait_us = self.oldest_wait_us.max(waited);
    }
}

/// The lanes with their own label values: those seen first. They keep them while they are empty, so that a
/// series does not vanish between two scrapes, until another lane needs the slot.
#[derive(Debug, Default)]
pub struct KnownLanes(Mutex<LaneRounds>);

#[derive(Debug, Default)]
struct LaneRounds {
    /// With the round in which each was last in use.
    lanes: BTreeMap<Lane, u64>,
    round: u64,
}

impl KnownLanes {
    /// The figures to show for what is live now.
    pub(super) fn choose(&self, depths: &[Depth], now: Timestamp) -> Vec<LaneFigures> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.round += 1;
        for depth in depths {
            known.touch(&depth.lane);
        }
        // Only now is it known which of the old lanes are out of use.
        for depth in depths {
            if !known.admit(&depth.lane) {
                break;
            }
        }
        let mut shown: BTreeMap<Lane, LaneFigures> =
            known.lanes.keys().map(|lane| (lane.clone(), LaneFigures::named(lane))).collect();
        let mut others: Option<LaneFigures> = None;
        for depth in depths {
            let figures = match shown.get_mut(&depth.lane) {
                Some(figures) => figures,
                None => others.get_or_insert_with(|| LaneFigures::named(&Lane::new(OTHERS, OTHERS))),
            };
            figures.add(depth, now);
        }
        shown.into_values().chain(others).collect()
    }
}

impl LaneRounds {
    fn touch(&mut self, lane: &Lane) {
        if let Some(round) = self.lanes.get_mut(lane) {
            *round = self.round;
        }
    }

    /// Whether there is room for it.
    fn admit(&mut self, lane: &Lane) -> bool {
        if self.lanes.contains_key(lane) {
            return true;
        }
        if self.lanes.len() >= METRIC_LANES_MAX {
            let unused = self.lanes.iter().filter(|(_, round)| **round < self.round);
            let Some(oldest) = unused.min_by_key(|(_, round)| **round).map(|(lane, _)| lane.clone()) else {
                return false;
            };
            self.lanes.remove(&oldest);
        }
        self.lanes.insert(lane.clone(), self.round);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depth(number: usize, queued: u64) -> Depth {
        let lane = Lane::new("default", format!("type-{number:04}"));
        Depth { lane, waiting: 0, queued, running: 0, oldest_queued: Some(Timestamp::EPOCH) }
    }

    fn now() -> Timestamp {
        Timestamp::from_micros(5)
    }

    #[test]
    fn a_lane_that_has_run_dry_is_still_shown() {
        let known = KnownLanes::default();
        known.choose(&[depth(1, 3)], now());
        let shown = known.choose(&[], now());
        assert_eq!((shown.len(), shown[0].job_type.as_str(), shown[0].queued), (1, "type-0001", 0));
    }

    #[test]
    fn lanes_beyond_the_bound_are_added_up() {
        let known = KnownLanes::default();
        let shown = known.choose(&(0..METRIC_LANES_MAX + 5).map(|n| depth(n, 2)).collect::<Vec<_>>(), now());
        assert_eq!(shown.len(), METRIC_LANES_MAX + 1);
        let others = shown.last().unwrap();
        assert_eq!((others.job_type.as_str(), others.queued, others.oldest_wait_us), (OTHERS, 10, 5));
    }

    #[test]
    fn a_lane_out_of_use_makes_room_for_a_new_one() {
        let known = KnownLanes::default();
        known.choose(&(0..METRIC_LANES_MAX).map(|n| depth(n, 1)).collect::<Vec<_>>(), now());
        let shown = known.choose(&(1..=METRIC_LANES_MAX).map(|n| depth(n, 1)).collect::<Vec<_>>(), now());
        assert_eq!(shown.len(), METRIC_LANES_MAX);
        assert!(shown.iter().all(|lane| lane.job_type != "type-0000" && lane.job_type != OTHERS));
    }
}
