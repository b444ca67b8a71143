//! `punctual bench unused`: whether a server feels queues, owners, tags and keys that were used once and are not any more.

use crate::load::{self, LoadArgs};
use crate::machine::Machine;
use crate::pace;
use crate::percentiles::Percentiles;
use crate::pipe::Moment;
use crate::stage::{Ground, Stage, StageOptions};
use crate::words::{grouped, megabytes, per_second};
use crate::{JOBS_MAX, PlaceArgs, progress};
use punctual_client::{Span, SubmitJob};
use punctual_config::exit::Exit;
use punctual_config::output::{OutputArgs, details};
use serde::Serialize;
use std::time::{Duration, Instant};

/// Jobs that are submitted one after the other, and times that each route is asked.
const SINGLE_JOBS: usize = 200;
const READS: usize = 200;

#[derive(clap::Args)]
pub struct UnusedArgs {
    /// How many queues, owners, tags and keys have been used, each by one job
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=JOBS_MAX))]
    names: u64,
    /// How many jobs are submitted and drained for the measurement
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=JOBS_MAX))]
    jobs: u64,
    /// How long the server is idle after they were used: at least one round of retention
    #[arg(long, default_value = "70s", value_name = "DURATION")]
    rest: Span,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// What one server gave.
#[derive(Debug, Serialize)]
struct Side {
    /// From the start of its process to its first answer.
    start_ms: f64,
    /// Right after that.
    resident_bytes: u64,
    /// One job after the other, to its durable acknowledgement.
    submit_us: Percentiles,
    batches_per_second: f64,
    drain_per_second: f64,
    stats_us: Percentiles,
    queues_us: Percentiles,
    autoscaling_us: Percentiles,
    metrics_us: Percentiles,
}

/// What the server with unused names needs, as a multiple of what another one needs.
#[derive(Debug, Serialize)]
struct Ratios {
    start: f64,
    memory: f64,
    submit: f64,
    batches: f64,
    drain: f64,
    stats: f64,
    queues: f64,
    autoscaling: f64,
    metrics: f64,
}

#[derive(Debug, Serialize)]
struct UnusedReport {
    machine: Machine,
    names: u64,
    jobs: u64,
    empty: Side,
    /// As many jobs as `used` had, all with the same names.
    same_names: Side,
    used: Side,
    to_empty: Ratios,
    /// What finished jobs cost that are still kept is no longer in these.
    to_same_names: Ratios,
}

pub async fn run(args: UnusedArgs) -> anyhow::Result<Exit> {
    args.load.check()?;
    let machine = Machine::here(&args.place.dir);
    let empty = measure(Ground::lay(&args.place).await?, &args).await?;
    let same_names = measure_used(&args, |job, _| SubmitJob {
        queue: Some("used".to_owned()),
        owner_id: Some("owner".to_owned()),
        tags: Some(vec!["tag".to_owned()]),
        ..job
    });
    let same_names = same_names.await?;
    let used = measure_used(&args, |job, number| SubmitJob {
        queue: Some(format!("unused-{number}")),
        owner_id: Some(format!("owner-{number}")),
        tags: Some(vec![format!("tag-{number}")]),
        idempotency_key: Some(format!("key-{number}")),
        ..job
    });
    let used = used.await?;
    let to_empty = Ratios::of(&empty, &used);
    let to_same_names = Ratios::of(&same_names, &used);
    let (names, jobs) = (args.names, args.jobs);
    let report = UnusedReport { machine, names, jobs, empty, same_names, used, to_empty, to_same_names };
    args.output.print(&report, describe)?;
    Ok(Exit::Done)
}

/// Measures a server that has run as many jobs as there are names, each with the names that `with_names` gives it.
async fn measure_used(
    args: &UnusedArgs,
    with_names: fn(SubmitJob, u64) -> SubmitJob,
) -> anyhow::Result<Side> {
    let mut stage = Stage::start(Ground::lay(&args.place).await?, StageOptions::USUAL).await?;
    if let Err(error) = run_jobs(&mut stage, args, with_names).await {
        return Err(stage.explained(error).await);
    }
    measure(stage.into_ground(), args).await
}

async fn run_jobs(
    stage: &mut Stage,
    args: &UnusedArgs,
    with_names: fn(SubmitJob, u64) -> SubmitJob,
) -> anyhow::Result<()> {
    let job = load::no_op("noop", args.load.payload_bytes)?;
    let bar = progress("using names", args.names);
    let since = Moment::now();
    let named = move |number: u64| with_names(job.clone(), number);
    load::submit_all(&stage.client, args.load, args.names, &bar, named).await?;
    pace::watch(stage, args.names, since, &bar).await?;
    bar.finish_and_clear();
    tokio::time::sleep(args.rest.get()).await;
    Ok(())
}

