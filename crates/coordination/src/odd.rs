//! What is kept where a cluster keeps its own and cannot be read: by somebody else, or damaged. It stands for nobody and is
//! passed over, so that the others go on, and is named once.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// By where it is, why it cannot be read and what becomes of it.
pub(crate) type Odd = BTreeMap<String, String>;

#[derive(Debug, Default)]
pub(crate) struct PassedOver(Mutex<Odd>);

impl PassedOver {
    /// What one look has found. Whatever the look before has not found is named; so is what has come back.
    pub fn found(&self, odd: Odd) {
        let before = {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *known, odd.clone())
        };
        for (place, why) in odd.iter().filter(|(place, _)| !before.contains_key(*place)) {
            tracing::warn!(%place, "something in the cluster's own place cannot be read and is passed over: {why}");
        }
    }
}

/// For what is in nobody's way, and might be somebody's.
#[cfg(any(feature = "etcd", feature = "redis", feature = "zookeeper"))]
pub(crate) const LEFT: &str = "it is left as it is; remove it, or use another prefix in coordination.url";
/// For a lease that nobody could take otherwise.
#[cfg(any(feature = "etcd", feature = "redis", feature = "zookeeper"))]
pub(crate) const FREED: &str = "the lease is freed";
