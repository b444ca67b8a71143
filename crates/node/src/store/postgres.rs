//! Opens PostgreSQL from the settings.

use super::trouble::{unreachable, unusable};
use super::{Migration, OpenStore, ServerPlace, SharedSide};
use punctual_config::SizeMax;
use punctual_config::exit::CliError;
use punctual_config::store_url::ServerUrl;
use punctual_store::baseline::BaselineDatabase;
use punctual_store::counter_mismatch::CounterMismatch;
use punctual_store::postgres::migrate::{self, MigrateError};
use punctual_store::postgres::{self, OpenError, PostgresBaseline, PostgresOptions, PostgresStore};
use punctual_store::postgres::{counter_mismatch, malformed};
use std::sync::Arc;

pub(super) fn options(place: &ServerPlace) -> PostgresOptions {
    let with_password = |url: &ServerUrl| url.with_password(place.password.as_ref());
    PostgresOptions {
        replica_url: place.replica.as_ref().map(with_password),
        readers: place.pool,
        writers: place.writers,
        statement_timeout: place.statement_timeout,
        ..PostgresOptions::new(with_password(&place.url))
    }
}

pub async fn open(place: &ServerPlace, logs: SizeMax) -> Result<OpenStore, CliError> {
    let options = PostgresOptions { log_bytes_max: logs.0, ..options(place) };
    let store = PostgresStore::open(&options).await.map_err(|error| match &error {
        OpenError::Schema { .. } | OpenError::Options(_) => unusable(place, &error),
        OpenError::Database { source, .. } => unreachable(place, source),
    })?;
    let wakes = store.wakes();
    let cluster = store.cluster().await.map_err(|error| unreachable(place, &error))?;
    let store = Arc::new(store);
    Ok(OpenStore {
        shared: Some(SharedSide { membership_table: store.clone(), cluster }),
        wakes: Some(wakes),
        store,
        kind: place.url.dialect.word(),
        schema_version: PostgresStore::schema_version(),
        is_embedded: false,
    })
}

pub async fn status(place: &ServerPlace) -> Result<Migration, CliError> {
    let status = migrate::status(&options(place)).await.map_err(|error| failed(place, &error))?;
    Ok(Migration {
        version: status.version,
        version_known: status.version_known,
        applied: status.applied,
        pending: status.pending,
    })
}

pub async fn up(place: &ServerPlace) -> Result<Migration, CliError> {
    migrate::up(&options(place)).await.map_err(|error| failed(place, &error))?;
    status(place).await
}

pub async fn verify(place: &ServerPlace) -> Result<Vec<String>, CliError> {
    migrate::verify(&options(place)).await.map_err(|error| failed(place, &error))
}

pub async fn find_malformed(place: &ServerPlace) -> Result<Vec<String>, CliError> {
    malformed::find(&options(place)).await.map_err(|error| failed(place, &error))
}

pub async fn find_counter_mismatches(place: &ServerPlace) -> Result<Vec<CounterMismatch>, CliError> {
    counter_mismatch::find(&options(place)).await.map_err(|error| failed(place, &error))
}

pub async fn repair_counters(place: &ServerPlace) -> Result<Vec<CounterMismatch>, CliError> {
    counter_mismatch::repair(&options(place)).await.map_err(|error| failed(place, &error))
}

pub async fn create_database(place: &ServerPlace, name: &str) -> Result<(), CliError> {
    postgres::create_database(&options(place), name).await.map_err(|error| failed(place, &error))
}

pub async fn drop_database(place: &ServerPlace, name: &str) -> Result<(), CliError> {
    postgres::drop_database(&options(place), name).await.map_err(|error| failed(place, &error))
}

pub async fn bare(place: &ServerPlace) -> Result<Box<dyn BaselineDatabase>, CliError> {
    let bare = PostgresBaseline::open(&options(place)).await.map_err(|error| failed(place, &error))?;
    Ok(Box::new(bare))
}

fn failed(place: &ServerPlace, error: &MigrateError) -> CliError {
    match error {
        MigrateError::Store(error) => unreachable(place, error),
        other => unusable(place, other),
    }
}
