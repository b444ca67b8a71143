//! The cluster uses the store's time. This node never uses its wall clock for that: its monotonic clock
//! carries the last answer of the store forward. The estimate is never ahead of the store, so nothing fires
//! early, and is behind it by at most the time that one answer took to arrive. The estimate is ahead only
//! when the store's own clock is set back, until the next answer.

use punctual_core::ports::{Clock, Store, StoreError};
use punctual_core::time::{Monotonic, Timestamp};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How far a clock must be set back to be logged.
const SET_BACK_NOTICED: Duration = Duration::from_secs(60);

pub(crate) struct Timekeeper {
    /// The host's calendar: a driven one stops together with the store's time, so the estimate is exact.
    clock: Arc<dyn Clock>,
    known: Mutex<Option<(Timestamp, Monotonic)>>,
    /// By how many microseconds the store's time is ahead of this machine's wall clock, at least.
    offset_us: AtomicI64,
}

impl Timekeeper {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Timekeeper { clock, known: Mutex::new(None), offset_us: AtomicI64::new(0) }
    }

    /// Reads the store's time.
    pub(crate) async fn sync(&self, store: &dyn Store) -> Result<(), StoreError> {
        let (asked_at, asked_wall) = (self.clock.monotonic(), self.clock.wall());
        let answer = store.clock().await?;
        let (answered_at, answered_wall) = (self.clock.monotonic(), self.clock.wall());
        self.offset_us.store(least_offset(answer, asked_wall, answered_wall), Ordering::Relaxed);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let latest = answer.plus(answered_at.since(asked_at));
        // If an earlier answer agrees with this one and gives a later time, it is the closer bound.
        let projected = known.map(|known| project(known, answered_at));
        if let Some(before) = projected.filter(|before| latest.plus(SET_BACK_NOTICED) < *before) {
            tracing::warn!(%before, now = %answer, "the store's clock was set back; schedules fired in the \
                                                    meantime continue from the times already seen");
        }
        let kept = projected.filter(|kept| (answer..=latest).contains(kept));
        *known = Some((kept.unwrap_or(answer), answered_at));
        Ok(())
    }

    /// Like [`Timekeeper::sync`], unless the last answer is younger than `age_max`.
    pub(crate) async fn refresh(&self, store: &dyn Store, age_max: Duration) -> Result<(), StoreError> {
        let known = *self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = known.is_some_and(|(_, at)| self.clock.monotonic().since(at) < age_max);
        if fresh { Ok(()) } else { self.sync(store).await }
    }

    /// By how many microseconds the store's time was ahead of the wall clock at the last answer; negative if
    /// it was behind. Zero if both may have been the same.
    pub(crate) fn offset_us(&self) -> i64 {
        self.offset_us.load(Ordering::Relaxed)
    }

    /// # Panics
    /// Before the first successful [`Timekeeper::sync`]: the time is unknown until then.
    pub(crate) fn now(&self) -> Timestamp {
        let known = *self.known.lock().unwrap_or_else(PoisonError::into_inner);
        project(known.expect("the engine is started before it is used"), self.clock.monotonic())
    }
}

/// The store read its clock at some moment between the request and the answer: a difference within that range
/// is not an offset.
fn least_offset(answer: Timestamp, asked: Timestamp, answered: Timestamp) -> i64 {
    let offset = |wall: Timestamp| answer.as_micros().saturating_sub(wall.as_micros());
    let (least, most) = (offset(answered).min(offset(asked)), offset(asked).max(offset(answered)));
    if least > 0 { least } else { most.min(0) }
}

fn project((time, at): (Timestamp, Monotonic), now: Monotonic) -> Timestamp {
    time.plus(now.since(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_way_to_the_store_does_not_explain_is_an_offset() {
        let at = |us| Timestamp::from_micros(us);
        // The answer lies within the duration of the call.
        assert_eq!(least_offset(at(150), at(100), at(200)), 0);
        assert_eq!(least_offset(at(250), at(100), at(200)), 50);
        assert_eq!(least_offset(at(70), at(100), at(200)), -30);
        // The wall clock was set back meanwhile.
        assert_eq!(least_offset(at(150), at(200), at(100)), 0);
    }
}
