//! The simulator's command line: one seed in detail, or many of them.

use clap::Parser;
use punctual_core::defects::Defect;
use punctual_sim::{Coverage, RunOutcome, SimOptions, StoreKind, simulate};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Seeds between two lines of progress.
const PROGRESS_SEEDS: u64 = 100;

/// Runs Punctual in a simulated world and looks for a broken rule.
#[derive(Debug, Parser)]
#[command(version)]
struct SimArgs {
    /// Run this one seed.
    #[arg(long, conflicts_with_all = ["seeds", "count"])]
    seed: Option<u64>,
    /// Run the seeds of a range, such as 0..1000 (the end is not included).
    #[arg(long, value_parser = parse_range, conflicts_with = "count")]
    seeds: Option<(u64, u64)>,
    /// Run this many seeds.
    #[arg(long, default_value_t = 100)]
    count: u64,
    /// The first of `--count` seeds.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// The database under the store: Sqlite, Postgres or MariaDb. Without it, each seed decides.
    #[arg(long, value_parser = parse_store)]
    store: Option<StoreKind>,
    /// Plant a defect, to check that the auditor detects it.
    #[arg(long, value_parser = parse_defect)]
    defect: Option<Defect>,
    /// Let nodes send each other hints of queued work, which are lost, delayed, duplicated and forged.
    #[arg(long)]
    hints: bool,
    /// Print every event.
    #[arg(long)]
    trace: bool,
    /// Print how often each event moved an execution out of each state, and the first seed in which it did.
    #[arg(long)]
    moves: bool,
    /// Stop at the first seed that breaks a rule.
    #[arg(long)]
    until_failure: bool,
    /// Threads to run seeds on.
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

fn main() -> ExitCode {
    let arguments = SimArgs::parse();
    let (from, to) = match (arguments.seed, arguments.seeds) {
        (Some(seed), _) => (seed, seed + 1),
        (None, Some(range)) => range,
        (None, None) => (arguments.from, arguments.from.saturating_add(arguments.count)),
    };
    let tally = Tally::default();
    let next = AtomicU64::new(from);
    let stop = AtomicBool::new(false);
    let started = Instant::now();
    // A single seed is printed event by event, so its thread must be the only one.
    let threads = if to - from == 1 { 1 } else { arguments.threads.max(1) };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= to {
                        return;
                    }
                    let SimArgs { store, defect, hints: has_hints, trace: print, .. } = arguments;
                    let outcome = simulate(SimOptions { seed, store, defect, has_hints, print });
                    let broken = outcome.violation.is_some();
                    tally.add(outcome, to - from == 1, started);
                    if broken && arguments.until_failure {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    tally.finish(started, &arguments)
}

#[derive(Default)]
struct Tally(Mutex<Totals>);

#[derive(Default)]
struct Totals {
    seeds: u64,
    broken: BTreeMap<&'static str, Vec<u64>>,
    events: u64,
    coverage: Coverage,
    /// How often each entry of the life-cycle table was used, and the lowest seed that used it.
    moves: BTreeMap<(String, String), (u64, u64)>,
}

impl Tally {
    fn add(&self, outcome: RunOutcome, alone: bool, started: Instant) {
        let mut totals = self.0.lock().expect("no thread panics while it counts");
        totals.seeds += 1;
        totals.events += outcome.events;
        for (what, count) in &outcome.coverage {
            *totals.coverage.entry(what).or_default() += count;
        }
        for (entry, count) in &outcome.moves {
            let (all, first) = totals.moves.entry(entry.clone()).or_insert((0, u64::MAX));
            (*all, *first) = (*all + count, outcome.options.seed.min(*first));
        }
        if let Some(violation) = &outcome.violation {
            totals.broken.entry(violation.rule).or_default().push(outcome.options.seed);
        }
        if outcome.violation.is_some() || alone {
            println!("{outcome}");
        } else if totals.seeds.is_multiple_of(PROGRESS_SEEDS) {
            let per_second = totals.seeds as f64 / started.elapsed().as_secs_f64();
            let broken: usize = totals.broken.values().map(Vec::len).sum();
            println!("{} seeds, {broken} broken, {per_second:.1} seeds/s", totals.seeds);
        }
    }

    fn finish(self, started: Instant, arguments: &SimArgs) -> ExitCode {
        let mut totals = self.0.into_inner().expect("no thread panics while it counts");
        let seconds = started.elapsed().as_secs_f64();
        for (what, count) in &totals.coverage {
            println!("{count:>10}  {what}");
        }
        for ((state, event), (count, first)) in totals.moves.iter().filter(|_| arguments.moves) {
            println!("{count:>10}  {state}: {event} (first in seed {first})");
        }
        println!(
            "{} seeds in {seconds:.1} s ({:.1} seeds/s), {} events",
            totals.seeds,
            totals.seeds as f64 / seconds,
            totals.events
        );
        if totals.broken.is_empty() {
            return ExitCode::SUCCESS;
        }
        for (rule, seeds) in &mut totals.broken {
            seeds.sort_unstable();
            println!("{} seeds break a rule: {rule}: {seeds:?}", seeds.len());
        }
        ExitCode::FAILURE
    }
}

fn parse_range(text: &str) -> Result<(u64, u64), String> {
    let (from, to) = text.split_once("..").ok_or("a range of seeds such as 0..1000")?;
    let number = |text: &str| text.parse().map_err(|_| format!("{text} is not a seed"));
    let (from, to) = (number(from)?, number(to)?);
    if from < to { Ok((from, to)) } else { Err("the range is empty".to_owned()) }
}

fn parse_store(name: &str) -> Result<StoreKind, String> {
    let store = StoreKind::ALL.into_iter().find(|store| format!("{store:?}") == name);
    store.ok_or_else(|| format!("none of {:?}", StoreKind::ALL))
}

fn parse_defect(text: &str) -> Result<Defect, String> {
    let found = Defect::ALL.into_iter().find(|defect| format!("{defect:?}").eq_ignore_ascii_case(text));
    found.ok_or_else(|| format!("one of {:?}", Defect::ALL))
}
