//! `punctual bench throughput`.

use crate::args;
use crate::bench::floor::{self, Floor, FloorJobs};
use crate::bench::load::{self, LoadArgs};
use crate::bench::machine::Machine;
use crate::bench::pace::{self, Pace};
use crate::bench::pipe::Moment;
use crate::bench::plot::Look;
use crate::bench::stage::{Disk, Stage, StageOptions};
use crate::bench::usage::{Cost, Meter};
use crate::bench::words::{grouped, per_second, percent};
use crate::bench::{JOBS_MAX, PlaceArgs, progress};
use crate::exit::Exit;
use crate::output::{OutputArgs, details};
use punctual_client::{SetQueue, SubmitJob};
use punctual_core::limits::POLL_CAPACITY_MAX;
use serde::Serialize;

/// The queue of jobs that name none.
pub const QUEUE: &str = "default";

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
    /// Executions held ready beyond the slots
    #[arg(long, default_value_t = StageOptions::USUAL.prefetch as u64, value_parser = clap::value_parser!(u64).range(..=POLL_CAPACITY_MAX as u64))]
    prefetch: u64,
    /// Measure once more with limits on the queue and its keys, and say what they cost
    #[arg(long)]
    with_limits: bool,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Serialize)]
struct ThroughputReport {
    machine: Machine,
    jobs: u64,
    #[serde(flatten)]
    load: LoadArgs,
    slots: usize,
    prefetch: u64,
    /// All jobs submitted over HTTP while their queue is paused.
    submit_per_second: f64,
    submit_of_floor: f64,
    /// All of them executed to their recorded outcome.
    drain: Pace,
    drain_of_floor: f64,
    drain_cost: Cost,
    /// On a fresh server: submitted over HTTP while they are executed, from the first submit to the last outcome.
    together: Pace,
    /// As a share of what the bare database does of both.
    together_of_floor: f64,
    together_cost: Cost,
    /// The same once more, in a queue with limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    limited: Option<Limited>,
    disk_bytes_per_job: f64,
    disk: Disk,
    /// Raw rows in this run: the better of two measurements.
    floor: Floor,
}

/// What limits that are met, and high enough not to be what it waits for, leave of the throughput.
#[derive(Debug, Serialize)]
struct Limited {
    together: Pace,
    /// As a share of that without limits.
    of_unlimited: f64,
    concurrency: u32,
    keys: u64,
    key_concurrency: u32,
}

/// More than is under way between a submit and its outcome, and less than a backlog.
const LIMIT: u32 = 10_000;
const KEYS: u64 = 100;
const KEY_LIMIT: u32 = 1_000;

pub async fn run(args: ThroughputArgs) -> anyhow::Result<Exit> {
    args.load.check()?;
    let machine = Machine::here(&args.place.dir);
    let drained = drain(&args).await?;
    let together = together(&args, Limits::Off).await?;
    let limited = if args.with_limits { Some(limited(&args, together.pace.per_second).await?) } else { None };
    let LoadArgs { batch, payload_bytes, .. } = args.load;
    let floor = floor::measure(&args.place, FloorJobs { jobs: args.jobs, batch, payload_bytes }).await?;
    let report = ThroughputReport {
        machine,
        jobs: args.jobs,
        load: args.load,
        slots: args.slots,
        prefetch: args.prefetch,
        submit_per_second: drained.submit_per_second,
        submit_of_floor: floor::share(drained.submit_per_second, floor.insert_per_second),
        drain_of_floor: floor::share(drained.pace.per_second, floor.claim_complete_per_second),
        drain: drained.pace,
        drain_cost: drained.cost,
        together_of_floor: floor::share(together.pace.per_second, floor.both_per_second()),
        together: together.pace,
        together_cost: together.cost,
        limited,
        disk_bytes_per_job: drained.disk.bytes_each_since(drained.disk_before, args.jobs),
        disk: drained.disk,
        floor,
    };
    args.output.print(&report, describe)?;
    Ok(Exit::Done)
}

