//! One process per data directory: SQLite would let two share the file, but each would hand out work by what
//! it alone remembers, and lose the other's embedded workers at its start.

use super::open::OpenError;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::path::Path;

/// Held as long as this value lives; the kernel releases it when the process dies.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    pub fn take(path: &Path) -> Result<Self, OpenError> {
        let in_file = |source| OpenError::Io { path: path.to_owned(), source };
        let file = OpenOptions::new().create(true).write(true).truncate(false).open(path).map_err(in_file)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(DirectoryLock { _file: file }),
            Err(Errno::WOULDBLOCK) => Err(OpenError::InUse { lock: path.to_owned() }),
            Err(errno) => Err(in_file(errno.into())),
        }
    }
}
