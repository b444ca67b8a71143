//! The runs use every entry of core's life-cycle table that such a system can reach.
//!
//! A set of more than two gates behaves like the sets of two, so the table is that of `docs/lifecycle.md`.

use punctual_core::gates::{Gate, Gates};
use punctual_core::lifecycle::{Ending, Event, State, step};
use punctual_core::lifecycle_coverage::{event_name, state_name};
use punctual_sim::{MoveCounts, SimOptions, StoreKind, simulate};

/// Seeds that together use every entry; `--moves` shows which seed is the first to use one.
const SEEDS: [u64; 31] = [
    0, 1, 2, 3, 4, 6, 10, 11, 12, 16, 17, 24, 27, 32, 33, 35, 36, 40, 43, 47, 94, 106, 188, 275, 301, 412,
    597, 620, 1_030, 1_116, 1_240,
];

#[test]
fn every_reachable_entry_of_the_table_is_used() {
    let mut moves = MoveCounts::new();
    for seed in SEEDS {
        let outcome = simulate(SimOptions::on(seed, StoreKind::Sqlite));
        assert!(outcome.violation.is_none(), "\n{outcome}");
        for (entry, count) in outcome.moves {
            *moves.entry(entry).or_default() += count;
        }
    }
    let (mut unused, mut surprising) = (vec![], vec![]);
    for (state, event) in entries() {
        let is_used = moves.contains_key(&(state_name(state), event_name(event)));
        match (is_used, why_never(state, event)) {
            (false, None) if !is_rare(state, event) => unused.push((state_name(state), event_name(event))),
            (true, Some(reason)) => surprising.push((state_name(state), event_name(event), reason)),
            (true, None) | (false, _) => {}
        }
    }
    assert_eq!(surprising, [], "entries that should never be used were used");
    assert_eq!(unused, [], "no seed used these");
}

/// Entries that the seeds do not use, because they are rare: a client postpones an execution on a wait list, or one that
/// waits for others, and it expires before the new time while it is still there; or a handler snoozes at the moment
/// when it is asked to stop. The tests of core cover all legal entries.
fn is_rare(state: State, event: Event) -> bool {
    let is_put_off = [Gate::Concurrency, Gate::Dependency, Gate::Overlap]
        .iter()
        .any(|gate| state == State::Waiting(Gates::only(Gate::Time).with(*gate)));
    let is_stopping = state == (State::Running { cancel_requested: true });
    (is_put_off && event == Event::Expire) || (is_stopping && event == Event::End(Ending::Snoozed))
}

/// Why a legal entry is never used; `None` if it is.
fn why_never(state: State, event: Event) -> Option<&'static str> {
    let gates = match state {
        State::Waiting(gates) => gates,
        State::Queued | State::Running { .. } | State::Finished(_) => Gates::NONE,
    };
    let is_waiting = !gates.is_empty();
    match event {
        _ if [Gate::Dependency, Gate::Overlap].iter().any(|gate| gates.contains(*gate))
            && gates.contains(Gate::Concurrency) =>
        {
            Some("it waits behind these gates from the start, and joins a wait list when they open")
        }
        Event::CloseGate(Gate::Concurrency) if is_waiting => Some("only a ready execution joins a wait list"),
        Event::CloseGate(Gate::Dependency) if is_waiting => Some("it waits for other jobs from the start"),
        Event::CloseGate(Gate::Overlap) if is_waiting && gates != Gates::only(Gate::Dependency) => {
            Some("it waits behind others from the start")
        }
        Event::Skip if is_waiting && !gates.contains(Gate::Dependency) => {
            Some("only an occurrence that waits for other jobs is skipped after it was created")
        }
        Event::End(Ending::Cancelled) if state == (State::Running { cancel_requested: false }) => {
            Some("a worker reports this only after it was asked to stop")
        }
        _ => None,
    }
}

/// All entries of the table.
fn entries() -> Vec<(State, Event)> {
    let mut entries = vec![];
    for state in states() {
        entries.extend(
            events().into_iter().filter(|event| step(state, *event).is_ok()).map(|event| (state, event)),
        );
    }
    entries
}

fn states() -> Vec<State> {
    let mut states = vec![
        State::Queued,
        State::Running { cancel_requested: false },
        State::Running { cancel_requested: true },
    ];
    for (place, gate) in Gate::ALL.into_iter().enumerate() {
        states.push(State::Waiting(Gates::only(gate)));
        let others = Gate::ALL.into_iter().skip(place + 1);
        states.extend(others.map(|other| State::Waiting(Gates::only(gate).with(other))));
    }
    states
}

fn events() -> Vec<Event> {
    let mut events = vec![Event::Claim, Event::GiveBack, Event::Cancel, Event::Skip, Event::Expire];
    events.extend(Gate::ALL.map(Event::OpenGate));
    events.extend(Gate::ALL.map(Event::CloseGate));
    events.extend(Ending::ALL.map(Event::End));
    events
}
