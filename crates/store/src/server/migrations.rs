//! Numbered migrations of a server's tables: which were applied, and whether they are those of this binary.
//! Each dialect knows how to lock, apply and record them.

use crate::cells::{RowCells, get, read};
use crate::fault::Fault;
use punctual_core::ports::StoreError;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::error::Error;

/// A database cannot be used or changed as requested.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MigrateError<O: Error + 'static> {
    #[error(transparent)]
    Options(O),
    #[error(
        "the database has version {found}, but this binary knows versions up to {known}: \
         run the newer binary that wrote it"
    )]
    Newer { found: usize, known: usize },
    #[error(
        "the database has version {found}, but this binary needs version {needed}: run `punctual migrate up`"
    )]
    Older { found: usize, needed: usize },
    /// It is the target of an unfinished data migration.
    #[error("{}", crate::unfinished::UNFINISHED)]
    Unfinished,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl<O: Error> From<Fault> for MigrateError<O> {
    fn from(fault: Fault) -> Self {
        MigrateError::Store(fault.into())
    }
}

impl<O: Error> MigrateError<O> {
    /// Rejects a database of another version than this one.
    pub(crate) fn check_version(found: usize, known: usize) -> Result<(), Self> {
        match found.cmp(&known) {
            Ordering::Less => Err(MigrateError::Older { found, needed: known }),
            Ordering::Equal => Ok(()),
            Ordering::Greater => Err(MigrateError::Newer { found, known }),
        }
    }
}

/// A numbered step; its number is its index in the list, from 1.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MigrationStep {
    pub name: &'static str,
    pub sql: &'static str,
}

/// The steps of a dialect, from the files in its directory `schema`: the n-th leads from version n − 1 to n. A released
/// step never changes.
macro_rules! migration_steps {
    () => {
        $crate::server::migrations::migration_steps!(
            "0001_initial",
            "0002_cluster",
            "0003_limits",
            "0004_unused",
            "0005_access",
            "0006_audit",
            "0007_secrets",
            "0008_documents",
            "0009_run_inputs",
        )
    };
    ($($name:literal),* $(,)?) => {
        &[$(MigrationStep { name: $name, sql: include_str!(concat!("schema/", $name, ".sql")) }),*]
    };
}
pub(crate) use migration_steps;

impl MigrationStep {
    pub fn checksum(&self) -> Vec<u8> {
        Sha256::digest(self.sql).to_vec()
    }
}

/// The version of a database compared with this binary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MigrationStatus {
    /// The version of the database; zero if it is empty.
    pub version: usize,
    /// The version to which this binary migrates it.
    pub version_known: usize,
    /// The names of the applied steps.
    pub applied: Vec<String>,
    /// The names of the missing steps.
    pub pending: Vec<String>,
}

impl MigrationStatus {
    /// Whether this binary can use the database.
    pub const fn is_done(&self) -> bool {
        self.version == self.version_known
    }
}

/// The steps that were applied, by version. Empty for a database that Punctual has never used.
#[derive(Debug, Default)]
pub(crate) struct AppliedSteps(BTreeMap<usize, AppliedStep>);

#[derive(Debug)]
struct AppliedStep {
    name: String,
    sha256: Vec<u8>,
}

impl AppliedSteps {
    /// Reads version, name and checksum.
    pub fn read<R: RowCells>(rows: &[R]) -> Result<Self, Fault> {
        let step = |row: &R| {
            let applied = AppliedStep { name: get(row, 1)?, sha256: get(row, 2)? };
            Ok((read(row, 0, "migrations.version")?, applied))
        };
        Ok(AppliedSteps(rows.iter().map(step).collect::<Result<_, Fault>>()?))
    }

    /// Zero if there are none.
    pub fn version(&self) -> usize {
        self.0.last_key_value().map_or(0, |(version, _)| *version)
    }

    pub fn status(self, steps: &[MigrationStep]) -> MigrationStatus {
        let version = self.version();
        MigrationStatus {
            version,
            version_known: steps.len(),
            applied: self.0.into_values().map(|step| step.name).collect(),
            pending: steps.iter().skip(version).map(|step| step.name.to_owned()).collect(),
        }
    }

    /// The scripts of these steps that were applied.
    pub fn scripts(&self, steps: &'static [MigrationStep]) -> impl Iterator<Item = &'static str> {
        steps.iter().take(self.version()).map(|step| step.sql)
    }

    /// Steps that differ in this binary, and missing ones between the applied ones. `None` if there are no tables.
    pub fn problems<O: Error>(
        &self,
        steps: &[MigrationStep],
    ) -> Result<Option<Vec<String>>, MigrateError<O>> {
        let (found, known) = (self.version(), steps.len());
        if found > known {
            return Err(MigrateError::Newer { found, known });
        }
        let wrong = (1..=found).zip(steps).filter_map(|(number, step)| match self.0.get(&number) {
            None => Some(format!("{} is not among the steps that were applied", step.name)),
            Some(found) if found.sha256 != step.checksum() => {
                Some(format!("{} was applied in another form than this binary has", step.name))
            }
            Some(_) => None,
        });
        Ok((found > 0).then(|| wrong.collect()))
    }
}
