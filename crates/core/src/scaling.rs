//! How many slots and workers a queue needs, for autoscalers; and when to report that a queue has been long,
//! or short, for a while. Pure functions.

use crate::ports::{Depth, SessionRow};
use crate::time::{Monotonic, Timestamp};
use std::time::Duration;

/// The largest factor by which the desired slots of a queue may exceed its current ones in one step: the wait
/// says how late an execution is, not how long each one takes.
const GROWTH_MAX: u128 = 4;

/// The executions of a queue and the workers that serve it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueLoad {
    /// Executions that could start now.
    pub queued: u64,
    pub running: u64,
    /// How long the oldest of the queued ones has waited.
    pub oldest_wait: Duration,
    /// Workers that serve it and accept work, and their slots.
    pub workers: u64,
    pub slots: u64,
}

impl QueueLoad {
    /// The load of one queue, or of all for `None`.
    pub fn of(queue: Option<&str>, depths: &[Depth], sessions: &[SessionRow], now: Timestamp) -> Self {
        let mut load = QueueLoad::default();
        for depth in depths.iter().filter(|depth| queue.is_none_or(|queue| depth.lane.queue() == queue)) {
            load.queued = load.queued.saturating_add(depth.queued);
            load.running = load.running.saturating_add(depth.running);
            let wait = depth.oldest_queued.map_or(Duration::ZERO, |since| now.since(since));
            load.oldest_wait = load.oldest_wait.max(wait);
        }
        let takes_work = |row: &&SessionRow| row.mode.gets_work() && row.refuses().is_empty();
        let serves = |row: &&SessionRow| queue.is_none_or(|queue| row.serves(queue));
        for row in sessions.iter().filter(takes_work).filter(serves) {
            load.workers += 1;
            load.slots += u64::from(row.slots_now());
        }
        load
    }

    /// The number of slots with which the oldest execution would wait no longer than `wait`.
    ///
    /// - If nothing is queued: the number of running executions.
    /// - If the oldest has not waited too long: the current number of slots.
    /// - Otherwise: more, in proportion to how much too long the oldest has waited. Its wait is the work
    ///   ahead of it divided by the rate, so it reflects both depth and rate.
    ///
    /// Never more than the number of executions, running and queued.
    pub fn desired_slots(&self, wait: Duration) -> u64 {
        let work = self.running.saturating_add(self.queued);
        if self.queued == 0 {
            return self.running;
        }
        let least = self.running.max(1);
        if self.oldest_wait <= wait {
            return self.slots.clamp(least, work.max(least));
        }
        let (waited, wait) = (self.oldest_wait.as_millis(), wait.as_millis().max(1));
        let slots = u128::from(self.slots.max(1));
        let wanted = (slots * waited).div_ceil(wait).min(slots * GROWTH_MAX);
        let wanted = u64::try_from(wanted).unwrap_or(u64::MAX);
        wanted.max(self.running.saturating_add(1)).min(work)
    }

    /// The same as a number of workers with this many slots each.
    pub fn desired_workers(&self, wait: Duration, slots_per_worker: u32) -> u64 {
        self.desired_slots(wait).div_ceil(u64::from(slots_per_worker.max(1)))
    }
}

/// A condition that must hold for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threshold {
    DepthAbove(u64),
    DepthBelow(u64),
    WaitAbove(Duration),
    WaitBelow(Duration),
}

impl Threshold {
    pub fn is_met_by(self, load: &QueueLoad) -> bool {
        match self {
            Threshold::DepthAbove(depth) => load.queued > depth,
            Threshold::DepthBelow(depth) => load.queued < depth,
            Threshold::WaitAbove(wait) => load.oldest_wait > wait,
            Threshold::WaitBelow(wait) => load.oldest_wait < wait,
        }
    }
}

/// When to send a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trigger {
    pub threshold: Threshold,
    /// How long the threshold must be met without a break.
    pub sustained: Duration,
    /// The minimum time between two notifications.
    pub cool_down: Duration,
}

/// The state of a trigger: one observer's memory, which may be lost.
#[derive(Debug, Clone, Copy, Default)]
pub struct TriggerWatch {
    since: Option<Monotonic>,
    told_at: Option<Monotonic>,
}

