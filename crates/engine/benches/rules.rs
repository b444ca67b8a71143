//! The cost of the rules on the hot paths, in instructions: the same on a busy machine as on an idle one.
//!
//! The benchmark is here and not in core, because core's own targets are built with its planted defects.
//!
//! Needs valgrind and the runner of exactly the version of gungraun in `Cargo.lock`:
//! `cargo install gungraun-runner --version <that version>`, then
//! `cargo bench -p punctual-engine --features benches --bench rules`.

use gungraun::{library_benchmark, library_benchmark_group, main};
use punctual_core::gates::Gate;
use punctual_core::ids::JobId;
use punctual_core::job::Priority;
use punctual_core::lifecycle::{Ending, Event, State, step};
use punctual_core::ports::{Due, DueKind, Lane};
use punctual_core::rank::{Shares, rank};
use punctual_core::recurrence::{Recurrence, RecurrenceSpec};
use punctual_core::time::Timestamp;
use punctual_engine::measured::MeasuredWheel;
use std::hint::black_box;
use std::time::Duration;

/// 2026-11-15T08:30:00Z.
const NOW: Timestamp = Timestamp::from_micros(1_794_731_400_000_000);
/// Entries of the wheel: as many as become due within the look-ahead of a busy server.
const ENTRIES: u64 = 10_000;

fn cron(pattern: &str, zone: &str) -> Recurrence {
    Recurrence::new(RecurrenceSpec::cron(pattern, 7).in_zone(zone)).expect("a valid pattern")
}

fn interval(every: &str, zone: &str) -> Recurrence {
    Recurrence::new(RecurrenceSpec::interval(every, NOW).in_zone(zone)).expect("a valid interval")
}

#[library_benchmark]
#[bench::cron_every_second(cron("* * * * * *", "UTC"))]
#[bench::cron_every_five_minutes(cron("*/5 * * * *", "UTC"))]
#[bench::cron_workdays_in_a_zone(cron("30 2 * * MON-FRI", "Europe/Berlin"))]
#[bench::cron_leap_days(cron("0 0 29 2 *", "America/New_York"))]
#[bench::interval_of_a_second(interval("1s", "UTC"))]
#[bench::interval_of_a_month_in_a_zone(interval("monthly", "Europe/Berlin"))]
fn next_occurrence(recurrence: Recurrence) -> (Option<Timestamp>, Recurrence) {
    // Returned, so that dropping it is not measured.
    (black_box(&recurrence).next_time_after(black_box(NOW)), recurrence)
}

// The life cycle of an execution that waits for its time, runs and succeeds.
#[library_benchmark]
fn life_cycle() -> Option<State> {
    let events = [
        Event::CloseGate(Gate::Time),
        Event::OpenGate(Gate::Time),
        Event::Claim,
        Event::End(Ending::Succeeded),
    ];
    let way = |state, event: &Event| step(black_box(state), black_box(*event)).ok();
    events.iter().try_fold(State::Queued, way)
}

fn shares_of(owners: u64) -> Shares {
    let mut shares = Shares::default();
    for owner in 0..owners {
        shares.lag("default", &format!("owner-{owner}"), NOW);
    }
    shares
}

#[library_benchmark]
#[bench::one_owner(shares_of(1))]
#[bench::a_thousand_owners(shares_of(1_000))]
fn rank_of_an_execution(mut shares: Shares) -> (i64, Shares) {
    let lag = shares.lag(black_box("default"), black_box("owner-0"), black_box(NOW));
    (rank(black_box(NOW), Priority::DEFAULT, lag), shares)
}

fn due(number: u64, after: Duration) -> Due {
    let job = JobId::new(NOW, number);
    Due {
        at: NOW.plus(after),
        lane: Lane::new("default", "noop"),
        what: DueKind::Schedule { job, version: 1 },
    }
}

/// A wheel with this many entries spread over four seconds.
fn wheel_of(entries: u64) -> MeasuredWheel {
    let mut wheel = MeasuredWheel::default();
    for number in 0..entries {
        wheel.add(NOW, due(number, Duration::from_micros(number * 4_000_000 / entries)));
    }
    wheel
}

fn wheel_and_newcomer(entries: u64) -> (MeasuredWheel, Due) {
    (wheel_of(entries), due(entries, Duration::from_secs(3)))
}

#[library_benchmark]
#[bench::empty(wheel_and_newcomer(0))]
#[bench::full(wheel_and_newcomer(ENTRIES))]
fn wheel_add((mut wheel, newcomer): (MeasuredWheel, Due)) -> MeasuredWheel {
    black_box(wheel.add(black_box(NOW), newcomer));
    wheel
}

// A hundred milliseconds pass.
#[library_benchmark]
#[bench::empty(wheel_of(0))]
#[bench::full(wheel_of(ENTRIES))]
fn wheel_advance(mut wheel: MeasuredWheel) -> (Vec<Due>, MeasuredWheel) {
    let now = NOW.plus(Duration::from_millis(100));
    (wheel.take_due(black_box(now), black_box(1_000)), wheel)
}

library_benchmark_group!(
    name = rules,
    benchmarks = [next_occurrence, life_cycle, rank_of_an_execution, wheel_add, wheel_advance]
);

main!(library_benchmark_groups = rules);
