//! The parts of this dialect that the shared tests of all server stores need.

use super::database::client;
use super::integrity;
use crate::cells::Cells;
use crate::conformance::malformed_rows::Dialect;
use crate::layout::Layout;
use crate::malformed_check::PAGE_ROWS;
use crate::postgres::logs::PostgresLogs;
use crate::postgres::maintenance::PostgresMaintenance;
pub(super) use crate::postgres::malformed::find as find_malformed;
pub(super) use crate::postgres::tables::PostgresTables as TestTables;
pub(super) use crate::postgres::{
    PostgresBaseline as Baseline, PostgresOptions as Options, PostgresStore as ServerStore, counter_mismatch,
};
use crate::postgres::{tables::SharedDatabase, wire::Wire};
use crate::server::export::page;
use std::sync::Arc;
use tokio_postgres::SimpleQueryMessage;

pub(super) const DIALECT: Dialect = Dialect::Postgres;
/// The table of log lines.
pub(super) const LINES: &str = "lines";
/// How a NUL in a text is stored.
pub(super) const STORED_NUL: char = '\u{FFFD}';
/// The time in microseconds.
pub(super) const CLOCK: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// A connection like those of writers.
pub(super) async fn tables(options: &Options) -> TestTables {
    TestTables::connect(SharedDatabase::new(options).unwrap()).await.unwrap()
}

pub(crate) fn maintenance(options: &Options) -> PostgresMaintenance {
    let shared = SharedDatabase::new(options).unwrap();
    PostgresMaintenance::new(shared.clone(), &shared.target)
}

pub(super) fn logs(options: &Options) -> PostgresLogs {
    let shared = SharedDatabase::new(options).unwrap();
    PostgresLogs::new(shared.clone(), &shared.target, options.log_bytes_max)
}

/// All rows of a query, as text.
pub(super) async fn query(options: &Options, sql: &str) -> Vec<Vec<String>> {
    let rows = client(options).await.simple_query(sql).await.unwrap();
    let rows = rows.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    rows.map(|row| (0..row.len()).map(|column| row.get(column).unwrap_or("NULL").to_owned()).collect())
        .collect()
}

pub(super) async fn run(options: &Options, sql: &str) {
    client(options).await.batch_execute(sql).await.unwrap();
}

/// Returns whether the database accepted the statement.
pub(super) async fn try_run(options: &Options, sql: &str) -> bool {
    client(options).await.batch_execute(sql).await.is_ok()
}

/// The rules that the tables break.
pub(super) async fn problems(options: &Options) -> Vec<String> {
    integrity::problems(&client(options).await).await
}

/// The first rows of a table as cells.
pub(super) async fn rows_of(options: &Options, table: &'static Layout) -> Vec<Cells> {
    let mut wire = Wire::connect(&options.target().unwrap()).await.unwrap();
    page(&mut wire, table, None, PAGE_ROWS).await.unwrap()
}

pub(super) async fn close(store: Arc<ServerStore>) {
    if let Some(store) = Arc::into_inner(store) {
        store.close().await;
    }
}
