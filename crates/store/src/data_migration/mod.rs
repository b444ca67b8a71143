//! Data migration: copies everything from one store to another, empty one, between any two databases.
//!
//! Rows are copied cell by cell, because all databases have the same columns with the same meaning
//! (`layout.rs` of the crate). Nothing is converted to the types of core and back. A page of rows and the
//! position of the copy are written in one transaction of the target, so an interrupted copy continues
//! after its last page. Until everything is copied and both sides have been compared row by row, the target
//! has a table of notes. A store with such a table cannot be opened.
//!
//! Numbers of lanes, workers, sessions and positions in history stay the same. Two things change:
//! - Sessions arrive as lost. When a server starts, the ordinary rules recover the executions that ran
//!   under their leases.
//! - Log lines get the numbers that their new database would have assigned. Their order stays the same.

mod cells;
mod copy;
mod side;
#[cfg(test)]
mod tests;

pub(crate) use crate::cells::{Cell, Cells};
pub(crate) use crate::layout::{Column, Layout, TABLES};
pub(crate) use side::{
    COPY_QUEUES, MigrationSide, Notes, OPEN_SESSIONS, Portion, fitting, fork_statements, number_statement,
};

use crate::fault::Fault;
use crate::mysql::{self, MySqlOptions};
use crate::postgres::{self, PostgresOptions};
use crate::server::migrations::MigrateError;
use crate::sqlite;
use punctual_core::limits::MOVING_LEAVE_MAX;
use punctual_core::ports::{Denial, StoreError};
use punctual_core::time::Timestamp;
use std::fmt;
use std::path::PathBuf;

/// The location of a store.
#[derive(Debug, Clone)]
pub enum StoreAddress {
    /// The data directory of an embedded store.
    Sqlite(PathBuf),
    Postgres(PostgresOptions),
    MySql(MySqlOptions),
}

/// The role of a store in a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreRole {
    Source,
    Target,
    /// A copy that was restored next to the original.
    Copy,
}

impl fmt::Display for StoreRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StoreRole::Source => "the source",
            StoreRole::Target => "the target",
            StoreRole::Copy => "the copy",
        })
    }
}

impl StoreAddress {
    async fn open(&self, end: StoreRole) -> Result<Box<dyn MigrationSide>, DataMigrationError> {
        match self {
            StoreAddress::Sqlite(directory) => Ok(Box::new(sqlite::export::open(directory, end)?)),
            StoreAddress::Postgres(options) => Ok(Box::new(postgres::export::open(options, end).await?)),
            StoreAddress::MySql(options) => Ok(Box::new(mysql::export::open(options, end).await?)),
        }
    }
}

/// The progress of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyProgress {
    pub stage: CopyStage,
    pub table: &'static str,
    pub rows_done: u64,
    pub rows_total: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyStage {
    Copying,
    /// Both sides are being read and compared.
    Verifying,
}

/// How a copy began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyStart {
    /// The target was empty.
    New,
    /// It continued where an earlier copy of the same source was interrupted.
    Resumed,
    /// The source has changed since an earlier copy, or that copy was found to differ: everything was
    /// copied again.
    Restarted,
}

/// A complete copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migrated {
    pub beginning: CopyStart,
    pub tables: Vec<MigratedTable>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigratedTable {
    pub name: &'static str,
    pub rows: u64,
    /// The checksum of all rows, the same on both sides.
    pub checksum: String,
}

/// Nothing was copied, or not everything. The source is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DataMigrationError {
    #[error("{end} is in use: {by}; stop all servers that use it and try again")]
    InUse { end: StoreRole, by: String },
    #[error(
        "{end} is locked: another migration from or to it is running, or source and target are the same; wait until it has \
         ended"
    )]
    Taken { end: StoreRole },
    #[error("there is no store in {0}: name the data directory of the embedded store")]
    NoStore(String),
    #[error("{end} is a database without a store in it: is it the right database? {}", of_empty(*.end))]
    NoTables { end: StoreRole },
    #[error("{end} has version {found} of its tables, but this binary needs version {needed}: {advice}")]
    Version { end: StoreRole, found: usize, needed: usize, advice: &'static str },
    #[error(
        "the source is itself an unfinished copy: complete that one first, or migrate from the store it was copied from"
    )]
    SourceUnfinished,
    #[error(
        "the target is not empty: it has {rows} rows in its table {table}; name a database or directory that no server \
         has used"
    )]
    TargetServed { table: &'static str, rows: u64 },
    #[error(
        "the target holds the unfinished copy of another store ({0}): continue that copy, or name another target"
    )]
    OtherSource(String),
    #[error(
        "source and target differ in {}: the source was changed during the copy, or a disk or network has damaged the \
         copy; make sure that nothing uses the source and repeat the command, which then copies everything again", .0.join(", ")
    )]
    Differ(Vec<String>),
    #[error("{end} cannot be used: {reason}")]
    Unusable { end: StoreRole, reason: String },
    #[error("{end}: {source}{}", again(source))]
    Store { end: StoreRole, source: StoreError },
}

