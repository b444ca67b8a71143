//! What can go wrong inside the adapter, sorted by what the caller can do about it.

use punctual_core::lifecycle::Refused;
use punctual_core::ports::StoreError;
use rusqlite::ErrorCode;

/// A failure of one statement, row or rule.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// A row that our own code cannot have written.
    #[error("{what} holds {value}, which has no meaning")]
    Damaged { what: &'static str, value: String },
    #[error("a row is missing: {0}")]
    Missing(String),
    #[error("the file cannot be created: {0}")]
    File(#[source] std::io::Error),
    #[error("a thread cannot be started")]
    Thread(#[source] std::io::Error),
    /// The rules refused a move that the row's state should allow.
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("settings that cannot be written or read: {0}")]
    Json(#[from] serde_json::Error),
}

impl Fault {
    pub fn damaged(what: &'static str, value: impl ToString) -> Self {
        Fault::Damaged { what, value: value.to_string() }
    }

    /// Whether the disk or the machine is to blame, so that nothing else in the transaction can succeed
    /// either and a later try may.
    pub fn is_outage(&self) -> bool {
        let Fault::Sqlite(error) = self else { return false };
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
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        if fault.is_outage() {
            StoreError::Unavailable(fault.to_string())
        } else {
            StoreError::Broken(fault.to_string())
        }
    }
}
