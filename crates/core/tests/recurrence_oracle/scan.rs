//! The oracle: steps through UTC instant by instant, reads the wall clock, and derives from neighbouring
//! readings what was skipped or repeated. Does not use offsets, stretches or transitions.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use punctual_core::recurrence::{DstGap, DstOverlap};
use std::collections::{BTreeMap, BTreeSet};

/// The wall-clock readings at evenly spaced instants (in seconds), and the readings that were skipped in
/// between.
pub struct Scan {
    readings: Vec<(i64, DateTime)>,
    /// Each with the instant at which the clock had passed it.
    skipped: Vec<(i64, DateTime)>,
}

/// The matching readings of a scan, and where matching ones were skipped.
pub struct Matches {
    by_reading: BTreeMap<DateTime, Vec<i64>>,
    after_gaps: BTreeSet<i64>,
}

impl Scan {
    pub fn new(zone: &TimeZone, from: i64, to: i64, step: i64) -> Self {
        let mut scan = Scan { readings: vec![], skipped: vec![] };
        let mut expected: Option<DateTime> = None;
        for at in (from.div_euclid(step) * step..to).step_by(step as usize) {
            let reading = zone.to_datetime(Timestamp::from_second(at).unwrap());
            let mut skipped = expected.unwrap_or(reading);
            while skipped < reading {
                scan.skipped.push((at, skipped));
                skipped += SignedDuration::from_secs(step);
            }
            scan.readings.push((at, reading));
            expected = Some(reading + SignedDuration::from_secs(step));
        }
        scan
    }

    pub fn matches(&self, matches: impl Fn(DateTime) -> bool) -> Matches {
        let mut by_reading: BTreeMap<DateTime, Vec<i64>> = BTreeMap::new();
        for (at, reading) in self.readings.iter().filter(|(_, reading)| matches(*reading)) {
            by_reading.entry(*reading).or_default().push(*at);
        }
        let after_gaps =
            self.skipped.iter().filter(|(_, reading)| matches(*reading)).map(|(at, _)| *at).collect();
        Matches { by_reading, after_gaps }
    }
}

impl Matches {
    /// The instants that fire with these choices.
    pub fn fires(&self, gap: DstGap, overlap: DstOverlap) -> BTreeSet<i64> {
        let mut fires = BTreeSet::new();
        for instants in self.by_reading.values() {
            match overlap {
                DstOverlap::First => fires.extend(instants.first()),
                DstOverlap::Second => fires.extend(instants.last()),
                DstOverlap::Both => fires.extend(instants),
            }
        }
        if gap == DstGap::RunAfter {
            fires.extend(&self.after_gaps);
        }
        fires
    }
}
