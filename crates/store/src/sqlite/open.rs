//! Where a store lives on disk and how it is opened.

use punctual_core::ports::StoreError;
use std::io;
use std::path::PathBuf;

/// The main database within the data directory.
pub(crate) const MAIN_FILE: &str = "punctual.db";
/// The database of log lines.
pub(crate) const LOGS_FILE: &str = "logs.db";
/// The file whose lock says that a process has the directory open.
pub(crate) const LOCK_FILE: &str = "punctual.lock";

/// How to open a [`super::SqliteStore`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteOptions {
    /// The data directory; created if it is not there.
    pub dir: PathBuf,
    /// Connections that read beside the writer, each on a thread of its own.
    pub reader_count: usize,
}

impl SqliteOptions {
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        SqliteOptions { dir: dir.into(), reader_count: 2 }
    }
}

/// A store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("another process has this store open: it holds the lock on {}", lock.display())]
    InUse { lock: PathBuf },
    #[error("{} cannot be used", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} cannot be opened", path.display())]
    Database { path: PathBuf, source: StoreError },
}
