//! Internals for the benchmark of the rules. Only available with the feature `benches`; not part of the
//! crate's interface.

use crate::wheel::Wheel;
use punctual_core::ports::Due;
use punctual_core::time::Timestamp;

/// The timing wheel.
pub struct MeasuredWheel(Wheel);

impl MeasuredWheel {
    pub fn add(&mut self, now: Timestamp, due: Due) -> bool {
        self.0.add(now, due)
    }

    pub fn take_due(&mut self, now: Timestamp, limit: usize) -> Vec<Due> {
        self.0.take_due(now, limit)
    }
}

impl Default for MeasuredWheel {
    fn default() -> Self {
        MeasuredWheel(Wheel::new())
    }
}
