//! Copies a store while it is in use.
//!
//! Files are written under names that end in `.partial`, verified and synced. Only then they get their
//! final names, the main database last. These names identify a directory in which a backup was interrupted
//! ([`super::refuse_incomplete`]).

use super::connection::{beside, create_private, open_for_reading, open_unchanged};
use super::damage::as_problem;
use super::integrity;
use super::open::{FILES, OpenError, PARTIAL_SUFFIX, missing_tables, refuse_emptied, refuse_incomplete};
use super::scan::ScanReport;
use crate::fault::Fault;
use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Pages copied between two reports of progress.
const STEP_PAGES: i32 = 1_024;
/// Files of a store that must not exist next to a copy: SQLite would treat them as belonging to it.
const SUFFIXES: [&str; 3] = ["", "-wal", "-journal"];

/// The progress of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupProgress {
    /// The file being copied, by its name in the data directory.
    pub file: &'static str,
    pub pages_done: u64,
    pub pages_total: u64,
}

/// The backup failed.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("{} already exists and is not overwritten; choose a new directory", .0.display())]
    AlreadyThere(PathBuf),
    #[error(
        "{} is left over from an interrupted backup, unless another one is writing it now: delete the \
         directory, or name another",
        .0.display()
    )]
    Interrupted(PathBuf),
    #[error(transparent)]
    Source(OpenError),
    #[error("{} cannot be written", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} cannot be copied: {reason}", path.display())]
    Copy { path: PathBuf, reason: String },
    #[error(
        "{} is damaged, and so is its copy, which was deleted: {}; `punctual check` lists everything once the server is \
         stopped",
        path.display(),
        problems.join("; ")
    )]
    Damaged { path: PathBuf, problems: Vec<String> },
}

/// Copies the store of one directory into another, which can then be opened as a store. It only reads, so a
/// server of the directory, in this process or another, continues to run. The copy is verified; an
/// incomplete copy is deleted. Returns malformed values, which are copied as they are (decision 0027).
///
/// Blocks the calling thread. Each database is copied as of a single moment. The write-ahead log cannot be
/// truncated during the copy.
pub fn backup(
    from: &Path,
    to: &Path,
    mut progress: impl FnMut(BackupProgress),
) -> Result<Vec<String>, BackupError> {
    refuse_incomplete(from).map_err(BackupError::Source)?;
    refuse_emptied(from).map_err(BackupError::Source)?;
    let is_new = !to.exists();
    let create = DirBuilder::new().recursive(true).mode(0o700).create(to);
    create.map_err(cannot_write(to))?;
    refuse_taken(to)?;
    let copies = Partial { dir: to, is_new };
    let mut malformed = Vec::new();
    for file in FILES {
        let (source, target) = (from.join(file), partial(to, file));
        let failed = |fault: Fault| BackupError::Copy { path: source.clone(), reason: fault.to_string() };
        copy(&source, &target, |pages_done, pages_total| {
            progress(BackupProgress { file, pages_done, pages_total });
        })
        .map_err(failed)?;
        let report = verify(&target, from, file).map_err(failed)?;
        if !report.problems.is_empty() {
            return Err(BackupError::Damaged { path: source, problems: report.problems });
        }
        malformed.extend(report.malformed);
    }
    copies.complete()?;
    Ok(malformed)
}

/// Rejects a directory that contains a store or parts of one.
fn refuse_taken(to: &Path) -> Result<(), BackupError> {
    for file in FILES {
        if let Some(there) =
            SUFFIXES.iter().map(|suffix| beside(&to.join(file), suffix)).find(|path| path.exists())
        {
            return Err(BackupError::AlreadyThere(there));
        }
        let partial = partial(to, file);
        if partial.exists() {
            return Err(BackupError::Interrupted(partial));
        }
    }
    Ok(())
}

fn partial(to: &Path, file: &str) -> PathBuf {
    to.join(format!("{file}{PARTIAL_SUFFIX}"))
}

fn cannot_write(path: &Path) -> impl FnOnce(io::Error) -> BackupError + use<> {
    let path = path.to_owned();
    move |source| BackupError::Io { path, source }
}

/// Incomplete copies, which are deleted unless they are completed.
struct Partial<'a> {
    dir: &'a Path,
    /// Whether the directory was created for them.
    is_new: bool,
}

impl Partial<'_> {
    /// Renames the files after all of them are on disk. The main file comes last: without it the directory
    /// is not a store.
    fn complete(self) -> Result<(), BackupError> {
        for file in FILES {
            sync(&partial(self.dir, file))?;
        }
        for file in FILES.into_iter().rev() {
            let target = self.dir.join(file);
            fs::rename(partial(self.dir, file), &target).map_err(cannot_write(&target))?;
            sync(self.dir)?;
        }
        match self.dir.canonicalize().ok().as_deref().and_then(Path::parent) {
            Some(parent) if self.is_new => sync(parent),
            _ => Ok(()),
        }
    }
}

impl Drop for Partial<'_> {
    fn drop(&mut self) {
        let left = FILES.map(|file| partial(self.dir, file));
        let is_complete = left.iter().all(|file| !file.exists());
        for file in left {
            let _ = fs::remove_file(file);
        }
        if self.is_new && !is_complete {
            // The directory stays if it contains anything else.
            let _ = fs::remove_dir(self.dir);
        }
    }
}

fn sync(path: &Path) -> Result<(), BackupError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(cannot_write(path))
}

fn copy(from: &Path, to: &Path, mut progress: impl FnMut(u64, u64)) -> Result<(), Fault> {
    let source = open_for_reading(from)?;
    // An open snapshot: without it every concurrent commit would make SQLite restart the copy.
    let snapshot = source.unchecked_transaction()?;
    snapshot.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    create_private(to)?;
    let mut target = Connection::open(to)?;
    // No journal is needed: an incomplete copy is deleted, and a complete one is synced.
    target.query_row("PRAGMA journal_mode = OFF", [], |_| Ok(()))?;
    target.pragma_update(None, "synchronous", "OFF")?;
    let backup = Backup::new(&snapshot, &mut target)?;
    loop {
        let step = backup.step(STEP_PAGES)?;
        let state = backup.progress();
        let (left, total) = (state.remaining.max(0) as u64, state.pagecount.max(0) as u64);
        progress(total.saturating_sub(left), total);
        match step {
            StepResult::Done => break,
            StepResult::More => {}
            // No other process has the target open, and the source is held in a snapshot.
            busy => return Err(Fault::damaged("the backup's target", format!("{busy:?}"))),
        }
    }
    drop(backup);
    target.close().map_err(|(_, error)| error)?;
    drop(snapshot);
    Ok(())
}

/// Checks the copy of a file of a directory.
fn verify(copy: &Path, from: &Path, file: &str) -> Result<ScanReport, Fault> {
    let scan = || {
        let conn = open_unchanged(copy)?;
        match missing_tables(&conn, from, file)? {
            Some(problem) => Ok(ScanReport::of(problem)),
            None => integrity::scan(&conn),
        }
    };
    scan().or_else(|fault| as_problem(fault).map(ScanReport::of))
}
