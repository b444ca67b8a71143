//! Database servers: the open store, the state of the schema, and commands about a whole database.

use super::trouble::{unreachable, unusable};
use super::{OpenStore, ServerPlace, SharedSide};
use punctual_config::SizeMax;
use punctual_config::exit::CliError;
use punctual_config::store_url::{Dialect, ServerUrl};
use punctual_store::baseline::BaselineDatabase;
use punctual_store::counter_mismatch::CounterMismatch;
use punctual_store::mysql::{self, MySqlBaseline, MySqlOptions, MySqlStore};
use punctual_store::postgres::{self, PostgresBaseline, PostgresOptions, PostgresStore};
use punctual_store::{MigrateError, MigrationStatus, ServerOptions};
use std::error::Error;
use std::sync::Arc;

/// Calls a function of the dialect's module with its options.
macro_rules! call {
    ($place:expr, $($function:ident)::+ $(, $argument:expr)?) => {{
        let place: &ServerPlace = $place;
        match place.url.dialect {
            Dialect::Postgres => {
                let called = postgres::$($function)::+(&options(place) $(, $argument)?).await;
                called.map_err(|error| failed(place, error))
            }
            Dialect::Mysql => {
                let called = mysql::$($function)::+(&options(place) $(, $argument)?).await;
                called.map_err(|error| failed(place, error))
            }
        }
    }};
}

pub(super) fn options<D>(place: &ServerPlace) -> ServerOptions<D> {
    let with_password = |url: &ServerUrl| url.with_password(place.password.as_ref());
    ServerOptions {
        replica_url: place.replica.as_ref().map(with_password),
        readers: place.pool,
        writers: place.writers,
        statement_timeout: place.statement_timeout,
        ..ServerOptions::new(with_password(&place.url))
    }
}

pub(super) async fn open(place: &ServerPlace, logs: SizeMax) -> Result<OpenStore, CliError> {
    match place.url.dialect {
        Dialect::Postgres => open_postgres(place, logs).await,
        Dialect::Mysql => open_mysql(place, logs).await,
    }
}

async fn open_postgres(place: &ServerPlace, logs: SizeMax) -> Result<OpenStore, CliError> {
    use postgres::OpenError;
    let options = PostgresOptions { log_bytes_max: logs.0, ..options(place) };
    let store = PostgresStore::open(&options).await.map_err(|error| match &error {
        OpenError::Schema { .. } | OpenError::Options(_) => unusable(place, &error),
        OpenError::Database { source, .. } => unreachable(place, source),
    })?;
    let ready_queue = store.ready_queue();
    let cluster = store.cluster().await.map_err(|error| unreachable(place, &error))?;
    let store = Arc::new(store);
    Ok(OpenStore {
        shared: Some(SharedSide { membership_table: store.clone(), cluster }),
        ready_queue: Some(ready_queue),
        store,
        kind: place.url.dialect.word(),
        schema_version: PostgresStore::schema_version(),
        is_embedded: false,
    })
}

async fn open_mysql(place: &ServerPlace, logs: SizeMax) -> Result<OpenStore, CliError> {
    use mysql::OpenError;
    let options = MySqlOptions { log_bytes_max: logs.0, ..options(place) };
    let store = MySqlStore::open(&options).await.map_err(|error| match error {
        OpenError::Migrate(error) => failed(place, error),
        OpenError::Options(error) => unusable(place, &error),
    })?;
    let cluster = store.cluster().await.map_err(|error| unreachable(place, &error))?;
    let store = Arc::new(store);
    Ok(OpenStore {
        shared: Some(SharedSide { membership_table: store.clone(), cluster }),
        // It has no wake-ups between processes: they scan for each other's work.
        ready_queue: None,
        store,
        kind: place.url.dialect.word(),
        schema_version: MySqlStore::schema_version(),
        is_embedded: false,
    })
}

fn failed<O: Error>(place: &ServerPlace, error: MigrateError<O>) -> CliError {
    match error {
        MigrateError::Store(error) => unreachable(place, &error),
        other => unusable(place, &other),
    }
}

pub async fn migration_status(place: &ServerPlace) -> Result<MigrationStatus, CliError> {
    call!(place, migrate::status)
}

/// Migrates the schema to this version; returns the new state.
pub async fn migrate_up(place: &ServerPlace) -> Result<MigrationStatus, CliError> {
    call!(place, migrate::up)?;
    migration_status(place).await
}

/// Differences of the schema from what this version expects.
pub async fn verify_tables(place: &ServerPlace) -> Result<Vec<String>, CliError> {
    call!(place, migrate::verify)
}

/// Malformed rows in the database, a sentence for each.
pub async fn find_malformed(place: &ServerPlace) -> Result<Vec<String>, CliError> {
    call!(place, malformed::find)
}

/// Counter mismatches in the database.
pub async fn find_counter_mismatches(place: &ServerPlace) -> Result<Vec<CounterMismatch>, CliError> {
    call!(place, counter_mismatch::find)
}

/// Repairs counter mismatches; returns what was changed.
pub async fn repair_counters(place: &ServerPlace) -> Result<Vec<CounterMismatch>, CliError> {
    call!(place, counter_mismatch::repair)
}

/// Creates a database next to the given one, for a benchmark.
pub async fn create_database(place: &ServerPlace, name: &str) -> Result<(), CliError> {
    call!(place, create_database, name)
}

/// Drops such a database, with its contents.
pub async fn drop_database(place: &ServerPlace, name: &str) -> Result<(), CliError> {
    call!(place, drop_database, name)
}

/// Direct access to the database for a benchmark, besides the server that it measures. Creates the tables if
/// they do not exist.
pub async fn bare(place: &ServerPlace) -> Result<Box<dyn BaselineDatabase>, CliError> {
    Ok(match place.url.dialect {
        Dialect::Postgres => {
            let opened = PostgresBaseline::open(&options(place)).await;
            Box::new(opened.map_err(|error| failed(place, error))?)
        }
        Dialect::Mysql => {
            let opened = MySqlBaseline::open(&options(place)).await;
            Box::new(opened.map_err(|error| failed(place, error))?)
        }
    })
}
