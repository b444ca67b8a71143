//! The calls of the main database's writer: the writing verbs, and the calls of maintenance, membership,
//! directory and audit log that share their transactions.

use crate::audit::AuditCall;
use crate::counter_mismatch::CounterMismatch;
use crate::directory::{DirectoryCall, DirectoryReply};
use crate::membership::{MembershipCall, MembershipReply};
use punctual_core::health::WorkerCondition;
use punctual_core::ids::{JobId, SessionId};
use punctual_core::ports::{Horizon, Retained, Retired, Retirement, Write, WriteReply};
use punctual_core::time::Timestamp;

/// One call of the writer.
#[derive(Debug, Clone, PartialEq)]
pub enum SqliteCall {
    Write(Write),
    Upkeep(Upkeep),
    Membership(MembershipCall),
    Directory(Box<DirectoryCall>),
    Audit(AuditCall),
}

/// Maintenance, which each database does differently.
#[derive(Debug, Clone, PartialEq)]
pub enum Upkeep {
    /// Everything except log lines: they have their own database, see [`super::LogCore`].
    Retain {
        horizon: Horizon,
        limit: usize,
    },
    DeleteUnused {
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
    /// Records that retention has found the clock steady.
    NoteClock {
        at: Timestamp,
    },
    KeepCondition {
        session: SessionId,
        condition: WorkerCondition,
    },
    /// Repairs counters that differ from their rows.
    RepairCounters,
}

impl SqliteCall {
    /// The approximate work in rows, which limits the size of a transaction.
    pub fn weight(&self) -> usize {
        match self {
            SqliteCall::Write(write) => write.weight(),
            SqliteCall::Upkeep(upkeep) => upkeep.weight(),
            SqliteCall::Membership(call) => call.weight(),
            SqliteCall::Directory(call) => call.weight(),
            SqliteCall::Audit(call) => call.weight(),
        }
    }
}

impl Upkeep {
    fn weight(&self) -> usize {
        let rows = match self {
            Upkeep::Retain { limit, .. } | Upkeep::DeleteUnused { limit } | Upkeep::Purge { limit, .. } => {
                *limit
            }
            Upkeep::Retire { retirement, .. } => retirement.limit,
            Upkeep::Probe { .. }
            | Upkeep::NoteClock { .. }
            | Upkeep::KeepCondition { .. }
            | Upkeep::RepairCounters => 1,
        };
        rows.max(1)
    }
}

impl From<Write> for SqliteCall {
    fn from(write: Write) -> Self {
        SqliteCall::Write(write)
    }
}

impl From<Upkeep> for SqliteCall {
    fn from(upkeep: Upkeep) -> Self {
        SqliteCall::Upkeep(upkeep)
    }
}

impl From<MembershipCall> for SqliteCall {
    fn from(call: MembershipCall) -> Self {
        SqliteCall::Membership(call)
    }
}

/// The reply to a [`SqliteCall`], in the matching variant.
#[derive(Debug, Clone, PartialEq)]
pub enum SqliteReply {
    Write(WriteReply),
    Upkeep(UpkeepReply),
    Membership(MembershipReply),
    Directory(DirectoryReply),
    /// How many entries of the audit log were sealed, written or deleted.
    Audited(u64),
}

/// The reply to an [`Upkeep`], in the matching variant.
#[derive(Debug, Clone, PartialEq)]
pub enum UpkeepReply {
    Retained(Retained),
    /// Whether there may be more.
    UnusedDeleted(bool),
    Retired(Retired),
    Purged(Purged),
    Probed,
    ClockNoted,
    ConditionKept,
    /// The changes.
    CountersRepaired(Vec<CounterMismatch>),
}

/// Jobs that are completely deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Purged {
    pub jobs: Vec<JobId>,
    pub more: bool,
}