async fn measure(ground: Ground, args: &UnusedArgs) -> anyhow::Result<Side> {
    let began = Instant::now();
    let measured = ground.measure(StageOptions::USUAL, async |stage| {
        stage.client.stats().await?;
        let start = began.elapsed();
        let resident_bytes = stage.usage()?.resident_bytes;
        stage.hold_worker().await?;
        let job = load::no_op("noop", args.load.payload_bytes)?;
        let mut acknowledged = Vec::with_capacity(SINGLE_JOBS);
        for _ in 0..SINGLE_JOBS {
            let asked = Instant::now();
            stage.client.submit(&job).await?;
            acknowledged.push(asked.elapsed());
        }
        let bar = progress("submitting", args.jobs);
        let submitted = job.clone();
        let submit_time =
            load::submit_all(&stage.client, args.load, args.jobs, &bar, move |_| submitted.clone()).await?;
        bar.finish_and_clear();
        let jobs = args.jobs + SINGLE_JOBS as u64;
        let bar = progress("draining", jobs);
        let since = Moment::now();
        stage.let_worker_go().await?;
        let drain = pace::watch(stage, jobs, since, &bar).await?;
        bar.finish_and_clear();
        let client = &stage.client;
        Ok(Side {
            start_ms: start.as_secs_f64() * 1_000.0,
            resident_bytes,
            submit_us: Percentiles::of(&acknowledged),
            batches_per_second: per_second(args.jobs, submit_time),
            drain_per_second: drain.per_second,
            stats_us: times(async || client.stats().await.map(drop)).await?,
            queues_us: times(async || client.queues().await.map(drop)).await?,
            autoscaling_us: times(async || client.autoscaling().await.map(drop)).await?,
            metrics_us: times(async || client.metrics().await.map(drop)).await?,
        })
    });
    measured.await
}

/// How long a route takes.
async fn times<E: std::error::Error + Send + Sync + 'static>(
    ask: impl AsyncFn() -> Result<(), E>,
) -> anyhow::Result<Percentiles> {
    let mut times: Vec<Duration> = Vec::with_capacity(READS);
    for _ in 0..READS {
        let asked = Instant::now();
        ask().await?;
        times.push(asked.elapsed());
    }
    Ok(Percentiles::of(&times))
}

impl Ratios {
    fn of(empty: &Side, used: &Side) -> Self {
        Ratios {
            start: used.start_ms / empty.start_ms,
            memory: used.resident_bytes as f64 / empty.resident_bytes as f64,
            submit: used.submit_us.p50_of(empty.submit_us),
            batches: empty.batches_per_second / used.batches_per_second,
            drain: empty.drain_per_second / used.drain_per_second,
            stats: used.stats_us.p50_of(empty.stats_us),
            queues: used.queues_us.p50_of(empty.queues_us),
            autoscaling: used.autoscaling_us.p50_of(empty.autoscaling_us),
            metrics: used.metrics_us.p50_of(empty.metrics_us),
        }
    }
}

impl Ratios {
    fn describe(&self) -> String {
        format!(
            "start {:.2}, memory {:.2}, submit {:.2}, batches {:.2}, drain {:.2}, /stats {:.2}, /queues {:.2}, \
             /autoscaling {:.2}, /metrics {:.2}",
            self.start,
            self.memory,
            self.submit,
            self.batches,
            self.drain,
            self.stats,
            self.queues,
            self.autoscaling,
            self.metrics
        )
    }
}

impl Side {
    fn rows(&self, title: &'static str) -> [(&'static str, Option<String>); 5] {
        let start =
            format!("{:.0} ms to its first answer, {}", self.start_ms, megabytes(self.resident_bytes));
        let rates = format!(
            "{} jobs/s in batches, {} jobs/s drained",
            grouped(self.batches_per_second),
            grouped(self.drain_per_second)
        );
        let reads = format!("/stats {}; /metrics {}", self.stats_us.describe(), self.metrics_us.describe());
        [
            (title, Some(start)),
            ("  one by one", Some(self.submit_us.describe())),
            ("  rates", Some(rates)),
            ("  reads", Some(reads)),
            ("  more reads", Some(format!("/queues {}", self.queues_us.describe()))),
        ]
    }
}

fn describe(report: &UnusedReport) -> String {
    let names = format!(
        "{} queues, owners, tags and keys, each used by one job; {} jobs measured",
        grouped(report.names as f64),
        grouped(report.jobs as f64)
    );
    let ratios = [
        ("Times empty", Some(report.to_empty.describe())),
        ("Times same names", Some(report.to_same_names.describe())),
    ];
    let rows = [("Names", Some(names))].into_iter().chain(report.empty.rows("Empty"));
    let rows = rows.chain(report.same_names.rows("Same names")).chain(report.used.rows("Used once"));
    details(rows.chain(ratios).chain(report.machine.rows()))
}