fn describe(report: &ThroughputReport) -> String {
    let look = Look::of_stdout();
    let [drain_cpu, drain_memory] = report.drain_cost.rows();
    let [together_cpu, together_memory] = report.together_cost.rows();
    let floor = &report.floor;
    let together = format!(
        "{} jobs/s submitted and executed, {} of the bare database's for both",
        grouped(report.together.per_second),
        percent(report.together_of_floor)
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
        ("Submit", Some(floor.beside(report.submit_per_second, floor.insert_per_second))),
        ("Drain", Some(floor.beside(report.drain.per_second, floor.claim_complete_per_second))),
        ("  over the run", report.drain.describe(look)),
        drain_cpu,
        drain_memory,
        ("Disk", Some(disk)),
        ("Together", Some(together)),
        ("  over the run", report.together.describe(look)),
        together_cpu,
        together_memory,
        ("With limits", report.limited.as_ref().map(Limited::describe)),
        floor.durable_write.row(),
    ];
    details(rows.into_iter().chain(report.machine.rows()))
}

impl ThroughputArgs {
    const fn stage(&self) -> StageOptions {
        StageOptions { slots: self.slots, prefetch: self.prefetch as usize, keep: None }
    }
}

struct Drained {
    submit_per_second: f64,
    pace: Pace,
    cost: Cost,
    disk_before: Disk,
    disk: Disk,
}

/// Submits everything while the queue is paused, then lets it run.
async fn drain(args: &ThroughputArgs) -> anyhow::Result<Drained> {
    Stage::measure(&args.place, args.stage(), async |stage| {
        let job = load::no_op("noop", args.load.payload_bytes)?;
        stage.client.pause_queue(QUEUE).await?;
        let disk_before = stage.disk().await?;
        let meter = Meter::start(stage)?;
        let bar = progress("submitting", args.jobs);
        let submit_time =
            load::submit_all(&stage.client, args.load, args.jobs, &bar, move |_| job.clone()).await?;
        bar.finish_and_clear();
        let bar = progress("draining", args.jobs);
        let since = Moment::now();
        stage.client.resume_queue(QUEUE).await?;
        let pace = pace::watch(stage, args.jobs, since, &bar).await?;
        bar.finish_and_clear();
        Ok(Drained {
            submit_per_second: per_second(args.jobs, submit_time),
            pace,
            cost: meter.stop(stage, args.jobs)?,
            disk_before,
            disk: stage.disk().await?,
        })
    })
    .await
}

struct Together {
    pace: Pace,
    cost: Cost,
}

impl Limited {
    fn describe(&self) -> String {
        format!(
            "{} jobs/s, {} of those without: {} at once, {} keys with {} each",
            grouped(self.together.per_second),
            percent(self.of_unlimited),
            grouped(f64::from(self.concurrency)),
            self.keys,
            grouped(f64::from(self.key_concurrency)),
        )
    }
}

/// Whether the queue has limits, and its jobs keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Limits {
    Off,
    On,
}

async fn limited(args: &ThroughputArgs, unlimited: f64) -> anyhow::Result<Limited> {
    let Together { pace, .. } = together(args, Limits::On).await?;
    let of_unlimited = if unlimited > 0.0 { pace.per_second / unlimited } else { 0.0 };
    Ok(Limited { together: pace, of_unlimited, concurrency: LIMIT, keys: KEYS, key_concurrency: KEY_LIMIT })
}

/// Submits to a server that executes meanwhile.
async fn together(args: &ThroughputArgs, limits: Limits) -> anyhow::Result<Together> {
    Stage::measure(&args.place, args.stage(), async |stage| {
        let job = load::no_op("noop", args.load.payload_bytes)?;
        if limits == Limits::On {
            let concurrency = Some(LIMIT);
            let set = SetQueue { concurrency, key_concurrency: Some(KEY_LIMIT), ..SetQueue::default() };
            stage.client.set_queue(QUEUE, &set).await?;
        }
        let key = move |number| (limits == Limits::On).then(|| format!("key-{}", number % KEYS));
        let job = move |number| SubmitJob { concurrency_key: key(number), ..job.clone() };
        let client = stage.client.clone();
        let meter = Meter::start(stage)?;
        let (unseen, bar) = (indicatif::ProgressBar::hidden(), progress("together", args.jobs));
        let since = Moment::now();
        let (_, pace) = tokio::try_join!(
            load::submit_all(&client, args.load, args.jobs, &unseen, job),
            pace::watch(stage, args.jobs, since, &bar),
        )?;
        bar.finish_and_clear();
        Ok(Together { pace, cost: meter.stop(stage, args.jobs)? })
    })
    .await
}
