//! `punctual bench workers`: how fast several worker processes on one database execute no-op jobs, with and without added
//! network latency, and whether each ran once.
//!
//! The queue is paused while the workers start and all jobs are submitted. Then it is resumed, and the workers drain it.

use crate::bench_server::{BenchSite, Stage, StageOptions};
use crate::durable::{self, DurableWrite};
use crate::load::{self, LoadArgs};
use crate::machine::MachineFacts;
use crate::node::ServerPart;
use crate::noops::QUEUE;
use crate::pace::Pace;
use crate::pipe::MachineMoment;
use crate::plot::PlotMark;
use crate::process_group::{GroupPace, GroupWork, ProcessGroup};
use crate::units::{grouped, percent};
use crate::{JOBS_MAX, PlaceArgs, progress, round_trip};
use anyhow::bail;
use punctual_client::Span;
use punctual_config::args;
use punctual_config::exit::Exit;
use punctual_config::output::{OutputArgs, details};
use punctual_core::limits::POLL_CAPACITY_MAX;
use punctual_link::Link;
use serde::Serialize;
use std::time::{Duration, Instant};

const WORKERS_MAX: u64 = 64;
/// The defaults of `punctual worker`.
const SLOTS: usize = 16;
const PREFETCH: u64 = 1_000;
/// How long the workers may take to open their sessions, and the interval at which that is checked.
const OPEN_MAX: Duration = Duration::from_secs(60);
const OPEN_PAUSE: Duration = Duration::from_millis(50);

#[derive(clap::Args)]
pub struct WorkersArgs {
    /// How many no-op jobs
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..=JOBS_MAX))]
    jobs: u64,
    #[command(flatten)]
    load: LoadArgs,
    /// How many worker processes; several numbers, separated by commas, are measured one after the other
    #[arg(long, value_delimiter = ',', default_values_t = [1_u64, 2, 4, 8, 16], value_parser = clap::value_parser!(u64).range(1..=WORKERS_MAX))]
    workers: Vec<u64>,
    /// Latency added to the responses of the database, as over a network; several values are measured one after the
    /// other
    #[arg(long, value_delimiter = ',', default_values = ["0ms", "2ms", "5ms"], value_name = "DURATION")]
    round_trip: Vec<Span>,
    /// Handlers that each worker runs at once
    #[arg(long, default_value_t = SLOTS, value_parser = args::slots)]
    slots: usize,
    /// Executions that each worker fetches ahead, beyond its slots
    #[arg(long, default_value_t = PREFETCH, value_parser = clap::value_parser!(u64).range(..=POLL_CAPACITY_MAX as u64))]
    prefetch: u64,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Serialize)]
struct WorkersReport {
    machine: MachineFacts,
    jobs: u64,
    #[serde(flatten)]
    load: LoadArgs,
    slots: usize,
    prefetch: u64,
    broker: &'static str,
    latencies: Vec<WorkersLatency>,
}

/// All runs with the same added latency.
#[derive(Debug, Serialize)]
struct WorkersLatency {
    /// Latency added to each response.
    round_trip_ms: f64,
    /// A small commit with that latency.
    #[serde(flatten)]
    durable_write: DurableWrite,
    runs: Vec<WorkersRun>,
}

#[derive(Debug, Serialize)]
struct WorkersRun {
    workers: u64,
    /// From the resume of the queue until the last outcome was recorded.
    drain: Pace,
    /// The rate as a multiple of the first run's rate with the same latency.
    of_first: f64,
    /// Executions of each worker.
    executed_by: Vec<u64>,
    /// Each job has one outcome, and that is success.
    exact: bool,
    /// Share of the machine's CPU time in use during the run, by any process.
    processors_busy: f64,
    worker_cpu_ms_per_1000_jobs: f64,
}

pub async fn run(args: WorkersArgs) -> anyhow::Result<Exit> {
    args.load.check()?;
    let address = round_trip::check(&args.place, &args.round_trip)?;
    let broker = args.place.broker()?;
    let mut latencies = Vec::new();
    for trip in args.round_trip.iter().map(|trip| trip.get()) {
        let proxy = round_trip::proxy(address.as_deref(), trip).await?;
        latencies.push(measure(&args, trip, proxy.as_ref()).await?);
    }
    let report = WorkersReport {
        machine: MachineFacts::here(&args.place.dir),
        jobs: args.jobs,
        load: args.load,
        slots: args.slots,
        prefetch: args.prefetch,
        broker: broker.url.options().map_or("none", |options| options.kind.word()),
        latencies,
    };
    args.output.print(&report, describe)?;
    let is_exact = report.latencies.iter().flat_map(|latency| &latency.runs).all(|run| run.exact);
    Ok(if is_exact { Exit::Done } else { Exit::Failed })
}

