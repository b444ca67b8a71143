//! Errors inside an adapter, grouped by what the caller can do about them.

use crate::failures::{self, FailureKind};
use punctual_core::lifecycle::Refused;
use punctual_core::ports::Denial;
use punctual_core::ports::StoreError;
use rusqlite::{ErrorCode, ffi};
use std::borrow::Cow;

/// A failure of one statement, row or rule.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// An error from PostgreSQL that is neither a conflict nor an outage.
    #[error("{0}")]
    Postgres(String),
    /// An error from MariaDB or MySQL that is neither a conflict nor an outage.
    #[error("{0}")]
    MySql(String),
    /// The server reports that its own files are damaged.
    #[error("{0}")]
    Corrupt(String),
    /// The database answers but denies access. An administrator can fix that while callers wait, so it counts as an
    /// outage.
    #[error("{0}: {1}")]
    Denied(Denial, String),
    /// A row that Punctual cannot have written; `what` names the column.
    #[error("{what} holds {value}, which is not valid")]
    Damaged { what: Cow<'static, str>, value: String },
    #[error("a row is missing: {0}")]
    Missing(String),
    /// The row is not loaded yet. The unit of work has added it to the read set.
    #[error("a row has not been fetched")]
    Unloaded,
    /// The database rolled back the transaction in favour of another one.
    #[error("conflict with another transaction: {0}")]
    Conflict(String),
    /// The database is unreachable.
    #[error("it cannot be reached: {0}")]
    Away(String),
    #[error("the file cannot be created: {0}")]
    File(#[source] std::io::Error),
    #[error("a thread cannot be started")]
    Thread(#[source] std::io::Error),
    /// The rules rejected a transition that the row's state should allow.
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("settings that cannot be written or read: {0}")]
    Json(#[from] serde_json::Error),
}

impl Fault {
    pub fn damaged(what: impl Into<Cow<'static, str>>, value: impl ToString) -> Self {
        Fault::Damaged { what: what.into(), value: value.to_string() }
    }

    /// Whether the cause is a row that cannot be read, contradicts itself or refers to a missing row. Then only the
    /// object that the row describes fails (decision 0027).
    pub fn is_malformed(&self) -> bool {
        match self {
            Fault::Damaged { .. } | Fault::Missing(_) | Fault::Refused(_) | Fault::Json(_) => true,
            Fault::Sqlite(error) => is_conversion(error),
            _ => false,
        }
    }

    /// Whether a row must be loaded first. The verb then runs again from the start.
    pub fn is_unloaded(&self) -> bool {
        matches!(self, Fault::Unloaded)
    }

    /// The kind of failure that it is counted as.
    fn failure(&self) -> FailureKind {
        match self {
            Fault::Sqlite(error) => sqlite_failure(error),
            Fault::Corrupt(_) => FailureKind::Corruption,
            Fault::Denied(..) => FailureKind::Denied,
            Fault::Damaged { .. } | Fault::Missing(_) | Fault::Json(_) => FailureKind::Corruption,
            Fault::Conflict(_) => FailureKind::Conflict,
            Fault::Away(_) => FailureKind::Unavailable,
            Fault::File(_) => FailureKind::Io,
            _ => FailureKind::Other,
        }
    }

    /// Whether the cause is the disk or the machine. Then everything else in the transaction fails too, and
    /// a later retry may succeed.
    pub fn is_outage(&self) -> bool {
        match self {
            Fault::Sqlite(error) => is_sqlite_outage(error),
            Fault::Away(_) => true,
            Fault::Denied(..) => true,
            _ => false,
        }
    }

    /// Whether the database rolled back the transaction in favour of another one, so that an immediate
    /// retry is worthwhile. SQLite has one writer and therefore no conflicts.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Fault::Conflict(_))
    }
}

fn sqlite_failure(error: &rusqlite::Error) -> FailureKind {
    // The index of the write-ahead log cannot grow.
    if error.sqlite_error().is_some_and(|error| error.extended_code == ffi::SQLITE_IOERR_SHMSIZE) {
        return FailureKind::Full;
    }
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => FailureKind::Corruption,
        Some(ErrorCode::DiskFull) => FailureKind::Full,
        Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => FailureKind::Io,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed) => {
            FailureKind::Busy
        }
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => FailureKind::Denied,
        _ => FailureKind::Other,
    }
}

/// Whether a value does not have the type or range of its column.
fn is_conversion(error: &rusqlite::Error) -> bool {
    use rusqlite::Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType, Utf8Error};
    matches!(
        error,
        FromSqlConversionFailure(..) | IntegralValueOutOfRange(..) | InvalidColumnType(..) | Utf8Error(..)
    )
}

fn is_sqlite_outage(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DiskFull
                | ErrorCode::SystemIoFailure
                | ErrorCode::CannotOpen
                | ErrorCode::ReadOnly
                | ErrorCode::OutOfMemory
                | ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::FileLockingProtocolFailed
                | ErrorCode::OperationInterrupted
        )
    )
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        failures::count(fault.failure());
        if let Fault::Sqlite(error) = &fault
            && sqlite_failure(error) == FailureKind::Corruption
        {
            failures::count_damaged_file();
        }
        match fault {
            Fault::Denied(denial, said) => StoreError::Denied(denial, said),
            fault if fault.failure() == FailureKind::Full => StoreError::DiskFull,
            fault if fault.is_outage() || fault.is_conflict() => StoreError::Unavailable(fault.to_string()),
            fault => StoreError::Broken(fault.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_from_other_failures() {
        let failed = |code| {
            StoreError::from(Fault::Sqlite(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)))
        };
        for full in [ffi::SQLITE_FULL, ffi::SQLITE_IOERR_SHMSIZE] {
            assert_eq!(failed(full), StoreError::DiskFull);
        }
        assert!(StoreError::DiskFull.is_retryable());
        for other in [ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_READONLY] {
            assert!(matches!(failed(other), StoreError::Unavailable(_)), "{other}");
        }
    }
}
