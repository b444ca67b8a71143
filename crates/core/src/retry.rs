//! When a failed attempt is retried.

use crate::ids::OccurrenceId;
use crate::limits;
use crate::mix::mix;
use crate::time::Timestamp;
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

/// When a handler wants to run again. It replaces the wait of the policy for the next attempt only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChosenTime {
    At(Timestamp),
    /// So long after the report is accepted.
    After(Duration),
}

impl ChosenTime {
    /// A delay as a handler writes it: `90s`, `10m`, `1h30m`, `2d` or `PT10M`. Days have 24 hours. `None` if it is
    /// not understood, or negative.
    pub fn after(text: &str) -> Option<Self> {
        let span: jiff::Span = text.trim().parse().ok()?;
        let relative = jiff::SpanRelativeTo::days_are_24_hours();
        let delay = span.to_duration(relative).ok()?;
        Duration::try_from(delay).ok().map(ChosenTime::After)
    }

    /// The start of the next attempt: not in the past, and at most [`limits::CHOSEN_DELAY_MAX`] from now.
    pub fn from(self, now: Timestamp) -> Timestamp {
        let chosen = match self {
            ChosenTime::At(at) => at,
            ChosenTime::After(delay) => now.plus(delay.min(limits::CHOSEN_DELAY_MAX)),
        };
        chosen.max(now).min(now.plus(limits::CHOSEN_DELAY_MAX)).min(Timestamp::MAX)
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
    fn a_chosen_time_is_neither_in_the_past_nor_too_far_away() {
        let now = Timestamp::from_micros(1_000_000_000);
        let minute = Duration::from_secs(60);
        assert_eq!(ChosenTime::After(minute).from(now), now.plus(minute));
        assert_eq!(ChosenTime::At(now.plus(minute)).from(now), now.plus(minute));
        assert_eq!(ChosenTime::At(Timestamp::EPOCH).from(now), now);
        assert_eq!(ChosenTime::after("1h30m"), Some(ChosenTime::After(90 * minute)));
        assert_eq!(ChosenTime::after(" P1D "), Some(ChosenTime::After(24 * 60 * minute)));
        for text in ["", "10", "soon", "-5m", "1mo"] {
            assert_eq!(ChosenTime::after(text), None, "{text}");
        }
        for far in [ChosenTime::After(Duration::MAX), ChosenTime::At(Timestamp::MAX)] {
            assert_eq!(far.from(now), now.plus(limits::CHOSEN_DELAY_MAX));
        }
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
