//! Migrates a database to the version that this binary knows, one numbered step at a time, and only
//! forward.
//!
//! These servers commit every DDL statement separately. So a step is a list of statements that can each be
//! run again. It counts as applied when its row is written after them. Nodes that start at the same time
//! take turns. The lock is on a separate connection, because a DDL statement would release it.

use super::connection::Connection;
pub(crate) use super::exclusive_work::{DdlLock, LockWait};
use super::export;
use super::inspect;
use super::options::{MySqlOptions, OptionsError, Target};
use super::partitions;
use crate::fault::Fault;
use crate::inventory::NO_TABLES;
use crate::server::migrations::MigrationStatus;
pub(crate) use crate::server::migrations::MigrationStep;
use crate::server::migrations::{self, AppliedSteps, migration_steps};
use mysql_async::Value;

pub(crate) const STEPS: &[MigrationStep] = migration_steps!();
/// The version to which this binary migrates a database.
pub const VERSION: usize = STEPS.len();
/// How often a statement is run because another node blocked it.
const TRIES: usize = 5;
const BOOTSTRAP: &str = include_str!("schema/0000_bootstrap.sql");

const NOTE_STEP: &str = "INSERT INTO migrations (version, name, sha256, applied_at) \
     VALUES (?, ?, ?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))";
const HAS_MIGRATIONS: &str = "SELECT 1 FROM information_schema.tables \
     WHERE table_schema = DATABASE() AND table_name = 'migrations'";
const APPLIED: &str = "SELECT version, name, sha256 FROM migrations ORDER BY version";

/// A database cannot be used or changed as requested.
pub type MigrateError = migrations::MigrateError<OptionsError>;

impl From<OptionsError> for MigrateError {
    fn from(error: OptionsError) -> Self {
        MigrateError::Options(error)
    }
}

/// The version of a database; changes nothing.
pub async fn status(options: &MySqlOptions) -> Result<MigrationStatus, MigrateError> {
    let mut connection = Connection::defining(&options.target()?).await?;
    let applied = applied(&mut connection).await?;
    connection.close().await;
    Ok(applied.status(STEPS))
}

/// Applies the missing steps. Returns their names.
pub async fn up(options: &MySqlOptions) -> Result<Vec<String>, MigrateError> {
    let target = options.target()?;
    let done = apply(&target, STEPS).await?;
    partitions::make_ahead(&target, options.partition_width).await?;
    Ok(done)
}

/// The problems of the applied steps and of the tables that they created. Empty if there are none.
pub async fn verify(options: &MySqlOptions) -> Result<Vec<String>, MigrateError> {
    let mut connection = Connection::defining(&options.target()?).await?;
    let applied = applied(&mut connection).await?;
    let Some(mut problems) = applied.problems(STEPS)? else { return Ok(vec![NO_TABLES.to_owned()]) };
    let scripts = [BOOTSTRAP].into_iter().chain(applied.scripts(STEPS));
    problems.extend(inspect::problems(&mut connection, scripts.flat_map(statements)).await?);
    connection.close().await;
    Ok(problems)
}

/// Migrates an empty database, rejects one that another version has written, and creates today's
/// partitions. Returns whether the server is a node of a Galera cluster.
pub(crate) async fn prepare(options: &MySqlOptions) -> Result<bool, MigrateError> {
    let target = options.target()?;
    let mut connection = Connection::defining(&target).await?;
    let found = applied(&mut connection).await?.version();
    let is_unfinished = export::is_unfinished(&mut connection).await?;
    let is_node = connection.node().is_some();
    connection.close().await;
    match found {
        _ if is_unfinished => return Err(MigrateError::Unfinished),
        0 => apply(&target, STEPS).await.map(drop)?,
        found => MigrateError::check_version(found, VERSION)?,
    }
    partitions::make_ahead(&target, options.partition_width).await?;
    Ok(is_node)
}

