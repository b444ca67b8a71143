//! Ready queues: hints between the processes that share a store that there is work to claim.
//!
//! The store ranks, a hint only wakes. It may be lost, late, duplicated, reordered or replayed: its receiver claims
//! from the store, and the periodic scans of every process find the same work without any hint, only later.

use crate::limits::READY_HINT_LANES_MAX;
use crate::ports::Lane;
use async_trait::async_trait;
use std::collections::BTreeSet;

#[async_trait]
pub trait ReadyQueue: Send + Sync {
    /// `postgres`, or the kind of the broker: `redis`, `nats`, `amqp` or `kafka`.
    fn kind(&self) -> &'static str;

    /// Tells the other processes that there is work to claim. Called after the commit that created it, never inside
    /// of it: no request waits for it, and nothing depends on it.
    async fn publish(&self, hint: ReadyHint) -> Result<(), ReadyQueueError>;

    /// Waits for hints of other processes. Those of this process are left out as far as possible.
    ///
    /// An error means that no hints arrive now. The next call tries to reconnect, and succeeds with
    /// [`ReadyHint::AnyLane`] as soon as it has: hints that were sent meanwhile are lost.
    async fn receive(&self) -> Result<ReadyHint, ReadyQueueError>;

    /// What it has rejected and repaired since the start of this process.
    fn figures(&self) -> ReadyQueueFigures {
        ReadyQueueFigures::default()
    }
}

/// Lanes with work to claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadyHint {
    Lanes(BTreeSet<Lane>),
    /// There may be work in any lane: the connection was just established, or there are too many lanes to list.
    AnyLane,
}

impl Default for ReadyHint {
    /// Nothing to announce.
    fn default() -> Self {
        ReadyHint::Lanes(BTreeSet::new())
    }
}

impl ReadyHint {
    pub fn is_empty(&self) -> bool {
        matches!(self, ReadyHint::Lanes(lanes) if lanes.is_empty())
    }

    /// Both hints in one. Its size is limited: too many lanes become any lane.
    pub fn merge(&mut self, other: ReadyHint) {
        match (&mut *self, other) {
            (ReadyHint::Lanes(lanes), ReadyHint::Lanes(more)) => {
                lanes.extend(more);
                if lanes.len() > READY_HINT_LANES_MAX {
                    *self = ReadyHint::AnyLane;
                }
            }
            _ => *self = ReadyHint::AnyLane,
        }
    }
}

/// Counts of a ready queue since the start of this process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadyQueueFigures {
    /// Messages that no process of this cluster has signed, or that this version cannot read.
    pub rejected: u64,
    /// Messages that had already been received.
    pub repeated: u64,
    /// How often the watchdog has reconnected because messages of this process did not come back.
    pub watchdog_reconnects: u64,
}

/// No hint was sent or received. Callers retry, whatever the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadyQueueError {
    /// It cannot be reached, or does not answer.
    #[error("{0}")]
    Unavailable(String),
    /// It answers and rejects this process: the settings of the broker or of this process must change.
    #[error("{0}")]
    Rejected(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_lanes_become_any_lane() {
        let lanes = |count: usize| {
            ReadyHint::Lanes((0..count).map(|number| Lane::new(format!("q{number}"), "noop")).collect())
        };
        let mut hint = ReadyHint::default();
        assert!(hint.is_empty());
        hint.merge(lanes(READY_HINT_LANES_MAX));
        assert_eq!(hint, lanes(READY_HINT_LANES_MAX));
        hint.merge(lanes(3));
        assert_eq!(hint, lanes(READY_HINT_LANES_MAX), "lanes that it names already take no room");
        hint.merge(lanes(READY_HINT_LANES_MAX + 1));
        assert_eq!(hint, ReadyHint::AnyLane);
        hint.merge(lanes(1));
        assert_eq!(hint, ReadyHint::AnyLane);
    }
}
