//! Migrates a database to the version that this binary knows, one numbered step at a time, and only
//! forward.
//!
//! Each step is a transaction that locks the single row of `punctual`: nodes that start at the same time
//! take turns, and later ones find nothing left to do.

use super::connection::connect;
use super::export;
use super::inspect;
use super::options::{OptionsError, PostgresOptions, Target};
use crate::fault::Fault;
use crate::inventory::NO_TABLES;
use crate::server::migrations::MigrationStatus;
pub(crate) use crate::server::migrations::MigrationStep;
use crate::server::migrations::{self, AppliedSteps, migration_steps};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error};

pub(crate) const STEPS: &[MigrationStep] = migration_steps!();
/// The version to which this binary migrates a database.
pub const VERSION: usize = STEPS.len();
const BOOTSTRAP: &str = include_str!("schema/0000_bootstrap.sql");
/// How often the creation of the first tables is retried when others create them at the same time.
const BOOTSTRAP_TRIES: usize = 10;

/// A database cannot be used or changed as requested.
pub type MigrateError = migrations::MigrateError<OptionsError>;

impl From<OptionsError> for MigrateError {
    fn from(error: OptionsError) -> Self {
        MigrateError::Options(error)
    }
}

impl From<Error> for MigrateError {
    fn from(error: Error) -> Self {
        Fault::from(error).into()
    }
}

/// The version of a database; changes nothing.
pub async fn status(options: &PostgresOptions) -> Result<MigrationStatus, MigrateError> {
    let client = connect(&options.target()?).await?;
    let applied = applied(&client).await?;
    Ok(applied.status(STEPS))
}

/// Applies the missing steps. Returns their names.
pub async fn up(options: &PostgresOptions) -> Result<Vec<String>, MigrateError> {
    let client = connect(&options.target()?).await?;
    apply(&client, STEPS).await
}

/// The problems of the applied steps: steps that differ in this binary, and missing ones between them.
/// Empty if there are none.
pub async fn verify(options: &PostgresOptions) -> Result<Vec<String>, MigrateError> {
    let client = connect(&options.target()?).await?;
    let applied = applied(&client).await?;
    let Some(mut problems) = applied.problems(STEPS)? else { return Ok(vec![NO_TABLES.to_owned()]) };
    let scripts = [BOOTSTRAP].into_iter().chain(applied.scripts(STEPS));
    problems.extend(inspect::problems(&client, scripts).await?);
    Ok(problems)
}

/// Migrates an empty database. Rejects a database that another version has written or that is incomplete.
pub(crate) async fn prepare(target: &Target) -> Result<(), MigrateError> {
    let client = connect(target).await?;
    if export::is_unfinished(&client).await? {
        return Err(MigrateError::Unfinished);
    }
    match version(&client).await? {
        0 => apply(&client, STEPS).await.map(drop),
        found => MigrateError::check_version(found, VERSION),
    }
}

/// The version of a database; zero if it is empty.
pub(crate) async fn version(client: &Client) -> Result<usize, Fault> {
    Ok(applied(client).await?.version())
}

/// Migrates the database with these steps.
pub(crate) async fn apply(client: &Client, steps: &[MigrationStep]) -> Result<Vec<String>, MigrateError> {
    bootstrap(client).await?;
    let mut done = Vec::new();
    loop {
        let next = client.batch_execute("BEGIN").await.map_err(MigrateError::from);
        let next = match next {
            Ok(()) => apply_next(client, steps).await,
            Err(error) => Err(error),
        };
        match next {
            Ok(Some(name)) => {
                client.batch_execute("COMMIT").await?;
                tracing::info!(step = name, "the database was migrated");
                done.push(name.to_owned());
            }
            Ok(None) => {
                client.batch_execute("ROLLBACK").await?;
                return Ok(done);
            }
            Err(error) => {
                // The original error is reported; the caller drops a connection that cannot even roll back.
                let _ = client.batch_execute("ROLLBACK").await;
                return Err(error);
            }
        }
    }
}

/// Applies the next step under the lock. Returns its name, or `None` if there is none.
async fn apply_next(client: &Client, steps: &[MigrationStep]) -> Result<Option<&'static str>, MigrateError> {
    // Another node may be running a step that takes long, and so may this step.
    client.batch_execute("SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0").await?;
    let row = client.query_one("SELECT schema_version FROM punctual WHERE id = 1 FOR UPDATE", &[]).await?;
    let version: i32 = row.try_get(0)?;
    let found = usize::try_from(version).map_err(|_| Fault::damaged("punctual.schema_version", version))?;
    if found > steps.len() {
        return Err(MigrateError::Newer { found, known: steps.len() });
    }
    let Some(step) = steps.get(found) else { return Ok(None) };
    client.batch_execute(step.sql).await?;
    let next = version + 1;
    client
        .execute(
            "INSERT INTO migrations (version, name, sha256, applied_at) \
             VALUES ($1, $2, $3, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)",
            &[&next, &step.name, &step.checksum()],
        )
        .await?;
    client.execute("UPDATE punctual SET schema_version = $1 WHERE id = 1", &[&next]).await?;
    Ok(Some(step.name))
}

/// Creates the tables that record the steps. `IF NOT EXISTS` does not protect two processes that create
/// them at the same moment, so the second one tries again and finds them.
async fn bootstrap(client: &Client) -> Result<(), MigrateError> {
    for _ in 1..BOOTSTRAP_TRIES {
        match client.batch_execute(BOOTSTRAP).await {
            Err(error) if is_race(&error) => {}
            result => return Ok(result?),
        }
    }
    Ok(client.batch_execute(BOOTSTRAP).await?)
}

fn is_race(error: &Error) -> bool {
    let races = [SqlState::UNIQUE_VIOLATION, SqlState::DUPLICATE_TABLE, SqlState::DUPLICATE_OBJECT];
    error.code().is_some_and(|code| races.contains(code))
}

/// By version; empty for a database that Punctual has never used.
async fn applied(client: &Client) -> Result<AppliedSteps, Fault> {
    let rows = match client.query("SELECT version, name, sha256 FROM migrations ORDER BY version", &[]).await
    {
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => vec![],
        rows => rows?,
    };
    AppliedSteps::read(&rows)
}
