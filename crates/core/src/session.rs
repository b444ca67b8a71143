//! Worker sessions: when a session is lost, and when a worker must stop on its own.
//!
//! A session has a counter that its heartbeats increment. An observer may declare it lost only after it has
//! seen the same count for the whole lease on its own monotonic clock, and then only by a compare-and-swap on
//! that count. The worker measures from the moment it *sent* its last confirmed heartbeat, which is before
//! any observer could have seen it, and stops before the lease ends. A worker without a lease has thus
//! stopped before an observer acts, and their wall clocks do not have to agree.

use crate::ids::SessionId;
use crate::ports::SessionRow;
use crate::silence::{Reading, Watch};
use crate::time::Monotonic;
use std::time::Duration;

/// The counter of a session, as read by an observer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pulse {
    pub session: SessionId,
    pub beat: u64,
    pub lease: Duration,
}

/// What the worker declared when it opened the session: the work that it accepts.
impl SessionRow {
    pub fn has_handler(&self, job_type: &str) -> bool {
        self.job_types.iter().any(|handled| handled == job_type)
    }

    /// A worker that does not name queues serves all.
    pub fn serves(&self, queue: &str) -> bool {
        self.about.queues.is_empty() || self.about.queues.iter().any(|served| served == queue)
    }

    /// How many handlers it currently runs at once.
    pub fn slots_now(&self) -> u32 {
        self.condition.as_ref().map_or(self.slots, |condition| condition.slots)
    }

    /// Why it accepts no new work, if it says so.
    pub fn refuses(&self) -> &[String] {
        self.condition.as_ref().map_or(&[], |condition| &condition.refuses)
    }
}

/// The mode of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SessionMode {
    #[default]
    Open,
    /// It gets no new work and continues with what it has.
    Paused,
    /// It gets no new work, and its worker is asked to finish and to close it.
    Draining,
}

/// An operator's command for a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionOrder {
    Pause,
    Resume,
    Drain,
}

/// A draining session cannot be paused or resumed: its worker may have begun to close it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionDraining;

impl SessionMode {
    pub fn gets_work(self) -> bool {
        self == SessionMode::Open
    }

    pub fn ordered(self, order: SessionOrder) -> Result<SessionMode, SessionDraining> {
        match (self, order) {
            (_, SessionOrder::Drain) => Ok(SessionMode::Draining),
            (SessionMode::Draining, SessionOrder::Pause | SessionOrder::Resume) => Err(SessionDraining),
            (_, SessionOrder::Pause) => Ok(SessionMode::Paused),
            (_, SessionOrder::Resume) => Ok(SessionMode::Open),
        }
    }
}

/// One observer's memory of the counters it has seen.
#[derive(Debug, Default)]
pub struct SessionObserver {
    watch: Watch<SessionId>,
}

impl SessionObserver {
    /// Records all sessions that were just read and returns those whose counter has not changed for their
    /// whole lease.
    pub fn observe(&mut self, now: Monotonic, pulses: &[Pulse]) -> Vec<Pulse> {
        let read = pulses
            .iter()
            .map(|pulse| (pulse.session, Reading { beat: pulse.beat, ttl: pulse.lease }))
            .collect();
        let silent = self.watch.observe(now, read);
        pulses.iter().filter(|pulse| silent.contains(&pulse.session)).copied().collect()
    }
}

/// The worker's side of its lease.
#[derive(Debug, Clone, Copy)]
pub struct LeaseKeeper {
    lease: Duration,
    confirmed_sent_at: Monotonic,
}

impl LeaseKeeper {
    /// Starts with the moment at which the request to open the session was sent.
    pub fn new(lease: Duration, opening_sent_at: Monotonic) -> Self {
        LeaseKeeper { lease, confirmed_sent_at: opening_sent_at }
    }

    pub fn beat_interval(&self) -> Duration {
        self.lease / 5
    }

    /// When the first heartbeat is due after the session was opened: at once if opening it took a large part
    /// of the lease.
    pub fn first_beat_in(&self, now: Monotonic) -> Duration {
        let interval = self.beat_interval();
        if now.since(self.confirmed_sent_at) < interval { interval } else { Duration::ZERO }
    }

    pub fn confirmed(&mut self, sent_at: Monotonic) {
        self.confirmed_sent_at = self.confirmed_sent_at.max(sent_at);
    }

    /// The time by which all handlers must have stopped: a fifth of the lease before it ends.
    pub fn stop_at(&self) -> Monotonic {
        self.confirmed_sent_at.plus(self.lease - self.lease / 5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(6);

    fn at(seconds: u64) -> Monotonic {
        Monotonic::from_micros(seconds * 1_000_000)
    }

    fn pulse(session: i64, beat: u64) -> Pulse {
        Pulse { session: SessionId(session), beat, lease: LEASE }
    }

    #[test]
    fn a_session_is_lost_only_after_one_observer_saw_one_count_for_the_whole_lease() {
        let mut observer = SessionObserver::default();
        assert_eq!(observer.observe(at(100), &[pulse(1, 5)]), []);
        assert_eq!(observer.observe(at(105), &[pulse(1, 5)]), []);
        assert_eq!(observer.observe(at(106), &[pulse(1, 5)]), [pulse(1, 5)]);
        assert_eq!(observer.observe(at(107), &[pulse(1, 6)]), []);
        assert_eq!(observer.observe(at(112), &[pulse(1, 6)]), []);
        assert_eq!(observer.observe(at(113), &[pulse(1, 6)]), [pulse(1, 6)]);
    }

    #[test]
    fn a_session_is_held_and_let_go_on_until_it_drains() {
        use SessionMode::{Draining, Open, Paused};
        for (mode, order, expected) in [
            (Open, SessionOrder::Pause, Ok(Paused)),
            (Paused, SessionOrder::Pause, Ok(Paused)),
            (Paused, SessionOrder::Resume, Ok(Open)),
            (Open, SessionOrder::Resume, Ok(Open)),
            (Open, SessionOrder::Drain, Ok(Draining)),
            (Paused, SessionOrder::Drain, Ok(Draining)),
            (Draining, SessionOrder::Drain, Ok(Draining)),
            (Draining, SessionOrder::Resume, Err(SessionDraining)),
            (Draining, SessionOrder::Pause, Err(SessionDraining)),
        ] {
            assert_eq!(mode.ordered(order), expected, "{mode:?} {order:?}");
        }
        assert_eq!([Open, Paused, Draining].map(SessionMode::gets_work), [true, false, false]);
    }

    #[test]
    fn sessions_that_are_gone_are_forgotten() {
        let mut observer = SessionObserver::default();
        observer.observe(at(0), &[pulse(1, 5), pulse(2, 5)]);
        observer.observe(at(1), &[pulse(2, 5)]);
        assert_eq!(observer.watch.len(), 1);
    }

    #[test]
    fn a_worker_stops_before_any_observer_can_act() {
        let mut keeper = LeaseKeeper::new(LEASE, at(0));
        keeper.confirmed(at(10));
        keeper.confirmed(at(8));
        assert!(keeper.stop_at() < at(10).plus(LEASE));
        assert!(keeper.beat_interval() * 3 < LEASE);
    }
}
