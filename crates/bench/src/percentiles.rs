//! Percentiles and a histogram of many measured times.

use crate::plot::PlotMark;
use serde::Serialize;
use std::time::Duration;

/// Percentiles in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Percentiles {
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub max: u64,
}

impl Percentiles {
    pub fn of(times: &[Duration]) -> Self {
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        let at = |percent| percentile(&sorted, percent).as_micros() as u64;
        Percentiles { p50: at(50.0), p90: at(90.0), p99: at(99.0), max: at(100.0) }
    }

    pub fn describe(self) -> String {
        let ms = |us: u64| us as f64 / 1_000.0;
        format!(
            "p50 {:.2} ms, p90 {:.2} ms, p99 {:.2} ms, max {:.2} ms",
            ms(self.p50),
            ms(self.p90),
            ms(self.p99),
            ms(self.max)
        )
    }

    /// This median as a multiple of the other median.
    pub fn p50_of(self, other: Percentiles) -> f64 {
        self.p50 as f64 / other.p50.max(1) as f64
    }

    pub fn p99_of(self, other: Percentiles) -> f64 {
        self.p99 as f64 / other.p99.max(1) as f64
    }
}

/// The value below which this share of the sorted times lies.
fn percentile(sorted: &[Duration], percent: f64) -> Duration {
    let place = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
    sorted.get(place.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or_default()
}

/// One bin of a histogram: from the previous bound, exclusive, to this one, inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Bin {
    /// `None` in the last bin, which has no upper bound.
    pub up_to_us: Option<u64>,
    pub count: u64,
}

/// Upper bounds of all bins but the last, in steps of 1, 2 and 5.
const BIN_ENDS_US: [u64; 15] = [
    100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
    2_000_000, 5_000_000,
];

/// The bins from the first to the last that is not empty.
pub fn histogram(times: &[Duration]) -> Vec<Bin> {
    let mut counts = [0; BIN_ENDS_US.len() + 1];
    for time in times {
        counts[BIN_ENDS_US.partition_point(|end| u128::from(*end) < time.as_micros())] += 1;
    }
    let ends = BIN_ENDS_US.iter().copied().map(Some).chain([None]);
    let bins: Vec<Bin> = ends.zip(counts).map(|(up_to_us, count)| Bin { up_to_us, count }).collect();
    let first = bins.iter().position(|bin| bin.count > 0);
    let last = bins.iter().rposition(|bin| bin.count > 0);
    first.zip(last).map_or_else(Vec::new, |(first, last)| bins[first..=last].to_vec())
}

pub fn plot(bins: &[Bin], look: PlotMark) -> String {
    let ms = |us: u64| us as f64 / 1_000.0;
    let name = |bin: &Bin| match bin.up_to_us {
        Some(end) => format!("up to {} ms", ms(end)),
        None => "longer".to_owned(),
    };
    look.bars(&bins.iter().map(|bin| (name(bin), bin.count)).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_taken_from_the_values_themselves() {
        let times: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
        let expected = Percentiles { p50: 100_000, p90: 180_000, p99: 198_000, max: 200_000 };
        assert_eq!(Percentiles::of(&times), expected);
        assert_eq!(Percentiles::of(&[]), Percentiles { p50: 0, p90: 0, p99: 0, max: 0 });
    }

    #[test]
    fn every_time_is_in_one_bin_and_bins_at_the_ends_are_not_empty() {
        let times = [900, 1_000, 1_001, 4_000, 9_000_000].map(Duration::from_micros);
        let bins = histogram(&times);
        assert_eq!(bins.first(), Some(&Bin { up_to_us: Some(1_000), count: 2 }));
        assert_eq!(bins.get(1), Some(&Bin { up_to_us: Some(2_000), count: 1 }));
        assert_eq!(bins.last(), Some(&Bin { up_to_us: None, count: 1 }));
        assert_eq!(bins.iter().map(|bin| bin.count).sum::<u64>(), 5);
        assert_eq!(histogram(&[]), []);
    }
}