/// Migrates the database with these steps. Returns the names of those that were applied.
pub(crate) async fn apply(target: &Target, steps: &[MigrationStep]) -> Result<Vec<String>, MigrateError> {
    let mut connection = Connection::defining(target).await?;
    bootstrap(&mut connection).await?;
    let mut applied = Ok(vec![]);
    if let Some(mut ddl_lock) = DdlLock::take(target, LockWait::Long).await? {
        applied = apply_missing(&mut connection, &mut ddl_lock, steps).await;
        ddl_lock.end().await;
    }
    connection.close().await;
    applied
}

/// Creates what is needed before any process can take the lock. Each statement can be run again, and is if
/// another node was faster.
async fn bootstrap(connection: &mut Connection) -> Result<(), Fault> {
    for statement in statements(BOOTSTRAP) {
        let mut tries = 1;
        while let Err(fault) = connection.run_text(statement).await {
            if !fault.is_conflict() || tries == TRIES {
                return Err(fault);
            }
            tries += 1;
        }
    }
    Ok(())
}

async fn apply_missing(
    connection: &mut Connection,
    ddl_lock: &mut DdlLock,
    steps: &[MigrationStep],
) -> Result<Vec<String>, MigrateError> {
    let found = applied(connection).await?.version();
    if found > steps.len() {
        return Err(MigrateError::Newer { found, known: steps.len() });
    }
    let mut done = Vec::new();
    for (number, step) in (1_u64..).zip(steps).skip(found) {
        for statement in statements(step.sql) {
            ddl_lock.renew().await?;
            // A table that is being created is not in use; a table in use may delay a later step.
            if !connection.define(statement).await? {
                let reason = format!("{}: a table is in use by others: try again", step.name);
                return Err(Fault::Away(reason).into());
            }
        }
        let row = vec![number.into(), step.name.into(), Value::Bytes(step.checksum())];
        connection.run(NOTE_STEP, row).await?;
        tracing::info!(step = step.name, "the database was migrated");
        done.push(step.name.to_owned());
    }
    Ok(done)
}

/// The statements of a script. Ours end with a semicolon at the end of a line, and contain none there
/// otherwise.
fn statements(script: &str) -> impl Iterator<Item = &str> {
    script.split(";\n").map(without_comments).filter(|statement| !statement.is_empty())
}

/// Without the comment lines before it.
fn without_comments(mut statement: &str) -> &str {
    loop {
        statement = statement.trim();
        match statement.strip_prefix("--") {
            Some(comment) => statement = comment.split_once('\n').map_or("", |(_, rest)| rest),
            None => return statement,
        }
    }
}

/// The version of a database; zero if Punctual has never used it.
pub(crate) async fn version(connection: &mut Connection) -> Result<usize, Fault> {
    Ok(applied(connection).await?.version())
}

/// By version; empty for a database that Punctual has never used.
async fn applied(connection: &mut Connection) -> Result<AppliedSteps, Fault> {
    if connection.all(HAS_MIGRATIONS, vec![]).await?.is_empty() {
        return Ok(AppliedSteps::default());
    }
    let rows = connection.all(APPLIED, vec![]).await?;
    AppliedSteps::read(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_split_into_statements_without_comments() {
        let script =
            "-- One.\n-- Two; and\nCREATE TABLE a (\n  -- inside; it stays\n  b INT\n);\n\n-- The end.\n";
        let found: Vec<&str> = statements(script).collect();
        assert_eq!(found, ["CREATE TABLE a (\n  -- inside; it stays\n  b INT\n)"]);
        for step in STEPS {
            let mut statements = statements(step.sql);
            let can_be_run_again = |one: &str| {
                one.starts_with("CREATE TABLE IF NOT EXISTS ")
                    || one.contains("ON DUPLICATE KEY")
                    || one.starts_with("CREATE INDEX ")
                    || (one.starts_with("ALTER TABLE ") && one.contains(" ADD COLUMN "))
            };
            assert_eq!(statements.find(|one| !can_be_run_again(one)), None);
        }
    }
}
