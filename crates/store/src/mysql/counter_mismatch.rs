//! Counter mismatches of a database: see [`crate::server::counter_mismatch`].

use super::connection::Connection;
use super::migrate::{MigrateError, VERSION, version};
use super::options::MySqlOptions;
use crate::counter_mismatch::CounterMismatch;
use crate::server::counter_mismatch;
use punctual_core::limits;

/// The sum of a column, as near as a whole number can be.
pub(crate) const SUM: &str = "CAST(COALESCE(SUM({}), 0) AS SIGNED)";

/// The counters that differ from their rows.
pub async fn find(options: &MySqlOptions) -> Result<Vec<CounterMismatch>, MigrateError> {
    let mut connection = connect_without_time_limit(options).await?;
    let found = counter_mismatch::find(&mut connection, SUM).await;
    connection.close().await;
    Ok(found?)
}

/// Repairs them. Returns the changes.
pub async fn repair(options: &MySqlOptions) -> Result<Vec<CounterMismatch>, MigrateError> {
    let mut connection = connect_without_time_limit(options).await?;
    let repaired = counter_mismatch::repair(&mut connection, SUM).await;
    connection.close().await;
    Ok(repaired?)
}

/// A connection for statements that read whole tables, to a database of a version that this binary
/// supports.
pub(super) async fn connect_without_time_limit(options: &MySqlOptions) -> Result<Connection, MigrateError> {
    let options = MySqlOptions { statement_timeout: limits::DATABASE_CHECK_TIMEOUT, ..options.clone() };
    let mut connection = Connection::writing(&options.target()?).await?;
    MigrateError::check_version(version(&mut connection).await?, VERSION)?;
    Ok(connection)
}
