//! Counter mismatches of a database: see [`crate::server::counter_mismatch`].

use super::migrate::{MigrateError, VERSION, version};
use super::options::PostgresOptions;
use super::wire::Wire;
use crate::counter_mismatch::CounterMismatch;
use crate::server::counter_mismatch;
use punctual_core::limits;

/// The sum of a column. Each writing connection has its own counters, and damaged ones may have a sum that is too large.
pub(crate) const SUM: &str =
    "CAST(LEAST(GREATEST(COALESCE(SUM({}), 0), -9223372036854775808), 9223372036854775807) AS bigint)";

/// The counters that differ from their rows.
pub async fn find(options: &PostgresOptions) -> Result<Vec<CounterMismatch>, MigrateError> {
    let mut connection = connect_without_time_limit(options).await?;
    Ok(counter_mismatch::find(&mut connection, SUM).await?)
}

/// Repairs them. Returns the changes.
pub async fn repair(options: &PostgresOptions) -> Result<Vec<CounterMismatch>, MigrateError> {
    let mut connection = connect_without_time_limit(options).await?;
    Ok(counter_mismatch::repair(&mut connection, SUM).await?)
}

/// A connection for statements that read whole tables, to a database of a version that this binary
/// supports.
pub(super) async fn connect_without_time_limit(options: &PostgresOptions) -> Result<Wire, MigrateError> {
    let options = PostgresOptions { statement_timeout: limits::DATABASE_CHECK_TIMEOUT, ..options.clone() };
    let connection = Wire::connect(&options.target()?).await?;
    MigrateError::check_version(version(connection.client()).await?, VERSION)?;
    Ok(connection)
}
