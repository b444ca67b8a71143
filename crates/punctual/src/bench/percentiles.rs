//! Many times in four numbers.

use crate::bench::machine;
use serde::Serialize;
use std::time::Duration;

/// Microseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Percentiles {
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub max: u64,
}

impl Percentiles {
    pub fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |percent| machine::percentile(&times, percent).as_micros() as u64;
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
}
