//! The results of a soak, in numbers and in words.

use crate::baseline::MeasuredBaseline;
use crate::machine::MachineFacts;
use crate::plot::PlotMark;
use crate::slope::{Point, Trend, Unit};
use crate::steady::Sample;
use crate::units::{grouped, percent};
use crate::usage::Cost;
use punctual_config::output::{details, span};
use serde::Serialize;
use std::time::Duration;

/// How far the executions may lag behind the rate at the end, and the same as a share of the whole time. A lag of one
/// second is normal, because half of the jobs are due two seconds after they are submitted.
const LAG_MAX: Duration = Duration::from_secs(3);
const LAG_SHARE_MAX: f64 = 0.01;

#[derive(Debug, Serialize)]
pub struct Trends {
    pub server_memory_bytes: Trend,
    pub disk_bytes: Trend,
    pub done_per_second: Trend,
    pub late_p99_us: Trend,
}

/// Executions per second at both ends of the run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Tenths {
    pub first_per_second: f64,
    pub last_per_second: f64,
}

/// The requested rate, and how much of it the server reached.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Reached {
    pub asked_per_second: u64,
    pub done_per_second: f64,
    /// How long before the end the requested rate would have reached the final number of executions.
    pub lag_seconds: f64,
    /// The rate was more than the server can handle, or than this machine can submit.
    pub overloaded: bool,
}

#[derive(Debug, Serialize)]
pub struct SoakReport {
    pub machine: MachineFacts,
    pub seconds: f64,
    /// Requested executions per second; absent at full rate.
    pub rate: Option<u64>,
    pub payload_bytes: u64,
    pub kept_ms: u64,
    pub sample_every_ms: u64,
    pub expected: u64,
    pub succeeded: u64,
    /// Attempts that did not succeed.
    pub otherwise: u64,
    pub early: u64,
    /// Everything was executed once and nothing early.
    pub exact: bool,
    /// Why the run ended early.
    pub broken_off: Option<String>,
    /// Absent at full rate.
    pub reached: Option<Reached>,
    pub tenths: Option<Tenths>,
    /// Over the second half.
    pub trends: Trends,
    /// Absent if the server had exited at the end.
    #[serde(flatten)]
    pub cost: Option<Cost>,
    /// Absent if the user interrupted the run.
    pub baseline: Option<MeasuredBaseline>,
    /// The rate as a share of the bare database's rate of claims and completions.
    pub rate_of_baseline: Option<f64>,
    pub samples: Vec<Sample>,
}

impl Trends {
    pub fn of(samples: &[Sample]) -> Trends {
        let half = &samples[samples.len() / 2..];
        let trend = |unit: Unit, value: fn(&Sample) -> Option<f64>| {
            let point =
                |sample: &Sample| value(sample).map(|value| Point { hours: sample.seconds / 3_600.0, value });
            Trend::of(&half.iter().filter_map(point).collect::<Vec<_>>(), unit)
        };
        Trends {
            server_memory_bytes: trend(Unit::Bytes, |sample| Some(sample.server_memory_bytes as f64)),
            disk_bytes: trend(Unit::Bytes, |sample| Some(sample.disk_bytes as f64)),
            done_per_second: trend(Unit::JobsPerSecond, |sample| Some(sample.done_per_second)),
            late_p99_us: trend(Unit::Microseconds, |sample| sample.late_p99_us.map(|late| late as f64)),
        }
    }
}

impl Tenths {
    /// `None` for fewer than ten samples.
    pub fn of(samples: &[Sample]) -> Option<Self> {
        let tenth = samples.len() / 10;
        let rate = |from: Option<&Sample>, to: &Sample| {
            let (done, seconds) = from.map_or((0, 0.0), |sample| (sample.done, sample.seconds));
            (to.done - done) as f64 / (to.seconds - seconds).max(1e-9)
        };
        let last = samples.last()?;
        Some(Tenths {
            first_per_second: rate(None, samples.get(tenth.checked_sub(1)?)?),
            last_per_second: rate(samples.get(samples.len() - tenth - 1), last),
        })
    }
}

impl Reached {
    pub fn of(asked_per_second: u64, last: &Sample) -> Self {
        let asked = asked_per_second as f64;
        let lag_seconds = (last.seconds - last.done as f64 / asked).max(0.0);
        let bearable = LAG_MAX.as_secs_f64().max(last.seconds * LAG_SHARE_MAX);
        Reached {
            asked_per_second,
            done_per_second: last.done as f64 / last.seconds.max(1e-9),
            lag_seconds,
            overloaded: lag_seconds > bearable,
        }
    }

