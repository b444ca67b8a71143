//! The rate at which jobs complete over the course of a run.

use crate::bench_server::Stage;
use crate::pipe::{MachineMoment, ServerCounts};
use crate::plot::PlotMark;
use crate::units::{grouped, per_second, percent};
use anyhow::bail;
use indicatif::ProgressBar;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Interval between two progress checks.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// How long a run may make no progress before it is aborted.
pub const STALL_MAX: Duration = Duration::from_secs(60);
/// Progress checks are some milliseconds apart, so the rate of a shorter time than this would be mostly noise.
const TENTH_MIN: Duration = Duration::from_millis(50);
/// A shorter run cannot show a decline: caches fill, and the load of other processes varies.
const VERDICT_SECONDS_MIN: f64 = 10.0;
/// A rate that falls by no more than this is steady.
const DECLINE_MAX: f64 = 0.05;

/// The rate over a whole run and over its parts.
#[derive(Debug, Clone, Serialize)]
pub struct Pace {
    pub seconds: f64,
    pub per_second: f64,
    /// The rate of each tenth of the jobs, in order. Empty if a tenth was too short to measure.
    pub per_second_by_tenth: Vec<f64>,
    /// The rate of each half of the jobs.
    pub per_second_by_half: [f64; 2],
    /// The rate of the last three tenths as a share of the rate of the first three.
    pub end_of_start: Option<f64>,
}

impl Pace {
    pub fn describe(&self, look: PlotMark) -> Option<String> {
        let share = self.end_of_start?;
        let verdict = if self.seconds < VERDICT_SECONDS_MIN {
            "too short to tell whether it declines".to_owned()
        } else if share >= 1.0 - DECLINE_MAX {
            "no decline".to_owned()
        } else {
            format!("slows down to {} of its start", percent(share))
        };
        let (first, last) = self.per_second_by_tenth.first().zip(self.per_second_by_tenth.last())?;
        let row = look.row(&self.per_second_by_tenth);
        Some(format!(
            "{row}  {} jobs/s in the first tenth, {} in the last: {verdict}",
            grouped(*first),
            grouped(*last)
        ))
    }

    pub fn of(looks: &[PaceProgress]) -> Pace {
        let (jobs, total) = looks.last().map_or((0, Duration::ZERO), |last| (last.done, last.after));
        let times = tenths(looks);
        let is_measured = times.iter().all(|time| *time >= TENTH_MIN);
        let rate = |time: &Duration| jobs as f64 / 10.0 / time.as_secs_f64().max(1e-9);
        let sum = |times: &[Duration]| times.iter().sum::<Duration>().as_secs_f64();
        Pace {
            seconds: total.as_secs_f64(),
            per_second: per_second(jobs, total),
            per_second_by_tenth: if is_measured { times.iter().map(rate).collect() } else { Vec::new() },
            per_second_by_half: [&times[..5], &times[5..]]
                .map(|half| jobs as f64 / 2.0 / sum(half).max(1e-9)),
            end_of_start: is_measured.then(|| sum(&times[..3]) / sum(&times[7..]).max(1e-9)),
        }
    }
}

/// How many jobs were complete after how long.
#[derive(Debug, Clone, Copy)]
pub struct PaceProgress {
    pub after: Duration,
    pub done: u64,
}

/// Watches a fresh server until this many jobs have succeeded. The time counts from `since`.
pub async fn watch(
    stage: &mut Stage,
    jobs: u64,
    since: MachineMoment,
    bar: &ProgressBar,
) -> anyhow::Result<Pace> {
    watch_with(stage, jobs, since, bar, |counts| counts.otherwise).await
}

/// The same while other jobs fail.
pub async fn watch_beside_failures(
    stage: &mut Stage,
    jobs: u64,
    since: MachineMoment,
    bar: &ProgressBar,
) -> anyhow::Result<Pace> {
    watch_with(stage, jobs, since, bar, |counts| counts.otherwise - counts.failed).await
}

