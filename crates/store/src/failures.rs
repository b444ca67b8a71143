//! Counts failures of this process' stores by kind, for metrics. No rule depends on them.

use std::sync::atomic::{AtomicU64, Ordering};

/// The kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// A damaged file, or a row that Punctual cannot have written.
    Corruption,
    /// The disk fails to read or write.
    Io,
    /// The disk is full.
    Full,
    /// A lock was not released in time.
    Busy,
    /// A database server is unreachable or cannot write.
    Unavailable,
    /// The database or the file system refuses access.
    Denied,
    /// Conflicts with other transactions exceeded the number of retries.
    Conflict,
    /// A panic in the store, which is a bug.
    Panic,
    Other,
}

/// The names of the kinds in metrics, in the order of the counters.
const NAMES: [(FailureKind, &str); 9] = [
    (FailureKind::Corruption, "corruption"),
    (FailureKind::Io, "io"),
    (FailureKind::Full, "full"),
    (FailureKind::Busy, "busy"),
    (FailureKind::Unavailable, "unavailable"),
    (FailureKind::Denied, "denied"),
    (FailureKind::Conflict, "conflict"),
    (FailureKind::Panic, "panic"),
    (FailureKind::Other, "other"),
];

/// One counter for each kind. They are global to the process, as its metrics are: errors are classified
/// where they arise, on any connection of any adapter.
static COUNTS: [AtomicU64; NAMES.len()] = [const { AtomicU64::new(0) }; NAMES.len()];

/// Errors of SQLite about the structure of a file.
static DAMAGED_FILES: AtomicU64 = AtomicU64::new(0);

pub(crate) fn count_damaged_file() {
    DAMAGED_FILES.fetch_add(1, Ordering::Relaxed);
}

/// Grows with every read or write that meets a damaged file.
pub(crate) fn damaged_files() -> u64 {
    DAMAGED_FILES.load(Ordering::Relaxed)
}

/// Counts one failure of a transaction, read or connection, no matter how many calls it fails.
pub(crate) fn count(failure: FailureKind) {
    for ((kind, _), counter) in NAMES.iter().zip(&COUNTS) {
        if *kind == failure {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// All counters by name, including those that are zero.
pub(crate) fn counts() -> Vec<(&'static str, u64)> {
    let counted = COUNTS.iter().map(|counter| counter.load(Ordering::Relaxed));
    NAMES.iter().map(|(_, name)| *name).zip(counted).collect()
}
