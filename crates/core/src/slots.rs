//! The number of slots of a worker that adapts: a pure rule from what it observes to how many handlers it
//! runs at once.

use crate::limits;
use crate::time::Monotonic;
use std::time::Duration;

/// The minimum and maximum number of slots of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotRange {
    min: u32,
    max: u32,
}

impl SlotRange {
    /// `None` unless the minimum is at least 1 and not above the maximum.
    pub fn new(min: u32, max: u32) -> Option<Self> {
        (1..=max).contains(&min).then_some(SlotRange { min, max })
    }

    /// A fixed number of slots, at least one.
    pub fn fixed(slots: u32) -> Self {
        SlotRange { min: slots.max(1), max: slots.max(1) }
    }

    pub fn min(self) -> u32 {
        self.min
    }

    pub fn max(self) -> u32 {
        self.max
    }

    pub fn is_fixed(self) -> bool {
        self.min == self.max
    }
}

/// Work that waits for a worker: queued executions of the lanes that it serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Demand {
    pub queued: u64,
    /// How long the oldest of them has waited.
    pub oldest_wait: Duration,
}

/// The observations on which a worker decides.
#[derive(Debug, Clone, Copy)]
pub struct Sight {
    /// Executions that it holds, running or ready to start.
    pub busy: u32,
    pub demand: Demand,
    /// Whether its machine has capacity for more, and whether the worker refuses work.
    pub has_room_for_more: bool,
    pub refuses_work: bool,
}

/// The current number of slots of a worker.
#[derive(Debug, Clone)]
pub struct Slots {
    range: SlotRange,
    slots: u32,
    changed_at: Option<Monotonic>,
    /// Since when at most half of them have been in use with nothing queued.
    idle_since: Option<Monotonic>,
}

impl Slots {
    /// Starts with the minimum.
    pub fn new(range: SlotRange) -> Self {
        Slots { range, slots: range.min, changed_at: None, idle_since: None }
    }

    pub fn get(&self) -> u32 {
        self.slots
    }

    pub fn range(&self) -> SlotRange {
        self.range
    }

    /// Whether the worker needs to know the demand: all its slots are in use, and it could have more.
    pub fn wants_to_know_demand(&self, busy: u32) -> bool {
        self.slots < self.range.max && busy >= self.slots
    }

