//! A database for each test, on the servers that the tests were given.
//!
//! Creating all tables takes these servers a second, emptying them a few hundredths of that. So there are a few
//! databases, each of which one test at a time uses after it was emptied. They stay for the next run; those of
//! another schema are dropped.

use crate::mysql::MySqlOptions;
use crate::mysql::migrate;
use futures_util::FutureExt;
use mysql_async::Conn;
use mysql_async::prelude::{FromRow, Queryable};
use sha2::{Digest, Sha256};
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::Duration;

/// Name the servers: URLs of users who may create databases.
const MARIADB: &str = "PUNCTUAL_TEST_MARIADB";
const MYSQL: &str = "PUNCTUAL_TEST_MYSQL";
/// Set by `cargo xtask test --full`, which promises that every test also runs on MySQL.
const FULL: &str = "PUNCTUAL_TEST_FULL";
/// Databases on each server: the maximum of tests that run at the same time.
const DATABASES: usize = 8;
/// How long a test waits for one, in seconds.
const WAIT_MAX_S: u32 = 600;

/// The steps of the schema, each of which can be run again.
const STEPS: &[&str] = &[
    include_str!("../schema/0000_bootstrap.sql"),
    include_str!("../schema/0001_initial.sql"),
    include_str!("../schema/0002_cluster.sql"),
    include_str!("../schema/0006_audit.sql"),
];
/// Tables whose numbers and partitions can only be reset by creating them again.
const RECREATED: &[&str] = &["dead_letters", "history", "log_lines", "moving", "skipped"];
/// Columns and indexes that later steps have added to these tables.
const ADDED: &[&str] = &[
    "ALTER TABLE history ADD COLUMN input MEDIUMTEXT",
    "ALTER TABLE dead_letters ADD COLUMN input MEDIUMTEXT",
];
/// Tables that contain the version.
const KEPT: &[&str] = &["migrations", "punctual"];

/// The server that a test runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Server {
    MariaDb,
    MySql,
}

impl Server {
    /// All servers that the tests were given. MariaDB must be among them, and so must MySQL in the full
    /// extent. Tests that need MySQL are in modules named `mysql_server` and fail without it.
    pub fn given() -> Vec<Server> {
        let has_mysql = [MYSQL, FULL].iter().any(|variable| std::env::var_os(variable).is_some());
        [Server::MariaDb].into_iter().chain(has_mysql.then_some(Server::MySql)).collect()
    }

    fn url(self) -> String {
        let variable = match self {
            Server::MariaDb => MARIADB,
            Server::MySql => MYSQL,
        };
        std::env::var(variable).unwrap_or_else(|_| {
            panic!("{variable} is not set: run `cargo xtask test`, which starts a server for the tests")
        })
    }
}

/// An empty database that is reserved as long as this value lives.
pub(crate) struct TestDatabase {
    url: String,
    /// Holds the lock.
    holder: Conn,
}

impl TestDatabase {
    /// Runs a test with its own database on each server.
    pub async fn with<F: Future<Output = ()>>(test: impl Fn(MySqlOptions) -> F) {
        for server in Server::given() {
            let database = TestDatabase::on(server).await;
            let outcome = AssertUnwindSafe(test(database.options())).catch_unwind().await;
            if let Err(panic) = outcome {
                eprintln!("on {server:?}");
                resume_unwind(panic);
            }
            database.leave().await;
        }
    }

    pub async fn on(server: Server) -> Self {
        let base = server.url();
        let mut holder = connect(&base, None).await;
        let slot = take_slot(&mut holder).await;
        let name = format!("punctual_case_{slot}_{}", fingerprint());
        drop_others(&mut holder, slot, &name).await;
        holder.query_drop(format!("CREATE DATABASE IF NOT EXISTS {name}")).await.unwrap();
        empty(&mut connect(&base, Some(&name)).await).await;
        TestDatabase { url: url(&base, &name), holder }
    }

    /// Partitions are narrow, so that retention is precise to the second.
    pub fn options(&self) -> MySqlOptions {
        MySqlOptions { partition_width: Duration::from_secs(1), ..MySqlOptions::new(&self.url) }
    }

