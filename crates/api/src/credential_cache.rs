//! Credentials that were verified a moment ago, bounded in number and age. It knows neither tokens nor JWTs.

use punctual_core::time::Monotonic;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a revoked token may keep working.
const CACHE_TTL: Duration = Duration::from_secs(5);
/// Credentials in a cache. When there are more, the cache is cleared.
const CACHED_MAX: usize = 1_000;

pub struct CredentialCache<K, V>(Mutex<CacheContent<K, V>>);

struct CacheContent<K, V> {
    seen: HashMap<K, (V, Monotonic)>,
    /// How often it was cleared.
    generation: u64,
}

impl<K, V> Default for CredentialCache<K, V> {
    fn default() -> Self {
        CredentialCache(Mutex::new(CacheContent { seen: HashMap::new(), generation: 0 }))
    }
}

impl<K: std::hash::Hash + Eq, V: Clone> CredentialCache<K, V> {
    fn content(&self) -> MutexGuard<'_, CacheContent<K, V>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, key: &K, now: Monotonic) -> Option<V> {
        let content = self.content();
        let (value, since) = content.seen.get(key)?;
        (now.since(*since) < CACHE_TTL).then(|| value.clone())
    }

    /// Take it before you read a value that is to be put.
    pub fn generation(&self) -> u64 {
        self.content().generation
    }

    /// Keeps no value that was read before the cache was cleared: it may be from before the change.
    pub fn put(&self, key: K, value: V, now: Monotonic, generation: u64) {
        let mut content = self.content();
        if content.generation != generation {
            return;
        }
        if content.seen.len() >= CACHED_MAX {
            content.seen.clear();
        }
        content.seen.insert(key, (value, now));
    }

    pub fn clear(&self) {
        let mut content = self.content();
        content.seen.clear();
        content.generation += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_forgets_with_time_and_never_grows_beyond_its_limit() {
        let cache = CredentialCache::default();
        let start = Monotonic::from_micros(0);
        for number in 0..=CACHED_MAX * 2 {
            cache.put(number, "x", start, 0);
        }
        assert!(cache.content().seen.len() <= CACHED_MAX);
        cache.put(1, "y", start, 0);
        assert_eq!(cache.get(&1, start), Some("y"));
        assert_eq!(cache.get(&1, start.plus(CACHE_TTL)), None);
    }

    #[test]
    fn a_cache_does_not_keep_what_was_read_before_it_was_cleared() {
        let (cache, start) = (CredentialCache::default(), Monotonic::from_micros(0));
        let generation = cache.generation();
        cache.clear();
        cache.put(1, "before the change", start, generation);
        assert_eq!(cache.get(&1, start), None);
        cache.put(1, "after it", start, cache.generation());
        assert_eq!(cache.get(&1, start), Some("after it"));
    }
}
