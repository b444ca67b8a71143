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
use std::time::Duration;

/// The main database within the data directory.
pub(crate) const MAIN_FILE: &str = "punctual.db";
/// The database of log lines.
pub(crate) const LOGS_FILE: &str = "logs.db";
/// Both, in the order in which they are opened and copied.
pub(crate) const FILES: [&str; 2] = [MAIN_FILE, LOGS_FILE];
/// What SQLite has written to the main database last.
pub(crate) const WAL_FILE: &str = "punctual.db-wal";
/// What SQLite appends to the name of a file for its rollback journal. The server uses none: one that is left belongs to
/// a copy that was not finished.
const JOURNAL_SUFFIX: &str = "-journal";
/// What the names of files end in until a backup is complete.
pub(crate) const PARTIAL_SUFFIX: &str = ".partial";
/// A main file that was being created when its process was killed is not larger than this.
const CREATED_BYTES_MAX: u64 = 64 * 1024;
/// The file whose lock says that a process has the directory open.
pub(crate) const LOCK_FILE: &str = "punctual.lock";

/// How to open a [`super::SqliteStore`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteOptions {
    /// The data directory; created if it is not there.
    pub dir: PathBuf,
    /// Connections that read beside the writer, each on a thread of its own.
    pub reader_count: usize,
    /// How often the files are checked in the background; never if absent.
    pub check_interval: Option<Duration>,
    /// Bytes that the database of log lines may take up; `None` for any number. Beyond it the oldest lines go.
    pub log_bytes_max: Option<u64>,
}

impl SqliteOptions {
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        SqliteOptions {
            dir: dir.into(),
            reader_count: 2,
            check_interval: None,
            log_bytes_max: Some(limits::LOGS_BYTES_DEFAULT),
        }
    }
}

/// A store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("another process has this store open: it holds the lock on {}", lock.display())]
    InUse { lock: PathBuf },
    #[error("{} cannot be used", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("no database in {}", dir.display())]
    NoDatabase { dir: PathBuf },
    #[error(
        "{} holds an incomplete backup ({}): the backup was interrupted and cannot be used; delete the files of the \
         directory and take the backup again, into a new directory",
        dir.display(), file
    )]
    Incomplete { dir: PathBuf, file: String },
    #[error("{} is damaged: {}", path.display(), in_short(problems))]
    Damaged { path: PathBuf, problems: Vec<String> },
    #[error("{} cannot be opened", path.display())]
    Database { path: PathBuf, source: StoreError },
}

fn in_short(problems: &[String]) -> String {
    match problems {
        [] => "it cannot be read".to_owned(),
        [only] => only.clone(),
        [first, rest @ ..] => format!("{first} (and {} more)", rest.len()),
    }
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

    pub fn path(&self) -> &Path {
        &self.path
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

pub(crate) fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Refuses a directory in which a backup was interrupted: files have their names only when all of them are whole. A backup
/// of earlier versions is recognised by its journal, which would undo it as soon as anybody opened it.
pub fn refuse_incomplete(dir: &Path) -> Result<(), OpenError> {
    let bytes = |name: &str| fs::metadata(dir.join(name)).map_or(0, |metadata| metadata.len());
    let is_there = |name: &str| dir.join(name).exists();
    let partial = FILES.map(|file| format!("{file}{PARTIAL_SUFFIX}")).into_iter().find(|name| is_there(name));
    let journal = FILES
        .into_iter()
        .filter(|file| bytes(file) > CREATED_BYTES_MAX)
        .map(|file| format!("{file}{JOURNAL_SUFFIX}"))
        .find(|name| bytes(name) > 0);
    match partial.filter(|_| !is_there(MAIN_FILE)).or(journal) {
        Some(file) => Err(OpenError::Incomplete { dir: dir.to_owned(), file }),
        None => Ok(()),
    }
}

/// Refuses to begin anew where a store has been: the main file is empty or gone, but the log lines of its jobs, or its
/// own latest writes, are there. SQLite would throw those writes away.
pub(crate) fn refuse_emptied(dir: &Path) -> Result<(), OpenError> {
    let (main, logs) = (dir.join(MAIN_FILE), dir.join(LOGS_FILE));
    let is_filled = |path: &Path| fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0);
    let what = match fs::metadata(&main) {
        Ok(metadata) if metadata.len() == 0 => "is empty",
        Err(error) if error.kind() == io::ErrorKind::NotFound => "is gone",
        // What else is wrong with it is found out by opening it.
        _ => return Ok(()),
    };
    let beside = [logs, dir.join(WAL_FILE)];
    let Some(left) = beside.iter().filter(|path| is_filled(path)).find_map(|path| path.file_name()) else {
        return Ok(());
    };
    let reason = format!(
        "the file {what}, although {} beside it is not: restore {MAIN_FILE} and {LOGS_FILE} from a backup, or move all \
         files of the directory away to begin anew",
        left.display()
    );
    Err(OpenError::Database { path: main, source: StoreError::Broken(reason) })
}

/// Whether a store may not be opened because it is the target of a move that is not complete.
pub(crate) fn is_unfinished(conn: &Connection) -> Result<bool, Fault> {
    let sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1";
    Ok(conn.query_row(sql, [NOTES_TABLE], |_| Ok(())).optional()?.is_some())
}
