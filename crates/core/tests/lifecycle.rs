//! The table of valid transitions, published in `docs/lifecycle.md`, and what must hold for every sequence of
//! them.

use proptest::prelude::*;
use punctual_core::gates::{Gate, Gates};
use punctual_core::lifecycle::{Ending, Event, State, Status, step};
use std::fmt::Write as _;
use std::path::Path;

const INTRODUCTION: &str = "# Execution lifecycle

Every state transition of an execution, one table per kind of event. Rows are the states before the event, cells
the states after it. A dash, or a state without a row, means that the event does not apply and changes nothing. A
test compares this page with `lifecycle::step` in `crates/core`; `UPDATE_DOCS=1 cargo nextest run -p punctual-core`
regenerates it.

`WAITING` names its closed gates. Sets of three or more gates behave like sets of two: each gate opens and closes
independently.
";

const STATUSES: [Status; 7] = [
    Status::Succeeded,
    Status::Failed,
    Status::TimedOut,
    Status::Cancelled,
    Status::Lost,
    Status::Skipped,
    Status::Expired,
];

/// Every state; sets of one and two closed gates represent all larger ones.
fn states() -> Vec<State> {
    let mut states: Vec<State> = Gate::ALL.map(|gate| State::Waiting(Gates::only(gate))).into();
    for (n, first) in Gate::ALL.into_iter().enumerate() {
        states
            .extend(Gate::ALL[n + 1..].iter().map(|second| State::Waiting(Gates::only(first).with(*second))));
    }
    states.push(State::Queued);
    states.extend([false, true].map(|cancel_requested| State::Running { cancel_requested }));
    states.extend(STATUSES.map(State::Finished));
    states
}

/// Every event, by the heading of the table that shows it.
fn events() -> Vec<(&'static str, Vec<Event>)> {
    vec![
        (
            "Claims and endings without a run",
            vec![Event::Claim, Event::GiveBack, Event::Cancel, Event::Skip, Event::Expire],
        ),
        ("A run ends", Ending::ALL.map(Event::End).into()),
        ("A gate opens", Gate::ALL.map(Event::OpenGate).into()),
        ("A gate closes", Gate::ALL.map(Event::CloseGate).into()),
    ]
}

fn state_name(state: State) -> String {
    match state {
        State::Waiting(gates) => {
            format!("WAITING ({})", gates.iter().map(Gate::name).collect::<Vec<_>>().join(", "))
        }
        State::Queued => "QUEUED".to_owned(),
        State::Running { cancel_requested: false } => "RUNNING".to_owned(),
        State::Running { cancel_requested: true } => "RUNNING, cancel requested".to_owned(),
        State::Finished(status) => {
            serde_json::to_value(status).unwrap().as_str().expect("a status is a word").to_owned()
        }
    }
}

fn event_name(event: Event) -> String {
    match event {
        Event::OpenGate(gate) => format!("{} opens", gate.name()),
        Event::CloseGate(gate) => format!("{} closes", gate.name()),
        Event::Claim => "claim".to_owned(),
        Event::GiveBack => "give back".to_owned(),
        Event::End(Ending::Succeeded) => "succeeded".to_owned(),
        Event::End(Ending::Failed) => "failed".to_owned(),
        Event::End(Ending::TimedOut) => "timed out".to_owned(),
        Event::End(Ending::Cancelled) => "cancelled".to_owned(),
        Event::End(Ending::Lost) => "lost".to_owned(),
        Event::End(Ending::Snoozed) => "snoozed".to_owned(),
        Event::Cancel => "cancel".to_owned(),
        Event::Skip => "skip".to_owned(),
        Event::Expire => "expire".to_owned(),
    }
}

fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    for (heading, events) in events() {
        let names: Vec<String> = events.iter().map(|event| event_name(*event)).collect();
        let rule = "---|".repeat(events.len());
        write!(page, "\n## {heading}\n\n| state | {} |\n|---|{rule}\n", names.join(" | ")).unwrap();
        for state in states() {
            let moves: Vec<_> = events.iter().map(|event| step(state, *event)).collect();
            if moves.iter().any(Result::is_ok) {
                let cells: Vec<String> =
                    moves.into_iter().map(|next| next.map_or("–".to_owned(), state_name)).collect();
                writeln!(page, "| {} | {} |", state_name(state), cells.join(" | ")).unwrap();
            }
        }
    }
    page
}

#[test]
fn the_documented_table_is_the_one_that_runs() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lifecycle.md");
    let page = page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let documented = std::fs::read_to_string(&path).unwrap_or_default();
    let first_difference = documented.lines().zip(page.lines()).find(|(old, new)| old != new);
    assert!(
        documented == page,
        "docs/lifecycle.md does not show the rules of lifecycle::step; if the rules are right, regenerate it \
         with `UPDATE_DOCS=1 cargo nextest run -p punctual-core`. First difference: {first_difference:#?}"
    );
}

