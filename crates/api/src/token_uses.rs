//! When tokens were last used. Uses are collected in memory and stored about once a minute, all in one write:
//! a write per request would cost more than most requests.

use crate::Api;
use punctual_core::time::Timestamp;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long uses are collected.
const COLLECT_TIME: Duration = Duration::from_secs(60);
/// Tokens in one write. The uses of further ones in the same minute are not stored.
const TOKENS_MAX: usize = 10_000;

#[derive(Default)]
pub struct TokenUses {
    collected: Mutex<BTreeMap<String, Timestamp>>,
}

impl TokenUses {
    /// Returns whether it is the first use since they were taken.
    fn add(&self, id: &str, now: Timestamp) -> bool {
        let mut collected = self.collected.lock().unwrap_or_else(PoisonError::into_inner);
        let (is_first, is_full) = (collected.is_empty(), collected.len() >= TOKENS_MAX);
        match collected.get_mut(id) {
            Some(used) => *used = now.max(*used),
            None if is_full => {}
            None => drop(collected.insert(id.to_owned(), now)),
        }
        is_first
    }

    fn take(&self) -> Vec<(String, Timestamp)> {
        let mut collected = self.collected.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *collected).into_iter().collect()
    }
}

/// Collects the use of a token, and has all of them written a minute after the first one.
pub fn note_use(api: &Api, id: &str, now: Timestamp) {
    if api.is_stopping() || !api.uses.add(id, now) {
        return;
    }
    let api = api.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = api.clock.sleep(COLLECT_TIME) => {}
            () = api.stopping() => {}
        }
        if let Err(error) = api.access.touch_tokens(api.uses.take()).await {
            tracing::warn!(%error, "cannot store when tokens were last used");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_use_of_each_token_is_collected_and_taken_once() {
        let uses = TokenUses::default();
        let at = Timestamp::from_micros;
        assert!(uses.add("b", at(2)));
        assert!(!uses.add("a", at(1)) && !uses.add("b", at(5)) && !uses.add("b", at(4)));
        assert_eq!(uses.take(), [("a".to_owned(), at(1)), ("b".to_owned(), at(5))]);
        assert_eq!(uses.take(), []);
        assert!(uses.add("a", at(6)));
    }

    #[test]
    fn no_more_tokens_are_collected_than_one_write_takes() {
        let uses = TokenUses::default();
        for number in 0..TOKENS_MAX + 5 {
            uses.add(&number.to_string(), Timestamp::EPOCH);
        }
        assert_eq!(uses.take().len(), TOKENS_MAX);
    }
}
