//! Reads whole tables page by page, as rows of cells: for data migrations and checks.

use super::connection::ServerConnection;
use crate::cells::{Cell, Cells};
use crate::data_migration::fitting;
use crate::fault::Fault;
use crate::layout::{Column, Layout};
use punctual_core::limits::MOVING_PAGE_ROWS_MAX;

/// How a dialect names tables and columns.
pub(crate) trait ExportedTables: ServerConnection {
    const QUOTE: char;
    /// The type of whole numbers.
    const INTEGER: &'static str;

    fn names(table: &Layout, columns: &[Column]) -> String;

    /// The source from which a table's rows are read.
    fn read_from(table: &Layout) -> &'static str;

    /// The clauses for up to this many keys after another one, in the order of the key, and their values.
    fn behind<'a>(table: &Layout, after: Option<&[Cell<'a>]>, limit: usize) -> (String, Vec<Cell<'a>>);
}

/// The columns of a row.
pub(crate) fn read(table: &Layout, row: &impl crate::cells::RowCells) -> Result<Cells, Fault> {
    table.columns.iter().enumerate().map(|(place, column)| Cell::read(row, place, column.kind)).collect()
}

/// Up to this many rows after a key, ordered by key.
pub(crate) async fn page<C: ExportedTables>(
    connection: &mut C,
    table: &Layout,
    after: Option<&[Cell<'_>]>,
    limit: usize,
) -> Result<Vec<Cells>, Fault> {
    let (behind, values) = C::behind(table, after, limit);
    let sql = format!("SELECT {} FROM {} {behind}", C::names(table, table.columns), C::read_from(table));
    connection.query(&sql, values).await?.rows.iter().map(|row| read(table, row)).collect()
}

/// How many of the next rows make a page. Their sizes are queried first if rows may be large.
pub(crate) async fn rows_of_page<C: ExportedTables>(
    connection: &mut C,
    table: &Layout,
    after: Option<&[Cell<'_>]>,
) -> Result<usize, Fault> {
    let (quote, integer) = (C::QUOTE, C::INTEGER);
    let size = |column: &Column| format!("COALESCE(OCTET_LENGTH({quote}{}{quote}), 0)", column.name);
    let sizes: Vec<String> = table.documents().map(size).collect();
    if sizes.is_empty() {
        return Ok(MOVING_PAGE_ROWS_MAX);
    }
    let (behind, values) = C::behind(table, after, MOVING_PAGE_ROWS_MAX);
    let (sizes, from) = (sizes.join(" + "), C::read_from(table));
    let sql = format!("SELECT CAST({sizes} AS {integer}) FROM {from} {behind}");
    Ok(fitting(connection.query(&sql, values).await?.column::<u64>()?))
}