    /// Adapts to the observations. Returns whether the number of slots changed.
    ///
    /// - Grows by half, but by no more than the number of queued executions, when all slots are in use and
    ///   executions have waited for longer than a moment.
    /// - Shrinks by a quarter when at most half have been in use for a while and nothing is queued.
    /// - Shrinks at once, to the number in use, when the worker refuses work.
    ///
    /// It never stops a running handler.
    pub fn adapt(&mut self, sight: &Sight, now: Monotonic) -> bool {
        let rested = |pause: Duration| self.changed_at.is_none_or(|then| now.since(then) >= pause);
        let least = self.range.min.max(sight.busy.min(self.range.max));
        let is_idle = sight.busy.saturating_mul(2) <= self.slots && sight.demand.queued == 0;
        let idle_since = is_idle.then(|| self.idle_since.unwrap_or(now));
        self.idle_since = idle_since;
        let slots = if sight.refuses_work {
            self.slots.min(least)
        } else if sight.busy >= self.slots
            && sight.has_room_for_more
            && sight.demand.queued > 0
            && sight.demand.oldest_wait >= limits::SLOTS_WAIT_MIN
            && rested(limits::SLOTS_GROW_PAUSE)
        {
            let step = (self.slots / 2).max(1).min(u32::try_from(sight.demand.queued).unwrap_or(u32::MAX));
            self.slots.saturating_add(step).min(self.range.max)
        } else if idle_since.is_some_and(|since| now.since(since) >= limits::SLOTS_IDLE_MIN)
            && rested(limits::SLOTS_SHRINK_PAUSE)
        {
            self.slots.saturating_sub((self.slots / 4).max(1)).max(least)
        } else {
            self.slots
        };
        let changed = slots != self.slots;
        if changed {
            (self.slots, self.changed_at) = (slots, Some(now));
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic::from_micros(seconds * 1_000_000)
    }

    fn waiting(queued: u64) -> Demand {
        Demand { queued, oldest_wait: Duration::from_secs(1) }
    }

    fn sight(busy: u32, demand: Demand) -> Sight {
        Sight { busy, demand, has_room_for_more: true, refuses_work: false }
    }

    fn slots(min: u32, max: u32) -> Slots {
        Slots::new(SlotRange::new(min, max).unwrap())
    }

    /// The numbers of slots over time, one per second.
    fn steps(slots: &mut Slots, from: u64, seconds: u64, look: impl Fn(u32) -> Sight) -> Vec<u32> {
        let mut seen = Vec::new();
        for second in from..from + seconds {
            if slots.adapt(&look(slots.get()), at(second)) {
                seen.push(slots.get());
            }
        }
        seen
    }

    #[test]
    fn a_long_queue_makes_more_slots_by_bounded_steps_up_to_the_most() {
        let mut slots = slots(4, 64);
        let full = |slots| sight(slots, waiting(10_000));
        assert_eq!(steps(&mut slots, 0, 60, full), [6, 9, 13, 19, 28, 42, 63, 64]);
    }

    #[test]
    fn no_more_slots_are_made_than_wait_for_one() {
        let mut slots = slots(16, 64);
        slots.adapt(&sight(16, waiting(3)), at(0));
        assert_eq!(slots.get(), 19);
    }

    #[test]
    fn what_waits_for_a_moment_or_finds_a_free_slot_makes_no_more() {
        let mut slots = slots(4, 64);
        assert!(!slots.adapt(&sight(3, waiting(100)), at(0)));
        let short = Demand { queued: 100, oldest_wait: limits::SLOTS_WAIT_MIN / 2 };
        assert!(!slots.adapt(&sight(4, short), at(1)));
        assert!(slots.wants_to_know_demand(4) && !slots.wants_to_know_demand(3));
    }

    #[test]
    fn between_two_steps_up_there_is_a_pause() {
        let mut slots = slots(4, 64);
        assert!(slots.adapt(&sight(4, waiting(100)), at(10)));
        let soon = at(10).plus(limits::SLOTS_GROW_PAUSE / 2);
        assert!(!slots.adapt(&sight(6, waiting(100)), soon));
        assert!(slots.adapt(&sight(6, waiting(100)), at(10).plus(limits::SLOTS_GROW_PAUSE)));
    }

    #[test]
    fn slots_that_nobody_uses_go_slowly_and_not_below_the_least() {
        let mut slots = slots(4, 16);
        steps(&mut slots, 0, 20, |slots| sight(slots, waiting(1_000)));
        assert_eq!(slots.get(), 16);
        let idle = |_| sight(1, Demand::default());
        assert_eq!(steps(&mut slots, 100, 29, idle), [0; 0], "not before they were idle for a while");
        assert_eq!(steps(&mut slots, 129, 200, idle), [12, 9, 7, 6, 5, 4]);
    }

    #[test]
    fn slots_in_use_are_never_taken_away() {
        let mut slots = slots(1, 16);
        steps(&mut slots, 0, 20, |slots| sight(slots, waiting(1_000)));
        steps(&mut slots, 100, 500, |_| sight(7, Demand::default()));
        assert_eq!(slots.get(), 12, "more than half of twelve are in use");
        let short = Sight { refuses_work: true, ..sight(11, waiting(50)) };
        assert!(slots.adapt(&short, at(1_000)));
        assert_eq!(slots.get(), 11);
    }

    #[test]
    fn a_machine_that_can_carry_no_more_gets_no_more_slots() {
        let mut slots = slots(4, 64);
        let near = Sight { has_room_for_more: false, ..sight(4, waiting(1_000)) };
        assert!(!slots.adapt(&near, at(0)));
    }

    #[test]
    fn a_fixed_number_stays_as_it_is() {
        let mut slots = Slots::new(SlotRange::fixed(8));
        assert_eq!(steps(&mut slots, 0, 100, |slots| sight(slots, waiting(1_000))), [0; 0]);
        assert_eq!(steps(&mut slots, 100, 100, |_| sight(0, Demand::default())), [0; 0]);
        assert!(SlotRange::new(0, 4).is_none() && SlotRange::new(5, 4).is_none());
    }
}
