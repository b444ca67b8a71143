//! `punctual bench overhead`: the same jobs drained without and with roll-ups, failures and notification rules, in turns, so that
//! other load on the machine affects all alike.

use crate::bench_server::StageOptions;
use crate::failures::FailureLoad;
use crate::load::LoadArgs;
use crate::machine::MachineFacts;
use crate::noops::{DrainedNoops, NoOps};
use crate::units::grouped;
use crate::{JOBS_MAX, PlaceArgs};
use punctual_config::exit::Exit;
use punctual_config::output::{OutputArgs, details};
use punctual_core::limits::NOTIFICATION_RULES_MAX;
use serde::Serialize;

/// More failures than a tick of the benchmark submits in one batch.
const FAILURES_PER_MINUTE_MAX: u64 = 1_000_000;
const ROUNDS_MAX: u64 = 100;
const SECONDS_PER_MINUTE: f64 = 60.0;

#[derive(clap::Args)]
pub struct OverheadArgs {
    /// How many jobs each drain has
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..=JOBS_MAX))]
    jobs: u64,
    /// How many notification rules
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=NOTIFICATION_RULES_MAX as u64))]
    rules: u64,
    /// How many other jobs fail in a minute, each selected by one rule
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=FAILURES_PER_MINUTE_MAX))]
    failures_per_minute: u64,
    /// How often each side is measured; every second round in the opposite order
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=ROUNDS_MAX))]
    rounds: u64,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Serialize)]
struct OverheadReport {
    machine: MachineFacts,
    jobs: u64,
    #[serde(flatten)]
    load: LoadArgs,
    rounds: u64,
    /// Nothing is rolled up, nothing fails, and there are no rules.
    without: OverheadSide,
    /// Executions are rolled up, as on every server.
    series: OverheadSide,
    /// The same while other jobs fail.
    failures: OverheadSide,
    /// The same with rules about them.
    rules: OverheadSide,
    shares: OverheadShares,
}

/// One way to drain, all rounds together.
#[derive(Debug, Clone, Default, Serialize)]
struct OverheadSide {
    drain_per_second: f64,
    drain_per_second_by_round: Vec<f64>,
    /// Of the server alone, for submit and drain.
    server_cpu_ms_per_1000_jobs: f64,
    succeeded: u64,
    failed: u64,
    /// During drains.
    failures_per_minute: f64,
    rules: u64,
    /// Failures that messages were about.
    notified: u64,
    /// How long after a drain the last failure was notified, at most.
    catch_up_seconds_max: f64,
}

/// Drain rates as shares of others.
#[derive(Debug, Clone, Copy, Serialize)]
struct OverheadShares {
    /// With roll-ups, of the rate without them.
    series_of_without: f64,
    /// With rules, of the rate with the same failures and no rules.
    rules_of_failures: f64,
    /// With rules and failures, of the rate without either.
    rules_of_series: f64,
}

/// What differs between the sides.
#[derive(Debug, Clone, Copy)]
struct OverheadWay {
    series: bool,
    failures: Option<FailureLoad>,
}

pub async fn run(args: OverheadArgs) -> anyhow::Result<Exit> {
    args.load.check()?;
    let machine = MachineFacts::here(&args.place.dir);
    let FailureLoad { per_minute, rules } =
        FailureLoad { per_minute: args.failures_per_minute, rules: args.rules };
    let ways = [
        OverheadWay { series: false, failures: None },
        OverheadWay { series: true, failures: None },
        OverheadWay { series: true, failures: Some(FailureLoad { per_minute, rules: 0 }) },
        OverheadWay { series: true, failures: Some(FailureLoad { per_minute, rules }) },
    ];
    let mut sums: [OverheadSum; 4] = Default::default();
    for round in 0..args.rounds {
        let mut turns: Vec<usize> = (0..ways.len()).collect();
        // There and back: a steady change of the machine affects all alike.
        if round % 2 == 1 {
            turns.reverse();
        }
        for turn in turns {
            sums[turn].add(args.no_ops(ways[turn]).drain().await?);
        }
    }
    let [without, series, failures, mut with_rules] = sums.map(|sum| sum.side(args.jobs));
    with_rules.rules = rules;
    let share = |part: &OverheadSide, whole: &OverheadSide| part.drain_per_second / whole.drain_per_second;
    let report = OverheadReport {
        machine,
        jobs: args.jobs,
        load: args.load,
        rounds: args.rounds,
        shares: OverheadShares {
            series_of_without: share(&series, &without),
            rules_of_failures: share(&with_rules, &failures),
            rules_of_series: share(&with_rules, &series),
        },
        without,
        series,
        failures,
        rules: with_rules,
    };
    args.output.print(&report, describe)?;
    Ok(Exit::Done)
}