impl DataMigrationError {
    pub(crate) fn at(end: StoreRole) -> impl Fn(Fault) -> DataMigrationError {
        move |fault| DataMigrationError::Store { end, source: fault.into() }
    }

    /// The tables cannot be migrated.
    pub(crate) fn migrate<O: std::error::Error>(
        end: StoreRole,
    ) -> impl Fn(MigrateError<O>) -> DataMigrationError {
        move |error| match error {
            MigrateError::Store(source) => DataMigrationError::Store { end, source },
            other => DataMigrationError::Unusable { end, reason: other.to_string() },
        }
    }

    /// Rejects tables of another version. Returns whether there are none and they must be created.
    pub(crate) fn check_version(end: StoreRole, found: usize, needed: usize) -> Result<bool, Self> {
        match found {
            _ if found == needed => Ok(false),
            0 if end == StoreRole::Target => Ok(true),
            0 => Err(DataMigrationError::NoTables { end }),
            _ => {
                let advice = if found < needed {
                    "run `punctual migrate up`"
                } else {
                    "run the newer binary that wrote it"
                };
                Err(DataMigrationError::Version { end, found, needed, advice })
            }
        }
    }

    /// Which store denied access and why, if that is the error.
    pub fn denied(&self) -> Option<(StoreRole, Denial, &str)> {
        match self {
            DataMigrationError::Store { end, source: StoreError::Denied(denial, said) } => {
                Some((*end, *denial, said))
            }
            _ => None,
        }
    }

    /// Whether the cause must be fixed before a retry can succeed.
    pub fn is_refusal(&self) -> bool {
        self.denied().is_some()
            || !matches!(self, DataMigrationError::Store { .. } | DataMigrationError::Differ(_))
    }
}

/// Advice for a database without tables.
const fn of_empty(end: StoreRole) -> &'static str {
    match end {
        StoreRole::Copy => "The backup has to be restored into it first",
        StoreRole::Source | StoreRole::Target => "--from and --to may be swapped",
    }
}

/// What to do about a store that failed, if a retry may help.
fn again(error: &StoreError) -> &'static str {
    match error {
        StoreError::DiskFull => "; free some space, and repeat the command to continue where it stopped",
        StoreError::Unavailable(_) => "; repeat the command to continue where it stopped",
        StoreError::Denied(..) | StoreError::Broken(_) => "",
    }
}

/// Copies everything from the source to the target, compares both, and opens the target for use. Calls
/// `report_progress` with the progress.
pub async fn migrate_data(
    from: &StoreAddress,
    to: &StoreAddress,
    report_progress: &mut (dyn FnMut(CopyProgress) + Send),
) -> Result<Migrated, DataMigrationError> {
    let source = from.open(StoreRole::Source).await?;
    let target = to.open(StoreRole::Target).await?;
    copy::DataMigration { source, target, report_progress, leave_max: MOVING_LEAVE_MAX }.run().await
}

/// A copy that was turned into an independent store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forked {
    /// The names of the queues that are paused in it: all queues.
    pub queues: Vec<String>,
    /// Worker sessions that were open in the original.
    pub sessions: u64,
}

/// Makes a copy that was restored next to its original harmless: all its queues are paused, so that nothing
/// in it runs a second time; workers of the original have no sessions in it; and it gets its own identity.
/// Rejected while the store is in use, because it may then be the original.
pub async fn fork(address: &StoreAddress, now: Timestamp) -> Result<Forked, DataMigrationError> {
    let mut side = address.open(StoreRole::Copy).await?;
    copy::must_be_idle(&mut *side, StoreRole::Copy, MOVING_LEAVE_MAX).await?;
    let at_copy = DataMigrationError::at(StoreRole::Copy);
    if !side.notes().await.map_err(&at_copy)?.is_empty() {
        let reason = crate::unfinished::UNFINISHED.to_owned();
        return Err(DataMigrationError::Unusable { end: StoreRole::Copy, reason });
    }
    side.fork(now).await.map_err(at_copy)
}
