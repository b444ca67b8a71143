//! Whole databases, for benchmarks and tests that want one of their own.

use super::connection::Connection;
use super::migrate::MigrateError;
use super::options::MySqlOptions;
use crate::fault::Fault;

/// Makes a database beside the one that the options name, on the same server.
pub async fn create_database(options: &MySqlOptions, name: &str) -> Result<(), MigrateError> {
    run(options, name, "CREATE DATABASE").await
}

/// Drops it with all that is in it, if it is there.
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
