//! The parts of this dialect that the shared tests of all server stores need.

use super::database::client;
use super::integrity;
use crate::cells::Cells;
use crate::conformance::malformed_rows::Dialect;
use crate::layout::Layout;
use crate::malformed_check::PAGE_ROWS;
use crate::mysql::connection::Connection;
use crate::mysql::logs::MySqlLogs;
use crate::mysql::maintenance::{MySqlMaintenance, SharedMaintenance};
pub(super) use crate::mysql::malformed::find as find_malformed;
use crate::mysql::migrate::prepare;
use crate::mysql::tables::MySqlConnect;
pub(super) use crate::mysql::tables::MySqlTables as TestTables;
pub(super) use crate::mysql::{
    MySqlBaseline as Baseline, MySqlOptions as Options, MySqlStore as ServerStore, counter_mismatch,
};
use crate::server::export::page;
use mysql_async::prelude::Queryable;
use mysql_async::{Row, Value};
use std::sync::Arc;

pub(super) const DIALECT: Dialect = Dialect::MySql;
/// The table of log lines.
pub(super) const LINES: &str = "log_lines";
/// How a NUL in a text is stored.
pub(super) const STORED_NUL: char = '\0';
/// The time in microseconds.
pub(super) const CLOCK: &str = "SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)";

/// A connection like those of writers, to a database that is ready. Each knows only its own lanes, as in
/// another process.
pub(super) async fn tables(options: &Options) -> TestTables {
    prepare(options).await.unwrap();
    MySqlConnect::new(options).unwrap().tables(0).await.unwrap()
}

pub(crate) fn maintenance(options: &Options) -> MySqlMaintenance {
    let shared = SharedMaintenance::new(options).unwrap();
    MySqlMaintenance::new(shared.clone(), &shared.target)
}

pub(super) fn logs(options: &Options) -> MySqlLogs {
    let shared = SharedMaintenance::new(options).unwrap();
    MySqlLogs::new(shared.clone(), &shared.target, options.log_bytes_max)
}

/// All rows of a query, as text.
pub(super) async fn query(options: &Options, sql: &str) -> Vec<Vec<String>> {
    let mut client = client(options).await;
    let rows: Vec<Row> = client.query(sql).await.unwrap();
    client.disconnect().await.unwrap();
    let text = |value: Value| match value {
        Value::Bytes(bytes) => String::from_utf8(bytes).unwrap(),
        Value::NULL => "NULL".to_owned(),
        other => panic!("{other:?}"),
    };
    rows.into_iter().map(|row| row.unwrap().into_iter().map(text).collect()).collect()
}

pub(super) async fn run(options: &Options, sql: &str) {
    assert!(try_run(options, sql).await, "{sql}");
}

/// Returns whether the database accepted the statement.
pub(super) async fn try_run(options: &Options, sql: &str) -> bool {
    let mut client = client(options).await;
    let is_accepted = client.query_drop(sql).await.is_ok();
    client.disconnect().await.unwrap();
    is_accepted
}

/// The rules that the tables break.
pub(super) async fn problems(options: &Options) -> Vec<String> {
    integrity::problems(&mut client(options).await).await
}

/// The first rows of a table as cells.
pub(super) async fn rows_of(options: &Options, table: &'static Layout) -> Vec<Cells> {
    let mut connection = Connection::defining(&options.target().unwrap()).await.unwrap();
    let rows = page(&mut connection, table, None, PAGE_ROWS).await.unwrap();
    connection.close().await;
    rows
}

/// Waits until the database is no longer in use, so that the next test finds it idle.
pub(super) async fn close(store: Arc<ServerStore>) {
    if let Some(store) = Arc::into_inner(store) {
        store.close().await;
    }
}
