//! Creates and drops whole databases, for benchmarks and tests that need their own.

use super::connection::connect;
use super::migrate::MigrateError;
use super::options::PostgresOptions;
use crate::fault::Fault;

/// Creates a database on the same server as the one that the options name.
pub async fn create_database(options: &PostgresOptions, name: &str) -> Result<(), MigrateError> {
    let name = checked(name)?;
    Ok(connect(&options.target()?).await?.batch_execute(&format!("CREATE DATABASE {name}")).await?)
}

/// Drops the database with everything in it, if it exists, and disconnects its users. The database that the
/// options name cannot be dropped.
pub async fn drop_database(options: &PostgresOptions, name: &str) -> Result<(), MigrateError> {
    let name = checked(name)?;
    let drop = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
    Ok(connect(&options.target()?).await?.batch_execute(&drop).await?)
}

/// The name as an SQL identifier.
fn checked(name: &str) -> Result<String, Fault> {
    let is_plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
    if name.is_empty() || !name.chars().all(is_plain) {
        return Err(Fault::Postgres("the name of a database may have only a-z, 0-9 and _".to_owned()));
    }
    Ok(format!("\"{name}\""))
}
