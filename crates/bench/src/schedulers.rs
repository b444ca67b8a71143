//! `punctual bench schedulers`: how many due times per second several schedulers on one database fire, with and
//! without added network latency, and whether each was fired once.
//!
//! All jobs fall due at the same moment in a paused queue, so that schedulers fire and no worker runs anything. Then
//! the queue is resumed, and every due time must start once.

use crate::accuracy::{collect, describe_fires};
use crate::bench_server::{BenchSite, Stage, StageOptions};
use crate::durable::DurableWrite;
use crate::ledger::{Fires, StartLedger};
use crate::load::submit_batch;
use crate::machine::MachineFacts;
use crate::node::ServerPart;
use crate::noops::QUEUE;
use crate::recorder::JOB_TYPE;
use crate::scheduler_group::{GroupFires, SchedulerGroup};
use crate::units::{grouped, percent};
use crate::{DUE_TIMES_MAX, PlaceArgs, durable, progress, round_trip};
use anyhow::bail;
use punctual_client::{Span, SubmitJob, host};
use punctual_config::exit::Exit;
use punctual_config::output::{OutputArgs, details, span};
use punctual_core::limits::OWN_LOOK_AHEAD;
use punctual_core::time::Timestamp;
use punctual_link::Link;
use serde::Serialize;
use std::time::Duration;

/// With more, each scheduler would own only one or two segments.
const SCHEDULERS_MAX: u64 = 32;
/// Jobs per submit.
const BATCH: u64 = 1_000;
/// Time between the first submit and the due time: `LEAD`, and more in proportion to the number of jobs.
const LEAD: Duration = Duration::from_secs(5);
const LEAD_MORE: Duration = Duration::from_secs(2);
const LEAD_MORE_JOBS: f64 = 10_000.0;

#[derive(clap::Args)]
pub struct SchedulersArgs {
    /// How many one-time jobs, all due at the same moment
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..=DUE_TIMES_MAX))]
    jobs: u64,
    /// How many schedulers; several numbers, separated by commas, are measured one after the other
    #[arg(long, value_delimiter = ',', default_values_t = [1_u64, 2, 4], value_parser = clap::value_parser!(u64).range(1..=SCHEDULERS_MAX))]
    schedulers: Vec<u64>,
    /// Latency added to the responses of the database, as over a network; several values are measured one after the
    /// other
    #[arg(long, value_delimiter = ',', default_values = ["0ms", "20ms"], value_name = "DURATION")]
    round_trip: Vec<Span>,
    /// Time from the first submit to the moment at which all jobs are due; all must be submitted two seconds before it; by
    /// default 5s, plus 2s for every 10,000 jobs
    #[arg(long, value_name = "DURATION")]
    lead: Option<Span>,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl SchedulersArgs {
    fn lead(&self) -> Duration {
        let usual = || LEAD + LEAD_MORE.mul_f64(self.jobs as f64 / LEAD_MORE_JOBS);
        self.lead.map_or_else(usual, Span::get)
    }
}

#[derive(Debug, Serialize)]
struct SchedulersReport {
    machine: MachineFacts,
    jobs: u64,
    ways: Vec<WayReport>,
}

/// All runs with the same added latency.
#[derive(Debug, Serialize)]
struct WayReport {
    /// Latency added to each response.
    round_trip_ms: f64,
    /// A small commit with that latency.
    #[serde(flatten)]
    durable_write: DurableWrite,
    runs: Vec<RunReport>,
}

#[derive(Debug, Serialize)]
struct RunReport {
    schedulers: u64,
    #[serde(flatten)]
    fired: GroupFires,
    /// The rate as a multiple of the first run's rate with the same latency.
    of_first: f64,
    /// Checked afterwards by the starts of the handlers.
    due_times: Fires,
}

pub async fn run(args: SchedulersArgs) -> anyhow::Result<Exit> {
    let address = round_trip::check(&args.place, &args.round_trip)?;
    let mut report =
        SchedulersReport { machine: MachineFacts::here(&args.place.dir), jobs: args.jobs, ways: Vec::new() };
    for trip in args.round_trip.iter().map(|trip| trip.get()) {
        let proxy = round_trip::proxy(address.as_deref(), trip).await?;
        report.ways.push(measure_way(&args, trip, proxy.as_ref()).await?);
    }
    args.output.print(&report, describe)?;
    let is_exact = report.ways.iter().flat_map(|way| &way.runs).all(|run| run.due_times.exact);
    Ok(if is_exact { Exit::Done } else { Exit::Failed })
}

