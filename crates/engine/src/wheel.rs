//! A timing wheel for entries that are due soon: one slot per millisecond over a bounded span, so that the
//! cost of adding and taking does not depend on its content. Later entries stay in the store.

use punctual_core::ports::{Due, DueKind};
use punctual_core::time::Timestamp;
use std::collections::BTreeSet;
use std::time::Duration;

const SLOT_US: i64 = 1_000;
const SLOTS: usize = 16_384;
/// The longest look-ahead: half of the wheel, so that after a clock is set back by as much, every entry still
/// has its slot.
pub(crate) const SPAN_MAX: Duration = Duration::from_micros(SLOT_US as u64 * (SLOTS as u64 / 2));
/// Maximum number of entries. Further ones are left to the next scan of the store.
pub(crate) const ENTRIES_MAX: usize = 100_000;

pub(crate) struct Wheel {
    slots: Vec<Vec<Due>>,
    /// One bit per slot: whether it contains entries.
    occupied: Vec<u64>,
    /// The earliest slot that may contain entries, as a count of slots since the epoch.
    cursor: i64,
    /// The entries with their times. Reading the same row again adds nothing, and a row that was moved to
    /// another time is added although its old time is still in the wheel: the store refuses to act on the old
    /// one.
    held: BTreeSet<(DueKind, Timestamp)>,
}

impl Wheel {
    pub(crate) fn new() -> Self {
        Wheel {
            slots: vec![Vec::new(); SLOTS],
            occupied: vec![0; SLOTS / 64],
            cursor: 0,
            held: BTreeSet::new(),
        }
    }

    /// Adds an entry due within the span from `now`. Returns whether it is in the wheel: not if it is too far
    /// ahead or the wheel is full.
    pub(crate) fn add(&mut self, now: Timestamp, due: Due) -> bool {
        self.follow_back(now);
        if self.held.is_empty() {
            self.cursor = slot_of(now);
        }
        if slot_of(due.at) >= self.cursor + SLOTS as i64 || self.held.len() >= ENTRIES_MAX {
            return false;
        }
        if self.held.insert((due.what, due.at)) {
            // An overdue entry is taken with the next slot.
            let slot = slot_of(due.at).max(self.cursor).rem_euclid(SLOTS as i64) as usize;
            self.occupied[slot / 64] |= 1 << (slot % 64);
            self.slots[slot].push(due);
        }
        true
    }

    /// Takes up to `limit` entries that are due at `now`.
    pub(crate) fn take_due(&mut self, now: Timestamp, limit: usize) -> Vec<Due> {
        self.follow_back(now);
        let mut taken = Vec::new();
        while let Some(slot) = self.first_occupied().filter(|slot| *slot <= slot_of(now)) {
            self.cursor = slot;
            let index = slot.rem_euclid(SLOTS as i64) as usize;
            let (due, rest): (Vec<Due>, Vec<Due>) =
                std::mem::take(&mut self.slots[index]).into_iter().partition(|entry| entry.at <= now);
            let (mut due, not_yet) = (due, rest);
            let room = limit - taken.len();
            let over = if due.len() > room { due.split_off(room) } else { Vec::new() };
            for entry in &due {
                self.held.remove(&(entry.what, entry.at));
            }
            taken.extend(due);
            self.slots[index].extend(over);
            self.slots[index].extend(not_yet);
            if !self.slots[index].is_empty() {
                break;
            }
            self.occupied[index / 64] &= !(1 << (index % 64));
        }
        taken
    }

    /// Removes all entries that `keeps` rejects.
    pub(crate) fn retain(&mut self, keeps: impl Fn(&Due) -> bool) {
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if slot.is_empty() {
                continue;
            }
            slot.retain(&keeps);
            if slot.is_empty() {
                self.occupied[index / 64] &= !(1 << (index % 64));
            }
        }
        self.held = self.slots.iter().flatten().map(|due| (due.what, due.at)).collect();
    }

    /// Handles a clock that was set back. After a small step every entry still has its slot. After a large
    /// one slots would represent other times, so everything is left to the next scan of the store.
    fn follow_back(&mut self, now: Timestamp) {
        let back = self.cursor - slot_of(now);
        if back > SLOTS as i64 / 2 {
            *self = Wheel::new();
        } else if back > 0 {
            self.cursor -= back;
        }
    }

    /// When the earliest entry is due.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        let slot = self.first_occupied()?.rem_euclid(SLOTS as i64) as usize;
        self.slots[slot].iter().map(|entry| entry.at).min()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.held.len() >= ENTRIES_MAX
    }

    /// The earliest slot that contains entries, as a count of slots since the epoch.
    fn first_occupied(&self) -> Option<i64> {
        if self.held.is_empty() {
            return None;
        }
        let start = self.cursor.rem_euclid(SLOTS as i64) as usize;
        let words = self.occupied.len();
        for step in 0..=words {
            let word = (start / 64 + step) % words;
            let mut bits = self.occupied[word];
            if step == 0 {
                bits &= u64::MAX << (start % 64);
            } else if step == words {
                bits &= !(u64::MAX << (start % 64));
            }
            if bits != 0 {
                let slot = word * 64 + bits.trailing_zeros() as usize;
                return Some(self.cursor + (slot + SLOTS - start) as i64 % SLOTS as i64);
            }
        }
        None
    }
}

