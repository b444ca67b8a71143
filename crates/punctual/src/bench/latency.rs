//! `punctual bench latency`.

use crate::bench::door::Door;
use crate::bench::machine::SyncProbe;
use crate::bench::percentiles::Percentiles;
use crate::bench::recorder::{JOB_TYPE, StartRecorder};
use crate::bench::stage::Stage;
use crate::bench::{PlaceArgs, machine, progress};
use crate::exit::Exit;
use crate::output::{OutputArgs, details};
use anyhow::Context;
use punctual_core::job::JobSpec;
use serde::Serialize;
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub struct LatencyArgs {
    /// How many jobs, one after the other
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// Pause before each job, so that the node is idle
    #[arg(long, default_value = "5ms", value_name = "DURATION")]
    pause: punctual_client::Span,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Serialize)]
struct LatencyReport {
    count: u64,
    /// From the call of submit to the start of the handler.
    start_us: Percentiles,
    /// From the call of submit to its durable acknowledgement.
    acknowledged_us: Percentiles,
    /// One durable write of a page on the same disk, between two jobs each time.
    fdatasync_us: Percentiles,
    start_of_fdatasync_p50: f64,
    load_before: f64,
    cpu_ms_per_1000_jobs: f64,
    peak_memory_bytes: u64,
}

pub async fn run(args: LatencyArgs) -> anyhow::Result<Exit> {
    let stage = Stage::set_up(&args.place).await?;
    let load_before = machine::load_average();
    let cpu_before = machine::cpu_time();
    let times = measure(&stage, &args).await?;
    let cpu = machine::cpu_time() - cpu_before;
    let (start_us, fdatasync_us) = (Percentiles::of(times.start), Percentiles::of(times.sync));
    let report = LatencyReport {
        count: args.count,
        start_us,
        acknowledged_us: Percentiles::of(times.acknowledged),
        fdatasync_us,
        start_of_fdatasync_p50: start_us.p50 as f64 / fdatasync_us.p50.max(1) as f64,
        load_before,
        cpu_ms_per_1000_jobs: cpu.as_secs_f64() * 1e6 / args.count as f64,
        peak_memory_bytes: machine::peak_memory_bytes()?,
    };
    args.output.print(&report, describe)?;
    Ok(Exit::Done)
}

fn describe(report: &LatencyReport) -> String {
    details([
        ("Jobs", Some(report.count.to_string())),
        ("Submit to start", Some(report.start_us.describe())),
        ("Submit to acknowledged", Some(report.acknowledged_us.describe())),
        ("fdatasync alone", Some(report.fdatasync_us.describe())),
        ("Ratio", Some(format!("{:.1} times one fdatasync at p50", report.start_of_fdatasync_p50))),
        ("CPU", Some(format!("{:.1} ms per 1,000 jobs", report.cpu_ms_per_1000_jobs))),
        ("Busy", machine::busy_warning(report.load_before)),
        ("Peak memory", Some(format!("{:.0} MB", report.peak_memory_bytes as f64 / 1e6))),
    ])
}

struct Times {
    sync: Vec<Duration>,
    start: Vec<Duration>,
    acknowledged: Vec<Duration>,
}

async fn measure(stage: &Stage, args: &LatencyArgs) -> anyhow::Result<Times> {
    let bar = progress("one by one", args.count);
    let (recorder, mut starts) = StartRecorder::new(stage.host.clock.clone());
    let worker = stage.start_worker(4, 0, vec![recorder]);
    let mut times = Times { sync: vec![], start: vec![], acknowledged: vec![] };
    let mut probe = SyncProbe::new(stage.dir())?;
    let door = Door::engine(stage, &JobSpec::named(JOB_TYPE));
    for done in 1..=args.count {
        tokio::time::sleep(args.pause.get()).await;
        // Blocks the thread of this function only: everything measured runs on others.
        times.sync.push(probe.once()?);
        let submitted_at = Instant::now();
        door.submit(1).await?;
        times.acknowledged.push(submitted_at.elapsed());
        let start = starts.recv().await.context("the worker is gone")?;
        times.start.push(start.at.saturating_duration_since(submitted_at));
        until_recorded(stage, done).await;
        bar.inc(1);
    }
    bar.finish_and_clear();
    worker.stop().await?;
    Ok(times)
}

/// Waits until the outcomes of this many jobs are durable, so that the next one finds the node idle.
async fn until_recorded(stage: &Stage, count: u64) {
    let mut looks = tokio::time::interval(Duration::from_millis(1));
    while stage.engine.counters().succeeded < count {
        looks.tick().await;
    }
}
