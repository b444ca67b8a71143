//! Malformed rows of a database: see [`crate::server::malformed`].

use super::counter_mismatch::patient;
use super::migrate::MigrateError;
use super::options::MySqlOptions;
use crate::server::malformed;

/// One sentence for each problem.
pub async fn find(options: &MySqlOptions) -> Result<Vec<String>, MigrateError> {
    let mut connection = patient(options).await?;
    let told = malformed::find(&mut connection).await;
    connection.close().await;
    Ok(told?)
}
