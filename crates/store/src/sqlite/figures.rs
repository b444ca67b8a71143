//! Statistics since the store was opened: transactions, checkpoints, file sizes. For metrics; no rule
//! depends on them.

use super::open::{LOGS_FILE, MAIN_FILE};
use crate::execution_log_quota::RemovedLines;
use punctual_core::histogram::{Histogram, ITEMS, SHORT_US};
use punctual_core::ports::StoreFigures;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub(crate) struct Figures {
    pub transaction_time: Histogram,
    pub transaction_writes: Histogram,
    pub checkpoint_time: Histogram,
    log_lines_removed: AtomicU64,
    log_bytes_removed: AtomicU64,
}

impl Default for Figures {
    fn default() -> Self {
        Figures {
            transaction_time: Histogram::new(SHORT_US),
            transaction_writes: Histogram::new(ITEMS),
            checkpoint_time: Histogram::new(SHORT_US),
            log_lines_removed: AtomicU64::default(),
            log_bytes_removed: AtomicU64::default(),
        }
    }
}

impl Figures {
    /// The total of what the log writer has removed.
    pub fn note_removed(&self, removed: RemovedLines) {
        self.log_lines_removed.store(removed.lines, Ordering::Relaxed);
        self.log_bytes_removed.store(removed.bytes, Ordering::Relaxed);
    }

    /// The statistics, next to these sizes of the main database, and the sizes of the files in this
    /// directory.
    pub fn read(&self, sizes: StoreFigures, dir: &Path) -> StoreFigures {
        // A missing file has size zero.
        let file_bytes = |name: &str| std::fs::metadata(dir.join(name)).map_or(0, |file| file.len());
        StoreFigures {
            transaction_time: self.transaction_time.snapshot(),
            transaction_writes: self.transaction_writes.snapshot(),
            checkpoint_time: self.checkpoint_time.snapshot(),
            wal_bytes: file_bytes(&format!("{MAIN_FILE}-wal")),
            log_bytes: file_bytes(LOGS_FILE) + file_bytes(&format!("{LOGS_FILE}-wal")),
            log_lines_removed: self.log_lines_removed.load(Ordering::Relaxed),
            log_bytes_removed: self.log_bytes_removed.load(Ordering::Relaxed),
            ..sizes
        }
    }
}
