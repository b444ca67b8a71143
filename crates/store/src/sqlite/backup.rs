//! Copying a store while it is in use.

use super::connection::{create_private, open_for_reading};
use super::open::{LOGS_FILE, MAIN_FILE};
use crate::fault::Fault;
use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Pages copied between two reports of progress.
const STEP_PAGES: i32 = 1_024;

/// How far a backup has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupProgress {
    /// The file being copied, by its name in the data directory.
    pub file: &'static str,
    pub pages_done: u64,
    pub pages_total: u64,
}

/// A backup was not made.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("{} is there already and is not overwritten", .0.display())]
    AlreadyThere(PathBuf),
    #[error("{} cannot be written", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} cannot be copied: {reason}", path.display())]
    Copy { path: PathBuf, reason: String },
}

/// Copies the store of one directory into another, which can then be opened as one. It only reads, so the
/// server of the directory, in this process or another, goes on meanwhile.
///
/// Blocks the calling thread. Each database is copied as it stands at one moment; the write-ahead log cannot be
/// cut back while its copy is under way.
pub fn backup(from: &Path, to: &Path, mut progress: impl FnMut(BackupProgress)) -> Result<(), BackupError> {
    let create = DirBuilder::new().recursive(true).mode(0o700).create(to);
    create.map_err(|source| BackupError::Io { path: to.to_owned(), source })?;
    for file in [MAIN_FILE, LOGS_FILE] {
        let target = to.join(file);
        if target.exists() {
            return Err(BackupError::AlreadyThere(target));
        }
    }
    for file in [MAIN_FILE, LOGS_FILE] {
        let target = to.join(file);
        copy(&from.join(file), &target, |pages_done, pages_total| {
            progress(BackupProgress { file, pages_done, pages_total });
        })
        .map_err(|fault| BackupError::Copy { path: from.join(file), reason: fault.to_string() })?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path, mut progress: impl FnMut(u64, u64)) -> Result<(), Fault> {
    let source = open_for_reading(from)?;
    // An open snapshot: without it every commit beside the copy would make SQLite start over.
    let snapshot = source.unchecked_transaction()?;
    snapshot.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    create_private(to)?;
    let mut target = Connection::open(to)?;
    let backup = Backup::new(&snapshot, &mut target)?;
    loop {
        let step = backup.step(STEP_PAGES)?;
        let state = backup.progress();
        let (left, total) = (state.remaining.max(0) as u64, state.pagecount.max(0) as u64);
        progress(total.saturating_sub(left), total);
        match step {
            StepResult::Done => break,
            StepResult::More => {}
            // Nobody else has the target open, and the source is held in a snapshot.
            busy => return Err(Fault::damaged("the backup's target", format!("{busy:?}"))),
        }
    }
    drop(backup);
    target.close().map_err(|(_, error)| error)?;
    drop(snapshot);
    Ok(())
}
