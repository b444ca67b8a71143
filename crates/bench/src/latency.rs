//! `punctual bench latency`: the time from the submit of a job to the start of its handler, on an idle server.

use crate::bench_server::{Stage, StageOptions};
use crate::durable::{DurableWrite, Probe};
use crate::machine::MachineFacts;
use crate::percentiles::{self, Bin, Percentiles, histogram};
use crate::pipe::MachineMoment;
use crate::plot::PlotMark;
use crate::recorder::JOB_TYPE;
use crate::usage::{Cost, Meter};
use crate::{DUE_TIMES_MAX, PlaceArgs, progress};
use anyhow::{Context, bail};
use punctual_client::{Span, SubmitJob};
use punctual_config::exit::Exit;
use punctual_config::output::{OutputArgs, details};
use serde::Serialize;
use std::time::{Duration, Instant};

/// Maximum time for one job to start, and for its outcome to be recorded.
const JOB_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval at which the benchmark checks whether the outcome is recorded.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

#[derive(clap::Args)]
pub struct LatencyArgs {
    /// How many jobs, one after the other
    #[arg(long, alias = "count", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=DUE_TIMES_MAX))]
    jobs: u64,
    /// Pause before each job, so that the server is idle
    #[arg(long, default_value = "5ms", value_name = "DURATION")]
    pause: Span,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// The result of running jobs one after the other.
#[derive(Debug, Clone, Serialize)]
pub struct Latency {
    pub jobs: u64,
    /// From the client's call to the start of the handler.
    pub start_us: Percentiles,
    pub start_histogram: Vec<Bin>,
    /// From the client's call to its durable acknowledgement.
    pub acknowledged_us: Percentiles,
    /// Measured between two jobs each time.
    #[serde(flatten)]
    pub durable_write: DurableWrite,
    /// The median time to start as a multiple of one durable write.
    pub start_of_baseline_p50: f64,
}

#[derive(Debug, Serialize)]
struct LatencyReport {
    machine: MachineFacts,
    #[serde(flatten)]
    latency: Latency,
    #[serde(flatten)]
    cost: Cost,
}

pub async fn run(args: LatencyArgs) -> anyhow::Result<Exit> {
    let machine = MachineFacts::here(&args.place.dir);
    let measured = Stage::measure(&args.place, StageOptions::USUAL, async |stage| {
        let meter = Meter::start(stage)?;
        let latency = measure(stage, args.jobs, args.pause.get()).await?;
        Ok((latency, meter.stop(stage, args.jobs)?))
    });
    let (latency, cost) = measured.await?;
    let report = LatencyReport { machine, latency, cost };
    args.output.print(&report, describe)?;
    Ok(Exit::Done)
}

fn describe(report: &LatencyReport) -> String {
    let latency = &report.latency;
    let write = latency.durable_write.name();
    let ratio = format!("{:.1} times one {write} at p50", latency.start_of_baseline_p50);
    let rows = [
        ("Jobs", Some(format!("{} over HTTP, one after the other", latency.jobs))),
        ("Submit to start", Some(latency.start_us.describe())),
        ("Submit to acknowledged", Some(latency.acknowledged_us.describe())),
        latency.durable_write.row(),
        ("Ratio", Some(ratio)),
    ];
    let facts = details(rows.into_iter().chain(report.cost.rows()).chain(report.machine.rows()));
    let plot = percentiles::plot(&latency.start_histogram, PlotMark::of_stdout());
    format!("{facts}\n\nSubmit to start\n{plot}")
}

pub async fn measure(stage: &mut Stage, jobs: u64, pause: Duration) -> anyhow::Result<Latency> {
    let bar = progress("one by one", jobs);
    let mut probe = Probe::new(&stage.site)?;
    let job = SubmitJob::named(JOB_TYPE);
    let before = stage.counts().await?.succeeded;
    let (mut starts, mut acknowledgements) = (vec![], vec![]);
    for done in 1..=jobs {
        tokio::time::sleep(pause).await;
        probe.once(&mut stage.site).await?;
        let submitted_at = MachineMoment::now();
        let submitted = stage.client.submit(&job).await?;
        acknowledgements.push(MachineMoment::now().since(submitted_at));
        let start = tokio::time::timeout(JOB_TIMEOUT, stage.starts.recv()).await;
        let start = start.ok().flatten().context("a job did not start")?;
        if submitted.job_id != start.job {
            bail!("a job started that was not submitted just now");
        }
        starts.push(start.at.since(submitted_at));
        until_recorded(stage, before + done).await?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let (start_us, durable_write) = (Percentiles::of(&starts), probe.finish());
    Ok(Latency {
        jobs,
        start_us,
        start_histogram: histogram(&starts),
        acknowledged_us: Percentiles::of(&acknowledgements),
        durable_write,
        start_of_baseline_p50: start_us.p50_of(durable_write.us()),
    })
}

/// Waits until the outcomes of this many jobs are durable, so that the next job meets an idle server.
async fn until_recorded(stage: &mut Stage, count: u64) -> anyhow::Result<()> {
    let gives_up_at = Instant::now() + JOB_TIMEOUT;
    while stage.counts().await?.succeeded < count {
        if Instant::now() > gives_up_at {
            bail!("the outcome of a job was not recorded");
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    Ok(())
}
