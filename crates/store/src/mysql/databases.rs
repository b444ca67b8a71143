//! Creates and drops whole databases, for benchmarks and tests that need their own.

use super::connection::Connection;
use super::migrate::MigrateError;
use super::options::MySqlOptions;
use crate::fault::Fault;

/// Creates a database on the same server as the one that the options name.
pub async fn create_database(options: &MySqlOptions, name: &str) -> Result<(), MigrateError> {
    run(options, name, "CREATE DATABASE").await
}

/// Drops the database with everything in it, if it exists.
pub async fn drop_database(options: &MySqlOptions, name: &str) -> Result<(), MigrateError> {
    run(options, name, "DROP DATABASE IF EXISTS").await
}

async fn run(options: &MySqlOptions, name: &str, verb: &str) -> Result<(), MigrateError> {
    let is_plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
    if name.is_empty() || !name.chars().all(is_plain) {
        return Err(Fault::MySql("the name of a database may have only a-z, 0-9 and _".to_owned()).into());
    }
    let mut connection = Connection::defining(&options.target()?).await?;
    connection.run_text(&format!("{verb} `{name}`")).await?;
    connection.close().await;
    Ok(())
}
