//! Pauses of loops: longer the less there is to find, and longer the longer the store fails.

use punctual_core::limits;
use std::time::Duration;

/// The pause between scans for work without a notification. A scan that finds something is soon followed by
/// another one; each that finds nothing doubles the pause, so that an idle node puts almost no load on the
/// store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LookPause {
    least: Duration,
    pause: Duration,
}

impl LookPause {
    /// The longest pause: an idle node starts idle.
    pub(crate) const fn new(least: Duration) -> Self {
        LookPause { least, pause: Duration::MAX }
    }

    /// How long to wait now, limited to `most`.
    pub(crate) fn within(self, most: Duration) -> Duration {
        self.pause.min(most)
    }

    pub(crate) fn found(&mut self, count: usize) {
        self.pause = if count > 0 { self.least } else { self.pause.saturating_mul(2) };
    }

    /// There may be work although none was found.
    pub(crate) fn reset(&mut self) {
        self.pause = self.least;
    }
}

/// The pause after a store error, so that a failing store is not overloaded and its recovery is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ErrorPause {
    next: Duration,
}

impl Default for ErrorPause {
    fn default() -> Self {
        ErrorPause { next: limits::STORE_ERROR_PAUSE_MIN }
    }
}

impl ErrorPause {
    /// How long to wait after another failure.
    pub(crate) fn failed(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(limits::STORE_ERROR_PAUSE_MAX);
        pause
    }

    pub(crate) fn succeeded(&mut self) {
        *self = ErrorPause::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_that_find_nothing_become_rare_and_one_that_finds_something_brings_the_next_soon() {
        let most = limits::LOOK_PAUSE_MAX;
        let mut pause = LookPause::new(limits::LOOK_PAUSE_MIN);
        assert_eq!(pause.within(most), most, "an idle node begins idle");
        pause.found(1);
        let mut pauses = vec![pause.within(most).as_millis()];
        for _ in 0..7 {
            pause.found(0);
            pauses.push(pause.within(most).as_millis());
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 500, 500]);
        pause.reset();
        assert_eq!(pause.within(most), limits::LOOK_PAUSE_MIN);
    }

    #[test]
    fn an_idle_node_that_hears_others_looks_every_five_seconds() {
        let mut pause = LookPause::new(limits::LOOK_PAUSE_MIN);
        for _ in 0..100 {
            pause.found(0);
        }
        assert_eq!(pause.within(limits::LOOK_PAUSE_HEARING), Duration::from_secs(5));
        // A node that no longer receives notifications scans as often as if it never had.
        assert_eq!(pause.within(limits::LOOK_PAUSE_MAX), Duration::from_millis(500));
    }

    #[test]
    fn failures_in_a_row_are_followed_by_longer_pauses_up_to_a_bound() {
        let mut pause = ErrorPause::default();
        let pauses: Vec<u128> = (0..6).map(|_| pause.failed().as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1_000, 1_000]);
        pause.succeeded();
        assert_eq!(pause.failed(), limits::STORE_ERROR_PAUSE_MIN);
    }
}
