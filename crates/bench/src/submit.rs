//! `punctual bench submit`: how fast the server stores submitted jobs, in batches and one by one.

use crate::baseline::{self, BaselineJobs, MeasuredBaseline};
use crate::bench_server::{Stage, StageOptions};
use crate::load::{self, LoadArgs};
use crate::machine::MachineFacts;
use crate::noops::QUEUE;
use crate::percentiles::{self, Bin, Percentiles, histogram};
use crate::plot::PlotMark;
use crate::units::{grouped, per_second};
use crate::usage::{Cost, Meter};
use crate::{JOBS_MAX, PlaceArgs, progress};
use anyhow::Context;
use punctual_client::SubmitJob;
use punctual_config::exit::Exit;
use punctual_config::output::{OutputArgs, details};
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// More would exceed the usual limit on open files.
const CONNECTIONS_MAX: u64 = 500;

#[derive(clap::Args)]
pub struct SubmitArgs {
    /// How many jobs in batches
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=JOBS_MAX))]
    jobs: u64,
    /// How many jobs in separate requests, each stored durably before the response
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=JOBS_MAX))]
    singles: u64,
    /// Connections for these requests, one request at a time on each
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=CONNECTIONS_MAX))]
    connections: u64,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Serialize)]
struct SubmitReport {
    machine: MachineFacts,
    jobs: u64,
    #[serde(flatten)]
    load: LoadArgs,
    bulk_per_second: f64,
    bulk_of_baseline: f64,
    bulk_cost: Cost,
    singles: u64,
    connections: u64,
    singles_per_second: f64,
    /// Jobs per durable write, assuming that each write takes as long as on the bare disk or database.
    singles_per_durable_write: f64,
    /// From the request to its response, which is sent when the job is durable.
    acknowledged_us: Percentiles,
    acknowledged_histogram: Vec<Bin>,
    singles_cost: Cost,
    baseline: MeasuredBaseline,
}

pub async fn run(args: SubmitArgs) -> anyhow::Result<Exit> {
    args.load.check()?;
    let machine = MachineFacts::here(&args.place.dir);
    let submitted =
        Stage::measure(&args.place, StageOptions::USUAL, async |stage| submit(stage, &args).await);
    let SubmitFigures { bulk_time, bulk_cost, singles, singles_cost } = submitted.await?;
    let LoadArgs { batch, payload_bytes, .. } = args.load;
    let baseline =
        baseline::measure(&args.place, BaselineJobs { jobs: args.jobs, batch, payload_bytes }).await?;
    let bulk_per_second = per_second(args.jobs, bulk_time);
    let singles_per_second = per_second(args.singles, singles.time);
    let report = SubmitReport {
        machine,
        jobs: args.jobs,
        load: args.load,
        bulk_per_second,
        bulk_of_baseline: baseline::share(bulk_per_second, baseline.insert_per_second),
        bulk_cost,
        singles: args.singles,
        connections: args.connections,
        singles_per_second,
        singles_per_durable_write: singles_per_second * baseline.durable_write.us().p50 as f64 / 1e6,
        acknowledged_us: Percentiles::of(&singles.acknowledged),
        acknowledged_histogram: histogram(&singles.acknowledged),
        singles_cost,
        baseline,
    };
    args.output.print(&report, describe)?;
    Ok(Exit::Done)
}

struct SubmitFigures {
    bulk_time: Duration,
    bulk_cost: Cost,
    singles: Singles,
    singles_cost: Cost,
}

async fn submit(stage: &Stage, args: &SubmitArgs) -> anyhow::Result<SubmitFigures> {
    // Only the submit is measured, so nothing may run.
    stage.client.pause_queue(QUEUE).await?;
    let job = load::no_op("noop", args.load.payload_bytes)?;
    let meter = Meter::start(stage)?;
    let bulk_time = submit_bulk(stage, args, job.clone()).await?;
    let bulk_cost = meter.stop(stage, args.jobs)?;
    let meter = Meter::start(stage)?;
    let singles = submit_singles(stage, args, job).await?;
    let singles_cost = meter.stop(stage, args.singles)?;
    Ok(SubmitFigures { bulk_time, bulk_cost, singles, singles_cost })
}

fn describe(report: &SubmitReport) -> String {
    let [bulk_cpu, _] = report.bulk_cost.rows();
    let [singles_cpu, memory] = report.singles_cost.rows();
    let singles = format!(
        "{} jobs/s over {} connections, {:.1} in the time of one {}",
        grouped(report.singles_per_second),
        report.connections,
        report.singles_per_durable_write,
        report.baseline.durable_write.name()
    );
    let rows = [
        (
            "In batches",
            Some(report.baseline.beside(report.bulk_per_second, report.baseline.insert_per_second)),
        ),
        bulk_cpu,
        ("One by one", Some(singles)),
        ("  acknowledged", Some(report.acknowledged_us.describe())),
        singles_cpu,
        memory,
        report.baseline.durable_write.row(),
    ];
    let facts = details(rows.into_iter().chain(report.machine.rows()));
    let plot = percentiles::plot(&report.acknowledged_histogram, PlotMark::of_stdout());
    format!("{facts}\n\nOne by one, from request to answer\n{plot}")
}

async fn submit_bulk(stage: &Stage, args: &SubmitArgs, job: SubmitJob) -> anyhow::Result<Duration> {
    let bar = progress("in batches", args.jobs);
    let time = load::submit_all(&stage.client, args.load, args.jobs, &bar, move |_| job.clone()).await?;
    bar.finish_and_clear();
    Ok(time)
}

struct Singles {
    time: Duration,
    acknowledged: Vec<Duration>,
}

async fn submit_singles(stage: &Stage, args: &SubmitArgs, job: SubmitJob) -> anyhow::Result<Singles> {
    let bar = progress("one by one", args.singles);
    let (job, taken) = (Arc::new(job), Arc::new(AtomicU64::new(0)));
    let start = Instant::now();
    let mut connections = JoinSet::new();
    for _ in 0..args.connections {
        // Each task sends one request at a time; the client keeps one connection for each.
        let (client, job, taken, bar) = (stage.client.clone(), job.clone(), taken.clone(), bar.clone());
        let singles = args.singles;
        connections.spawn(async move {
            let mut times = Vec::new();
            while taken.fetch_add(1, Ordering::Relaxed) < singles {
                let start = Instant::now();
                client.submit(&job).await?;
                times.push(start.elapsed());
                bar.inc(1);
            }
            anyhow::Ok(times)
        });
    }
    let mut acknowledged = Vec::new();
    while let Some(times) = connections.join_next().await {
        acknowledged.extend(times.context("a connection was interrupted")??);
    }
    bar.finish_and_clear();
    Ok(Singles { time: start.elapsed(), acknowledged })
}
