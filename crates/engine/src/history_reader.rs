//! Reading history in commit order from a stored place on, as notifications and published events do.

use punctual_core::ports::{FinishedPage, Store, StoreError};
use punctual_core::time::Monotonic;
use std::time::Duration;

/// How often the place is stored although nothing was found.
const CURSOR_INTERVAL: Duration = Duration::from_secs(10);
/// Pages of history that one step reads.
pub(crate) const PAGES_MAX: usize = 20;

/// A place in history. It may be ahead of the stored one by history in which nothing was found.
#[derive(Debug, Default)]
pub(crate) struct HistoryReader {
    read_to: u64,
    saved_at: Option<Monotonic>,
}

impl HistoryReader {
    pub fn read_to(&self) -> u64 {
        self.read_to
    }

    /// Continues at the stored place: another leader may have read further. Returns how many positions retention has
    /// deleted before they were read.
    pub async fn resume(&mut self, store: &dyn Store, stored: u64) -> Result<u64, StoreError> {
        let begins_after = store.history_span().await?.begins_after;
        let wanted = self.read_to.max(stored);
        self.read_to = wanted.max(begins_after);
        Ok(self.read_to - wanted)
    }

    /// The next executions. [`HistoryReader::done`] must follow.
    pub async fn page(&self, store: &dyn Store, limit: usize) -> Result<FinishedPage, StoreError> {
        let page = store.finished_after(self.read_to, limit).await?;
        Ok(FinishedPage { looked_to: page.looked_to.max(self.read_to), ..page })
    }

    /// History up to here needs not be read again. Returns whether the place should be stored now, although nothing
    /// was found.
    pub fn done(&mut self, read_to: u64, now: Monotonic) -> bool {
        self.read_to = read_to;
        self.saved_at.is_none_or(|at| now.since(at) >= CURSOR_INTERVAL)
    }

    /// The place was stored.
    pub fn saved(&mut self, now: Monotonic) {
        self.saved_at = Some(now);
    }
}
