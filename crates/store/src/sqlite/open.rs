//! Where a store lives on disk and how it is opened.

use crate::fault::Fault;
use crate::unfinished::NOTES_TABLE;
use punctual_core::limits;
use punctual_core::ports::StoreError;
use rusqlite::{Connection, OptionalExtension};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The main database within the data directory.
pub(crate) const MAIN_FILE: &str = "punctual.db";
/// The database of log lines.
pub(crate) const LOGS_FILE: &str = "logs.db";
/// What SQLite has written to the main database last.
const WAL_FILE: &str = "punctual.db-wal";
/// The file whose lock says that a process has the directory open.
pub(crate) const LOCK_FILE: &str = "punctual.lock";

/// How to open a [`super::SqliteStore`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteOptions {
    /// The data directory; created if it is not there.
    pub dir: PathBuf,
    /// Connections that read beside the writer, each on a thread of its own.
    pub reader_count: usize,
    /// Bytes that the database of log lines may take up; `None` for any number. Beyond it the oldest lines go.
    pub log_bytes_max: Option<u64>,
}

impl SqliteOptions {
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        SqliteOptions { dir: dir.into(), reader_count: 2, log_bytes_max: Some(limits::LOGS_BYTES_DEFAULT) }
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

/// A file that is in use, to notice when it is deleted or replaced under its path: SQLite would go on writing to
/// what nobody can open again.
pub(crate) struct OpenFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl OpenFile {
    pub fn of(path: PathBuf) -> io::Result<Self> {
        let identity = identity(&fs::metadata(&path)?);
        Ok(OpenFile { path, identity })
    }

    pub fn is_still_there(&self) -> Result<(), StoreError> {
        match fs::metadata(&self.path) {
            Ok(metadata) if identity(&metadata) == self.identity => Ok(()),
            Ok(_) => Err(self.gone("was replaced")),
            Err(error) => Err(self.gone(&format!("cannot be found ({error})"))),
        }
    }

    fn gone(&self, what: &str) -> StoreError {
        let path = self.path.display();
        StoreError::Unavailable(format!(
            "{path} {what} while it was in use: put it back or restart the server"
        ))
    }
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Refuses to begin anew where a store has been: the main file is empty or gone, but the log lines of its jobs, or its
/// own latest writes, are there. SQLite would throw those writes away.
pub(crate) fn refuse_emptied(main: &Path, logs: &Path) -> Result<(), OpenError> {
    let is_filled = |path: &Path| fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0);
    let what = match fs::metadata(main) {
        Ok(metadata) if metadata.len() == 0 => "is empty",
        Err(error) if error.kind() == io::ErrorKind::NotFound => "is gone",
        // What else is wrong with it is found out by opening it.
        _ => return Ok(()),
    };
    let beside = [logs.to_owned(), main.with_file_name(WAL_FILE)];
    let Some(left) = beside.iter().filter(|path| is_filled(path)).find_map(|path| path.file_name()) else {
        return Ok(());
    };
    let reason = format!(
        "the file {what}, although {} beside it is not: restore {MAIN_FILE} and {LOGS_FILE} from a backup, or move all \
         files of the directory away to begin anew",
        left.display()
    );
    Err(OpenError::Database { path: main.to_owned(), source: StoreError::Broken(reason) })
}

/// Whether a store may not be opened because it is the target of a move that is not complete.
pub(crate) fn is_unfinished(conn: &Connection) -> Result<bool, Fault> {
    let sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1";
    Ok(conn.query_row(sql, [NOTES_TABLE], |_| Ok(())).optional()?.is_some())
}