fn slot_of(time: Timestamp) -> i64 {
    time.as_micros().div_euclid(SLOT_US)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use punctual_core::ids::JobId;
    use punctual_core::ports::Lane;

    const START_US: i64 = 1_763_195_400_000_123;

    fn at(us: i64) -> Timestamp {
        Timestamp::from_micros(START_US + us)
    }

    fn due(number: u64, us: i64) -> Due {
        let job = JobId::new(Timestamp::EPOCH, number);
        Due { at: at(us), lane: Lane::new("q", "t"), what: DueKind::Schedule { job, version: 1 } }
    }

    #[test]
    fn the_same_entry_is_held_once() {
        let mut wheel = Wheel::new();
        assert!(wheel.add(at(0), due(1, 500)));
        assert!(wheel.add(at(0), due(1, 500)));
        assert_eq!(wheel.take_due(at(500), 10).len(), 1);
        assert_eq!(wheel.take_due(at(500), 10).len(), 0);
    }

    #[test]
    fn what_is_forgotten_does_not_come_out_and_the_rest_does() {
        let mut wheel = Wheel::new();
        for number in 1..=4 {
            assert!(wheel.add(at(0), due(number, 500 * number as i64)));
        }
        wheel.retain(|due| due.at <= at(500) || due.at == at(1_500));
        let taken: Vec<Timestamp> = wheel.take_due(at(3_000), 10).iter().map(|due| due.at).collect();
        assert_eq!((taken, wheel.next_due()), (vec![at(500), at(1_500)], None));
        assert!(wheel.add(at(3_000), due(2, 4_000)), "what was forgotten can be held again");
        assert_eq!(wheel.take_due(at(4_000), 10).len(), 1);
    }

    #[test]
    fn what_is_moved_to_another_time_comes_out_at_that_time() {
        let mut wheel = Wheel::new();
        for us in [5_000, 9_000, 2_000] {
            assert!(wheel.add(at(0), due(1, us)));
        }
        for us in [2_000, 5_000, 9_000] {
            assert_eq!(wheel.take_due(at(us), 10), [due(1, us)]);
        }
    }

    #[test]
    fn what_lies_beyond_the_span_is_left_to_the_store() {
        let mut wheel = Wheel::new();
        assert!(!wheel.add(at(0), due(1, 17_000_000)));
        assert!(wheel.add(at(0), due(2, SPAN_MAX.as_micros() as i64)));
    }

    #[test]
    fn a_limit_leaves_the_rest_for_the_next_call() {
        let mut wheel = Wheel::new();
        for number in 0..5 {
            wheel.add(at(0), due(number, 100));
        }
        assert_eq!(wheel.take_due(at(100), 3).len(), 3);
        assert_eq!(wheel.take_due(at(100), 3).len(), 2);
    }

    #[test]
    fn a_clock_that_is_set_back_delays_nothing_that_is_due_by_it() {
        for back in [5, 3_000, 8_000, 30_000, 3_600_000] {
            let mut wheel = Wheel::new();
            wheel.add(at(0), due(1, 2_000_000));
            assert_eq!(wheel.take_due(at(1_000_000), 10).len(), 0);
            wheel.add(at(1_000_000), due(2, 1_000_000));
            assert_eq!(wheel.take_due(at(1_000_000), 10).len(), 1);
            let now = 1_000_000 - back * 1_000;
            assert!(wheel.add(at(now), due(3, now + 1_000_000)), "set back by {back} ms");
            assert_eq!(wheel.next_due(), Some(at((now + 1_000_000).min(2_000_000))), "set back by {back} ms");
            let taken = wheel.take_due(at(now + 1_000_000), 10);
            assert!(
                taken.iter().any(|entry| entry.what == due(3, 0).what),
                "set back by {back} ms: {taken:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn entries_come_out_when_due_never_before_and_each_once(
            times in proptest::collection::vec(-2_000i64..15_000_000, 0..200),
            steps in proptest::collection::vec(1i64..2_000_000, 1..40),
        ) {
            let mut wheel = Wheel::new();
            for (number, us) in times.iter().enumerate() {
                prop_assert!(wheel.add(at(0), due(number as u64, *us)));
            }
            let (mut now, mut seen) = (0, 0);
            for step in steps.into_iter().chain([20_000_000]) {
                if let Some(next) = wheel.next_due() {
                    let earliest = times.iter().filter(|us| **us > now).min();
                    if seen > 0 && let Some(earliest) = earliest {
                        prop_assert_eq!(next, at(*earliest));
                    }
                }
                now += step;
                let taken = wheel.take_due(at(now), usize::MAX);
                prop_assert!(taken.iter().all(|entry| entry.at <= at(now)));
                seen += taken.len();
                prop_assert_eq!(seen, times.iter().filter(|us| **us <= now).count());
            }
            prop_assert_eq!(seen, times.len());
            prop_assert_eq!(wheel.next_due(), None);
        }
    }
}
