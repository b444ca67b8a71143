//! `punctual bench throughput`.

use crate::baseline::{self, BaselineJobs, MeasuredBaseline};
use crate::bench_server::{DiskUsage, StageOptions};
use crate::limited::{self, LimitsReport};
use crate::load::LoadArgs;
use crate::machine::MachineFacts;
use crate::noops::NoOps;
use crate::pace::Pace;
use crate::plot::PlotMark;
use crate::units::{grouped, percent};
use crate::usage::Cost;
use crate::{JOBS_MAX, PlaceArgs};
use punctual_config::args;
use punctual_config::exit::Exit;
use punctual_config::output::{OutputArgs, details};
use punctual_core::limits::POLL_CAPACITY_MAX;
use serde::Serialize;

#[derive(clap::Args)]
pub struct ThroughputArgs {
    /// How many jobs
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=JOBS_MAX))]
    jobs: u64,
    #[command(flatten)]
    load: LoadArgs,
    /// Handlers that run at once
    #[arg(long, default_value_t = StageOptions::USUAL.slots, value_parser = args::slots)]
    slots: usize,
    /// Executions fetched ahead, beyond the slots
    #[arg(long, default_value_t = StageOptions::USUAL.prefetch as u64, value_parser = clap::value_parser!(u64).range(..=POLL_CAPACITY_MAX as u64))]
    prefetch: u64,
    /// Also measure with limits on the queue and its keys, alternating with runs without them, and report their cost
    #[arg(long)]
    with_limits: bool,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Serialize)]
struct ThroughputReport {
    machine: MachineFacts,
    jobs: u64,
    #[serde(flatten)]
    load: LoadArgs,
    slots: usize,
    prefetch: u64,
    /// Rate of submits over HTTP while the worker is paused.
    submit_per_second: f64,
    submit_of_baseline: f64,
    /// Rate of executions until their outcomes are recorded.
    drain: Pace,
    drain_of_baseline: f64,
    drain_cost: Cost,
    /// On a fresh server that executes jobs while they are submitted over HTTP: from the first submit to the last
    /// outcome.
    together: Pace,
    /// As a share of the bare database's rate for both.
    together_of_baseline: f64,
    together_cost: Cost,
    /// The same, alternating without limits and with them.
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<LimitsReport>,
    disk_bytes_per_job: f64,
    disk: DiskUsage,
    /// The baseline of this run: the better of two measurements.
    baseline: MeasuredBaseline,
}

pub async fn run(args: ThroughputArgs) -> anyhow::Result<Exit> {
    args.load.check()?;
    let machine = MachineFacts::here(&args.place.dir);
    let no_ops = args.no_ops();
    let drained = no_ops.drain().await?;
    let together = no_ops.together().await?;
    let limits = if args.with_limits { Some(limited::measure(no_ops).await?) } else { None };
    let LoadArgs { batch, payload_bytes, .. } = args.load;
    let baseline =
        baseline::measure(&args.place, BaselineJobs { jobs: args.jobs, batch, payload_bytes }).await?;
    let report = ThroughputReport {
        machine,
        jobs: args.jobs,
        load: args.load,
        slots: args.slots,
        prefetch: args.prefetch,
        submit_per_second: drained.submit_per_second,
        submit_of_baseline: baseline::share(drained.submit_per_second, baseline.insert_per_second),
        drain_of_baseline: baseline::share(drained.pace.per_second, baseline.claim_complete_per_second),
        drain: drained.pace,
        drain_cost: drained.cost,
        together_of_baseline: baseline::share(together.pace.per_second, baseline.both_per_second()),
        together: together.pace,
        together_cost: together.cost,
        limits,
        disk_bytes_per_job: drained.disk.bytes_each_since(drained.disk_before, args.jobs),
        disk: drained.disk,
        baseline,
    };
    args.output.print(&report, describe)?;
    Ok(Exit::Done)
}

fn describe(report: &ThroughputReport) -> String {
    let look = PlotMark::of_stdout();
    let [drain_cpu, drain_memory] = report.drain_cost.rows();
    let [together_cpu, together_memory] = report.together_cost.rows();
    let baseline = &report.baseline;
    let together = format!(
        "{} jobs/s submitted and executed, {} of the bare database's for both",
        grouped(report.together.per_second),
        percent(report.together_of_baseline)
    );
    let disk = format!(
        "{:.0} bytes per job, history included; {}",
        report.disk_bytes_per_job,
        report.disk.describe()
    );
    let rows = [
        (
            "Jobs",
            Some(format!("{} with {} bytes each", grouped(report.jobs as f64), report.load.payload_bytes)),
        ),
        ("Submit", Some(baseline.beside(report.submit_per_second, baseline.insert_per_second))),
        ("Drain", Some(baseline.beside(report.drain.per_second, baseline.claim_complete_per_second))),
        ("  over the run", report.drain.describe(look)),
        drain_cpu,
        drain_memory,
        ("Disk", Some(disk)),
        ("Together", Some(together)),
        ("  over the run", report.together.describe(look)),
        together_cpu,
        together_memory,
    ];
    let limits = report.limits.iter().flat_map(LimitsReport::rows);
    let baseline = [baseline.durable_write.row()];
    details(rows.into_iter().chain(limits).chain(baseline).chain(report.machine.rows()))
}

impl ThroughputArgs {
    fn no_ops(&self) -> NoOps<'_> {
        NoOps {
            place: &self.place,
            stage: StageOptions {
                slots: self.slots,
                prefetch: self.prefetch as usize,
                ..StageOptions::USUAL
            },
            load: self.load,
            jobs: self.jobs,
            keys: 0,
            queue: None,
            failures: None,
        }
    }
}
