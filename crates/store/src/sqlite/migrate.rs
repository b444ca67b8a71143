//! Migrates a database to the version that this binary knows, one numbered step at a time.

use crate::fault::Fault;
use punctual_core::ports::StoreError;
use rusqlite::Connection;

/// Steps of the main database: the n-th leads from version n − 1 to n. A released step never changes.
pub(crate) const MAIN: &[&str] = &[
    include_str!("migrations/0001_initial.sql"),
    include_str!("migrations/0002_control.sql"),
    include_str!("migrations/0003_foundations.sql"),
    include_str!("migrations/0004_cluster.sql"),
    include_str!("migrations/0005_limits.sql"),
    include_str!("migrations/0006_unused.sql"),
    include_str!("migrations/0007_access.sql"),
    include_str!("migrations/0008_audit.sql"),
    include_str!("migrations/0009_secrets.sql"),
    include_str!("migrations/0010_documents.sql"),
    include_str!("migrations/0011_run_inputs.sql"),
];
/// Steps of the database of log lines.
pub(crate) const LOGS: &[&str] =
    &[include_str!("migrations/logs_0001_initial.sql"), include_str!("migrations/logs_0002_removed.sql")];

/// The database cannot be migrated to this binary's version.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MigrateError {
    #[error(
        "the database has version {found}, but this binary knows versions up to {known}: \
         run the newer binary that wrote it"
    )]
    Newer { found: usize, known: usize },
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl From<MigrateError> for StoreError {
    fn from(error: MigrateError) -> Self {
        match error {
            MigrateError::Fault(fault) => fault.into(),
            newer @ MigrateError::Newer { .. } => StoreError::Broken(newer.to_string()),
        }
    }
}

/// Applies the missing steps, each in one transaction with its version number, so that a crash leaves a
/// step either complete or not applied.
pub(crate) fn migrate(conn: &mut Connection, steps: &[&str]) -> Result<(), MigrateError> {
    let found = version(conn)?;
    if found > steps.len() {
        return Err(MigrateError::Newer { found, known: steps.len() });
    }
    for (number, step) in (1..).zip(steps).skip(found) {
        apply(conn, number, step).map_err(Fault::from)?;
    }
    Ok(())
}

pub(crate) fn version(conn: &Connection) -> Result<usize, Fault> {
    let version: i64 = conn.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    usize::try_from(version).map_err(|_| Fault::damaged("user_version", version))
}

fn apply(conn: &mut Connection, number: i64, step: &str) -> rusqlite::Result<()> {
    let transaction = conn.transaction()?;
    transaction.execute_batch(step)?;
    transaction.pragma_update(None, "user_version", number)?;
    transaction.commit()
}
