//! Recognizes messages that were received before, so that a program that repeats them does not make workers ask the
//! database. The memory is bounded: an old message of a forgotten sender counts as new, and costs one query.

use punctual_core::limits::READY_SENDERS_MAX;
use std::collections::{BTreeMap, VecDeque};

/// How far messages of one sender may be out of order.
const WINDOW: u64 = u64::BITS as u64;

#[derive(Default)]
pub(crate) struct SeenMessages {
    senders: BTreeMap<String, SeenNumbers>,
    /// In the order of their first messages.
    order: VecDeque<String>,
}

/// The highest number of a sender, and which of those below it were seen: bit 0 is the highest itself.
struct SeenNumbers {
    highest: u64,
    seen: u64,
}

impl SeenMessages {
    /// Whether this is the first time. Numbers far below the highest one count as repeated.
    pub fn is_new(&mut self, from: &str, number: u64) -> bool {
        if let Some(numbers) = self.senders.get_mut(from) {
            return numbers.is_new(number);
        }
        if self.order.len() >= READY_SENDERS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.senders.remove(&oldest);
        }
        self.order.push_back(from.to_owned());
        self.senders.insert(from.to_owned(), SeenNumbers { highest: number, seen: 1 });
        true
    }
}

impl SeenNumbers {
    fn is_new(&mut self, number: u64) -> bool {
        if number > self.highest {
            let ahead = number - self.highest;
            self.seen = if ahead < WINDOW { (self.seen << ahead) | 1 } else { 1 };
            self.highest = number;
            return true;
        }
        let behind = self.highest - number;
        let is_new = behind < WINDOW && self.seen & (1 << behind) == 0;
        if is_new {
            self.seen |= 1 << behind;
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_of_a_sender_is_new_once_in_any_order() {
        let mut seen = SeenMessages::default();
        for number in [3, 1, 2, 70, 8, 69, 1_000, u64::MAX] {
            assert!(seen.is_new("a", number), "{number}");
            assert!(!seen.is_new("a", number), "{number}");
        }
        assert!(!seen.is_new("a", 5), "too old to tell");
        assert!(seen.is_new("b", 5));
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut seen = SeenMessages::default();
        for sender in 0..READY_SENDERS_MAX * 3 {
            assert!(seen.is_new(&sender.to_string(), 1));
        }
        assert_eq!((seen.senders.len(), seen.order.len()), (READY_SENDERS_MAX, READY_SENDERS_MAX));
        assert!(!seen.is_new(&(READY_SENDERS_MAX * 3 - 1).to_string(), 1));
    }
}
