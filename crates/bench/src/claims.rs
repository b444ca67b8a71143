//! `punctual bench claims`: whether the drain rate depends on how many queued jobs and finished executions the
//! database holds.

use crate::baseline::{self, BaselineJobs, MeasuredBaseline};
use crate::bench_server::{BenchSite, DiskUsage, StageOptions};
use crate::load::{self, LoadArgs};
use crate::machine::MachineFacts;
use crate::noops::QUEUE;
use crate::pace::{self, Pace};
use crate::pipe::MachineMoment;
use crate::plot::PlotMark;
use crate::units::{grouped, per_second};
use crate::usage::{Cost, Meter};
use crate::{JOBS_MAX, PlaceArgs, bad_option, progress};
use punctual_client::host;
use punctual_config::exit::{CliError, Exit};
use punctual_config::output::{OutputArgs, details};
use punctual_engine::EngineConfig;
use punctual_store::baseline::{Past, RUNS_PER_JOB};
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes that a row needs besides its payload, including indexes and half-empty pages, on the database that needs
/// most.
const QUEUED_BYTES: u64 = 800;
const HISTORIC_BYTES: u64 = 350;
/// The history stays this much below the retention time, so that retention deletes nothing during the measurement.
const MARGIN: Duration = Duration::from_secs(24 * 3_600);

#[derive(clap::Args)]
pub struct ClaimsArgs {
    /// How many jobs are queued in the full database before anything is drained
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=JOBS_MAX))]
    queued: u64,
    /// How many finished executions the full database has, spread over the retention time of the history
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..=JOBS_MAX))]
    historic: u64,
    /// How many jobs are drained, twice from each database
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..=JOBS_MAX))]
    jobs: u64,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl ClaimsArgs {
    fn check(&self) -> Result<(), CliError> {
        self.load.check()?;
        if self.queued < 2 * self.jobs {
            return Err(bad_option(format!(
                "--queued {}: must be at least twice --jobs ({}), which are drained twice",
                self.queued, self.jobs
            )));
        }
        Ok(())
    }

    /// Approximate size of the full database.
    fn bytes(&self) -> u64 {
        let payload = self.load.payload_bytes;
        let jobs_of_past = self.historic.div_ceil(RUNS_PER_JOB);
        (self.queued + jobs_of_past) * (payload + QUEUED_BYTES) + self.historic * HISTORIC_BYTES
    }

    fn past(&self) -> Past {
        Past {
            executions: self.historic,
            until: host::wall_time(),
            span: EngineConfig::default().history_kept.saturating_sub(MARGIN),
            payload_bytes: self.load.payload_bytes as usize,
        }
    }
}

/// The measurements of one database.
#[derive(Debug, Serialize)]
struct ClaimSide {
    queued: u64,
    historic: u64,
    queued_per_second: f64,
    /// Rates of the first and of the second run.
    first_per_second: f64,
    again_per_second: f64,
    /// Both runs together.
    drain: Pace,
    /// Upper bounds of the transaction time at these percentiles. Counts all write transactions of the run, mostly
    /// claims and reports.
    transaction_p50_us: Option<u64>,
    transaction_p99_us: Option<u64>,
    /// Disk usage before the first run.
    disk: DiskUsage,
    #[serde(flatten)]
    cost: Cost,
}

/// The rates of the full database as shares of those of the empty database.
#[derive(Debug, Serialize)]
struct ClaimRatios {
    first: f64,
    again: f64,
}

#[derive(Debug, Serialize)]
struct ClaimsReport {
    machine: MachineFacts,
    jobs: u64,
    #[serde(flatten)]
    load: LoadArgs,
    /// The database that holds only the jobs to drain.
    empty: ClaimSide,
    full: ClaimSide,
    /// Rate at which the history was written.
    historic_per_second: f64,
    ratios: ClaimRatios,
    empty_of_baseline: f64,
    baseline: MeasuredBaseline,
}

pub async fn run(args: ClaimsArgs) -> anyhow::Result<Exit> {
    args.check()?;
    let machine = MachineFacts::here(&args.place.dir);
    let site = BenchSite::prepare(&args.place).await?;
    let what =
        format!("--queued {} and --historic {}", grouped(args.queued as f64), grouped(args.historic as f64));
    site.must_hold(&what, args.bytes())?;
    let empty = drain(site, &args, Amount { queued: 2 * args.jobs, historic: 0 }).await?;

    let mut site = BenchSite::prepare(&args.place).await?;
    let past_time = keep_past(&mut site, &args).await?;
    let full = drain(site, &args, Amount { queued: args.queued, historic: args.historic }).await?;
    let LoadArgs { batch, payload_bytes, .. } = args.load;
    let baseline =
        baseline::measure(&args.place, BaselineJobs { jobs: args.jobs, batch, payload_bytes }).await?;
    let report = ClaimsReport {
        machine,
        jobs: args.jobs,
        load: args.load,
        historic_per_second: per_second(args.historic, past_time),
        ratios: ClaimRatios {
            first: full.first_per_second / empty.first_per_second,
            again: full.again_per_second / empty.again_per_second,
        },
        empty_of_baseline: baseline::share(empty.drain.per_second, baseline.claim_complete_per_second),
        empty,
        full,
        baseline,
    };
    args.output.print(&report, describe)?;
    Ok(Exit::Done)
}

