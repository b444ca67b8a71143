//! Finds malformed rows, for `punctual check`: see [`crate::malformed_check`].

use super::export::{ExportedTables, page, read};
use crate::cells::Cells;
use crate::fault::Fault;
use crate::layout::{Layout, TABLES};
use crate::malformed_check::{NAMED_MAX, PAGE_ROWS, REFERENCES, problems};

/// One sentence for each problem. Reads all tables except log lines, page by page, without blocking other
/// transactions.
pub(crate) async fn find<C: ExportedTables>(connection: &mut C) -> Result<Vec<String>, Fault> {
    let mut found = Vec::new();
    for table in TABLES.iter().filter(|table| table.name != "lines") {
        found.extend(of_table(connection, table).await?);
    }
    for reference in REFERENCES {
        let Some(layout) = reference.layout() else { continue };
        let key = Layout { name: layout.name, columns: layout.key_columns(), key: layout.key };
        let sql = reference.sql(&C::names(&key, key.columns), C::QUOTE);
        for row in connection.query(&sql, vec![]).await?.rows {
            found.push(reference.problem(layout, &read(&key, &row)?));
        }
    }
    connection.settle().await?;
    found.truncate(NAMED_MAX);
    Ok(found)
}

async fn of_table<C: ExportedTables>(
    connection: &mut C,
    table: &'static Layout,
) -> Result<Vec<String>, Fault> {
    let (mut found, mut after): (Vec<String>, Option<Cells>) = (Vec::new(), None);
    loop {
        let rows = page(connection, table, after.as_deref(), PAGE_ROWS).await?;
        // Not one snapshot for all of them: that would keep the server from purging old row versions
        // meanwhile.
        connection.settle().await?;
        found.extend(problems(table, &rows));
        match rows.last() {
            Some(last) if rows.len() == PAGE_ROWS && found.len() < NAMED_MAX => {
                after = Some(last[..table.key].to_vec());
            }
            _ => return Ok(found),
        }
    }
}
