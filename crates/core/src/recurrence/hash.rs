//! Deterministic choices that look random: jitter, and the value of `H`.

use crate::mix::mix;
use crate::time::{Timestamp, duration_micros};
use std::time::Duration;

/// The delay of this occurrence after `nominal`: from zero to `max`, both included, fixed per job and
/// occurrence, and spread evenly over occurrences and over jobs.
pub fn jitter(job_hash: u64, nominal: Timestamp, max: Duration) -> Duration {
    let choices = duration_micros(max) as u64 + 1;
    let hash = mix(mix(job_hash) ^ nominal.as_micros() as u64);
    Duration::from_micros(below(hash, choices))
}

/// The seed for `H` in the patterns of this owner's job with this name.
pub fn seed(owner: &str, name: &str) -> u64 {
    // The separator byte occurs in neither, so that two pairs with the same letters have different seeds.
    let bytes = owner.bytes().chain([0xFF]).chain(name.bytes());
    bytes.fold(0, |hash, byte| mix(hash ^ u64::from(byte)))
}

/// Maps a hash evenly onto `0..choices`.
pub(super) const fn below(hash: u64, choices: u64) -> u64 {
    ((hash as u128 * choices as u128) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_is_fixed_per_occurrence_and_never_exceeds_its_maximum() {
        let max = Duration::from_secs(30);
        let mut seen = std::collections::BTreeSet::new();
        for second in 0..1_000 {
            let nominal = Timestamp::from_micros(second * 1_000_000);
            let delay = jitter(7, nominal, max);
            assert!(delay <= max);
            assert_eq!(delay, jitter(7, nominal, max));
            seen.insert(delay.as_secs());
        }
        assert_eq!(seen.len(), 30, "every second of the span is used: {seen:?}");
        assert_eq!(jitter(7, Timestamp::EPOCH, Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn jitter_stays_the_same_across_releases() {
        let nominal = Timestamp::from_micros(1_763_195_400_000_000);
        let delay = |job| jitter(job, nominal, Duration::from_secs(60)).as_micros();
        assert_eq!([delay(1), delay(2), delay(u64::MAX)], [26_706_455, 4_252_316, 47_730_885]);
    }

    #[test]
    fn the_longest_jitter_does_not_overflow() {
        assert!(jitter(3, Timestamp::MAX, Duration::MAX) <= Duration::MAX);
    }
}
