//! `punctual bench unused`: compares a server on which many names were used, and are not used any more, with an empty one.
//!
//! Names of every kind are used: queues, job types, owners, tags, keys, workers and their sessions. Retention then deletes the
//! jobs that used them. What remains of the names must cost nothing.

use crate::bench_server::{BenchSite, Stage, StageOptions};
use crate::load::{self, LoadArgs};
use crate::machine::MachineFacts;
use crate::pace::{self, STALL_MAX};
use crate::percentiles::Percentiles;
use crate::pipe::MachineMoment;
use crate::units::{grouped, megabytes, per_second};
use crate::{JOBS_MAX, PlaceArgs, progress};
use anyhow::bail;
use indicatif::ProgressBar;
use punctual_client::{RemotePort, SubmitJob};
use punctual_config::exit::Exit;
use punctual_config::output::{OutputArgs, details};
use punctual_core::ports::{SessionOpening, WorkerAbout, WorkerPort};
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Jobs that are submitted one after the other, and requests to each route.
const SINGLE_JOBS: usize = 200;
const READS: usize = 200;
/// How long finished jobs are kept while names are used.
const KEPT: Duration = Duration::from_secs(2);
/// Jobs whose type no worker has expire this long after the first of them was submitted.
const EXPIRY: Duration = Duration::from_secs(20);
/// Sessions that are opened at the same time.
const SESSIONS_AT_ONCE: u64 = 64;
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

#[derive(clap::Args)]
pub struct UnusedArgs {
    /// How many queues, job types, owners, tags, keys, workers and sessions are used before the measurement
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=JOBS_MAX))]
    names: u64,
    /// How many jobs are submitted and drained for the measurement
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=JOBS_MAX))]
    jobs: u64,
    /// Seconds without load after the last job was deleted, for retention to delete what is left of it, and for a database server
    /// to vacuum
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(0..=3_600))]
    rest_secs: u64,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// The measurements of one server.
#[derive(Debug, Serialize)]
struct UnusedSide {
    /// From the start of the process to its first response.
    start_ms: f64,
    /// Measured right after the first response.
    resident_bytes: u64,
    /// One job after the other, until the durable acknowledgement.
    submit_us: Percentiles,
    batches_per_second: f64,
    drain_per_second: f64,
    stats_us: Percentiles,
    queues_us: Percentiles,
    autoscaling_us: Percentiles,
    metrics_us: Percentiles,
}

/// The costs of the server with unused names, as multiples of those of the empty one.
#[derive(Debug, Serialize)]
struct UnusedRatios {
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
    machine: MachineFacts,
    names: u64,
    jobs: u64,
    empty: UnusedSide,
    used: UnusedSide,
    ratios: UnusedRatios,
}

pub async fn run(args: UnusedArgs) -> anyhow::Result<Exit> {
    args.load.check()?;
    let machine = MachineFacts::here(&args.place.dir);
    let empty = measure(BenchSite::prepare(&args.place).await?, &args).await?;
    let used = measure(use_names(BenchSite::prepare(&args.place).await?, &args).await?, &args).await?;
    let ratios = UnusedRatios::of(&empty, &used);
    let report = UnusedReport { machine, names: args.names, jobs: args.jobs, empty, used, ratios };
    args.output.print(&report, describe)?;
    Ok(Exit::Done)
}

/// Starts a server on which all names are used, and stops it when nothing uses them any more.
async fn use_names(site: BenchSite, args: &UnusedArgs) -> anyhow::Result<BenchSite> {
    let options = StageOptions { keep: Some(KEPT), ..StageOptions::USUAL };
    let mut stage = Stage::start(site, options).await?;
    if let Err(error) = use_names_on(&mut stage, args).await {
        return Err(stage.explained(error).await);
    }
    Ok(stage.into_site())
}