async fn watch_with(
    stage: &mut Stage,
    jobs: u64,
    since: MachineMoment,
    bar: &ProgressBar,
    unexpected: impl Fn(ServerCounts) -> u64,
) -> anyhow::Result<Pace> {
    let mut looks = vec![PaceProgress { after: Duration::ZERO, done: 0 }];
    let mut interval = tokio::time::interval(LOOK_INTERVAL);
    let mut last_progress = Instant::now();
    loop {
        interval.tick().await;
        let counts = stage.counts().await?;
        let before = looks.last().map_or(0, |look| look.done);
        let done = counts.succeeded;
        if done > before {
            last_progress = Instant::now();
            looks.push(PaceProgress { after: counts.at.since(since), done });
            bar.set_position(done);
        }
        let unsuccessful = unexpected(counts);
        if unsuccessful > 0 {
            bail!(
                "{unsuccessful} executions did not succeed, {} of them because their worker's session was lost",
                counts.lost
            );
        }
        if done >= jobs {
            return Ok(Pace::of(&looks));
        }
        if last_progress.elapsed() > STALL_MAX {
            bail!("only {done} of {jobs} jobs were done, and no more for {STALL_MAX:?}");
        }
    }
}

/// The duration of each tenth of the jobs. Assumes a constant rate between two progress checks.
fn tenths(looks: &[PaceProgress]) -> [Duration; 10] {
    let jobs = looks.last().map_or(0, |look| look.done) as f64;
    let mut ends = [Duration::ZERO; 11];
    for (tenth, end) in ends.iter_mut().enumerate() {
        let wanted = jobs * tenth as f64 / 10.0;
        let next = looks.partition_point(|look| (look.done as f64) < wanted);
        *end = match (next.checked_sub(1).and_then(|before| looks.get(before)), looks.get(next)) {
            (Some(before), Some(look)) => {
                let share = (wanted - before.done as f64) / (look.done - before.done) as f64;
                before.after + (look.after - before.after).mul_f64(share)
            }
            (None, Some(look)) => look.after,
            (before, None) => before.map_or(Duration::ZERO, |look| look.after),
        };
    }
    std::array::from_fn(|tenth| ends[tenth + 1].saturating_sub(ends[tenth]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(points: &[(u64, u64)]) -> Vec<PaceProgress> {
        points
            .iter()
            .map(|(ms, done)| PaceProgress { after: Duration::from_millis(*ms), done: *done })
            .collect()
    }

    #[test]
    fn each_tenth_has_its_own_time() {
        // 500 jobs in the first second, 500 in the next four.
        let times = tenths(&looks(&[(0, 0), (1_000, 500), (5_000, 1_000)]));
        assert_eq!(times[..5], [Duration::from_millis(200); 5]);
        assert_eq!(times[5..], [Duration::from_millis(800); 5]);
    }

    #[test]
    fn a_run_that_slows_down_is_reported() {
        let pace = Pace::of(&looks(&[(0, 0), (10_000, 500), (50_000, 1_000)]));
        assert_eq!((pace.per_second, pace.end_of_start), (20.0, Some(0.25)));
        assert!(pace.describe(PlotMark::Ascii).unwrap().ends_with("slows down to 25 % of its start"));
        let steady = Pace::of(&looks(&[(0, 0), (10_000, 1_000)]));
        assert!(steady.describe(PlotMark::Ascii).unwrap().ends_with("no decline"));
    }

    #[test]
    fn each_half_has_a_rate_with_few_progress_checks() {
        assert_eq!(
            Pace::of(&looks(&[(0, 0), (1_000, 500), (5_000, 1_000)])).per_second_by_half,
            [500.0, 125.0]
        );
        assert_eq!(Pace::of(&looks(&[(0, 0), (100, 1_000)])).per_second_by_half, [10_000.0, 10_000.0]);
    }

    #[test]
    fn a_run_of_seconds_is_too_short_for_a_verdict() {
        for end in [2_000, 9_000] {
            let pace = Pace::of(&looks(&[(0, 0), (1_000, 500), (end, 1_000)]));
            assert!(
                pace.describe(PlotMark::Ascii).unwrap().ends_with("too short to tell whether it declines")
            );
        }
    }

    #[test]
    fn a_tenth_that_is_too_short_has_no_rate() {
        let pace = Pace::of(&looks(&[(0, 0), (499, 1_000)]));
        assert_eq!((pace.per_second_by_tenth.len(), pace.end_of_start), (0, None));
        assert_eq!(Pace::of(&[]).end_of_start, None);
    }
}
