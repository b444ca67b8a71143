//! `punctual bench accuracy`: checks that every due time fires exactly once, and measures how late the handler
//! starts.

use crate::bench_server::{BenchSite, Stage, StageOptions};
use crate::durable::{self, DurableWrite};
use crate::ledger::{Fires, StartLedger};
use crate::load::submit_batch;
use crate::machine::MachineFacts;
use crate::percentiles;
use crate::plot::PlotMark;
use crate::recorder::JOB_TYPE;
use crate::units::grouped;
use crate::usage::{Cost, Meter};
use crate::{DUE_TIMES_MAX, PlaceArgs, bad_option, progress};
use anyhow::{Context, bail};
use punctual_client::{Span, SubmitJob, host};
use punctual_config::exit::{CliError, Exit};
use punctual_config::output::{OutputArgs, details, span};
use punctual_core::limits::INTERVAL_MIN;
use punctual_core::time::{Timestamp, duration_micros};
use serde::Serialize;
use std::time::Duration;
use tokio::time::timeout;

/// Time between the submit and the first due time, so that all jobs are stored before it: `LEAD`, and the same again
/// for every `LEAD_JOBS` jobs.
const LEAD: Duration = Duration::from_secs(2);
const LEAD_JOBS: f64 = 10_000.0;
/// How long after the last due time to watch for extra starts, and how long to wait for a missing start when none
/// arrives.
const AFTERMATH: Duration = Duration::from_millis(500);
const GIVE_UP: Duration = Duration::from_secs(30);
/// Jobs per submit.
const BATCH: usize = 1_000;

/// How long before their due time jobs are submitted.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct LeadArgs {
    /// Time from the submit to the first due time, by which all jobs must be submitted; by default 2s, plus 2s for every
    /// 10,000 jobs
    #[arg(long, value_name = "DURATION")]
    lead: Option<Span>,
}

impl LeadArgs {
    fn get(self, jobs: u64) -> Duration {
        self.lead.map_or_else(|| LEAD + LEAD.mul_f64(jobs as f64 / LEAD_JOBS), Span::get)
    }
}

