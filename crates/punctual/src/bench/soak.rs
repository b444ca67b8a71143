//! `punctual bench soak`: a steady mixed load for as long as asked, and whether anything grows.
//!
//! Of all executions a fifth are runs of every-second recurring jobs, three tenths are one-time jobs two seconds
//! ahead, and half are due at once. Finished jobs are deleted after a while, so that a steady state exists at all;
//! trends are taken over the second half, when it is reached.

use crate::bench::floor::{self, Floor, FloorJobs};
use crate::bench::machine::Machine;
use crate::bench::pipe::Counts;
use crate::bench::plot::Look;
use crate::bench::slope::{Point, Trend, Unit};
use crate::bench::stage::{Stage, StageOptions};
use crate::bench::steady::{BATCH_MAX, Sample, Steady, SteadyLoad};
use crate::bench::usage::{Cost, Meter};
use crate::bench::words::grouped;
use crate::bench::{PlaceArgs, bad_option};
use crate::exit::{CliError, Exit};
use crate::output::{OutputArgs, details, span};
use punctual_client::Span;
use punctual_core::limits::PAYLOAD_BYTES_MAX;
use serde::Serialize;
use std::time::Duration;

const DURATION_MIN: Duration = Duration::from_secs(1);
const DURATION_MAX: Duration = Duration::from_secs(30 * 24 * 3_600);
/// Samples of a run whose `--sample-every` is left out, and the bounds of the time between them.
const SAMPLES: u32 = 240;
const SAMPLE_EVERY_MIN: Duration = Duration::from_millis(100);
const SAMPLE_EVERY_MAX: Duration = Duration::from_secs(60);
/// Samples of any run: they are held in memory and printed.
const SAMPLES_MAX: u128 = 100_000;
/// Rows of the floor.
const FLOOR_JOBS: u64 = 20_000;

#[derive(clap::Args)]
pub struct SoakArgs {
    /// How long
    #[arg(long = "for", default_value = "2h", value_name = "DURATION")]
    duration: Span,
    /// Executions per second
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(10..=100_000))]
    rate: u64,
    /// Time between two samples; a 240th of the whole, between 100ms and 1m, if left out
    #[arg(long, value_name = "DURATION")]
    sample_every: Option<Span>,
    /// How long finished jobs are kept; an eighth of the whole if left out
    #[arg(long, value_name = "DURATION")]
    keep: Option<Span>,
    /// Bytes of each job's payload
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(2..=PAYLOAD_BYTES_MAX as u64))]
    payload_bytes: u64,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl SoakArgs {
    fn check(&self) -> Result<(), CliError> {
        let duration = self.duration.get();
        if !(DURATION_MIN..=DURATION_MAX).contains(&duration) {
            return Err(bad_option(format!("--for {}: must be between 1s and 30d", self.duration)));
        }
        let every = self.sample_every();
        if every < SAMPLE_EVERY_MIN || every > duration {
            return Err(bad_option(format!(
                "--sample-every {}: must be between 100ms and --for ({})",
                Span::from(every),
                self.duration
            )));
        }
        if duration.as_millis() / every.as_millis() > SAMPLES_MAX {
            return Err(bad_option(format!(
                "--sample-every {} makes more than {SAMPLES_MAX} samples in {}: take them less often",
                Span::from(every),
                self.duration
            )));
        }
        if self.payload_bytes * BATCH_MAX.min(self.rate) > 7 * 1024 * 1024 {
            return Err(bad_option(format!(
                "--payload-bytes {} with --rate {} is more than a server takes in one request: make either smaller",
                self.payload_bytes, self.rate
            )));
        }
        Ok(())
    }

    fn sample_every(&self) -> Duration {
        let usual = (self.duration.get() / SAMPLES).clamp(SAMPLE_EVERY_MIN, SAMPLE_EVERY_MAX);
        self.sample_every.map_or(usual, Span::get)
    }

    fn keep(&self) -> Duration {
        self.keep.map_or(self.duration.get() / 8, Span::get)
    }

    fn load(&self) -> SteadyLoad {
        SteadyLoad {
            duration: self.duration.get(),
            rate: self.rate,
            payload_bytes: self.payload_bytes,
            sample_every: self.sample_every(),
        }
    }
}

#[derive(Debug, Serialize)]
struct Trends {
    server_memory_bytes: Trend,
    disk_bytes: Trend,
    done_per_second: Trend,
    late_p99_us: Trend,
}

#[derive(Debug, Serialize)]
struct SoakReport {
    machine: Machine,
    seconds: f64,
    rate: u64,
    payload_bytes: u64,
    kept_ms: u64,
    sample_every_ms: u64,
    expected: u64,
    succeeded: u64,
    /// Attempts that ended otherwise.
    otherwise: u64,
    early: u64,
    /// Everything was executed once and nothing early.
    exact: bool,
    /// Why it ended before its time.
    broken_off: Option<String>,
    /// Over the second half.
    trends: Trends,
    #[serde(flatten)]
    cost: Cost,
    floor: Floor,
    /// The rate as a share of what the bare database does of claims and completions.
    rate_of_floor: Option<f64>,
    samples: Vec<Sample>,
}

