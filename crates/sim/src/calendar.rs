//! When runs take place: most at the start of 2026, some just before a daylight-saving change.

use crate::random::Rng;
use punctual_core::time::Timestamp;
use std::time::Duration;

/// The start of a run without a daylight-saving change.
const PLAIN_START: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);
/// Runs with a daylight-saving change, in a thousand.
const CHANGING_PER_MILLE: u64 = 400;

/// A zone with a daylight-saving change, and its offsets from UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockChange {
    pub zone: &'static str,
    pub at: Timestamp,
    pub before_secs: i64,
    pub after_secs: i64,
}

pub const CLOCK_CHANGES: [ClockChange; 6] = [
    change("Europe/Berlin", 1_774_746_000, 3_600, 7_200),
    change("Europe/Berlin", 1_792_890_000, 7_200, 3_600),
    change("America/New_York", 1_772_953_200, -18_000, -14_400),
    change("America/New_York", 1_793_512_800, -14_400, -18_000),
    // By half an hour only.
    change("Australia/Lord_Howe", 1_775_314_800, 39_600, 37_800),
    change("Australia/Lord_Howe", 1_791_041_400, 37_800, 39_600),
];

const fn change(zone: &'static str, at_secs: i64, before_secs: i64, after_secs: i64) -> ClockChange {
    ClockChange { zone, at: Timestamp::from_micros(at_secs * 1_000_000), before_secs, after_secs }
}

impl ClockChange {
    /// The local hour that the change skips or repeats.
    pub fn hour(self) -> i64 {
        let secs = self.at.as_micros() / 1_000_000 + self.before_secs.min(self.after_secs);
        secs.div_euclid(3_600).rem_euclid(24)
    }
}

/// The start of a run, and its daylight-saving change.
pub fn drawn(rng: &mut Rng) -> (Timestamp, Option<ClockChange>) {
    if !rng.per_mille(CHANGING_PER_MILLE) {
        return (PLAIN_START, None);
    }
    let change = *rng.pick(&CLOCK_CHANGES);
    let before: Duration = rng.millis(2_000, 40_000);
    (change.at.minus(before), Some(change))
}
