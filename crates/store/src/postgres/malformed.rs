//! Finds malformed rows, for `punctual check`: see [`crate::malformed_check`].

use super::counter_mismatch::patient;
use super::export::{behind, key_values, read, read_from};
use super::migrate::MigrateError;
use super::options::PostgresOptions;
use super::sql::names;
use crate::cells::{Cell, Cells};
use crate::fault::Fault;
use crate::layout::{Layout, TABLES};
use crate::malformed_check::{NAMED_MAX, PAGE_ROWS, REFERENCES, problems};
use tokio_postgres::Client;

/// One sentence for each problem. Reads all tables except log lines, page by page, without blocking other
/// transactions.
pub async fn find(options: &PostgresOptions) -> Result<Vec<String>, MigrateError> {
    Ok(malformed_rows(&patient(options).await?).await?)
}

async fn malformed_rows(client: &Client) -> Result<Vec<String>, Fault> {
    let mut told = Vec::new();
    for table in TABLES.iter().filter(|table| table.name != "lines") {
        told.extend(of_table(client, table).await?);
    }
    for reference in REFERENCES {
        let Some(layout) = reference.layout() else { continue };
        let key = Layout { name: layout.name, columns: layout.key_columns(), key: layout.key };
        for row in client.query(&reference.sql(&names(key.columns), '"'), &[]).await? {
            told.push(reference.problem(layout, &read(&key, &row)?));
        }
    }
    told.truncate(NAMED_MAX);
    Ok(told)
}

async fn of_table(client: &Client, table: &'static Layout) -> Result<Vec<String>, Fault> {
    let (mut told, mut after): (Vec<String>, Option<Cells>) = (Vec::new(), None);
    loop {
        let rows = page(client, table, after.as_deref()).await?;
        told.extend(problems(table, &rows));
        match rows.last() {
            Some(last) if rows.len() == PAGE_ROWS && told.len() < NAMED_MAX => {
                after = Some(last[..table.key].to_vec());
            }
            _ => return Ok(told),
        }
    }
}

pub(super) async fn page(
    client: &Client,
    table: &'static Layout,
    after: Option<&[Cell<'_>]>,
) -> Result<Vec<Cells>, Fault> {
    let behind = behind(table, after);
    let sql = format!("SELECT {} FROM {} {behind} LIMIT {PAGE_ROWS}", names(table.columns), read_from(table));
    let values = key_values(after);
    client.query(&sql, &values).await?.iter().map(|row| read(table, row)).collect()
}
