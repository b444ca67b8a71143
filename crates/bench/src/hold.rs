//! `punctual bench hold`: the cost of many future jobs, and their effect on jobs that run now.

use crate::accuracy::{self, LeadArgs, MeasuredKind, MeasuredRound, describe_fires};
use crate::baseline::{self, BaselineJobs, MeasuredBaseline};
use crate::bench_server::{DiskUsage, Stage, StageOptions};
use crate::latency::{self, Latency};
use crate::ledger::Fires;
use crate::load::{self, LoadArgs};
use crate::machine::MachineFacts;
use crate::percentiles;
use crate::plot::PlotMark;
use crate::recorder::JOB_TYPE;
use crate::units::{grouped, megabytes, per_second};
use crate::usage::{Cost, Meter};
use crate::{DUE_TIMES_MAX, JOBS_MAX, PlaceArgs, progress};
use punctual_client::{Span, SubmitJob, host};
use punctual_config::exit::Exit;
use punctual_config::output::{OutputArgs, details};
use serde::Serialize;
use std::time::Duration;

/// How far in the future the first of these jobs is due, and the interval between their due times.
const AHEAD: Duration = Duration::from_secs(365 * 24 * 3_600);
const APART_US: i64 = 1_000;
/// Pause before each job whose latency is measured.
const PAUSE: Duration = Duration::from_millis(5);

#[derive(clap::Args)]
pub struct HoldArgs {
    /// How many jobs that are due in the future
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=JOBS_MAX))]
    jobs: u64,
    #[command(flatten)]
    load: LoadArgs,
    /// Jobs whose latency is measured, one after the other, without and with the future jobs
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=DUE_TIMES_MAX))]
    samples: u64,
    /// One-time jobs whose lateness is measured, without and with the future jobs
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=DUE_TIMES_MAX))]
    due: u64,
    /// The time over which these are spread evenly
    #[arg(long, default_value = "10s", value_name = "DURATION")]
    over: Span,
    #[command(flatten)]
    lead: LeadArgs,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Latency and accuracy of jobs that run now.
#[derive(Debug, Serialize)]
struct Today {
    latency: Latency,
    accuracy: Fires,
    server_memory_bytes: u64,
}

/// The figures with the future jobs as multiples of those without them.
#[derive(Debug, Serialize)]
struct HoldRatios {
    latency_p50: f64,
    latency_p99: f64,
    lateness_p50: f64,
    lateness_p99: f64,
}

#[derive(Debug, Serialize)]
struct HoldReport {
    machine: MachineFacts,
    jobs: u64,
    #[serde(flatten)]
    load: LoadArgs,
    /// On the empty store.
    before: Today,
    load_per_second: f64,
    load_of_baseline: f64,
    load_cost: Cost,
    disk_bytes_per_future_job: f64,
    disk: DiskUsage,
    /// With the future jobs, in the same server.
    beside: Today,
    ratios: HoldRatios,
    server_peak_memory_bytes: u64,
    baseline: MeasuredBaseline,
}

pub async fn run(args: HoldArgs) -> anyhow::Result<Exit> {
    args.load.check()?;
    let machine = MachineFacts::here(&args.place.dir);
    let held =
        Stage::measure(&args.place, StageOptions::USUAL, async |stage| hold_beside(stage, &args).await);
    let held = held.await?;
    let LoadArgs { batch, payload_bytes, .. } = args.load;
    let baseline =
        baseline::measure(&args.place, BaselineJobs { jobs: args.jobs, batch, payload_bytes }).await?;
    let load_per_second = per_second(args.jobs, held.load_time);
    let report = HoldReport {
        machine,
        jobs: args.jobs,
        load: args.load,
        ratios: HoldRatios::of(&held.beside, &held.before),
        before: held.before,
        load_per_second,
        load_of_baseline: baseline::share(load_per_second, baseline.hold_per_second),
        load_cost: held.load_cost,
        disk_bytes_per_future_job: held.disk.bytes_each_since(held.disk_before, args.jobs),
        disk: held.disk,
        beside: held.beside,
        server_peak_memory_bytes: held.peak_bytes,
        baseline,
    };
    args.output.print(&report, describe)?;
    let is_exact = report.before.accuracy.exact && report.beside.accuracy.exact;
    Ok(if is_exact { Exit::Done } else { Exit::Failed })
}

