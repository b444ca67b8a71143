//! Late fires: counted, and logged at most once a minute, so that an overloaded node reports them without a
//! line for each.

use crate::EngineContext;
use punctual_core::limits;
use punctual_core::time::Monotonic;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

#[derive(Default)]
pub(crate) struct FireLateness {
    state: Mutex<LatenessState>,
}

#[derive(Default)]
struct LatenessState {
    told_at: Option<Monotonic>,
    /// Late fires that have not been logged.
    untold: u64,
    latest: Duration,
    /// How long the oldest unfired schedule has been due, at the leader's last check.
    overdue: Duration,
}

/// The content of a log message about late fires.
#[derive(Debug, PartialEq, Eq)]
struct Late {
    count: u64,
    latest: Duration,
}

impl FireLateness {
    /// Records late fires; returns what to log now.
    fn fired(&self, now: Monotonic, count: u64, latest: Duration) -> Option<Late> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.untold += count;
        state.latest = state.latest.max(latest);
        if state.untold == 0 || state.told_at.is_some_and(|at| now.since(at) < limits::LATENESS_TOLD_PAUSE) {
            return None;
        }
        state.told_at = Some(now);
        Some(Late { count: std::mem::take(&mut state.untold), latest: std::mem::take(&mut state.latest) })
    }

    pub(crate) fn overdue(&self) -> Duration {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).overdue
    }

    pub(crate) fn set_overdue(&self, overdue: Duration) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).overdue = overdue;
    }
}

impl EngineContext {
    /// Records the lateness of fires.
    pub(crate) fn note_lateness(&self, lateness: impl Iterator<Item = Duration>) {
        let late = lateness.filter(|late| *late > limits::FIRE_LATE);
        let (count, latest) =
            late.fold((0, Duration::ZERO), |(count, latest), late| (count + 1, latest.max(late)));
        self.counters.late_fires.add(count);
        if let Some(Late { count, latest }) = self.lateness.fired(self.host.clock.monotonic(), count, latest)
        {
            tracing::warn!(count, ?latest, "schedules were fired late");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_fires_are_told_once_a_minute_with_how_many_there_were() {
        let lateness = FireLateness::default();
        let at = |seconds: u64| Monotonic::from_micros(seconds * 1_000_000);
        let seconds = Duration::from_secs;
        assert_eq!(lateness.fired(at(1), 0, Duration::ZERO), None);
        assert_eq!(lateness.fired(at(1), 2, seconds(7)), Some(Late { count: 2, latest: seconds(7) }));
        assert_eq!(lateness.fired(at(30), 3, seconds(9)), None);
        assert_eq!(lateness.fired(at(60), 1, seconds(6)), None);
        assert_eq!(lateness.fired(at(61), 0, Duration::ZERO), Some(Late { count: 4, latest: seconds(9) }));
        assert_eq!(lateness.fired(at(200), 0, Duration::ZERO), None);
    }
}
