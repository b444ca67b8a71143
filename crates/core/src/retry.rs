//! When a failed attempt is retried.

use crate::ids::OccurrenceId;
use crate::limits;
use crate::mix::mix;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The wait between attempts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "strategy", rename_all = "snake_case")]
pub enum RetryPolicy {
    /// `delay · 2^(n−1)`, at most `max_delay`, plus up to a tenth of jitter.
    Exponential { delay_ms: u64, max_delay_ms: u64 },
    /// The same wait every time, plus up to a tenth of jitter.
    Fixed { delay_ms: u64 },
    /// The n-th wait from the list; the last one repeats.
    Ladder { steps_ms: Vec<u64> },
}

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy::Exponential { delay_ms: 60_000, max_delay_ms: 3_600_000 }
    }
}

impl RetryPolicy {
    /// The wait before the n-th retry, counted from 1. Jitter is derived from the occurrence, not drawn at
    /// random, so that every node computes the same value.
    pub fn delay(&self, retry: u32, occurrence: OccurrenceId) -> Duration {
        let base_ms = match self {
            RetryPolicy::Exponential { delay_ms, max_delay_ms } => {
                let doublings = retry.saturating_sub(1).min(40);
                delay_ms.saturating_mul(1 << doublings).min(*max_delay_ms)
            }
            RetryPolicy::Fixed { delay_ms } => *delay_ms,
            RetryPolicy::Ladder { steps_ms } => {
                let step = (retry as usize).saturating_sub(1).min(steps_ms.len().saturating_sub(1));
                return Duration::from_millis(steps_ms.get(step).copied().unwrap_or(0));
            }
        };
        let base_us = base_ms.saturating_mul(1_000);
        let jitter_us = ((u128::from(base_us / 10) * u128::from(spread(occurrence, retry))) >> 32) as u64;
        Duration::from_micros(base_us.saturating_add(jitter_us))
    }

    /// The first invalid field and what it must be, if any.
    pub fn problem(&self) -> Option<(&'static str, &'static str)> {
        let longest_ms = 366 * 24 * 3_600_000;
        match self {
            RetryPolicy::Exponential { delay_ms, max_delay_ms } if delay_ms > max_delay_ms => {
                Some(("retry.delay", "must not be longer than max_delay"))
            }
            RetryPolicy::Exponential { max_delay_ms: ms, .. } | RetryPolicy::Fixed { delay_ms: ms }
                if *ms > longest_ms =>
            {
                Some(("retry.delay", "must be at most 366 days"))
            }
            RetryPolicy::Ladder { steps_ms } if steps_ms.is_empty() => {
                Some(("retry.steps", "must name at least one delay, such as [\"1m\", \"5m\"]"))
            }
            RetryPolicy::Ladder { steps_ms } if steps_ms.len() > limits::RETRY_STEPS_MAX => {
                Some(("retry.steps", "must name at most 100 delays"))
            }
            RetryPolicy::Ladder { steps_ms } if steps_ms.iter().any(|ms| *ms > longest_ms) => {
                Some(("retry.steps", "each must be at most 366 days"))
            }
            _ => None,
        }
    }
}

/// A number from 0 to 2^32 − 1 that is fixed for this retry of this occurrence.
fn spread(occurrence: OccurrenceId, retry: u32) -> u32 {
    let bytes = occurrence.job.as_bytes();
    let mut seed = u64::from_le_bytes(bytes[8..16].try_into().expect("eight of sixteen bytes"));
    seed ^= u64::from(occurrence.number) << 32 | u64::from(retry);
    (mix(seed) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::JobId;
    use crate::time::Timestamp;

    fn delays(policy: &RetryPolicy, retries: std::ops::RangeInclusive<u32>) -> Vec<f64> {
        let occurrence = JobId::new(Timestamp::EPOCH, 7).occurrence(1);
        retries.map(|n| policy.delay(n, occurrence).as_secs_f64()).collect()
    }

    #[test]
    fn exponential_doubles_to_its_cap_with_at_most_a_tenth_of_jitter() {
        let expected = [60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0];
        for (delay, base) in delays(&RetryPolicy::default(), 1..=8).into_iter().zip(expected) {
            assert!(delay >= base && delay <= base * 1.1, "{delay} is not {base} plus up to a tenth");
        }
        assert!(delays(&RetryPolicy::default(), 1_000..=1_000)[0] <= 3960.0);
    }

    #[test]
    fn a_ladder_repeats_its_last_step() {
        let ladder = RetryPolicy::Ladder { steps_ms: vec![1_000, 5_000] };
        assert_eq!(delays(&ladder, 1..=4), [1.0, 5.0, 5.0, 5.0]);
    }

    #[test]
    fn jitter_differs_between_occurrences_and_is_the_same_every_time() {
        let policy = RetryPolicy::Fixed { delay_ms: 10_000 };
        let job = JobId::new(Timestamp::EPOCH, 7);
        let all: std::collections::BTreeSet<_> =
            (1..=50).map(|n| policy.delay(1, job.occurrence(n))).collect();
        assert!(all.len() > 45, "50 occurrences share {} delays", all.len());
        assert_eq!(policy.delay(1, job.occurrence(1)), policy.delay(1, job.occurrence(1)));
    }
}
