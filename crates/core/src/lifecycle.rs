//! The life cycle of an execution: one pure function over every pair of state and event. No other code
//! decides a state. A test keeps the table in `docs/lifecycle.md` up to date.

use crate::gates::{Gate, Gates};
use serde::{Deserialize, Serialize};

/// The state of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Live, behind at least one closed gate.
    Waiting(Gates),
    /// Live and claimable now.
    Queued,
    /// Claimed by a worker session.
    Running {
        cancel_requested: bool,
    },
    Finished(Status),
}

/// How an execution ended. It never changes afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    Succeeded,
    Failed,
    TimedOut,
    Cancelled,
    Lost,
    /// Never started, for a reason that is stored with it.
    Skipped,
    /// Never started: its expiry passed.
    Expired,
    /// Its handler put it off: neither a success nor a failure, and the occurrence continues.
    Snoozed,
}

impl Status {
    pub const ALL: [Status; 8] = [
        Status::Succeeded,
        Status::Failed,
        Status::TimedOut,
        Status::Cancelled,
        Status::Lost,
        Status::Skipped,
        Status::Expired,
        Status::Snoozed,
    ];

    /// As users read it.
    pub const fn word(self) -> &'static str {
        match self {
            Status::Succeeded => "SUCCEEDED",
            Status::Failed => "FAILED",
            Status::TimedOut => "TIMED_OUT",
            Status::Cancelled => "CANCELLED",
            Status::Lost => "LOST",
            Status::Skipped => "SKIPPED",
            Status::Expired => "EXPIRED",
            Status::Snoozed => "SNOOZED",
        }
    }

    /// Whether the handler was started and did not succeed. A cancelled execution is no failure.
    pub const fn is_failure(self) -> bool {
        matches!(self, Status::Failed | Status::TimedOut | Status::Lost)
    }
}

/// How a run ended, as reported by its worker or by the recovery of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ending {
    Succeeded,
    Failed,
    TimedOut,
    /// The handler stopped because it was asked to.
    Cancelled,
    /// The session that held it stopped sending heartbeats.
    Lost,
    /// The handler asked to run again later.
    Snoozed,
}

impl Ending {
    pub const ALL: [Ending; 6] = [
        Ending::Succeeded,
        Ending::Failed,
        Ending::TimedOut,
        Ending::Cancelled,
        Ending::Lost,
        Ending::Snoozed,
    ];

    const fn status(self) -> Status {
        match self {
            Ending::Succeeded => Status::Succeeded,
            Ending::Failed => Status::Failed,
            Ending::TimedOut => Status::TimedOut,
            Ending::Cancelled => Status::Cancelled,
            Ending::Lost => Status::Lost,
            Ending::Snoozed => Status::Snoozed,
        }
    }
}

/// What can happen to an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    CloseGate(Gate),
    OpenGate(Gate),
    Claim,
    /// The session that holds the lease returns it unstarted.
    GiveBack,
    End(Ending),
    Cancel,
    Skip,
    Expire,
}

/// The event does not apply to the state; nothing changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{event:?} does not apply to {state:?}")]
pub struct Refused {
    pub state: State,
    pub event: Event,
}

/// The next state, or a refusal.
pub fn step(state: State, event: Event) -> Result<State, Refused> {
    let next = follow(state, event);
    #[cfg(feature = "planted-defects")]
    if next.is_ok() {
        crate::lifecycle_coverage::moved(state, event);
    }
    next
}

fn follow(state: State, event: Event) -> Result<State, Refused> {
    use {Event as E, State as S};
    let refused = Err(Refused { state, event });
    match (state, event) {
        (S::Waiting(gates), E::OpenGate(gate)) if gates.contains(gate) => {
            let still_closed = gates.without(gate);
            Ok(if still_closed.is_empty() { S::Queued } else { S::Waiting(still_closed) })
        }
        (S::Waiting(gates), E::CloseGate(gate)) if !gates.contains(gate) => Ok(S::Waiting(gates.with(gate))),
        (S::Queued, E::CloseGate(gate)) => Ok(S::Waiting(Gates::only(gate))),
        (S::Queued, E::Claim) => Ok(S::Running { cancel_requested: false }),

        (S::Waiting(_) | S::Queued, E::Cancel) => Ok(S::Finished(Status::Cancelled)),
        (S::Waiting(_) | S::Queued, E::Skip) => Ok(S::Finished(Status::Skipped)),
        (S::Waiting(_) | S::Queued, E::Expire) => Ok(S::Finished(Status::Expired)),

        (S::Running { cancel_requested: false }, E::Cancel) => Ok(S::Running { cancel_requested: true }),
        (S::Running { cancel_requested: false }, E::GiveBack) => Ok(S::Queued),
        (S::Running { cancel_requested: false }, E::End(ending)) => Ok(S::Finished(ending.status())),
        // After a cancel request, a run always ends as cancelled: an outcome counts only if it was accepted
        // before the request.
        (S::Running { cancel_requested: true }, E::GiveBack | E::End(_)) => {
            Ok(S::Finished(Status::Cancelled))
        }

        // A pause lets a running execution finish, so no gate closes on it.
        (S::Waiting(_), E::OpenGate(_) | E::CloseGate(_) | E::Claim | E::GiveBack | E::End(_)) => refused,
        (S::Queued, E::OpenGate(_) | E::GiveBack | E::End(_)) => refused,
        (S::Running { .. }, E::OpenGate(_) | E::CloseGate(_) | E::Claim | E::Skip | E::Expire) => refused,
        (S::Running { cancel_requested: true }, E::Cancel) => refused,
        (S::Finished(_), _) => refused,
    }
}
