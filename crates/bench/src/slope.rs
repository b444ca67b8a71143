//! Whether a value stays flat: fits a straight line through its samples and describes it.

use crate::units::{grouped, megabytes, percent};
use serde::Serialize;
use std::time::Duration;

/// Fewer samples than this are not conclusive.
const SAMPLES_MIN: usize = 8;
/// A shorter time is not conclusive either. The second half of a run is evaluated, because caches, logs and free
/// pages still grow in the first.
pub const LOOKED_AT_MIN: Duration = Duration::from_secs(5 * 60);

/// A value at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    pub hours: f64,
    pub value: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Bytes,
    JobsPerSecond,
    Microseconds,
}

impl Unit {
    fn describe(self, value: f64) -> String {
        match self {
            Unit::Bytes => megabytes(value.abs() as u64),
            Unit::JobsPerSecond => format!("{} jobs/s", grouped(value.abs())),
            Unit::Microseconds => format!("{:.2} ms", value.abs() / 1_000.0),
        }
    }

    /// How much the line may rise or fall over the whole time and still count as flat, as a share of the mean. A high
    /// percentile of few fires is mostly noise.
    fn tolerance(self) -> f64 {
        match self {
            Unit::Bytes | Unit::JobsPerSecond => 0.05,
            Unit::Microseconds => 0.5,
        }
    }
}

#[derive(Debug, Clone, Serialize)]
pub struct Trend {
    pub mean: f64,
    pub per_hour: f64,
    /// Change of the line over the evaluated time, as a share of the mean.
    pub change: f64,
    /// `None` if there were too few samples or the time was too short.
    pub flat: Option<bool>,
    pub verdict: String,
}

impl Trend {
    pub fn of(points: &[Point], unit: Unit) -> Trend {
        let count = points.len().max(1) as f64;
        let mean_of = |value: fn(&Point) -> f64| points.iter().map(value).sum::<f64>() / count;
        let (hours, mean) = (mean_of(|point| point.hours), mean_of(|point| point.value));
        let spread: f64 = points.iter().map(|point| (point.hours - hours).powi(2)).sum();
        let shared: f64 = points.iter().map(|point| (point.hours - hours) * (point.value - mean)).sum();
        let per_hour = if spread > 0.0 { shared / spread } else { 0.0 };
        let length = points.last().zip(points.first()).map_or(0.0, |(last, first)| last.hours - first.hours);
        let change = if mean.abs() > f64::EPSILON { per_hour * length / mean } else { 0.0 };
        let is_long = length * 3_600.0 >= LOOKED_AT_MIN.as_secs_f64();
        let flat = (is_long && points.len() >= SAMPLES_MIN).then(|| change.abs() <= unit.tolerance());
        let verdict = match flat {
            None if !is_long => "too short to tell".to_owned(),
            None => "too few samples to tell".to_owned(),
            Some(true) => "flat".to_owned(),
            Some(false) => format!(
                "{} by {} per hour ({} over the measured time)",
                if per_hour > 0.0 { "grows" } else { "falls" },
                unit.describe(per_hour),
                percent(change.abs())
            ),
        };
        Trend { mean, per_hour, change, flat, verdict }
    }

    pub fn describe(&self, unit: Unit) -> String {
        format!("{}, {}", unit.describe(self.mean), self.verdict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(value: impl Fn(f64) -> f64) -> Vec<Point> {
        (0..10).map(|n| Point { hours: f64::from(n) / 10.0, value: value(f64::from(n)) }).collect()
    }

    #[test]
    fn a_level_line_with_noise_is_flat() {
        let trend = Trend::of(&points(|n| 100e6 + (n % 2.0) * 1e6), Unit::Bytes);
        assert_eq!((trend.flat, trend.verdict.as_str()), (Some(true), "flat"));
    }

    #[test]
    fn growth_and_decline_are_reported_per_hour() {
        let grows = Trend::of(&points(|n| 100e6 + n * 2e6), Unit::Bytes);
        assert!((grows.per_hour - 20e6).abs() < 1.0, "{grows:?}");
        assert!(grows.verdict.starts_with("grows by 20.0 MB per hour"), "{}", grows.verdict);
        let falls = Trend::of(&points(|n| 500.0 - n * 10.0), Unit::JobsPerSecond);
        assert_eq!(falls.flat, Some(false));
        assert!(falls.verdict.starts_with("falls by 100 jobs/s per hour"), "{}", falls.verdict);
    }

    #[test]
    fn few_samples_give_no_verdict() {
        assert_eq!(Trend::of(&points(|n| n)[..7], Unit::Bytes).flat, None);
        assert_eq!(Trend::of(&[], Unit::Bytes).flat, None);
    }

    #[test]
    fn a_short_time_gives_no_verdict_with_any_number_of_samples() {
        let seconds = |count: u32| -> Vec<Point> {
            (0..count).map(|n| Point { hours: f64::from(n) / 3_600.0, value: 100.0 + f64::from(n) }).collect()
        };
        let short = Trend::of(&seconds(300), Unit::Bytes);
        assert_eq!((short.flat, short.verdict.as_str()), (None, "too short to tell"));
        assert_eq!(Trend::of(&seconds(301), Unit::Bytes).flat, Some(false));
    }
}
