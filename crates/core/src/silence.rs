//! Failure detection: when a session or member that sends heartbeats may be declared dead.
//!
//! A live session or member increments a counter. An observer may act only after it has seen the same count
//! for the whole time to live on its own monotonic clock, and then only by a compare-and-swap on that count.
//! No two clocks have to agree.

use crate::time::Monotonic;
use std::collections::BTreeMap;
use std::time::Duration;

/// One observer's memory of the counters it has seen.
#[derive(Debug)]
pub struct Watch<K> {
    seen: BTreeMap<K, (u64, Monotonic)>,
}

impl<K> Default for Watch<K> {
    fn default() -> Self {
        Watch { seen: BTreeMap::new() }
    }
}

/// A counter that was just read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    pub beat: u64,
    /// How long it may stay unchanged.
    pub ttl: Duration,
}

impl<K: Ord> Watch<K> {
    /// Records all counters that were just read and returns those that have not changed for their whole time
    /// to live. Counters that are missing from `readings` are forgotten.
    pub fn observe(&mut self, now: Monotonic, readings: BTreeMap<K, Reading>) -> Vec<K>
    where
        K: Clone,
    {
        self.seen.retain(|who, _| readings.contains_key(who));
        let mut silent = Vec::new();
        for (who, reading) in readings {
            let (beat, since) = self.seen.entry(who.clone()).or_insert((reading.beat, now));
            if *beat != reading.beat {
                (*beat, *since) = (reading.beat, now);
            } else if now.since(*since) >= reading.ttl {
                silent.push(who);
            }
        }
        silent
    }

    /// The number of counters it remembers.
    pub fn len(&self) -> usize {
        self.seen.len()
    }

    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic::from_micros(seconds * 1_000_000)
    }

    fn read(of: &[(&'static str, u64)]) -> BTreeMap<&'static str, Reading> {
        of.iter().map(|(who, beat)| (*who, Reading { beat: *beat, ttl: Duration::from_secs(6) })).collect()
    }

    #[test]
    fn one_observer_has_to_see_one_count_for_the_whole_time() {
        let mut watch = Watch::default();
        assert_eq!(watch.observe(at(100), read(&[("a", 5), ("b", 1)])), [""; 0]);
        assert_eq!(watch.observe(at(105), read(&[("a", 5), ("b", 2)])), [""; 0]);
        assert_eq!(watch.observe(at(106), read(&[("a", 5), ("b", 2)])), ["a"]);
        assert_eq!(watch.observe(at(107), read(&[("a", 6), ("b", 2)])), [""; 0]);
        assert_eq!(watch.observe(at(111), read(&[("a", 6), ("b", 2)])), ["b"]);
    }

    #[test]
    fn a_member_that_left_is_forgotten() {
        let mut watch = Watch::default();
        watch.observe(at(0), read(&[("a", 5), ("b", 1)]));
        watch.observe(at(1), read(&[("b", 1)]));
        assert_eq!(watch.len(), 1);
        assert_eq!(watch.observe(at(6), read(&[("a", 5), ("b", 1)])), ["b"]);
    }
}
