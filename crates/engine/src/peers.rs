//! The peers on the same store: the hints to them, and whether theirs arrive.
//!
//! Hints are merged while the last one is being sent and for a short pause after it, so that a busy node sends a
//! bounded number of them however much it commits, and a slow broker slows nothing but the hints.

use punctual_core::ports::{Lane, ReadyHint, ReadyQueue, ReadyQueueError, ReadyQueueFigures};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

#[derive(Default)]
pub(crate) struct Peers {
    /// `None` if there are no peers, or neither the store nor a broker carries hints.
    pub(crate) ready_queue: Option<Arc<dyn ReadyQueue>>,
    unpublished: Mutex<ReadyHint>,
    any_unpublished: Notify,
    receiving: Mutex<Receiving>,
}

/// Whether hints of peers arrive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum Receiving {
    #[default]
    NotYet,
    Yes,
    No(ReadyQueueError),
}

/// The state of the ready queue of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyQueueState {
    /// `postgres`, `redis`, `nats`, `amqp` or `kafka`.
    pub kind: &'static str,
    /// Whether hints of other processes arrive. While they do not, this process polls the store.
    pub is_receiving: bool,
    /// Why not, if it has tried.
    pub error: Option<String>,
    pub figures: ReadyQueueFigures,
}

impl Peers {
    pub(crate) fn reached_by(ready_queue: Option<Arc<dyn ReadyQueue>>) -> Self {
        Peers { ready_queue, ..Peers::default() }
    }

    /// Work is queued in these lanes: peers may have free slots for it.
    pub(crate) fn queued(&self, lanes: &BTreeSet<Lane>) {
        if self.ready_queue.is_some() {
            self.publish_later(ReadyHint::Lanes(lanes.clone()));
        }
    }

    /// Adds to the next hint.
    pub(crate) fn publish_later(&self, hint: ReadyHint) {
        self.unpublished.lock().unwrap_or_else(PoisonError::into_inner).merge(hint);
        self.any_unpublished.notify_one();
    }

    /// Waits until there is something to send, and takes all of it.
    pub(crate) async fn unpublished(&self) -> ReadyHint {
        loop {
            let hint = std::mem::take(&mut *self.unpublished.lock().unwrap_or_else(PoisonError::into_inner));
            if !hint.is_empty() {
                return hint;
            }
            self.any_unpublished.notified().await;
        }
    }

    /// Whether hints of peers arrive.
    pub(crate) fn is_receiving(&self) -> bool {
        *self.receiving() == Receiving::Yes
    }

    pub(crate) fn received(&self) {
        *self.receiving() = Receiving::Yes;
    }

    /// Returns whether it is the first failure after a success, or the first of all.
    pub(crate) fn failed(&self, error: ReadyQueueError) -> bool {
        !matches!(std::mem::replace(&mut *self.receiving(), Receiving::No(error)), Receiving::No(_))
    }

    pub(crate) fn state(&self) -> Option<ReadyQueueState> {
        let queue = self.ready_queue.as_ref()?;
        let receiving = self.receiving().clone();
        Some(ReadyQueueState {
            kind: queue.kind(),
            is_receiving: receiving == Receiving::Yes,
            error: match receiving {
                Receiving::No(error) => Some(error.to_string()),
                Receiving::NotYet | Receiving::Yes => None,
            },
            figures: queue.figures(),
        })
    }

    fn receiving(&self) -> std::sync::MutexGuard<'_, Receiving> {
        self.receiving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
