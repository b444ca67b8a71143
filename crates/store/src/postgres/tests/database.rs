//! A database for each test, on the server that the tests were given.

use crate::postgres::{PostgresOptions, migrate};
use futures_util::FutureExt;
use sha2::{Digest, Sha256};
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::str::FromStr;
use std::time::Duration;
use tokio_postgres::{Client, Config, NoTls};

/// Names the server: a URL of a user who may create databases.
pub(crate) const SERVER: &str = "PUNCTUAL_TEST_POSTGRES";
/// Held while the template is created.
const TEMPLATE_LOCK: i64 = 0x7075_6e63;

/// An empty database with all tables.
pub(crate) struct TestDatabase {
    server: String,
    name: String,
}

impl TestDatabase {
    /// Runs a test with its own database, which is dropped in any case.
    pub async fn with<F: Future<Output = ()>>(test: impl FnOnce(PostgresOptions) -> F) {
        let database = TestDatabase::new().await;
        let outcome = AssertUnwindSafe(test(database.options())).catch_unwind().await;
        database.drop().await;
        if let Err(panic) = outcome {
            resume_unwind(panic);
        }
    }

    async fn new() -> Self {
        let server = std::env::var(SERVER).unwrap_or_else(|_| {
            panic!(
                "{SERVER} is not set: run `cargo xtask test`, which starts a PostgreSQL server for the tests"
            )
        });
        let client = connect(&server, None).await;
        let template = template(&server, &client).await;
        let row = client.query_one("SELECT 'case_' || replace(gen_random_uuid()::text, '-', '')", &[]).await;
        let name: String = row.unwrap().get(0);
        client.batch_execute(&format!("CREATE DATABASE {name} TEMPLATE {template}")).await.unwrap();
        TestDatabase { server, name }
    }

    fn options(&self) -> PostgresOptions {
        options(&self.server, &self.name)
    }

    async fn drop(self) {
        let client = connect(&self.server, None).await;
        client.batch_execute(&format!("DROP DATABASE {} WITH (FORCE)", self.name)).await.unwrap();
    }
}

/// A connection to a database, in addition to those of a store.
pub(crate) async fn client(options: &PostgresOptions) -> Client {
    connect(&options.url, None).await
}

/// A connection with the settings of the store's own.
pub(crate) async fn own_client(options: &PostgresOptions) -> Client {
    crate::postgres::connection::connect(&options.target().unwrap()).await.unwrap()
}

/// Partitions are narrow, so that retention is precise to the second.
fn options(server: &str, name: &str) -> PostgresOptions {
    let mut options = PostgresOptions::new(url(server, name));
    options.partition_width = Duration::from_secs(1);
    options
}

/// The same server with another database.
fn url(server: &str, name: &str) -> String {
    let (base, query) = server.split_once('?').unwrap_or((server, ""));
    let (scheme, rest) = base.split_once("://").expect("a URL");
    let authority = rest.split('/').next().unwrap_or_default();
    let query = if query.is_empty() { String::new() } else { format!("?{query}") };
    format!("{scheme}://{authority}/{name}{query}")
}

async fn connect(url: &str, name: Option<&str>) -> Client {
    let mut config = Config::from_str(url).expect("a URL of PostgreSQL");
    if let Some(name) = name {
        config.dbname(name);
    }
    let (client, connection) = config.connect(NoTls).await.expect("the server answers");
    tokio::spawn(connection);
    client
}

/// The name of a database with this schema, which is created once for all tests and processes.
async fn template(server: &str, client: &Client) -> String {
    let name = format!("template_{}", fingerprint());
    client.execute("SELECT pg_advisory_lock($1)", &[&TEMPLATE_LOCK]).await.unwrap();
    let found = client.query_opt("SELECT 1 FROM pg_database WHERE datname = $1", &[&name]).await.unwrap();
    if found.is_none() {
        // Under another name until it is complete.
        let unfinished = format!("{name}_unfinished");
        client.batch_execute(&format!("DROP DATABASE IF EXISTS {unfinished} WITH (FORCE)")).await.unwrap();
        client.batch_execute(&format!("CREATE DATABASE {unfinished}")).await.unwrap();
        migrate::up(&options(server, &unfinished)).await.unwrap();
        let alone = format!("ALTER DATABASE {unfinished} RENAME TO {name}");
        client
            .execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = $1",
                &[&unfinished],
            )
            .await
            .unwrap();
        client.batch_execute(&alone).await.unwrap();
    }
    client.execute("SELECT pg_advisory_unlock($1)", &[&TEMPLATE_LOCK]).await.unwrap();
    name
}

/// Changes with the schema.
fn fingerprint() -> String {
    let mut hash = Sha256::new();
    for step in migrate::STEPS {
        hash.update(step.sql);
    }
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}
