//! The only source of randomness: a seeded generator from which every part of a run forks its own stream, so
//! that an additional draw in one part does not change the draws of another.

use crate::lock;
use punctual_core::ports::Random;
use std::sync::Mutex;
use std::time::Duration;

/// xoshiro256**, seeded by splitmix64.
#[derive(Debug, Clone)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    pub fn new(seed: u64) -> Self {
        let mut mix = seed;
        Rng { state: std::array::from_fn(|_| splitmix(&mut mix)) }
    }

    /// An independent stream, determined by this generator's next number and a label.
    pub fn fork(&mut self, label: &str) -> Rng {
        let named = label.bytes().fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
        });
        Rng::new(self.next() ^ named)
    }

    pub fn next(&mut self) -> u64 {
        let [s0, s1, s2, s3] = self.state;
        let result = s1.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let (s2, s3) = (s2 ^ s0, s3 ^ s1);
        self.state = [s0 ^ s3, s1 ^ s2, s2 ^ (s1 << 17), s3.rotate_left(45)];
        result
    }

    /// A number from 0 up to but not including `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below 0");
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    pub fn millis(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_micros(self.between(low * 1_000, high * 1_000))
    }

    /// True this many times in a thousand.
    pub fn per_mille(&mut self, probability: u64) -> bool {
        self.below(1_000) < probability
    }

    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.index(items.len())]
    }
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A node's source of randomness.
pub struct NodeRandom(Mutex<Rng>);

impl NodeRandom {
    pub fn new(rng: Rng) -> Self {
        NodeRandom(Mutex::new(rng))
    }
}

impl Random for NodeRandom {
    fn next_u64(&self) -> u64 {
        lock(&self.0).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_stream_and_labels_fork_it() {
        let draw = |seed: u64, label: &str| Rng::new(seed).fork(label).next();
        assert_eq!(draw(1, "network"), draw(1, "network"));
        assert_ne!(draw(1, "network"), draw(1, "store"));
        assert_ne!(draw(1, "network"), draw(2, "network"));
    }

    #[test]
    fn bounds_are_kept_and_reached() {
        let mut rng = Rng::new(7);
        let drawn: std::collections::BTreeSet<u64> = (0..1_000).map(|_| rng.between(3, 9)).collect();
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), [3, 4, 5, 6, 7, 8, 9]);
    }
}