    /// The port of its server.
    pub fn port(&self) -> u16 {
        self.holder.opts().tcp_port()
    }

    /// Releases it for the next test.
    pub async fn leave(self) {
        self.holder.disconnect().await.unwrap();
    }
}

/// A connection to a database, in addition to those of a store.
pub(crate) async fn client(options: &MySqlOptions) -> Conn {
    Conn::new(options.target().expect("a URL of MariaDB or MySQL").reading().remove(0))
        .await
        .expect("the server answers")
}

/// All rows of a query.
pub(crate) async fn query<T: FromRow + Send + 'static>(options: &MySqlOptions, sql: &str) -> Vec<T> {
    let mut client = client(options).await;
    let rows = client.query(sql).await.unwrap();
    client.disconnect().await.unwrap();
    rows
}

/// Runs a statement.
pub(crate) async fn run(options: &MySqlOptions, sql: &str) {
    let mut client = client(options).await;
    client.query_drop(sql).await.unwrap();
    client.disconnect().await.unwrap();
}

/// The number of a free database, which this connection has locked.
async fn take_slot(holder: &mut Conn) -> usize {
    for (slot, wait) in (0..DATABASES).map(|slot| (slot, 0)).chain([(DATABASES, WAIT_MAX_S)]) {
        // If none is free, the test waits for one; waiting tests are spread over all.
        let slot = if slot < DATABASES { slot } else { std::process::id() as usize % DATABASES };
        let lock = format!("SELECT GET_LOCK('punctual_case_{slot}', {wait})");
        if holder.query_first::<Option<u8>, _>(lock).await.unwrap() == Some(Some(1)) {
            return slot;
        }
    }
    panic!("no database for tests was free within {WAIT_MAX_S} s");
}

/// Drops databases of an earlier schema in this slot.
async fn drop_others(holder: &mut Conn, slot: usize, name: &str) {
    let databases: Vec<String> = holder.query("SHOW DATABASES").await.unwrap();
    let prefix = format!("punctual_case_{slot}_");
    for other in databases.iter().filter(|other| other.starts_with(&prefix) && *other != name) {
        holder.query_drop(format!("DROP DATABASE {other}")).await.unwrap();
    }
}

/// Resets all tables, if there are any, to the state that their schema created.
async fn empty(conn: &mut Conn) {
    let tables: Vec<String> = conn.query("SHOW TABLES").await.unwrap();
    if tables.is_empty() {
        return;
    }
    for table in tables.iter().map(String::as_str).filter(|table| !KEPT.contains(table)) {
        let forget = if RECREATED.contains(&table) { "DROP TABLE" } else { "DELETE FROM" };
        conn.query_drop(format!("{forget} `{table}`")).await.unwrap();
    }
    for statement in STEPS.iter().chain(ADDED) {
        conn.query_drop(*statement).await.unwrap();
    }
}

/// Changes with the schema.
fn fingerprint() -> String {
    let mut hash = Sha256::new();
    STEPS.iter().for_each(|step| hash.update(step));
    migrate::STEPS.iter().for_each(|step| hash.update(step.sql));
    hash.finalize().iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

/// A connection to a database, or to one that every server has.
async fn connect(server: &str, database: Option<&str>) -> Conn {
    let options = MySqlOptions {
        // Must not be closed while it waits for its slot.
        statement_timeout: Duration::from_secs(2 * u64::from(WAIT_MAX_S)),
        ..MySqlOptions::new(url(server, database.unwrap_or("information_schema")))
    };
    client(&options).await
}

/// The same server with another database.
fn url(server: &str, name: &str) -> String {
    let (base, query) = server.split_once('?').unwrap_or((server, ""));
    let (scheme, rest) = base.split_once("://").expect("a URL");
    let authority = rest.split('/').next().unwrap_or_default();
    let query = if query.is_empty() { String::new() } else { format!("?{query}") };
    format!("{scheme}://{authority}/{name}{query}")
}