impl OverheadArgs {
    fn no_ops(&self, way: OverheadWay) -> NoOps<'_> {
        NoOps {
            place: &self.place,
            stage: StageOptions { series: way.series, ..StageOptions::USUAL },
            load: self.load,
            jobs: self.jobs,
            keys: 0,
            queue: None,
            failures: way.failures,
        }
    }
}

/// The rounds of one side so far.
#[derive(Debug, Default)]
struct OverheadSum {
    side: OverheadSide,
    drain_seconds: f64,
    cpu_ms_per_1000_jobs: f64,
    failed_during_drain: u64,
}

impl OverheadSum {
    fn add(&mut self, drained: DrainedNoops) {
        let side = &mut self.side;
        side.drain_per_second_by_round.push(drained.pace.per_second);
        side.succeeded += drained.succeeded;
        side.failed += drained.failures.failed;
        side.notified += drained.failures.notified;
        side.catch_up_seconds_max = side.catch_up_seconds_max.max(drained.failures.catch_up.as_secs_f64());
        self.drain_seconds += drained.pace.seconds;
        self.cpu_ms_per_1000_jobs += drained.cost.server_cpu_ms_per_1000_jobs;
        self.failed_during_drain += drained.failures.failed_during_drain;
    }

    fn side(self, jobs: u64) -> OverheadSide {
        let rounds = self.side.drain_per_second_by_round.len().max(1);
        let seconds = self.drain_seconds.max(1e-9);
        OverheadSide {
            drain_per_second: (jobs * rounds as u64) as f64 / seconds,
            server_cpu_ms_per_1000_jobs: self.cpu_ms_per_1000_jobs / rounds as f64,
            failures_per_minute: self.failed_during_drain as f64 / seconds * SECONDS_PER_MINUTE,
            ..self.side
        }
    }
}

fn describe(report: &OverheadReport) -> String {
    let OverheadReport { without, series, failures, rules, shares, .. } = report;
    let rate = |side: &OverheadSide| {
        let rounds: Vec<String> = side.drain_per_second_by_round.iter().copied().map(grouped).collect();
        format!("{} jobs/s ({} by round)", grouped(side.drain_per_second), rounds.join(", "))
    };
    let jobs = format!(
        "{} with {} bytes each, {} rounds",
        grouped(report.jobs as f64),
        report.load.payload_bytes,
        report.rounds
    );
    let failing = format!("{} failures a minute", grouped(failures.failures_per_minute));
    let ruled = format!(
        "{} rules and {} failures a minute",
        grouped(rules.rules as f64),
        grouped(rules.failures_per_minute)
    );
    let notified = format!(
        "{} of {} failures, the last one up to {:.1} s after a drain",
        grouped(rules.notified as f64),
        grouped(rules.failed as f64),
        rules.catch_up_seconds_max
    );
    let rows = [
        ("Jobs", Some(jobs)),
        ("Without roll-ups", Some(rate(without))),
        ("With roll-ups", Some(rate(series))),
        ("", Some(format!("{} of the rate without them", tenths(shares.series_of_without)))),
        ("With failures", Some(format!("{}; {failing}", rate(failures)))),
        ("With rules", Some(format!("{}; {ruled}", rate(rules)))),
        ("", Some(format!("{} of the rate with failures and no rules", tenths(shares.rules_of_failures)))),
        ("", Some(format!("{} of the rate without failures", tenths(shares.rules_of_series)))),
        ("Notified", Some(notified)),
    ];
    details(rows.into_iter().chain(report.machine.rows()))
}

/// A percentage with one decimal: the differences are small.
fn tenths(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_a_side_is_that_of_all_its_rounds() {
        let sum = OverheadSum {
            side: OverheadSide { drain_per_second_by_round: vec![100.0, 50.0], ..OverheadSide::default() },
            drain_seconds: 30.0,
            cpu_ms_per_1000_jobs: 8.0,
            failed_during_drain: 10,
        };
        let side = sum.side(1_000);
        assert_eq!((side.drain_per_second.round(), side.server_cpu_ms_per_1000_jobs), (67.0, 4.0));
        assert_eq!(side.failures_per_minute, 20.0);
        assert_eq!(tenths(0.9876), "98.8 %");
    }
}