async fn measure(
    args: &WorkersArgs,
    round_trip: Duration,
    proxy: Option<&Link>,
) -> anyhow::Result<WorkersLatency> {
    let proxy = proxy.map(|proxy| proxy.address.as_str());
    let mut site = BenchSite::prepare(&args.place).await?;
    site.connect_through(proxy).await?;
    let durable_write = durable::measure(&mut site).await?;
    drop(site);
    let mut report =
        WorkersLatency { round_trip_ms: round_trip.as_secs_f64() * 1e3, durable_write, runs: Vec::new() };
    for workers in args.workers.iter().copied() {
        let options = StageOptions { part: ServerPart::Control, ..StageOptions::USUAL };
        let drained =
            Stage::measure(&args.place, options, async |stage| drain(stage, args, workers, proxy).await);
        let GroupPace { pace, counts, processors_busy, cpu_ms_per_1000 } = drained.await?;
        let first = report.runs.first().map_or(pace.per_second, |first| first.drain.per_second);
        let executed_by: Vec<u64> = counts.iter().map(|counts| counts.succeeded).collect();
        report.runs.push(WorkersRun {
            workers,
            of_first: pace.per_second / first,
            drain: pace,
            exact: executed_by.iter().sum::<u64>() == args.jobs
                && counts.iter().all(|counts| counts.otherwise == 0),
            executed_by,
            processors_busy,
            worker_cpu_ms_per_1000_jobs: cpu_ms_per_1000,
        });
    }
    Ok(report)
}

async fn drain(
    stage: &mut Stage,
    args: &WorkersArgs,
    workers: u64,
    proxy: Option<&str>,
) -> anyhow::Result<GroupPace> {
    stage.client.pause_queue(QUEUE).await?;
    let options = StageOptions {
        part: ServerPart::Worker,
        slots: args.slots,
        prefetch: args.prefetch as usize,
        ..StageOptions::USUAL
    };
    let mut group = ProcessGroup::start(&stage.site, options, workers, proxy).await?;
    wait_for_sessions(stage, &group.workers()).await?;
    let bar = progress("submitting", args.jobs);
    let job = load::no_op("noop", args.load.payload_bytes)?;
    load::submit_all(&stage.client, args.load, args.jobs, &bar, move |_| job.clone()).await?;
    bar.finish_and_clear();
    let begins_at = MachineMoment::now();
    stage.client.resume_queue(QUEUE).await?;
    let work = GroupWork { title: "draining", total: args.jobs, begins_at, done: |counts| counts.succeeded };
    group.watch(work).await
}

/// Waits until every worker has opened its session.
async fn wait_for_sessions(stage: &Stage, workers: &[String]) -> anyhow::Result<()> {
    let gives_up_at = Instant::now() + OPEN_MAX;
    loop {
        let open = stage.client.workers().await?.items;
        let missing =
            workers.iter().filter(|worker| open.iter().all(|open| open.worker_id != **worker)).count();
        if missing == 0 {
            return Ok(());
        }
        if Instant::now() > gives_up_at {
            bail!("{missing} of {} workers have not opened a session within {OPEN_MAX:?}", workers.len());
        }
        tokio::time::sleep(OPEN_PAUSE).await;
    }
}

fn describe(report: &WorkersReport) -> String {
    let jobs = format!("{} with {} bytes each", grouped(report.jobs as f64), report.load.payload_bytes);
    let each = format!("{} slots, {} fetched ahead", report.slots, report.prefetch);
    let head =
        [("Jobs", Some(jobs)), ("Each worker", Some(each)), ("Broker", Some(report.broker.to_owned()))];
    let mut parts = vec![details(head)];
    parts.extend(report.latencies.iter().map(WorkersLatency::describe));
    parts.push(details(report.machine.rows()));
    parts.join("\n\n")
}

impl WorkersLatency {
    fn describe(&self) -> String {
        let (title, commit) = self.durable_write.row();
        let head = [("Database", Some(round_trip::describe(self.round_trip_ms))), (title, commit)];
        details(head.into_iter().chain(self.runs.iter().flat_map(WorkersRun::rows)))
    }
}

impl WorkersRun {
    fn rows(&self) -> [(&'static str, Option<String>); 4] {
        let rate = format!(
            "{}: {} jobs/s, {:.2} times the first; the machine's CPUs {} busy",
            self.workers,
            grouped(self.drain.per_second),
            self.of_first,
            percent(self.processors_busy)
        );
        let shares: Vec<String> = self.executed_by.iter().map(|count| grouped(*count as f64)).collect();
        let verdict = if self.exact { "each job once" } else { "NOT each job once" };
        [
            ("Workers", Some(rate)),
            ("  executed", Some(format!("{}; {verdict}", shares.join(" + ")))),
            (
                "  CPU per 1,000 jobs",
                Some(format!("{:.1} ms of all workers", self.worker_cpu_ms_per_1000_jobs)),
            ),
            ("  over the run", self.drain.describe(PlotMark::of_stdout())),
        ]
    }
}
