//! Rows that cannot be read: a malformed row affects only the object that it describes (decision 0027). Reads of many
//! rows skip a malformed one, log it once and count it. `punctual check` finds all of them (`malformed_check.rs`).

use crate::fault::Fault;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Distinct faults that are logged. Further ones are only counted.
const LOGGED_MAX: usize = 1_000;

/// Global to the process: readers have no state, and one warning for each fault is enough.
static LOGGED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
static PASSED_OVER: AtomicU64 = AtomicU64::new(0);

/// How often a malformed row was skipped since the process started.
pub fn rows_passed_over() -> u64 {
    PASSED_OVER.load(Ordering::Relaxed)
}

/// The value that was read, or `None` if the row is malformed.
pub(crate) fn skip_malformed<T>(read: Result<T, Fault>) -> Result<Option<T>, Fault> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(fault) if fault.is_malformed() => {
            note(&fault);
            Ok(None)
        }
        Err(fault) => Err(fault),
    }
}

/// All readable rows.
pub(crate) fn readable<T>(reads: impl IntoIterator<Item = Result<T, Fault>>) -> Result<Vec<T>, Fault> {
    let reads = reads.into_iter();
    let mut items = Vec::with_capacity(reads.size_hint().0);
    for read in reads {
        items.extend(skip_malformed(read)?);
    }
    Ok(items)
}

/// Logs a fault of a row on its first occurrence, and counts it.
pub(crate) fn note(fault: &Fault) {
    note_text(fault.to_string());
}

/// The same for a fault that is already formatted.
pub(crate) fn note_text(text: String) {
    PASSED_OVER.fetch_add(1, Ordering::Relaxed);
    let mut logged = LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
    if logged.len() < LOGGED_MAX && logged.insert(text.clone()) {
        tracing::warn!(
            fault = %text,
            "a malformed row was skipped; `punctual check` lists all of them"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_malformed_rows_are_skipped() {
        assert_eq!(skip_malformed(Ok(1)).unwrap(), Some(1));
        let before = rows_passed_over();
        assert_eq!(skip_malformed::<u8>(Err(Fault::damaged("live.state", 9))).unwrap(), None);
        assert!(rows_passed_over() > before);
        assert!(skip_malformed::<u8>(Err(Fault::Away("gone".to_owned()))).is_err());
        assert!(skip_malformed::<u8>(Err(Fault::Unloaded)).is_err());
    }
}
