//! Histograms of durations and batch sizes, with fixed buckets, without locks and allocations. The module
//! knows numbers only: not their meaning, and not how they are exported.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds in microseconds for durations that are normally short: from 0.1 ms to 10 s.
pub const SHORT_US: &[u64] = &[
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 10_000_000,
];
/// Upper bounds in microseconds for durations that may be long: from 1 ms to 1 h.
pub const LONG_US: &[u64] = &[
    1_000,
    5_000,
    10_000,
    50_000,
    100_000,
    500_000,
    1_000_000,
    5_000_000,
    15_000_000,
    60_000_000,
    300_000_000,
    900_000_000,
    3_600_000_000,
];
/// Upper bounds for counts of items.
pub const ITEMS: &[u64] = &[1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000];

/// Counts of observed values by bucket.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// One more than the bounds: the last bucket holds all values above the highest bound.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// A histogram at one moment. Observations made during the snapshot may be missing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HistogramSnapshot {
    pub bounds: &'static [u64],
    /// The count of each bucket, not cumulative. The last bucket holds all values above the highest bound.
    pub counts: Vec<u64>,
    pub sum: u64,
}

impl Histogram {
    /// Creates buckets with these upper bounds, which must ascend.
    pub fn new(bounds: &'static [u64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram { bounds, counts, sum: AtomicU64::new(0) }
    }

    pub fn observe(&self, value: u64) {
        self.counts[bucket_of(self.bounds, value)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Counts a duration in microseconds.
    pub fn observe_duration(&self, duration: Duration) {
        self.observe(micros(duration));
    }

    pub fn snapshot(&self) -> HistogramSnapshot {
        HistogramSnapshot {
            bounds: self.bounds,
            counts: self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect(),
            sum: self.sum.load(Ordering::Relaxed),
        }
    }
}

/// The bucket of a duration, among those with these upper bounds in microseconds.
pub fn bucket(bounds: &[u64], duration: Duration) -> usize {
    bucket_of(bounds, micros(duration))
}

fn bucket_of(bounds: &[u64], value: u64) -> usize {
    bounds.partition_point(|bound| *bound < value)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl HistogramSnapshot {
    /// The total number of observations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_belongs_to_the_first_bucket_whose_bound_it_does_not_exceed() {
        let histogram = Histogram::new(&[10, 20]);
        for value in [0, 10, 11, 20, 21, 1_000] {
            histogram.observe(value);
        }
        let snapshot = histogram.snapshot();
        assert_eq!((snapshot.counts.as_slice(), snapshot.sum), ([2, 2, 2].as_slice(), 1_062));
        assert_eq!(snapshot.count(), 6);
    }

    #[test]
    fn bounds_ascend() {
        for bounds in [SHORT_US, LONG_US, ITEMS] {
            assert!(bounds.is_sorted_by(|one, next| one < next), "{bounds:?}");
        }
    }

    #[test]
    fn a_duration_is_counted_in_microseconds_however_long() {
        let histogram = Histogram::new(SHORT_US);
        histogram.observe_duration(Duration::from_millis(3));
        assert_eq!(histogram.snapshot().sum, 3_000);
        Histogram::new(SHORT_US).observe_duration(Duration::MAX);
    }
}