async fn use_names_on(stage: &mut Stage, args: &UnusedArgs) -> anyhow::Result<()> {
    let job = load::no_op("noop", args.load.payload_bytes)?;
    let run = job.clone();
    let named = move |number: u64| SubmitJob {
        queue: Some(format!("queue-{number}")),
        owner_id: Some(format!("owner-{number}")),
        tags: Some(vec![format!("tag-{number}")]),
        idempotency_key: Some(format!("key-{number}")),
        unique_key: Some(format!("unique-{number}")),
        concurrency_key: Some(format!("limit-{number}")),
        ..run.clone()
    };
    let bar = progress("using queues, owners, tags and keys", args.names);
    let since = MachineMoment::now();
    load::submit_all(&stage.client, args.load, args.names, &bar, named).await?;
    pace::watch(stage, args.names, since, &bar).await?;
    bar.finish_and_clear();

    let bar = progress("using job types", args.names);
    let expires_at = stage.client.stats().await?.now.plus(EXPIRY);
    let typed = move |number: u64| SubmitJob {
        job_type: Some(format!("type-{number}")),
        expires_at: Some(expires_at),
        ..job.clone()
    };
    load::submit_all(&stage.client, args.load, args.names, &bar, typed).await?;
    bar.finish_and_clear();

    let bar = progress("using workers and sessions", args.names);
    use_sessions(stage, args.names, &bar).await?;
    bar.finish_and_clear();
    until_all_deleted(stage).await?;
    tokio::time::sleep(Duration::from_secs(args.rest_secs)).await;
    Ok(())
}

/// Opens and closes sessions, each with a different worker.
async fn use_sessions(stage: &Stage, names: u64, bar: &ProgressBar) -> anyhow::Result<()> {
    let port = Arc::new(RemotePort::new(stage.client.clone()));
    let mut open = JoinSet::new();
    for number in 0..names {
        if open.len() as u64 >= SESSIONS_AT_ONCE
            && let Some(closed) = open.join_next().await
        {
            closed??;
            bar.inc(1);
        }
        let port = port.clone();
        open.spawn(async move {
            let opening = SessionOpening {
                worker: format!("worker-{number}"),
                lease: Duration::from_secs(6),
                embedded: false,
                job_types: vec![format!("type-{number}")],
                slots: 1,
                about: WorkerAbout::default(),
                token: None,
            };
            let grant = port.open_session(opening).await?;
            port.close_session(grant.session).await
        });
    }
    while let Some(closed) = open.join_next().await {
        closed??;
        bar.inc(1);
    }
    Ok(())
}

/// Waits until retention has deleted every job.
async fn until_all_deleted(stage: &Stage) -> anyhow::Result<()> {
    let (mut last, mut since) = (u64::MAX, Instant::now());
    let bar = progress("waiting for retention", 0);
    loop {
        let counts = stage.client.stats().await?.jobs;
        let jobs = counts.active + counts.paused + counts.completed + counts.failed + counts.cancelled;
        if jobs == 0 {
            bar.finish_and_clear();
            return Ok(());
        }
        if jobs < last {
            (last, since) = (jobs, Instant::now());
        }
        if since.elapsed() > STALL_MAX {
            bail!("retention has left {jobs} jobs and deletes no more of them");
        }
        bar.set_message(format!("{jobs} jobs left"));
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

async fn measure(site: BenchSite, args: &UnusedArgs) -> anyhow::Result<UnusedSide> {
    let began = Instant::now();
    let measured = site.measure(StageOptions::USUAL, async |stage| {
        stage.client.stats().await?;
        let start = began.elapsed();
        let resident_bytes = stage.usage()?.resident_bytes;
        stage.pause_worker().await?;
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
        let since = MachineMoment::now();
        stage.resume_worker().await?;
        let drain = pace::watch(stage, jobs, since, &bar).await?;
        bar.finish_and_clear();
        let client = &stage.client;
        Ok(UnusedSide {
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

impl UnusedRatios {
    fn of(empty: &UnusedSide, used: &UnusedSide) -> Self {
        UnusedRatios {
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

impl UnusedRatios {
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

impl UnusedSide {
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
        "{} of each kind, used and deleted; {} jobs measured",
        grouped(report.names as f64),
        grouped(report.jobs as f64)
    );
    let rows = [("Names", Some(names))].into_iter().chain(report.empty.rows("Empty"));
    let rows = rows.chain(report.used.rows("Used before"));
    details(rows.chain([("Ratio", Some(report.ratios.describe()))]).chain(report.machine.rows()))
}