struct Held {
    before: Today,
    disk_before: DiskUsage,
    load_time: Duration,
    load_cost: Cost,
    disk: DiskUsage,
    beside: Today,
    peak_bytes: u64,
}

async fn hold_beside(stage: &mut Stage, args: &HoldArgs) -> anyhow::Result<Held> {
    let before = today(stage, args).await?;
    let disk_before = stage.disk().await?;
    let meter = Meter::start(stage)?;
    let load_time = hold(stage, args).await?;
    let load_cost = meter.stop(stage, args.jobs)?;
    let disk = stage.disk().await?;
    let beside = today(stage, args).await?;
    let peak_bytes = stage.usage()?.peak_bytes;
    Ok(Held { before, disk_before, load_time, load_cost, disk, beside, peak_bytes })
}

impl HoldRatios {
    fn of(beside: &Today, before: &Today) -> Self {
        HoldRatios {
            latency_p50: beside.latency.start_us.p50_of(before.latency.start_us),
            latency_p99: beside.latency.start_us.p99_of(before.latency.start_us),
            lateness_p50: beside.accuracy.late_us.p50_of(before.accuracy.late_us),
            lateness_p99: beside.accuracy.late_us.p99_of(before.accuracy.late_us),
        }
    }
}

async fn today(stage: &mut Stage, args: &HoldArgs) -> anyhow::Result<Today> {
    let latency = latency::measure(stage, args.samples, PAUSE).await?;
    let round = MeasuredRound { jobs: args.due, kind: MeasuredKind::OneTime { over: args.over.get() } };
    let accuracy = accuracy::measure(stage, round, args.lead).await?;
    Ok(Today { latency, accuracy, server_memory_bytes: stage.usage()?.resident_bytes })
}

/// Submits jobs that do not run during the measurement.
async fn hold(stage: &Stage, args: &HoldArgs) -> anyhow::Result<Duration> {
    let bar = progress("holding", args.jobs);
    let first = host::wall_time().plus(AHEAD);
    let job = load::no_op(JOB_TYPE, args.load.payload_bytes)?;
    let at = move |number: u64| Some(first.shifted(APART_US * number as i64));
    let future = move |number| SubmitJob { execute_at: at(number), ..job.clone() };
    let time = load::submit_all(&stage.client, args.load, args.jobs, &bar, future).await?;
    bar.finish_and_clear();
    Ok(time)
}

fn describe(report: &HoldReport) -> String {
    let (before, beside_held, ratios) = (&report.before, &report.beside, &report.ratios);
    let [cpu, _] = report.load_cost.rows();
    let disk =
        format!("{:.0} bytes per future job; {}", report.disk_bytes_per_future_job, report.disk.describe());
    let rows = [
        (
            "Held",
            Some(format!(
                "{} future jobs with {} bytes each",
                grouped(report.jobs as f64),
                report.load.payload_bytes
            )),
        ),
        ("Submitted", Some(report.baseline.beside(report.load_per_second, report.baseline.hold_per_second))),
        cpu,
        ("Disk", Some(disk)),
        (
            "Memory",
            Some(format!(
                "{} with all of them, {} before; {} at its peak",
                megabytes(beside_held.server_memory_bytes),
                megabytes(before.server_memory_bytes),
                megabytes(report.server_peak_memory_bytes)
            )),
        ),
        ("Latency before", Some(before.latency.start_us.describe())),
        ("  with them", Some(beside_held.latency.start_us.describe())),
        ("  ratio", Some(format!("{:.2} at p50, {:.2} at p99", ratios.latency_p50, ratios.latency_p99))),
        ("Lateness before", Some(before.accuracy.late_us.describe())),
        ("  with them", Some(beside_held.accuracy.late_us.describe())),
        ("  ratio", Some(format!("{:.2} at p50, {:.2} at p99", ratios.lateness_p50, ratios.lateness_p99))),
        ("Fires before", Some(describe_fires(&before.accuracy))),
        ("  with them", Some(describe_fires(&beside_held.accuracy))),
        report.baseline.durable_write.row(),
    ];
    let facts = details(rows.into_iter().chain(report.machine.rows()));
    let plot = |today: &Today| percentiles::plot(&today.latency.start_histogram, PlotMark::of_stdout());
    format!(
        "{facts}\n\nSubmit to start, before\n{}\n\nSubmit to start, with the future jobs\n{}",
        plot(before),
        plot(beside_held)
    )
}