impl TriggerWatch {
    /// Whether to send a notification now.
    pub fn look(&mut self, trigger: &Trigger, load: &QueueLoad, now: Monotonic) -> bool {
        if !trigger.threshold.is_met_by(load) {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        let is_rested = self.told_at.is_none_or(|then| now.since(then) >= trigger.cool_down);
        let is_due = now.since(since) >= trigger.sustained && is_rested;
        if is_due {
            self.told_at = Some(now);
        }
        is_due
    }

    /// Restarts the sustained period, for an observer that has stopped watching.
    pub fn forget(&mut self) {
        self.since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(10);

    fn load(queued: u64, running: u64, slots: u64, waited_secs: u64) -> QueueLoad {
        let oldest_wait = Duration::from_secs(waited_secs);
        QueueLoad { queued, running, oldest_wait, workers: slots / 4, slots }
    }

    #[test]
    fn slots_follow_what_runs_and_how_long_the_rest_waits() {
        for (load, slots, why) in [
            (load(0, 0, 16, 0), 0, "nothing to do"),
            (load(0, 5, 16, 0), 5, "what runs needs its slots"),
            (load(100, 16, 16, 9), 16, "it does not wait too long"),
            (load(2, 0, 16, 1), 2, "no more than there is to run"),
            (load(100, 16, 16, 20), 32, "twice too long: twice as many"),
            (load(10_000, 16, 16, 3_600), 64, "never more than four times as many at once"),
            (load(3, 16, 16, 3_600), 19, "no more than there is to run"),
            (load(50, 0, 0, 0), 1, "somebody must begin"),
            (load(50, 0, 0, 60), 4, "and more if nobody has"),
        ] {
            assert_eq!(load.desired_slots(WAIT), slots, "{why}");
        }
    }

    #[test]
    fn workers_are_slots_rounded_up() {
        assert_eq!(load(100, 16, 16, 20).desired_workers(WAIT, 16), 2);
        assert_eq!(load(0, 17, 32, 0).desired_workers(WAIT, 16), 2);
        assert_eq!(load(0, 0, 16, 0).desired_workers(WAIT, 16), 0);
    }

    fn at(seconds: u64) -> Monotonic {
        Monotonic::from_micros(seconds * 1_000_000)
    }

    /// The seconds at which a notification is sent for these loads.
    fn told(trigger: &Trigger, loads: impl Iterator<Item = QueueLoad>) -> Vec<u64> {
        let mut watch = TriggerWatch::default();
        let looks = (0..).zip(loads);
        looks
            .filter(|(second, load)| watch.look(trigger, load, at(*second)))
            .map(|(second, _)| second)
            .collect()
    }

    #[test]
    fn somebody_is_told_when_it_has_lasted_and_again_after_the_cool_down() {
        let trigger = Trigger {
            threshold: Threshold::DepthAbove(100),
            sustained: Duration::from_secs(5),
            cool_down: Duration::from_secs(20),
        };
        assert_eq!(told(&trigger, (0..60).map(|_| load(101, 0, 1, 0))), [5, 25, 45]);
        assert_eq!(told(&trigger, (0..60).map(|_| load(100, 0, 1, 0))), [0; 0]);
        let with_a_break = (0..60).map(|second| load(if second % 5 == 0 { 0 } else { 500 }, 0, 1, 0));
        assert_eq!(told(&trigger, with_a_break), [0; 0], "a break starts the count again");
    }

    #[test]
    fn what_is_below_counts_as_well() {
        let trigger = |threshold| Trigger { threshold, sustained: Duration::ZERO, cool_down: Duration::MAX };
        let idle = || std::iter::once(load(0, 0, 1, 0));
        assert_eq!(told(&trigger(Threshold::DepthBelow(1)), idle()), [0]);
        assert_eq!(told(&trigger(Threshold::WaitBelow(WAIT)), idle()), [0]);
        assert_eq!(told(&trigger(Threshold::WaitAbove(WAIT)), std::iter::once(load(1, 0, 1, 11))), [0]);
    }
}
