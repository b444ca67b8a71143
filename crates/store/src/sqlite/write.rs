//! What the writer of the main database is asked for: the writing verbs, and the housekeeping and the register that share
//! their transactions.

use crate::drift::Drift;
use crate::register::{RegisterCall, RegisterReply};
use crate::write::{Write, WriteReply};
use punctual_core::health::WorkerCondition;
use punctual_core::ids::{JobId, SessionId};
use punctual_core::ports::{Horizon, Retained, Retired, Retirement, Token};
use punctual_core::time::Timestamp;

/// One call of the writer.
#[derive(Debug, Clone, PartialEq)]
pub enum Call {
    Write(Write),
    Upkeep(Upkeep),
    Register(RegisterCall),
}

/// Housekeeping: what is kept clean rather than decided, each database in its own way.
#[derive(Debug, Clone, PartialEq)]
pub enum Upkeep {
    /// All but log lines: they are in a database of their own, see [`super::LogCore`].
    Retain {
        horizon: Horizon,
        limit: usize,
    },
    Retire {
        now: Timestamp,
        retirement: Retirement,
    },
    Purge {
        before: Timestamp,
        limit: usize,
    },
    Probe {
        now: Timestamp,
    },
    /// Notes that retention has found the clock steady.
    NoteClock {
        at: Timestamp,
    },
    KeepCondition {
        session: SessionId,
        condition: WorkerCondition,
    },
    PutToken {
        token: Token,
    },
    AddToken {
        token: Token,
    },
    /// Makes counts those of their rows again.
    MendCounts,
}

impl Call {
    /// About how much work this is, in rows: what a transaction may hold is bounded by it.
    pub fn weight(&self) -> usize {
        match self {
            Call::Write(write) => write.weight(),
            Call::Upkeep(upkeep) => upkeep.weight(),
            Call::Register(call) => call.weight(),
        }
    }
}

impl Upkeep {
    fn weight(&self) -> usize {
        let rows = match self {
            Upkeep::Retain { limit, .. } | Upkeep::Purge { limit, .. } => *limit,
            Upkeep::Retire { retirement, .. } => retirement.limit,
            Upkeep::Probe { .. }
            | Upkeep::NoteClock { .. }
            | Upkeep::KeepCondition { .. }
            | Upkeep::PutToken { .. }
            | Upkeep::AddToken { .. }
            | Upkeep::MendCounts => 1,
        };
        rows.max(1)
    }
}

impl From<Write> for Call {
    fn from(write: Write) -> Self {
        Call::Write(write)
    }
}

impl From<Upkeep> for Call {
    fn from(upkeep: Upkeep) -> Self {
        Call::Upkeep(upkeep)
    }
}

impl From<RegisterCall> for Call {
    fn from(call: RegisterCall) -> Self {
        Call::Register(call)
    }
}

/// The answer to a [`Call`], of the variant that belongs to it.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    Write(WriteReply),
    Upkeep(UpkeepReply),
    Register(RegisterReply),
}

/// The answer to an [`Upkeep`], of the variant that belongs to it.
#[derive(Debug, Clone, PartialEq)]
pub enum UpkeepReply {
    Retained(Retained),
    Retired(Retired),
    Purged(Purged),
    Probed,
    ClockNoted,
    ConditionKept,
    TokenPut,
    /// The one that counts.
    TokenAdded(Token),
    /// What was changed.
    CountsMended(Vec<Drift>),
}

/// Jobs of which nothing is left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Purged {
    pub jobs: Vec<JobId>,
    pub more: bool,
}