    fn warning(self) -> Option<String> {
        self.overloaded.then(|| {
            format!(
                "{} of the {} requested executions/s were reached ({}), {} behind at the end: more than this server \
                 can handle, or than this machine can submit",
                grouped(self.done_per_second),
                grouped(self.asked_per_second as f64),
                percent(self.done_per_second / self.asked_per_second as f64),
                span(Duration::from_secs_f64(self.lag_seconds.round()))
            )
        })
    }
}

impl SoakReport {
    fn load(&self) -> String {
        let rate = self.rate.map_or_else(
            || "as many executions/s as the server can handle".to_owned(),
            |rate| format!("{} executions/s", grouped(rate as f64)),
        );
        format!(
            "{rate} for {}, finished jobs kept for {}",
            span(Duration::from_secs_f64(self.seconds.round())),
            span(Duration::from_millis(self.kept_ms))
        )
    }

    fn done(&self) -> String {
        format!(
            "{} of {} executions succeeded, {} ended otherwise, {} were early",
            grouped(self.succeeded as f64),
            grouped(self.expected as f64),
            grouped(self.otherwise as f64),
            grouped(self.early as f64)
        )
    }

    fn rate(&self) -> String {
        let trend = self.trends.done_per_second.describe(Unit::JobsPerSecond);
        let tenths = self.tenths.map_or_else(String::new, |tenths| {
            format!(
                "; {} in the first tenth, {} in the last",
                grouped(tenths.first_per_second),
                grouped(tenths.last_per_second)
            )
        });
        let of_baseline = self.rate_of_baseline.map_or_else(String::new, |share| {
            format!("; {} of the bare database's rate of claims and completions", percent(share))
        });
        format!("{trend}{tenths}{of_baseline}")
    }

    fn plot(&self, look: PlotMark, value: impl Fn(&Sample) -> f64) -> Option<String> {
        Some(look.row(&self.samples.iter().map(value).collect::<Vec<_>>()))
    }

    pub fn describe(&self) -> String {
        let (look, trends) = (PlotMark::of_stdout(), &self.trends);
        let last = self.samples.last();
        let has_files = last.is_some_and(|sample| sample.write_ahead_log_bytes.is_some());
        let dead_rows = last.and_then(|sample| sample.dead_rows);
        let rows = [
            ("Load", Some(self.load())),
            ("Interrupted", self.broken_off.clone()),
            ("Overload", self.reached.and_then(Reached::warning)),
            ("Done", Some(self.done())),
            ("Memory", Some(trends.server_memory_bytes.describe(Unit::Bytes))),
            ("", self.plot(look, |sample| sample.server_memory_bytes as f64)),
            (if has_files { "Files" } else { "Database" }, Some(trends.disk_bytes.describe(Unit::Bytes))),
            ("", self.plot(look, |sample| sample.disk_bytes as f64)),
            ("Dead rows", dead_rows.map(|dead| format!("{} at the end", grouped(dead as f64)))),
            ("", dead_rows.and_then(|_| self.plot(look, |sample| sample.dead_rows.unwrap_or(0) as f64))),
            ("Rate", Some(self.rate())),
            ("", self.plot(look, |sample| sample.done_per_second)),
            ("Lateness p99", Some(trends.late_p99_us.describe(Unit::Microseconds))),
            ("", self.plot(look, |sample| sample.late_p99_us.unwrap_or(0) as f64)),
        ];
        let baseline = self.baseline.map(|baseline| baseline.durable_write.row());
        let cost = self.cost.map(Cost::rows).into_iter().flatten();
        details(rows.into_iter().chain(baseline).chain(cost).chain(self.machine.rows()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(seconds: f64, done: u64) -> Sample {
        Sample {
            seconds,
            server_memory_bytes: 1,
            disk_bytes: 1,
            write_ahead_log_bytes: None,
            dead_rows: None,
            done,
            done_per_second: 0.0,
            late_p99_us: None,
        }
    }

    #[test]
    fn a_rate_that_is_not_reached_is_reported() {
        let borne = Reached::of(500, &sample(60.0, 29_500));
        assert_eq!((borne.overloaded, borne.warning()), (false, None), "a lag of one second is normal");
        let overload = Reached::of(500, &sample(60.0, 15_000));
        assert!(overload.overloaded && (overload.lag_seconds - 30.0).abs() < 1e-9, "{overload:?}");
        let said = overload.warning().unwrap();
        assert!(
            said.starts_with("250 of the 500 requested executions/s were reached (50 %), 30s behind"),
            "{said}"
        );
    }

    #[test]
    fn both_ends_of_a_run_have_a_rate() {
        let samples: Vec<Sample> =
            (1..=20).map(|n| sample(f64::from(n), if n <= 2 { 100 } else { 40 } * n as u64)).collect();
        let tenths = Tenths::of(&samples).unwrap();
        assert_eq!((tenths.first_per_second, tenths.last_per_second), (100.0, 40.0));
        assert_eq!(Tenths::of(&samples[..9]), None);
    }
}