pub async fn run(args: SoakArgs) -> anyhow::Result<Exit> {
    args.check()?;
    let machine = Machine::here(&args.place.dir);
    let options = StageOptions { keep: Some(args.keep()), ..StageOptions::USUAL };
    let mut stage = Stage::set_up(&args.place, options).await?;
    let meter = Meter::start(&stage)?;
    let mut soak = Steady::new(args.load())?;
    soak.start_recurring(&stage.client).await?;
    // What was measured in hours is told, even if the last of them went wrong.
    let (counts, broken_off) = match go_through(&mut soak, &mut stage).await {
        Ok(counts) => (counts, None),
        Err(error) if soak.samples.is_empty() => return Err(error),
        Err(error) => (stage.counts().await?, Some(format!("{error:#}"))),
    };
    let cost = meter.stop(&stage, soak.expected)?;
    let like = FloorJobs { jobs: FLOOR_JOBS, batch: BATCH_MAX, payload_bytes: args.payload_bytes };
    let floor = floor::measure(&args.place, stage.dir(), like).await?;
    let trends = Trends::of(&soak.samples);
    let is_whole = broken_off.is_none() && counts.succeeded == soak.expected;
    let exact = is_whole && counts.otherwise == 0 && soak.early == 0;
    let report = SoakReport {
        machine,
        seconds: soak.samples.last().map_or(0.0, |sample| sample.seconds),
        rate: args.rate,
        payload_bytes: args.payload_bytes,
        kept_ms: args.keep().as_millis() as u64,
        sample_every_ms: args.sample_every().as_millis() as u64,
        expected: soak.expected,
        succeeded: counts.succeeded,
        otherwise: counts.otherwise,
        early: soak.early,
        exact,
        broken_off,
        rate_of_floor: floor::share(trends.done_per_second.mean, floor.claim_complete_per_second),
        trends,
        cost,
        floor,
        samples: soak.samples,
    };
    args.output.print(&report, describe)?;
    Ok(if report.exact { Exit::Done } else { Exit::Failed })
}

async fn go_through(soak: &mut Steady, stage: &mut Stage) -> anyhow::Result<Counts> {
    soak.go_on(stage).await?;
    soak.finish(stage).await
}

fn describe(report: &SoakReport) -> String {
    let look = Look::of_stdout();
    let row =
        |value: fn(&Sample) -> f64| Some(look.row(&report.samples.iter().map(value).collect::<Vec<_>>()));
    let trends = &report.trends;
    let done = format!(
        "{} of {} executions succeeded, {} ended otherwise, {} were early",
        grouped(report.succeeded as f64),
        grouped(report.expected as f64),
        grouped(report.otherwise as f64),
        grouped(report.early as f64)
    );
    let load = format!(
        "{} executions/s for {}, finished jobs kept for {}",
        grouped(report.rate as f64),
        span(Duration::from_secs_f64(report.seconds)),
        span(Duration::from_millis(report.kept_ms))
    );
    let rows = [
        ("Load", Some(load)),
        ("Broken off", report.broken_off.clone()),
        ("Done", Some(done)),
        ("Memory", Some(trends.server_memory_bytes.describe(Unit::Bytes))),
        ("", row(|sample| sample.server_memory_bytes as f64)),
        ("Files", Some(trends.disk_bytes.describe(Unit::Bytes))),
        ("", row(|sample| sample.disk_bytes.unwrap_or(0) as f64)),
        ("Rate", Some(trends.done_per_second.describe(Unit::JobsPerSecond))),
        ("", row(|sample| sample.done_per_second)),
        ("Lateness p99", Some(trends.late_p99_us.describe(Unit::Microseconds))),
        ("", row(|sample| sample.late_p99_us.unwrap_or(0) as f64)),
        ("fdatasync", Some(report.floor.fdatasync_us.describe())),
    ];
    details(rows.into_iter().chain(report.cost.rows()).chain(report.machine.rows()))
}

impl Trends {
    fn of(samples: &[Sample]) -> Trends {
        let half = &samples[samples.len() / 2..];
        let trend = |unit: Unit, value: fn(&Sample) -> Option<f64>| {
            let point =
                |sample: &Sample| value(sample).map(|value| Point { hours: sample.seconds / 3_600.0, value });
            Trend::of(&half.iter().filter_map(point).collect::<Vec<_>>(), unit)
        };
        Trends {
            server_memory_bytes: trend(Unit::Bytes, |sample| Some(sample.server_memory_bytes as f64)),
            disk_bytes: trend(Unit::Bytes, |sample| sample.disk_bytes.map(|bytes| bytes as f64)),
            done_per_second: trend(Unit::JobsPerSecond, |sample| Some(sample.done_per_second)),
            late_p99_us: trend(Unit::Microseconds, |sample| sample.late_p99_us.map(|late| late as f64)),
        }
    }
}
