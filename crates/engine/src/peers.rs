//! The peers on the same store: the notifications to them, and whether theirs arrive.
//!
//! Notifications are batched while the last one is being sent and for a short pause after it, so that a busy
//! node sends a bounded number of them however much it commits.

use punctual_core::ports::{Lane, Wakes};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

#[derive(Default)]
pub(crate) struct Peers {
    /// `None` if there are no peers, or the store carries no notifications.
    pub(crate) wakes: Option<Arc<dyn Wakes>>,
    untold: Mutex<BTreeSet<Lane>>,
    any_untold: Notify,
    is_hearing: AtomicBool,
}

impl Peers {
    pub(crate) fn reached_by(wakes: Option<Arc<dyn Wakes>>) -> Self {
        Peers { wakes, ..Peers::default() }
    }

    /// Work is queued in these lanes: peers may have free slots for it.
    pub(crate) fn queued(&self, lanes: &BTreeSet<Lane>) {
        if self.wakes.is_some() {
            self.untold.lock().unwrap_or_else(PoisonError::into_inner).extend(lanes.iter().cloned());
            self.any_untold.notify_one();
        }
    }

    /// Waits until there is something to send, and takes all of it.
    pub(crate) async fn untold(&self) -> BTreeSet<Lane> {
        loop {
            let lanes = std::mem::take(&mut *self.untold.lock().unwrap_or_else(PoisonError::into_inner));
            if !lanes.is_empty() {
                return lanes;
            }
            self.any_untold.notified().await;
        }
    }

    /// Whether notifications of peers arrive.
    pub(crate) fn is_hearing(&self) -> bool {
        self.is_hearing.load(Ordering::Relaxed)
    }

    pub(crate) fn set_hearing(&self, is_hearing: bool) {
        self.is_hearing.store(is_hearing, Ordering::Relaxed);
    }
}
