//! How fast a worker starts new executions, estimated from the durations of its ended and current runs.

use punctual_core::time::Monotonic;
use std::time::Duration;

/// The weight of the latest run is one in this many.
const WEIGHT: u64 = 8;

#[derive(Debug, Default)]
pub(crate) struct RunPace {
    /// The recent duration of a run in microseconds; `None` until the first run has ended.
    usual_us: Option<u64>,
    running: u64,
    /// The sum of the start times of the current runs, in microseconds.
    starts_us: u128,
}

impl RunPace {
    pub(crate) fn started(&mut self, now: Monotonic) {
        self.running += 1;
        self.starts_us += u128::from(now.as_micros());
    }

    pub(crate) fn ended(&mut self, started: Monotonic, now: Monotonic) {
        self.running -= 1;
        self.starts_us -= u128::from(started.as_micros());
        let took_us = now.since(started).as_micros() as u64;
        let usual_us = self.usual_us.map_or(took_us, |usual| (usual * (WEIGHT - 1) + took_us) / WEIGHT);
        self.usual_us = Some(usual_us);
    }

    /// How many runs this many slots will probably begin within this time; zero until a duration is known. If
    /// current runs already take longer than usual, their duration counts instead.
    pub(crate) fn started_within(&self, time: Duration, slots: usize, now: Monotonic) -> usize {
        let Some(usual_us) = self.usual_us else { return 0 };
        let so_far_us = match self.running {
            0 => 0,
            running => u128::from(now.as_micros()).saturating_sub(self.starts_us / u128::from(running)),
        };
        let run_us = u128::from(usual_us).max(so_far_us).max(1);
        usize::try_from(time.as_micros() * slots as u128 / run_us).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_millis(100);

    fn at(ms: u64) -> Monotonic {
        Monotonic::from_micros(ms * 1_000)
    }

    #[test]
    fn nothing_is_expected_before_the_first_run_has_ended() {
        let mut pace = RunPace::default();
        assert_eq!(pace.started_within(TIME, 4, at(0)), 0);
        pace.started(at(0));
        assert_eq!(pace.started_within(TIME, 4, at(0)), 0);
    }

    #[test]
    fn short_runs_make_a_large_reserve_and_long_ones_none() {
        for (ms, expected) in [(1, 400), (10, 40), (100, 4), (1_000, 0)] {
            let mut pace = RunPace::default();
            pace.started(at(0));
            pace.ended(at(0), at(ms));
            assert_eq!(pace.started_within(TIME, 4, at(ms)), expected, "{ms}");
        }
    }

    #[test]
    fn runs_that_go_on_for_longer_than_usual_count_as_they_stand() {
        let mut pace = RunPace::default();
        pace.started(at(0));
        pace.ended(at(0), at(1));
        pace.started(at(10));
        pace.started(at(20));
        assert_eq!(pace.started_within(TIME, 2, at(20)), 40, "five milliseconds each so far");
        assert_eq!(pace.started_within(TIME, 2, at(1_015)), 0);
        pace.ended(at(10), at(1_015));
        pace.ended(at(20), at(1_015));
        for start in 0..100 {
            pace.started(at(2_000 + start));
            pace.ended(at(2_000 + start), at(2_001 + start));
        }
        assert!(pace.started_within(TIME, 2, at(3_000)) > 100, "long runs are forgotten");
    }
}
