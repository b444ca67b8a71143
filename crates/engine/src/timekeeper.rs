//! The cluster's time is the store's. This node's wall clock is never used: its monotonic clock carries the
//! last answer of the store forward. The estimate is never ahead of the store, so nothing fires early, and
//! behind it by no more than one answer took to arrive. Only when the store's own clock is set back is the estimate
//! ahead, until the next answer.

use punctual_core::ports::{Clock, Store, StoreError};
use punctual_core::time::{Monotonic, Timestamp};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How far a clock must be set back to be worth a word.
const SET_BACK_NOTICED: Duration = Duration::from_secs(60);

pub(crate) struct Timekeeper {
    /// The host's calendar: a driven one stands still with the store's time, so the estimate is exact.
    clock: Arc<dyn Clock>,
    known: Mutex<Option<(Timestamp, Monotonic)>>,
}

impl Timekeeper {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Timekeeper { clock, known: Mutex::new(None) }
    }

    /// Asks the store for its time.
    pub(crate) async fn sync(&self, store: &dyn Store) -> Result<(), StoreError> {
        let asked_at = self.clock.monotonic();
        let answer = store.clock().await?;
        let answered_at = self.clock.monotonic();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let latest = answer.plus(answered_at.since(asked_at));
        // An earlier answer that agrees with this one is the closer bound if it puts the time later.
        let projected = known.map(|known| project(known, answered_at));
        if let Some(before) = projected.filter(|before| latest.plus(SET_BACK_NOTICED) < *before) {
            tracing::warn!(%before, now = %answer, "the store's clock was set back; what fired meanwhile fires next by the times that it saw");
        }
        let kept = projected.filter(|kept| (answer..=latest).contains(kept));
        *known = Some((kept.unwrap_or(answer), answered_at));
        Ok(())
    }

    /// As [`Timekeeper::sync`], unless the last answer is younger than `age_max`.
    pub(crate) async fn refresh(&self, store: &dyn Store, age_max: Duration) -> Result<(), StoreError> {
        let known = *self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = known.is_some_and(|(_, at)| self.clock.monotonic().since(at) < age_max);
        if fresh { Ok(()) } else { self.sync(store).await }
    }

    /// # Panics
    /// Before the first successful [`Timekeeper::sync`]: without it there is no time to speak of.
    pub(crate) fn now(&self) -> Timestamp {
        let known = *self.known.lock().unwrap_or_else(PoisonError::into_inner);
        project(known.expect("the engine is started before it is used"), self.clock.monotonic())
    }
}

fn project((time, at): (Timestamp, Monotonic), now: Monotonic) -> Timestamp {
    time.plus(now.since(at))
}