async fn measure_way(
    args: &SchedulersArgs,
    round_trip: Duration,
    proxy: Option<&Link>,
) -> anyhow::Result<WayReport> {
    let proxy = proxy.map(|proxy| proxy.address.as_str());
    let mut site = BenchSite::prepare(&args.place).await?;
    site.connect_through(proxy).await?;
    let durable_write = durable::measure(&mut site).await?;
    drop(site);
    let mut report =
        WayReport { round_trip_ms: round_trip.as_secs_f64() * 1e3, durable_write, runs: Vec::new() };
    for schedulers in args.schedulers.iter().copied() {
        let options = StageOptions { part: ServerPart::Rest, ..StageOptions::USUAL };
        let measured =
            Stage::measure(&args.place, options, async |stage| fire(stage, args, schedulers, proxy).await);
        let (fired, due_times) = measured.await?;
        let first = report.runs.first().map_or(fired.pace.per_second, |first| first.fired.pace.per_second);
        let of_first = fired.pace.per_second / first;
        report.runs.push(RunReport { schedulers, fired, of_first, due_times });
    }
    Ok(report)
}

/// Lets all jobs fall due and be fired, and then runs them.
async fn fire(
    stage: &mut Stage,
    args: &SchedulersArgs,
    schedulers: u64,
    proxy: Option<&str>,
) -> anyhow::Result<(GroupFires, Fires)> {
    stage.client.pause_queue(QUEUE).await?;
    let mut group = SchedulerGroup::start(&stage.site, schedulers, proxy).await?;
    let due_at = host::wall_time().plus(args.lead());
    let mut ledger = submit(stage, args.jobs, due_at).await?;
    // A node that stores a job this close to its due time fires it without a scheduler.
    if host::wall_time().plus(OWN_LOOK_AHEAD) > due_at {
        bail!(
            "{} jobs were not submitted {} before they are due, {} after the first: allow more time with --lead",
            args.jobs,
            span(OWN_LOOK_AHEAD),
            span(args.lead())
        );
    }
    let fired = group.fire(args.jobs, due_at).await?;
    stage.client.resume_queue(QUEUE).await?;
    collect(stage, &mut ledger).await?;
    Ok((fired, ledger.fires()))
}

async fn submit(stage: &Stage, jobs: u64, due_at: Timestamp) -> anyhow::Result<StartLedger> {
    let bar = progress("submitting", jobs);
    let mut ledger = StartLedger::default();
    let job = SubmitJob { execute_at: Some(due_at), ..SubmitJob::named(JOB_TYPE) };
    let mut left = jobs;
    while left > 0 {
        let batch = vec![job.clone(); left.min(BATCH) as usize];
        let ids = submit_batch(&stage.client, &batch).await?;
        bar.inc(ids.len() as u64);
        left -= ids.len() as u64;
        ids.into_iter().for_each(|id| ledger.expect(id, due_at));
    }
    bar.finish_and_clear();
    Ok(ledger)
}

fn describe(report: &SchedulersReport) -> String {
    let jobs = format!("{} one-time, all due at the same moment", grouped(report.jobs as f64));
    let mut parts = vec![details([("Jobs", Some(jobs))])];
    parts.extend(report.ways.iter().map(WayReport::describe));
    parts.push(details(report.machine.rows()));
    parts.join("\n\n")
}

impl WayReport {
    fn describe(&self) -> String {
        let (title, commit) = self.durable_write.row();
        let head = [("Database", Some(round_trip::describe(self.round_trip_ms))), (title, commit)];
        details(head.into_iter().chain(self.runs.iter().flat_map(RunReport::rows)))
    }
}

impl RunReport {
    fn rows(&self) -> [(&'static str, Option<String>); 4] {
        let fired = &self.fired;
        let rate = format!(
            "{}: {} fires/s, {:.2} times the first; the machine's CPUs {} busy",
            self.schedulers,
            grouped(fired.pace.per_second),
            self.of_first,
            percent(fired.processors_busy)
        );
        let shares: Vec<String> = fired.fired_by.iter().map(|count| grouped(*count as f64)).collect();
        let shares = format!("{}; {} conflicts with another scheduler", shares.join(" + "), fired.conflicts);
        let cost = format!("{:.1} ms of all schedulers", fired.scheduler_cpu_ms_per_1000_fires);
        [
            ("Schedulers", Some(rate)),
            ("  fired", Some(shares)),
            ("  CPU per 1,000 fires", Some(cost)),
            ("  started then", Some(describe_fires(&self.due_times))),
        ]
    }
}
