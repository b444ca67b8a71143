//! Reproducible randomness: every choice follows from one seed.

use std::time::Duration;

/// SplitMix64.
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Chance(seed)
    }

    /// A number below the bound, which must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ mixed >> 31) % bound
    }

    /// A duration between the two, in whole milliseconds.
    pub fn between(&mut self, shortest: Duration, longest: Duration) -> Duration {
        let span_ms = longest.saturating_sub(shortest).as_millis();
        shortest + Duration::from_millis(self.below(u64::try_from(span_ms).unwrap_or(u64::MAX - 1) + 1))
    }

    pub fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[usize::try_from(self.below(choices.len() as u64)).expect("an index")]
    }
}
