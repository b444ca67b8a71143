//! `punctual bench lateness`: how long after its nominal time a scheduled job starts.

use crate::bench::door::Door;
use crate::bench::percentiles::Percentiles;
use crate::bench::recorder::{JOB_TYPE, StartRecorder};
use crate::bench::stage::Stage;
use crate::bench::{PlaceArgs, grouped, machine, progress};
use crate::exit::Exit;
use crate::output::{OutputArgs, details};
use anyhow::{Context, bail};
use punctual_client::Span;
use punctual_core::job::JobSpec;
use punctual_core::limits::STORE_BATCH_MAX;
use punctual_core::recurrence::RecurrenceSpec;
use punctual_core::schedule::{Recurring, Schedule};
use punctual_core::time::{Timestamp, duration_micros};
use serde::Serialize;
use std::time::Duration;

#[derive(clap::Args)]
pub struct LatenessArgs {
    /// How many jobs
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
    jobs: u64,
    /// One-time jobs: the time over which they are spread evenly
    #[arg(long, default_value = "10s", value_name = "DURATION")]
    over: Span,
    /// Recurring jobs instead: this far apart, each shifted against the others
    #[arg(long, value_name = "DURATION")]
    every: Option<Span>,
    /// Runs of each recurring job
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Jobs of the far future that are held meanwhile
    #[arg(long, default_value_t = 0)]
    held: u64,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Serialize)]
struct LatenessReport {
    jobs: u64,
    held: u64,
    expected: u64,
    started: u64,
    late_us: Percentiles,
    load_before: f64,
    cpu_ms_per_1000_fires: f64,
    peak_memory_bytes: u64,
}

/// Time between the submit and the first nominal time, so that all jobs are there before it.
const LEAD: Duration = Duration::from_secs(2);
/// How long after the last nominal time a fire too many would be noticed.
const AFTERMATH: Duration = Duration::from_millis(500);

pub async fn run(args: LatenessArgs) -> anyhow::Result<Exit> {
    let stage = Stage::set_up(&args.place).await?;
    let load_before = machine::load_average();
    hold(&stage, args.held).await?;
    let runs = if args.every.is_some() { args.runs } else { 1 };
    let expected = args.jobs * u64::from(runs);
    let cpu_before = machine::cpu_time();
    let late = measure(&stage, &args, expected).await?;
    let cpu = machine::cpu_time() - cpu_before;
    let report = LatenessReport {
        jobs: args.jobs,
        held: args.held,
        expected,
        started: late.len() as u64,
        late_us: Percentiles::of(late),
        load_before,
        cpu_ms_per_1000_fires: cpu.as_secs_f64() * 1e6 / expected as f64,
        peak_memory_bytes: machine::peak_memory_bytes()?,
    };
    args.output.print(&report, describe)?;
    Ok(if report.started == expected { Exit::Done } else { Exit::Failed })
}

fn describe(report: &LatenessReport) -> String {
    details([
        ("Jobs", Some(grouped(report.jobs as f64))),
        ("Held meanwhile", (report.held > 0).then(|| grouped(report.held as f64))),
        ("Fires", Some(format!("{} of {}", grouped(report.started as f64), grouped(report.expected as f64)))),
        ("Lateness", Some(report.late_us.describe())),
        ("Busy", machine::busy_warning(report.load_before)),
        ("CPU", Some(format!("{:.1} ms per 1,000 fires", report.cpu_ms_per_1000_fires))),
        ("Peak memory", Some(format!("{:.0} MB", report.peak_memory_bytes as f64 / 1e6))),
    ])
}

/// Submits jobs that nobody will see run.
async fn hold(stage: &Stage, count: u64) -> anyhow::Result<()> {
    let bar = progress("holding", count);
    let far = stage.engine.now().plus(Duration::from_secs(365 * 24 * 3_600));
    let spec = |n: u64| scheduled(Schedule::OneTime { at: far.shifted(n as i64) });
    let numbers: Vec<u64> = (0..count).collect();
    for batch in numbers.chunks(STORE_BATCH_MAX) {
        Door::submit_specs(&stage.engine, batch.iter().map(|n| spec(*n)).collect()).await?;
        bar.inc(batch.len() as u64);
    }
    bar.finish_and_clear();
    Ok(())
}

fn scheduled(schedule: Schedule) -> JobSpec {
    let mut spec = JobSpec::named(JOB_TYPE);
    spec.settings.schedule = schedule;
    spec
}

/// The job of this number, with its nominal times spread against those of the others.
fn spread(args: &LatenessArgs, first: Timestamp, number: u64) -> anyhow::Result<JobSpec> {
    let over = args.every.unwrap_or(args.over).get();
    let shift = duration_micros(over) as i128 * i128::from(number) / i128::from(args.jobs);
    let at = first.shifted(i64::try_from(shift).unwrap_or(i64::MAX));
    Ok(scheduled(match args.every {
        None => Schedule::OneTime { at },
        Some(every) => {
            let recurring = Recurring::new(RecurrenceSpec::interval(&every.to_string(), at))?;
            Recurring { max_runs: Some(args.runs), ..recurring }.into()
        }
    }))
}

async fn measure(stage: &Stage, args: &LatenessArgs, expected: u64) -> anyhow::Result<Vec<Duration>> {
    let (recorder, mut starts) = StartRecorder::new(stage.host.clock.clone());
    let worker = stage.start_worker(64, 64, vec![recorder]);
    let first = stage.engine.now().plus(LEAD);
    let specs: Vec<JobSpec> =
        (0..args.jobs).map(|number| spread(args, first, number)).collect::<anyhow::Result<_>>()?;
    for batch in specs.chunks(STORE_BATCH_MAX) {
        Door::submit_specs(&stage.engine, batch.to_vec()).await?;
    }
    if stage.engine.now() > first {
        bail!("submitting took longer than {LEAD:?}: measure fewer jobs");
    }
    let bar = progress("firing", expected);
    let mut late = Vec::new();
    while (late.len() as u64) < expected {
        late.push(starts.recv().await.context("the worker is gone")?.late);
        bar.inc(1);
    }
    while let Ok(Some(one_too_many)) = tokio::time::timeout(AFTERMATH, starts.recv()).await {
        late.push(one_too_many.late);
    }
    bar.finish_and_clear();
    worker.stop().await?;
    Ok(late)
}
