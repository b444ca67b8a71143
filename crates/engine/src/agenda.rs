//! The upcoming work of this node: the timing wheel, shared between the fire loop and all code that commits a
//! due time inside the look-ahead.

use crate::wheel::{SPAN_MAX, Wheel};
use punctual_core::ids::{Segment, SegmentSet};
use punctual_core::ports::{Due, DueKind};
use punctual_core::time::Timestamp;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

pub(crate) struct Agenda {
    wheel: Mutex<Wheel>,
    look_ahead: Duration,
    changed: Notify,
    /// The wheel accepts nothing: this node does not fire for now.
    is_closed: AtomicBool,
}

/// The segment whose scheduler finds this entry.
pub(crate) fn segment_of(due: &Due) -> Segment {
    match due.what {
        DueKind::Schedule { job, .. } => job.segment(),
        DueKind::Live { occurrence, .. } => occurrence.job.segment(),
    }
}

impl Agenda {
    pub(crate) fn new(look_ahead: Duration) -> Self {
        Agenda {
            wheel: Mutex::new(Wheel::new()),
            look_ahead: look_ahead.min(SPAN_MAX),
            changed: Notify::new(),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Adds an entry that is due within the look-ahead. Later ones, and those that do not fit, stay in the
    /// store. Returns whether it was added.
    pub(crate) fn add(&self, now: Timestamp, due: Due) -> bool {
        if due.at > self.horizon(now) || self.is_closed.load(Ordering::Relaxed) {
            return false;
        }
        let mut wheel = self.lock();
        let earlier = wheel.next_due().is_none_or(|next| due.at < next);
        let held = wheel.add(now, due);
        drop(wheel);
        if earlier {
            self.changed.notify_one();
        }
        held
    }

    /// Removes entries of other segments that are due after `until`.
    pub(crate) fn keep(&self, segments: SegmentSet, until: Timestamp) {
        self.lock().retain(|due| due.at <= until || segments.contains(segment_of(due)));
    }

    /// When closed, removes all entries and accepts none; otherwise accepts new entries again.
    pub(crate) fn set_closed(&self, is_closed: bool) {
        self.is_closed.store(is_closed, Ordering::Relaxed);
        if is_closed {
            self.lock().retain(|_| false);
        }
        self.changed.notify_one();
    }

    /// Wakes the fire loop: the time has jumped.
    pub(crate) fn wake(&self) {
        self.changed.notify_one();
    }

    pub(crate) fn horizon(&self, now: Timestamp) -> Timestamp {
        now.plus(self.look_ahead)
    }

    pub(crate) fn take_due(&self, now: Timestamp, limit: usize) -> Vec<Due> {
        self.lock().take_due(now, limit)
    }

    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.lock().next_due()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.lock().is_full()
    }

    /// Waits until an entry is added that is due before all others, or the time has jumped.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, Wheel> {
        self.wheel.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
