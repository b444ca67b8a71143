//! The location of a store on disk, and how it is opened.

use super::connection::{CHECK_CACHE_KIB, Durability, open_for_writing, set_cache};
use super::damage;
use super::migrate;
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

/// The main database in the data directory.
pub(crate) const MAIN_FILE: &str = "punctual.db";
/// The database of log lines.
pub(crate) const LOGS_FILE: &str = "logs.db";
/// Both, in the order in which they are opened and copied.
pub(crate) const FILES: [&str; 2] = [MAIN_FILE, LOGS_FILE];
/// The latest writes of SQLite to the main database.
pub(crate) const WAL_FILE: &str = "punctual.db-wal";
/// The suffix that SQLite appends to a file name for its rollback journal. The server uses none: an
/// existing journal belongs to an unfinished copy.
const JOURNAL_SUFFIX: &str = "-journal";
/// The suffix of file names until a backup is complete.
pub(crate) const PARTIAL_SUFFIX: &str = ".partial";
/// The maximum size of a main file whose process was killed while creating it.
const CREATED_BYTES_MAX: u64 = 64 * 1024;
/// The file whose lock shows that a process has the directory open.
pub(crate) const LOCK_FILE: &str = "punctual.lock";

/// How to open a [`super::SqliteStore`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteOptions {
    /// The data directory; created if it does not exist.
    pub dir: PathBuf,
    /// Connections for reads, each on its own thread.
    pub reader_count: usize,
    /// How often the files are checked in the background; never if absent.
    pub check_interval: Option<Duration>,
    /// The size limit of the log database in bytes; `None` for no limit. Beyond it the oldest lines are
    /// removed.
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

/// A file in use, to detect when it is deleted or replaced under its path: SQLite would continue to write
/// to a file that no process can open again.
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
            "{path} {what} while it was in use: put it back, or stop the server and restore a backup"
        ))
    }
}

pub(crate) fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Rejects a directory in which a backup was interrupted: files get their final names only when all of them
/// are complete. A backup by an earlier version is recognised by its journal, which would undo it at the
/// next open.
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

/// Refuses to create a new store where one has existed: the main file is empty or missing, but the log
/// lines of its jobs, or its latest writes, exist. SQLite would discard those writes.
pub(crate) fn refuse_emptied(dir: &Path) -> Result<(), OpenError> {
    let (main, logs) = (dir.join(MAIN_FILE), dir.join(LOGS_FILE));
    let is_filled = |path: &Path| fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0);
    let what = match fs::metadata(&main) {
        Ok(metadata) if metadata.len() == 0 => "is empty",
        Err(error) if error.kind() == io::ErrorKind::NotFound => "is gone",
        // Opening the file detects other problems.
        _ => return Ok(()),
    };
    let beside = [logs, dir.join(WAL_FILE)];
    let Some(left) = beside.iter().filter(|path| is_filled(path)).find_map(|path| path.file_name()) else {
        return Ok(());
    };
    let reason = emptied(what, &left.display().to_string());
    Err(OpenError::Database { path: main, source: StoreError::Broken(reason) })
}

/// A main file that lost its content, next to a file of the same store that did not.
fn emptied(what: &str, beside: &str) -> String {
    format!(
        "the file {what}, although {beside} next to it is not empty: restore {MAIN_FILE} and {LOGS_FILE} from a backup, or \
         move all files of the directory away to start with an empty store"
    )
}

/// Whether the store must not be opened because it is the target of an unfinished data migration.
pub(crate) fn is_unfinished(conn: &Connection) -> Result<bool, Fault> {
    let sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1";
    Ok(conn.query_row(sql, [NOTES_TABLE], |_| Ok(())).optional()?.is_some())
}

/// The problem of a main file without tables next to a file of log lines, which is created after them: the main file was
/// emptied, or its write-ahead log was deleted.
pub(crate) fn missing_tables(conn: &Connection, dir: &Path, file: &str) -> Result<Option<String>, Fault> {
    let has_logs = fs::metadata(dir.join(LOGS_FILE)).is_ok_and(|metadata| metadata.len() > 0);
    let is_emptied = file == MAIN_FILE && has_logs && migrate::version(conn)? == 0;
    Ok(is_emptied.then(|| emptied("has no tables", LOGS_FILE)))
}

/// Opens a file for writing and refuses it if it is damaged.
pub(crate) fn open_checked(
    path: &Path,
    durability: Durability,
    steps: &[&str],
) -> Result<Connection, OpenError> {
    let damaged = |problems| OpenError::Damaged { path: path.to_owned(), problems };
    let checked = open_for_writing(path, durability).and_then(|mut conn| {
        set_cache(&conn, CHECK_CACHE_KIB)?;
        let problems = damage::at_start(&mut conn, steps)?;
        set_cache(&conn, durability.cache_kib())?;
        Ok((conn, problems))
    });
    match checked {
        Ok((conn, problems)) if problems.is_empty() => Ok(conn),
        Ok((_, problems)) => Err(damaged(problems)),
        Err(fault) => match damage::as_problem(fault) {
            Ok(problem) => Err(damaged(vec![problem])),
            Err(fault) => Err(database_error(path)(fault.into())),
        },
    }
}

pub(crate) fn database_error(path: &Path) -> impl FnOnce(StoreError) -> OpenError + use<> {
    let path = path.to_owned();
    move |source| OpenError::Database { path, source }
}