#[test]
fn every_event_is_in_exactly_one_table() {
    let shown: Vec<Event> = events().into_iter().flat_map(|(_, events)| events).collect();
    assert_eq!(shown.len(), 5 + Ending::ALL.len() + 2 * Gate::ALL.len());
    for (n, event) in shown.iter().enumerate() {
        assert!(!shown[n + 1..].contains(event), "{event:?} is shown twice");
    }
}

fn any_gates() -> impl Strategy<Value = Gates> {
    (1u8..32).prop_map(|bits| Gates::from_bits(bits).expect("five bits name five gates"))
}

fn any_state() -> impl Strategy<Value = State> {
    prop_oneof![
        any_gates().prop_map(State::Waiting),
        Just(State::Queued),
        any::<bool>().prop_map(|cancel_requested| State::Running { cancel_requested }),
        prop::sample::select(&STATUSES[..]).prop_map(State::Finished),
    ]
}

fn any_event() -> impl Strategy<Value = Event> {
    let all: Vec<Event> = events().into_iter().flat_map(|(_, events)| events).collect();
    prop::sample::select(all)
}

/// The state after all events; those that do not apply change nothing.
fn after(state: State, events: &[Event]) -> State {
    events.iter().fold(state, |state, event| step(state, *event).unwrap_or(state))
}

proptest! {
    #[test]
    fn a_finished_state_never_changes(
        status in prop::sample::select(&STATUSES[..]),
        events in prop::collection::vec(any_event(), 1..50),
    ) {
        prop_assert_eq!(after(State::Finished(status), &events), State::Finished(status));
    }

    #[test]
    fn only_queued_is_claimable(state in any_state()) {
        let claimed = step(state, Event::Claim);
        prop_assert_eq!(claimed.is_ok(), state == State::Queued);
        if let Ok(claimed) = claimed {
            prop_assert_eq!(claimed, State::Running { cancel_requested: false });
        }
    }

    #[test]
    fn opening_all_closed_gates_in_any_order_leads_to_queued(
        gates in any_gates(),
        order in Just(Gate::ALL.to_vec()).prop_shuffle(),
    ) {
        let opened: Vec<Event> = order.into_iter().map(Event::OpenGate).collect();
        prop_assert_eq!(after(State::Waiting(gates), &opened), State::Queued);
    }

    #[test]
    fn a_gate_opens_once(gates in any_gates(), gate in prop::sample::select(&Gate::ALL[..])) {
        if let Ok(open) = step(State::Waiting(gates), Event::OpenGate(gate)) {
            prop_assert!(step(open, Event::OpenGate(gate)).is_err());
        }
    }

    #[test]
    fn waiting_always_has_a_closed_gate(events in prop::collection::vec(any_event(), 0..50)) {
        if let State::Waiting(gates) = after(State::Queued, &events) {
            prop_assert!(!gates.is_empty());
        }
    }

    #[test]
    fn a_run_ends_only_from_running_and_always_finishes(
        state in any_state(),
        ending in prop::sample::select(&Ending::ALL[..]),
    ) {
        let runs = matches!(state, State::Running { .. });
        let ended = step(state, Event::End(ending));
        prop_assert_eq!(ended.is_ok(), runs);
        if let Ok(next) = ended {
            prop_assert!(matches!(next, State::Finished(_)));
        }
    }

    #[test]
    fn after_a_requested_cancel_only_cancelled_can_follow(events in prop::collection::vec(any_event(), 0..50)) {
        let requested = State::Running { cancel_requested: true };
        let end = after(requested, &events);
        prop_assert!(end == requested || end == State::Finished(Status::Cancelled), "{:?}", end);
    }

    #[test]
    fn what_is_not_claimed_is_never_succeeded_failed_timed_out_or_lost(
        gates in any_gates(),
        events in prop::collection::vec(any_event(), 0..50),
    ) {
        let unclaimed: Vec<Event> = events.into_iter().filter(|event| *event != Event::Claim).collect();
        if let State::Finished(status) = after(State::Waiting(gates), &unclaimed) {
            prop_assert!(matches!(status, Status::Cancelled | Status::Skipped | Status::Expired));
        }
    }

    #[test]
    fn a_refusal_says_what_was_refused(state in any_state(), event in any_event()) {
        if let Err(refused) = step(state, event) {
            prop_assert_eq!((refused.state, refused.event), (state, event));
        }
    }
}
