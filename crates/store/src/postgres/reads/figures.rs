//! The size of the database, for metrics.

use super::Reads;
use crate::cells::read;
use crate::fault::Fault;
use crate::malformed::rows_passed_over;
use deadpool_postgres::GenericClient;
use punctual_core::ports::{StoreError, StoreFigures};

/// A partition that is dropped meanwhile has size zero.
const SIZES: &str = "SELECT pg_database_size(current_database()), \
     (SELECT coalesce(sum(pg_total_relation_size(relid)), 0)::bigint FROM pg_partition_tree('lines'))";

impl<C: GenericClient> Reads<'_, C> {
    /// The sizes; the writers' statistics must be added.
    pub async fn figures(&self) -> Result<StoreFigures, StoreError> {
        Ok(self.sizes().await?)
    }

    async fn sizes(&self) -> Result<StoreFigures, Fault> {
        let row = self.one(SIZES, &[]).await?.ok_or_else(|| Fault::Missing("sizes".to_owned()))?;
        Ok(StoreFigures {
            database_bytes: read(&row, 0, "pg_database_size")?,
            log_bytes: read(&row, 1, "pg_total_relation_size")?,
            malformed_rows: rows_passed_over(),
            ..StoreFigures::default()
        })
    }
}
