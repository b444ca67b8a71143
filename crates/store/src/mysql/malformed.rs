//! Malformed rows of a database: see [`crate::server::malformed`].

use super::counter_mismatch::connect_without_time_limit;
use super::migrate::MigrateError;
use super::options::MySqlOptions;
use crate::server::malformed;

/// One sentence for each problem.
pub async fn find(options: &MySqlOptions) -> Result<Vec<String>, MigrateError> {
    let mut connection = connect_without_time_limit(options).await?;
    let problems = malformed::find(&mut connection).await;
    connection.close().await;
    Ok(problems?)
}