#[derive(clap::Args)]
pub struct AccuracyArgs {
    /// How many one-time jobs; several numbers, separated by commas, are measured one after the other; 0 for none
    #[arg(long, value_delimiter = ',', default_values_t = [1_000_u64, 10_000])]
    jobs: Vec<u64>,
    /// The time over which they are spread evenly
    #[arg(long, default_value = "10s", value_name = "DURATION")]
    over: Span,
    /// How many recurring jobs; 0 for none
    #[arg(long, default_value_t = 1_000)]
    recurring: u64,
    /// Interval between the runs of a recurring job; the jobs start at different offsets
    #[arg(long, default_value = "1s", value_name = "DURATION")]
    every: Span,
    /// How long the recurring jobs run
    #[arg(long = "for", default_value = "30s", value_name = "DURATION")]
    duration: Span,
    #[command(flatten)]
    lead: LeadArgs,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl AccuracyArgs {
    fn rounds(&self) -> Result<Vec<MeasuredRound>, CliError> {
        let (over, every, duration) = (self.over.get(), self.every.get(), self.duration.get());
        if every < INTERVAL_MIN {
            return Err(bad_option(format!(
                "--every {}: must be at least {}",
                self.every,
                span(INTERVAL_MIN)
            )));
        }
        let runs = u32::try_from(duration.as_micros() / every.as_micros()).unwrap_or(u32::MAX);
        if runs == 0 {
            return Err(bad_option(format!(
                "--for {}: must be at least --every ({})",
                self.duration, self.every
            )));
        }
        let one_time =
            self.jobs.iter().map(|jobs| MeasuredRound { jobs: *jobs, kind: MeasuredKind::OneTime { over } });
        let recurring = MeasuredRound { jobs: self.recurring, kind: MeasuredKind::Recurring { every, runs } };
        let rounds: Vec<MeasuredRound> = one_time.chain([recurring]).filter(|round| round.jobs > 0).collect();
        if rounds.is_empty() {
            return Err(bad_option("--jobs 0 and --recurring 0 leave nothing to measure"));
        }
        if let Some(round) = rounds.iter().find(|round| round.due_count() > DUE_TIMES_MAX) {
            let option = match round.kind {
                MeasuredKind::OneTime { .. } => "--jobs",
                MeasuredKind::Recurring { .. } => "--recurring, --for and --every",
            };
            return Err(bad_option(format!(
                "{option}: {} due times exceed the maximum per measurement ({})",
                grouped(round.due_count() as f64),
                grouped(DUE_TIMES_MAX as f64)
            )));
        }
        Ok(rounds)
    }
}

/// Jobs that are measured together.
#[derive(Debug, Clone, Copy)]
pub struct MeasuredRound {
    pub jobs: u64,
    pub kind: MeasuredKind,
}

impl MeasuredRound {
    fn due_count(&self) -> u64 {
        match self.kind {
            MeasuredKind::OneTime { .. } => self.jobs,
            MeasuredKind::Recurring { runs, .. } => self.jobs.saturating_mul(runs.into()),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub enum MeasuredKind {
    OneTime { over: Duration },
    Recurring { every: Duration, runs: u32 },
}

#[derive(Debug, Serialize)]
struct AccuracyReport {
    machine: MachineFacts,
    rounds: Vec<RoundReport>,
    #[serde(flatten)]
    durable_write: DurableWrite,
}

#[derive(Debug, Serialize)]
struct RoundReport {
    kind: &'static str,
    jobs: u64,
    /// For one-time jobs the time over which they are spread, for recurring jobs the interval.
    spread_ms: u64,
    runs_per_job: u32,
    #[serde(flatten)]
    fires: Fires,
    /// The median lateness as a multiple of one durable write.
    late_of_baseline_p50: f64,
    #[serde(flatten)]
    cost: Cost,
}

pub async fn run(args: AccuracyArgs) -> anyhow::Result<Exit> {
    let rounds = args.rounds()?;
    let machine = MachineFacts::here(&args.place.dir);
    let mut site = BenchSite::prepare(&args.place).await?;
    let durable_write = durable::measure(&mut site).await?;
    drop(site);
    let mut report = AccuracyReport { machine, rounds: Vec::new(), durable_write };
    for round in rounds {
        let measured = Stage::measure(&args.place, StageOptions::USUAL, async |stage| {
            let meter = Meter::start(stage)?;
            let fires = measure(stage, round, args.lead).await?;
            let cost = meter.stop(stage, fires.expected)?;
            Ok((fires, cost))
        });
        let (fires, cost) = measured.await?;
        report.rounds.push(RoundReport::new(round, fires, durable_write, cost));
    }
    args.output.print(&report, describe)?;
    Ok(if report.rounds.iter().all(|round| round.fires.exact) { Exit::Done } else { Exit::Failed })
}

impl RoundReport {
    fn new(round: MeasuredRound, fires: Fires, durable_write: DurableWrite, cost: Cost) -> Self {
        let (kind, spread, runs_per_job) = match round.kind {
            MeasuredKind::OneTime { over } => ("one-time", over, 1),
            MeasuredKind::Recurring { every, runs } => ("recurring", every, runs),
        };
        RoundReport {
            kind,
            jobs: round.jobs,
            spread_ms: u64::try_from(spread.as_millis()).unwrap_or(u64::MAX),
            runs_per_job,
            late_of_baseline_p50: fires.late_us.p50_of(durable_write.us()),
            fires,
            cost,
        }
    }

    fn describe(&self, durable_write: DurableWrite, look: PlotMark) -> String {
        let spread = span(Duration::from_millis(self.spread_ms));
        let jobs = grouped(self.jobs as f64);
        let jobs = match self.kind {
            "recurring" => format!("{jobs} recurring, every {spread}, {} runs each", self.runs_per_job),
            _ => format!("{jobs} one-time, over {spread}"),
        };
        let lateness = format!(
            "{} ({:.1} times one {} at p50)",
            self.fires.late_us.describe(),
            self.late_of_baseline_p50,
            durable_write.name()
        );
        let rows = [
            ("Jobs", Some(jobs)),
            ("Fires", Some(describe_fires(&self.fires))),
            ("Lateness", Some(lateness)),
        ];
        let facts = details(rows.into_iter().chain(self.cost.rows()));
        format!("{facts}\n{}", percentiles::plot(&self.fires.late_histogram, look))
    }
}

pub fn describe_fires(fires: &Fires) -> String {
    let count = |count: u64| grouped(count as f64);
    let of = format!("{} of {}", count(fires.started), count(fires.expected));
    if fires.exact {
        return format!("{of}: none missing, none extra, none early");
    }
    format!(
        "{of}: {} missing, {} extra, {} early",
        count(fires.missing),
        count(fires.extra),
        count(fires.early)
    )
}

fn describe(report: &AccuracyReport) -> String {
    let look = PlotMark::of_stdout();
    let write = report.durable_write;
    let mut parts: Vec<String> = report.rounds.iter().map(|round| round.describe(write, look)).collect();
    parts.push(details([write.row()].into_iter().chain(report.machine.rows())));
    parts.join("\n\n")
}

/// Submits the jobs of a round and matches their starts to their due times.
pub async fn measure(stage: &mut Stage, round: MeasuredRound, lead: LeadArgs) -> anyhow::Result<Fires> {
    let lead = lead.get(round.jobs);
    let first = host::wall_time().plus(lead);
    let mut ledger = StartLedger::default();
    let numbers: Vec<u64> = (0..round.jobs).collect();
    for batch in numbers.chunks(BATCH) {
        let jobs: Vec<SubmitJob> = batch.iter().map(|number| round.job(first, *number)).collect();
        let ids = submit_batch(&stage.client, &jobs).await?;
        for (id, number) in ids.into_iter().zip(batch) {
            round.due_times(first, *number).for_each(|at| ledger.expect(id, at));
        }
    }
    if host::wall_time() > first {
        bail!("submitting {} jobs took longer than {}: allow more time with --lead", round.jobs, span(lead));
    }
    collect(stage, &mut ledger).await?;
    Ok(ledger.fires())
}

impl MeasuredRound {
    /// The first due time of the job with this number. The due times of a round are spread evenly.
    fn first_of(self, first: Timestamp, number: u64) -> Timestamp {
        let (MeasuredKind::OneTime { over: spread } | MeasuredKind::Recurring { every: spread, .. }) =
            self.kind;
        let shift = i128::from(duration_micros(spread)) * i128::from(number) / i128::from(self.jobs.max(1));
        first.shifted(i64::try_from(shift).unwrap_or(i64::MAX))
    }

    fn due_times(self, first: Timestamp, number: u64) -> impl Iterator<Item = Timestamp> {
        let at = self.first_of(first, number);
        let (step, runs) = match self.kind {
            MeasuredKind::OneTime { .. } => (0, 1),
            MeasuredKind::Recurring { every, runs } => (duration_micros(every), runs),
        };
        (0..runs).map(move |run| at.shifted(step * i64::from(run)))
    }

    fn job(self, first: Timestamp, number: u64) -> SubmitJob {
        let at = self.first_of(first, number);
        let job = SubmitJob::named(JOB_TYPE);
        match self.kind {
            MeasuredKind::OneTime { .. } => SubmitJob { execute_at: Some(at), ..job },
            MeasuredKind::Recurring { every, runs } => SubmitJob {
                interval: Some(Span::from(every).to_string()),
                start_at: Some(at),
                max_runs: Some(runs),
                ..job
            },
        }
    }
}

/// Records starts until all have arrived, or none has arrived for `GIVE_UP`; then watches for extra starts.
pub async fn collect(stage: &mut Stage, ledger: &mut StartLedger) -> anyhow::Result<()> {
    let bar = progress("firing", ledger.expected());
    let left = ledger.last_due().map_or(Duration::ZERO, |last| last.since(host::wall_time()));
    while !ledger.is_complete() {
        let Ok(start) = timeout(left + GIVE_UP, stage.starts.recv()).await else { break };
        ledger.record(start.context("the measured server has exited")?);
        bar.inc(1);
    }
    while let Ok(Some(one_too_many)) = timeout(AFTERMATH, stage.starts.recv()).await {
        ledger.record(one_too_many);
    }
    bar.finish_and_clear();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_times_are_spread_evenly() {
        let first = Timestamp::from_micros(1_000_000);
        let seconds = |round: MeasuredRound, number| -> Vec<i64> {
            round.due_times(first, number).map(|at| at.as_micros() / 1_000_000).collect()
        };
        let one_time =
            MeasuredRound { jobs: 5, kind: MeasuredKind::OneTime { over: Duration::from_secs(10) } };
        assert_eq!(seconds(one_time, 0), [1]);
        assert_eq!(seconds(one_time, 4), [9]);
        let recurring = MeasuredRound {
            jobs: 2,
            kind: MeasuredKind::Recurring { every: Duration::from_secs(2), runs: 3 },
        };
        assert_eq!(seconds(recurring, 1), [2, 4, 6]);
    }
}
