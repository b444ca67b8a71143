//! Records which entries of the life-cycle table have been used, so that the simulator can prove that it
//! reaches them.
//!
//! Compiled like the defects in [`crate::defects`], only with the `planted-defects` feature.

use crate::lifecycle::{Event, State};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// How often each event has moved an execution out of each state.
pub type MoveCounts = BTreeMap<(String, String), u64>;

thread_local! {
    static MOVES: RefCell<MoveCounts> = const { RefCell::new(BTreeMap::new()) };
}

/// Records a transition that the table allows.
pub(crate) fn moved(state: State, event: Event) {
    let entry = (state_name(state), event_name(event));
    MOVES.with_borrow_mut(|moves| *moves.entry(entry).or_default() += 1);
}

/// All transitions on this thread since the last call.
pub fn take() -> MoveCounts {
    MOVES.take()
}

/// The name in `docs/lifecycle.md`; finished states have no row there, because no event leads out of them.
pub fn state_name(state: State) -> String {
    match state {
        State::Waiting(gates) => {
            let gates: Vec<&str> = gates.iter().map(crate::gates::Gate::name).collect();
            format!("WAITING ({})", gates.join(", "))
        }
        State::Queued => "QUEUED".to_owned(),
        State::Running { cancel_requested: false } => "RUNNING".to_owned(),
        State::Running { cancel_requested: true } => "RUNNING, cancel requested".to_owned(),
        State::Finished(status) => format!("{status:?}"),
    }
}

pub fn event_name(event: Event) -> String {
    match event {
        Event::CloseGate(gate) => format!("{} closes", gate.name()),
        Event::OpenGate(gate) => format!("{} opens", gate.name()),
        Event::End(ending) => format!("ends {ending:?}"),
        event => format!("{event:?}"),
    }
}
