//! The other processes on the same store: what they are told, and whether they can be heard.
//!
//! What is told is gathered while the last word is on its way and for a short pause after it, so that a busy node says
//! a bounded number of words however much it commits.

use punctual_core::ports::{Lane, Wakes};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

#[derive(Default)]
pub(crate) struct Others {
    /// Absent where there are none, or where the store carries no words.
    pub(crate) wakes: Option<Arc<dyn Wakes>>,
    untold: Mutex<BTreeSet<Lane>>,
    any_untold: Notify,
    is_hearing: AtomicBool,
}

impl Others {
    pub(crate) fn reached_by(wakes: Option<Arc<dyn Wakes>>) -> Self {
        Others { wakes, ..Others::default() }
    }

    /// Work is queued in these lanes: others may have a place for it.
    pub(crate) fn queued(&self, lanes: &BTreeSet<Lane>) {
        if self.wakes.is_some() {
            self.untold.lock().unwrap_or_else(PoisonError::into_inner).extend(lanes.iter().cloned());
            self.any_untold.notify_one();
        }
    }

    /// Waits until there is something to tell, and takes all of it.
    pub(crate) async fn untold(&self) -> BTreeSet<Lane> {
        loop {
            let lanes = std::mem::take(&mut *self.untold.lock().unwrap_or_else(PoisonError::into_inner));
            if !lanes.is_empty() {
                return lanes;
            }
            self.any_untold.notified().await;
        }
    }

    /// Whether what others queue would be heard of.
    pub(crate) fn is_hearing(&self) -> bool {
        self.is_hearing.load(Ordering::Relaxed)
    }

    pub(crate) fn set_hearing(&self, is_hearing: bool) {
        self.is_hearing.store(is_hearing, Ordering::Relaxed);
    }
}
