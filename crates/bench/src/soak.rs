//! `punctual bench soak`: a steady mixed load for a given time, and whether anything grows.
//!
//! A fifth of all executions are runs of recurring jobs that run every second, three tenths are one-time jobs that
//! are due in two seconds, and half are due immediately. Finished jobs are deleted after a while, so that a steady
//! state exists. Trends are taken over the second half of the run, when the steady state is reached.

use crate::baseline::{self, BaselineJobs, MeasuredBaseline};
use crate::bench_server::{Stage, StageOptions};
use crate::machine::MachineFacts;
use crate::samples::SampleFile;
use crate::signals::{BenchSignals, broken_off};
use crate::soak_report::{Reached, SoakReport, Tenths, Trends};
use crate::steady::{BATCH_MAX, Steady, SteadyLoad, SteadyRate};
use crate::usage::{Cost, Meter};
use crate::{PlaceArgs, bad_option};
use punctual_client::Span;
use punctual_config::exit::{CliError, Exit};
use punctual_config::output::OutputArgs;
use punctual_core::limits::PAYLOAD_BYTES_MAX;
use std::path::PathBuf;
use std::time::Duration;

const DURATION_MIN: Duration = Duration::from_secs(1);
const DURATION_MAX: Duration = Duration::from_secs(30 * 24 * 3_600);
/// Number of samples of a run without `--sample-every`, and the bounds of the interval between them.
const SAMPLES: u32 = 240;
const SAMPLE_EVERY_MIN: Duration = Duration::from_millis(100);
const SAMPLE_EVERY_MAX: Duration = Duration::from_secs(60);
/// Maximum samples of a run. They are held in memory and printed.
const SAMPLES_MAX: u128 = 100_000;
/// Rows of the baseline.
const BASELINE_JOBS: u64 = 20_000;

#[derive(clap::Args)]
pub struct SoakArgs {
    /// How long
    #[arg(long = "for", default_value = "2h", value_name = "DURATION")]
    duration: Span,
    /// Executions per second, from 10 to 100000; `full` for as many as the server can handle
    #[arg(long, default_value = "500", value_name = "RATE")]
    rate: SteadyRate,
    /// Time between two samples; by default a 240th of the whole run, between 100ms and 1m
    #[arg(long, value_name = "DURATION")]
    sample_every: Option<Span>,
    /// A file to which each sample is appended as a line of JSON, as soon as it is taken
    #[arg(long, value_name = "FILE")]
    samples: Option<PathBuf>,
    /// How long finished jobs are kept; by default an eighth of the whole run
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
                "--sample-every {} makes more than {SAMPLES_MAX} samples in {}: increase the interval",
                Span::from(every),
                self.duration
            )));
        }
        let at_once = self.rate.per_second().map_or(BATCH_MAX, |rate| BATCH_MAX.min(rate));
        if self.payload_bytes * at_once > 7 * 1024 * 1024 {
            return Err(bad_option(format!(
                "--payload-bytes {}: at this --rate more than a server accepts in one request: reduce either of them",
                self.payload_bytes
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

pub async fn run(args: SoakArgs, signals: &mut BenchSignals) -> anyhow::Result<Exit> {
    args.check()?;
    let file = args.samples.as_deref().map(SampleFile::open).transpose()?;
    let machine = MachineFacts::here(&args.place.dir);
    let options = StageOptions { keep: Some(args.keep()), ..StageOptions::USUAL };
    let mut soak = Steady::new(args.load(), file)?;
    let result =
        Stage::measure(&args.place, options, async |stage| run_soak(&mut soak, stage, signals).await);
    let result = result.await?;
    let baseline = match result.ending {
        // A user who interrupts the run does not want to wait for the baseline.
        SoakEnding::Interrupted => None,
        SoakEnding::Whole | SoakEnding::Failed(_) => {
            let like =
                BaselineJobs { jobs: BASELINE_JOBS, batch: BATCH_MAX, payload_bytes: args.payload_bytes };
            Some(signals.unless(baseline::measure(&args.place, like)).await?)
        }
    };
    let is_interrupted = result.ending == SoakEnding::Interrupted;
    let report = args.report(machine, soak, result, baseline);
    args.output.print(&report, SoakReport::describe)?;
    if is_interrupted {
        eprintln!("{}", broken_off());
    }
    Ok(if report.exact { Exit::Done } else { Exit::Failed })
}

impl SoakArgs {
    fn report(
        &self,
        machine: MachineFacts,
        soak: Steady,
        result: SoakResult,
        baseline: Option<MeasuredBaseline>,
    ) -> SoakReport {
        let trends = Trends::of(&soak.samples);
        let (succeeded, otherwise) =
            soak.counts.map_or((0, 0), |counts| (counts.succeeded, counts.otherwise));
        let is_whole = result.ending == SoakEnding::Whole && succeeded == soak.expected;
        let last = soak.samples.last();
        SoakReport {
            machine,
            seconds: last.map_or(0.0, |sample| sample.seconds),
            rate: self.rate.per_second(),
            payload_bytes: self.payload_bytes,
            kept_ms: self.keep().as_millis() as u64,
            sample_every_ms: self.sample_every().as_millis() as u64,
            expected: soak.expected,
            succeeded,
            otherwise,
            early: soak.early,
            exact: is_whole && otherwise == 0 && soak.early == 0,
            broken_off: result.ending.reason(),
            reached: self.rate.per_second().zip(last).map(|(rate, last)| Reached::of(rate, last)),
            tenths: Tenths::of(&soak.samples),
            rate_of_baseline: baseline.map(|baseline| {
                baseline::share(trends.done_per_second.mean, baseline.claim_complete_per_second)
            }),
            trends,
            cost: result.cost,
            baseline,
            samples: soak.samples,
        }
    }
}

/// How a soak ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SoakEnding {
    Whole,
    Interrupted,
    /// The error message.
    Failed(String),
}

impl SoakEnding {
    fn reason(self) -> Option<String> {
        match self {
            SoakEnding::Whole => None,
            SoakEnding::Interrupted => Some("interrupted: what was measured so far".to_owned()),
            SoakEnding::Failed(reason) => Some(reason),
        }
    }
}

struct SoakResult {
    ending: SoakEnding,
    cost: Option<Cost>,
}

/// Runs the soak. Returns what was measured even if the run fails, because hours of samples may be worth keeping.
async fn run_soak(
    soak: &mut Steady,
    stage: &mut Stage,
    signals: &mut BenchSignals,
) -> anyhow::Result<SoakResult> {
    let meter = Meter::start(stage)?;
    let ended = tokio::select! {
        biased;
        () = signals.next() => Ok(SoakEnding::Interrupted),
        ended = go_through(soak, stage) => ended.map(|()| SoakEnding::Whole),
    };
    let ending = match ended {
        Ok(SoakEnding::Interrupted) if soak.samples.is_empty() => return Err(broken_off().into()),
        Ok(ending) => ending,
        Err(error) if soak.samples.is_empty() => return Err(error),
        Err(error) => SoakEnding::Failed(format!("{:#}", stage.explained(error).await)),
    };
    // A server that has exited reports no cost.
    Ok(SoakResult { cost: meter.stop(stage, soak.expected).ok(), ending })
}

async fn go_through(soak: &mut Steady, stage: &mut Stage) -> anyhow::Result<()> {
    soak.start_recurring(&stage.client).await?;
    soak.go_on(stage).await?;
    soak.finish(stage).await
}
