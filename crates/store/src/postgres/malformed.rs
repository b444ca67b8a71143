//! Malformed rows of a database: see [`crate::server::malformed`].

use super::counter_mismatch::connect_without_time_limit;
use super::migrate::MigrateError;
use super::options::PostgresOptions;
use crate::server::malformed;

/// One sentence for each problem.
pub async fn find(options: &PostgresOptions) -> Result<Vec<String>, MigrateError> {
    Ok(malformed::find(&mut connect_without_time_limit(options).await?).await?)
}
