//! One process per data directory. SQLite would let two processes share the file, but each would hand out
//! work according to its own memory, and would lose the other's embedded workers at its start.
//!
//! The lock is an `flock` on the main database file: it cannot be removed without removing the data.
//! SQLite's own locks are of another kind (`fcntl`) and do not conflict with it. The kernel drops all
//! `fcntl` locks that a process holds on a file when the process closes any descriptor of that file. So the
//! locked descriptor is opened before SQLite opens the file, and closed after SQLite has closed it.
//!
//! `punctual.lock` is locked as well: earlier versions lock nothing else, and it still rejects a second
//! process if the database file was replaced.

use super::connection::create_private;
use super::open::{LOCK_FILE, MAIN_FILE, OpenError, identity, refuse_emptied, refuse_incomplete};
use punctual_core::ports::StoreError;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// Held as long as this value lives; the kernel releases it when the process dies. Drop it after all connections.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    _main: File,
    /// Absent if a process that only reads finds no such file.
    _lock: Option<File>,
}

impl DirectoryLock {
    /// For a process that writes. Creates the main file if the directory contains no store. Rejects a
    /// directory whose store is incomplete or was emptied.
    pub fn take(dir: &Path) -> Result<Self, OpenError> {
        refuse_incomplete(dir)?;
        let lock = dir.join(LOCK_FILE);
        if !lock.exists() {
            // A rejected start creates no file.
            refuse_emptied(dir)?;
        }
        let file = OpenOptions::new().create(true).write(true).truncate(false).open(&lock);
        let file = locked(file, &lock, FlockOperation::NonBlockingLockExclusive)?;
        refuse_emptied(dir)?;
        let main = dir.join(MAIN_FILE);
        create_private(&main)
            .map_err(|fault| OpenError::Database { path: main.clone(), source: StoreError::from(fault) })?;
        let main_file = OpenOptions::new().read(true).write(true).open(&main);
        let main_file = locked(main_file, &main, FlockOperation::NonBlockingLockExclusive)?;
        must_be_at(&main_file, &main)?;
        Ok(DirectoryLock { _main: main_file, _lock: Some(file) })
    }

    /// For a process that only reads a store that no server has open. Creates nothing, and works in a
    /// read-only directory.
    pub fn share(dir: &Path) -> Result<Self, OpenError> {
        let lock = dir.join(LOCK_FILE);
        let file = match File::open(&lock) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            file => Some(locked(file, &lock, FlockOperation::NonBlockingLockShared)?),
        };
        let main = dir.join(MAIN_FILE);
        let main_file = locked(File::open(&main), &main, FlockOperation::NonBlockingLockShared)?;
        must_be_at(&main_file, &main)?;
        Ok(DirectoryLock { _main: main_file, _lock: file })
    }
}

fn locked(file: io::Result<File>, path: &Path, operation: FlockOperation) -> Result<File, OpenError> {
    let in_file = |source| OpenError::Io { path: path.to_owned(), source };
    let file = file.map_err(in_file)?;
    match flock(&file, operation) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(OpenError::InUse { lock: path.to_owned() }),
        Err(errno) => Err(in_file(errno.into())),
    }
}

/// Another process may have replaced the file between opening and locking it.
fn must_be_at(file: &File, path: &Path) -> Result<(), OpenError> {
    let in_file = |source| OpenError::Io { path: path.to_owned(), source };
    let [open, there] = [file.metadata(), std::fs::metadata(path)].map(|metadata| metadata.map_err(in_file));
    if identity(&open?) == identity(&there?) {
        return Ok(());
    }
    Err(in_file(io::Error::other("the file was replaced while it was being opened: try again")))
}
