//! The events of a run, in order: all are folded into one hash, so that two runs can be compared, and the
//! last ones are kept as text for debugging a failed run.

use std::collections::VecDeque;
use std::fmt::{self, Write};

/// Events that a failure report shows.
const EVENTS_KEPT_MAX: usize = 120;

#[derive(Debug)]
pub struct Trace {
    hash: u64,
    count: u64,
    last: VecDeque<String>,
    line: String,
    print: bool,
}

impl Trace {
    /// Keeps the last events and, on request, prints each as it happens.
    pub fn new(print: bool) -> Self {
        Trace {
            hash: 0xCBF2_9CE4_8422_2325,
            count: 0,
            last: VecDeque::with_capacity(EVENTS_KEPT_MAX),
            line: String::new(),
            print,
        }
    }

    pub fn event(&mut self, at_us: u64, event: fmt::Arguments<'_>) {
        self.line.clear();
        // Writing to a string cannot fail.
        let _ = write!(self.line, "{:>4}.{:06} {event}", at_us / 1_000_000, at_us % 1_000_000);
        for chunk in self.line.as_bytes().chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.hash =
                (self.hash.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
        self.count += 1;
        if self.print {
            println!("{}", self.line);
        }
        let mut kept = if self.last.len() == EVENTS_KEPT_MAX { self.last.pop_front() } else { None };
        let text = kept.get_or_insert_default();
        text.clear();
        text.push_str(&self.line);
        self.last.extend(kept);
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn last(&self) -> impl Iterator<Item = &str> {
        self.last.iter().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash_of(events: &[(u64, &str)]) -> u64 {
        let mut trace = Trace::new(false);
        events.iter().for_each(|(at, event)| trace.event(*at, format_args!("{event}")));
        trace.hash()
    }

    #[test]
    fn the_hash_depends_on_order_time_and_text() {
        let hashes = [
            hash_of(&[(1, "a"), (2, "b")]),
            hash_of(&[(1, "b"), (2, "a")]),
            hash_of(&[(1, "a"), (3, "b")]),
            hash_of(&[(1, "a")]),
        ];
        assert_eq!(hashes.iter().collect::<std::collections::BTreeSet<_>>().len(), hashes.len());
        assert_eq!(hashes[0], hash_of(&[(1, "a"), (2, "b")]));
    }
}
