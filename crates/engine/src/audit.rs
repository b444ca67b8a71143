//! Entries of the audit log on their way to the store: those of changes go with the write, refused requests
//! are collected and written apart.

use punctual_core::limits;
use punctual_core::ports::{AuditEntry, AuditedItems};
use punctual_core::time::Timestamp;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Sends a write with an entry, and unpacks the reply. A reply of another kind is a bug in the store.
macro_rules! audited {
    ($store:expr, $write:expr, $audit:expr, $reply:pat => $value:expr) => {
        match $store.write($write.audited($audit)).await? {
            $reply => $value,
            other => {
                let problem = format!("a write was answered with {other:?}");
                return Err(punctual_core::ports::StoreError::Broken(problem).into());
            }
        }
    };
}
pub(crate) use audited;

/// An item of a batch. The first item of a request has the entry for all of them.
pub(crate) struct AuditableItem<T> {
    pub item: T,
    pub audit: Option<Box<AuditedItems>>,
}

impl<T> AuditableItem<T> {
    /// The items of a request. Of all its items, `left_out` were refused before.
    pub fn of_request(items: Vec<T>, audit: Option<AuditEntry>, left_out: usize) -> Vec<AuditableItem<T>> {
        let all = 0..items.len();
        let mut audit = audit.map(|entry| Box::new(AuditedItems { entry, items: all, left_out }));
        items.into_iter().map(|item| AuditableItem { item, audit: audit.take() }).collect()
    }

    /// The items of a batch of requests, and the entries of those that have one.
    pub fn of_batch(batch: Vec<AuditableItem<T>>) -> (Vec<T>, Vec<AuditedItems>) {
        let mut entries = Vec::new();
        let item = |(place, AuditableItem { item, audit }): (usize, AuditableItem<T>)| {
            entries.extend(audit.map(|audited| AuditedItems {
                items: place + audited.items.start..place + audited.items.end,
                ..*audited
            }));
            item
        };
        (batch.into_iter().enumerate().map(item).collect(), entries)
    }
}

/// Refused requests that wait to be written. A few of each token are kept; the others are counted.
#[derive(Default)]
pub(crate) struct UnwrittenRefusals(Mutex<WaitingRefusals>);

#[derive(Default)]
struct WaitingRefusals {
    entries: Vec<AuditEntry>,
    tokens: BTreeMap<String, TokenRefusals>,
}

struct TokenRefusals {
    since: Timestamp,
    kept: usize,
    suppressed: u64,
    /// The last one that was suppressed.
    last: Option<AuditEntry>,
}

impl UnwrittenRefusals {
    pub fn add(&self, entry: AuditEntry) {
        let WaitingRefusals { entries, tokens } = &mut *self.lock();
        if !tokens.contains_key(&entry.token) && tokens.len() >= limits::AUDIT_REFUSALS_WAITING_MAX {
            tracing::warn!(
                token = entry.token,
                action = entry.action,
                "a refused request was not written to the audit log, because there are too many"
            );
            return;
        }
        let new = TokenRefusals { since: entry.at, kept: 0, suppressed: 0, last: None };
        let token = tokens.entry(entry.token.clone()).or_insert(new);
        if token.kept < limits::AUDIT_REFUSALS_PER_TOKEN_MAX
            && entries.len() < limits::AUDIT_REFUSALS_WAITING_MAX
        {
            token.kept += 1;
            entries.push(entry);
        } else {
            token.suppressed += 1;
            token.last = Some(entry);
        }
    }

    /// What is to be written now. At the end of a token's period, an entry counts those that were suppressed.
    pub fn take(&self, now: Timestamp) -> Vec<AuditEntry> {
        self.take_if(|token| now.since(token.since) >= limits::AUDIT_REFUSALS_PERIOD)
    }

    /// Everything, because the process ends.
    pub fn take_all(&self) -> Vec<AuditEntry> {
        self.take_if(|_| true)
    }

    fn take_if(&self, is_over: impl Fn(&TokenRefusals) -> bool) -> Vec<AuditEntry> {
        let WaitingRefusals { entries, tokens } = &mut *self.lock();
        let mut taken = std::mem::take(entries);
        tokens.retain(|_, token| {
            let is_over = is_over(token);
            if is_over {
                let details = Some(format!("{{\"suppressed\":{}}}", token.suppressed));
                taken.extend(token.last.take().map(|last| AuditEntry { details, ..last }));
            }
            !is_over
        });
        taken
    }

    /// Keeps entries that could not be written for the next time.
    pub fn put_back(&self, mut entries: Vec<AuditEntry>) {
        let waiting = &mut *self.lock();
        entries.truncate(limits::AUDIT_REFUSALS_WAITING_MAX.saturating_sub(waiting.entries.len()));
        waiting.entries.append(&mut entries);
    }

    fn lock(&self) -> MutexGuard<'_, WaitingRefusals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::ports::{AuditId, OUTCOME_OK};

    fn entry(token: &str, number: u64, at: Timestamp) -> AuditEntry {
        AuditEntry {
            id: AuditId::new(at, number),
            at,
            token: token.to_owned(),
            name: String::new(),
            user: None,
            source: None,
            action: "job.pause".to_owned(),
            object: String::new(),
            outcome: OUTCOME_OK.to_owned(),
            details: None,
        }
    }

    #[test]
    fn the_entry_of_a_request_covers_its_items_of_a_batch() {
        let at = Timestamp::EPOCH;
        let mut batch = AuditableItem::of_request(vec!['a', 'b'], None, 0);
        batch.extend(AuditableItem::of_request(vec!['c', 'd', 'e'], Some(entry("t", 1, at)), 2));
        batch.extend(AuditableItem::of_request(vec!['f'], Some(entry("t", 2, at)), 0));
        let (items, entries) = AuditableItem::of_batch(batch);
        assert_eq!(items, ['a', 'b', 'c', 'd', 'e', 'f']);
        let ranges: Vec<_> =
            entries.iter().map(|audited| (audited.items.clone(), audited.left_out)).collect();
        assert_eq!(ranges, [(2..5, 2), (5..6, 0)]);
    }

    #[test]
    fn few_refusals_of_a_token_are_kept_and_the_others_counted() {
        let refusals = UnwrittenRefusals::default();
        let max = limits::AUDIT_REFUSALS_PER_TOKEN_MAX;
        for number in 0..max as u64 + 5 {
            refusals.add(entry("flood", number, Timestamp::EPOCH));
        }
        refusals.add(entry("other", 99, Timestamp::EPOCH));
        let first = refusals.take(Timestamp::EPOCH);
        assert_eq!(first.iter().filter(|entry| entry.token == "flood").count(), max);
        assert_eq!(first.iter().filter(|entry| entry.token == "other").count(), 1);
        refusals.add(entry("flood", 100, Timestamp::EPOCH));
        assert!(refusals.take(Timestamp::EPOCH).is_empty());
        let later = Timestamp::EPOCH.plus(limits::AUDIT_REFUSALS_PERIOD);
        let last = refusals.take(later);
        assert_eq!(last.len(), 1);
        assert_eq!(last[0].details.as_deref(), Some(r#"{"suppressed":6}"#));
        refusals.add(entry("flood", 101, later));
        let again = refusals.take(later);
        assert_eq!(again.len(), 1);
        refusals.put_back(again.clone());
        assert_eq!(refusals.take(later), again);
    }
}