/// Writes the history directly into the tables, before a server starts.
async fn keep_past(site: &mut BenchSite, args: &ClaimsArgs) -> anyhow::Result<Duration> {
    let bar = progress("past", args.historic);
    let shown = bar.clone();
    let start = Instant::now();
    site.keep_past(args.past(), Arc::new(move |rows| shown.inc(rows))).await?;
    bar.finish_and_clear();
    Ok(start.elapsed())
}

/// The contents of a database before anything is drained.
#[derive(Debug, Clone, Copy)]
struct Amount {
    queued: u64,
    historic: u64,
}

async fn drain(site: BenchSite, args: &ClaimsArgs, amount: Amount) -> anyhow::Result<ClaimSide> {
    let measured = site.measure(StageOptions::USUAL, async |stage| {
        stage.client.pause_queue(QUEUE).await?;
        let job = load::no_op("noop", args.load.payload_bytes)?;
        let bar = progress("queueing", amount.queued);
        let submit = load::submit_all(&stage.client, args.load, amount.queued, &bar, move |_| job.clone());
        let submit_time = submit.await?;
        bar.finish_and_clear();
        let disk = stage.disk().await?;
        let meter = Meter::start(stage)?;
        let before = stage.transactions().await?;
        let jobs = 2 * args.jobs;
        let bar = progress("draining", jobs);
        let since = MachineMoment::now();
        stage.client.resume_queue(QUEUE).await?;
        let drain = pace::watch(stage, jobs, since, &bar).await?;
        bar.finish_and_clear();
        let transactions = stage.transactions().await?.since(&before);
        let [first_per_second, again_per_second] = drain.per_second_by_half;
        Ok(ClaimSide {
            queued: amount.queued,
            historic: amount.historic,
            queued_per_second: per_second(amount.queued, submit_time),
            first_per_second,
            again_per_second,
            drain,
            transaction_p50_us: transactions.percentile_us(50.0),
            transaction_p99_us: transactions.percentile_us(99.0),
            disk,
            cost: meter.stop(stage, jobs)?,
        })
    });
    measured.await
}

impl ClaimSide {
    fn rows(&self, title: &'static str, look: PlotMark) -> [(&'static str, Option<String>); 6] {
        let bound = |us: Option<u64>| {
            us.map_or_else(|| "more than 10 s".to_owned(), |us| format!("up to {} ms", us as f64 / 1_000.0))
        };
        let amount = format!(
            "{} queued jobs, {} past executions; {}",
            grouped(self.queued as f64),
            grouped(self.historic as f64),
            self.disk.describe()
        );
        let rate = format!(
            "{} jobs/s first, {} in the second run",
            grouped(self.first_per_second),
            grouped(self.again_per_second)
        );
        let transactions =
            format!("p50 {}, p99 {}", bound(self.transaction_p50_us), bound(self.transaction_p99_us));
        let [cpu, _] = self.cost.rows();
        [
            (title, Some(amount)),
            ("  drained at", Some(rate)),
            ("  over the run", self.drain.describe(look)),
            ("  transactions", Some(transactions)),
            ("  queued at", Some(format!("{} jobs/s", grouped(self.queued_per_second)))),
            cpu,
        ]
    }
}

fn describe(report: &ClaimsReport) -> String {
    let (look, baseline) = (PlotMark::of_stdout(), &report.baseline);
    let drained = format!(
        "{} jobs with {} bytes each, and the same number again",
        grouped(report.jobs as f64),
        report.load.payload_bytes
    );
    let ratio = format!(
        "the full database drains at {:.2} times the rate of the empty one, {:.2} times in the second run",
        report.ratios.first, report.ratios.again
    );
    let of_baseline = baseline.beside(report.empty.drain.per_second, baseline.claim_complete_per_second);
    let rows = [("Drained", Some(drained))]
        .into_iter()
        .chain(report.empty.rows("Empty", look))
        .chain(report.full.rows("Full", look));
    let ends = [("Ratio", Some(ratio)), ("Baseline", Some(of_baseline)), baseline.durable_write.row()];
    details(rows.chain(ends).chain(report.machine.rows()))
}
