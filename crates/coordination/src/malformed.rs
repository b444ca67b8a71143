//! Malformed entries among those of a cluster: written by another program, or damaged. They are ignored, so
//! that the members continue to work, and logged once.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// By location: why the entry is malformed, and what happens to it.
pub(crate) type MalformedEntries = BTreeMap<String, String>;

#[derive(Debug, Default)]
pub(crate) struct MalformedEntryLog(Mutex<MalformedEntries>);

impl MalformedEntryLog {
    /// Records the findings of one scan. Logs those that the previous scan did not find, including entries
    /// that have reappeared.
    pub fn found(&self, malformed: MalformedEntries) {
        let before = {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *known, malformed.clone())
        };
        for (place, why) in malformed.iter().filter(|(place, _)| !before.contains_key(*place)) {
            tracing::warn!(%place, "an unreadable entry in the cluster's key space is ignored: {why}");
        }
    }
}

/// For entries that block nothing and might belong to another program.
pub(crate) const LEFT: &str = "it is left unchanged; remove it, or use another prefix in coordination.url";
/// For entries that block a lease.
pub(crate) const FREED: &str = "the lease is freed";
