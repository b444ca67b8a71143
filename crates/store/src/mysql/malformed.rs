//! Finds malformed rows, for `punctual check`: see [`crate::malformed_check`].

use super::connection::Connection;
use super::counter_mismatch::patient;
use super::export::{behind, read, read_from};
use super::migrate::MigrateError;
use super::options::MySqlOptions;
use super::sql::names;
use crate::cells::{Cell, Cells};
use crate::fault::Fault;
use crate::layout::{Layout, TABLES};
use crate::malformed_check::{NAMED_MAX, PAGE_ROWS, REFERENCES, problems};

/// One sentence for each problem. Reads all tables except log lines, page by page, without blocking other
/// transactions.
pub async fn find(options: &MySqlOptions) -> Result<Vec<String>, MigrateError> {
    let mut connection = patient(options).await?;
    let told = malformed_rows(&mut connection).await;
    connection.close().await;
    Ok(told?)
}

/// The first rows of a table as cells.
#[cfg(test)]
pub(super) async fn rows_of(
    options: &MySqlOptions,
    table: &'static Layout,
) -> Result<Vec<Cells>, MigrateError> {
    let mut connection = patient(options).await?;
    let rows = page(&mut connection, table, None).await?;
    connection.close().await;
    Ok(rows)
}

async fn malformed_rows(connection: &mut Connection) -> Result<Vec<String>, Fault> {
    let mut told = Vec::new();
    for table in TABLES.iter().filter(|table| table.name != "lines") {
        told.extend(of_table(connection, table).await?);
    }
    for reference in REFERENCES {
        let Some(layout) = reference.layout() else { continue };
        let key = Layout { name: layout.name, columns: layout.key_columns(), key: layout.key };
        for row in connection.all(&reference.sql(&names(&key, key.columns), '`'), vec![]).await? {
            told.push(reference.problem(layout, &read(&key, &row)?));
        }
    }
    connection.commit().await?;
    told.truncate(NAMED_MAX);
    Ok(told)
}

async fn of_table(connection: &mut Connection, table: &'static Layout) -> Result<Vec<String>, Fault> {
    let (mut told, mut after): (Vec<String>, Option<Cells>) = (Vec::new(), None);
    loop {
        let rows = page(connection, table, after.as_deref()).await?;
        // Not one snapshot for all of them: that would keep the server from purging old row versions
        // meanwhile.
        connection.commit().await?;
        told.extend(problems(table, &rows));
        match rows.last() {
            Some(last) if rows.len() == PAGE_ROWS && told.len() < NAMED_MAX => {
                after = Some(last[..table.key].to_vec());
            }
            _ => return Ok(told),
        }
    }
}

async fn page(
    connection: &mut Connection,
    table: &'static Layout,
    after: Option<&[Cell<'_>]>,
) -> Result<Vec<Cells>, Fault> {
    let (behind, values) = behind(table, after);
    let columns = names(table, table.columns);
    let sql = format!("SELECT {columns} FROM {} {behind} LIMIT {PAGE_ROWS}", read_from(table));
    connection.all(&sql, values).await?.iter().map(|row| read(table, row)).collect()
}
