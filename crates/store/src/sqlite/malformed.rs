//! Finds malformed rows in the files, for `punctual check`: see [`crate::malformed_check`].

use super::rows::all;
use crate::cells::{Cell, Cells};
use crate::fault::Fault;
use crate::layout::{Column, Layout, TABLES};
use crate::malformed_check::{NAMED_MAX, PAGE_ROWS, REFERENCES, problems};
use rusqlite::types::{ToSql, ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, Row, params_from_iter};

/// The last numbers that were assigned.
pub(super) const NUMBERS: &str = "(SELECT 'history_given' AS name, max(given, retained) AS given FROM history_bounds \
     UNION ALL SELECT 'history_retained', retained FROM history_bounds \
     UNION ALL SELECT 'session', coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'sessions'), 0))";

/// One sentence for each problem in the rows of the main database.
pub(crate) fn malformed_rows(conn: &Connection) -> Result<Vec<String>, Fault> {
    let mut found = Vec::new();
    for table in TABLES.iter().filter(|table| table.name != "lines") {
        found.extend(of_table(conn, table)?);
    }
    for reference in REFERENCES {
        let Some(layout) = reference.layout() else { continue };
        let sql = reference.sql(&columns(layout, layout.key), '"');
        let keys = all(&mut conn.prepare(&sql)?, [], |row| cells_of(row, layout.key))?;
        found.extend(keys.iter().map(|key| reference.problem(layout, key)));
    }
    found.truncate(NAMED_MAX);
    Ok(found)
}

/// The first rows of a table as cells.
#[cfg(test)]
pub(crate) fn rows_of(conn: &Connection, table: &Layout) -> Result<Vec<Cells>, Fault> {
    let (count, key) = (table.columns.len(), columns(table, table.key));
    let sql = format!(
        "SELECT {} FROM {} ORDER BY {key} LIMIT {PAGE_ROWS}",
        columns(table, count),
        read_from(table)
    );
    all(&mut conn.prepare(&sql)?, [], |row| cells_of(row, count))
}

fn of_table(conn: &Connection, table: &Layout) -> Result<Vec<String>, Fault> {
    let key = columns(table, table.key);
    let (count, from) = (table.columns.len(), read_from(table));
    let (mut found, mut after): (Vec<String>, Option<Cells>) = (Vec::new(), None);
    loop {
        let behind = after.as_ref().map(|_| format!("WHERE ({key}) > ({})", marks(table.key)));
        let behind = behind.unwrap_or_default();
        let sql =
            format!("SELECT {} FROM {from} {behind} ORDER BY {key} LIMIT {PAGE_ROWS}", columns(table, count));
        let mut select = conn.prepare_cached(&sql)?;
        let rows = all(&mut select, params_from_iter(after.iter().flatten()), |row| cells_of(row, count))?;
        found.extend(problems(table, &rows));
        match rows.last() {
            Some(last) if rows.len() == PAGE_ROWS && found.len() < NAMED_MAX => {
                after = Some(last[..table.key].to_vec());
            }
            _ => return Ok(found),
        }
    }
}

/// The source from which a table's rows are read.
pub(super) fn read_from(table: &Layout) -> &'static str {
    match table.name {
        "numbers" => NUMBERS,
        _ => table.name,
    }
}

/// The name of a column in SQLite's schema.
fn column(table: &Layout, name: &'static str) -> &'static str {
    match (table.name, name) {
        ("history", "place") | ("skipped", "number") => "seq",
        _ => name,
    }
}

/// The first columns of a table.
pub(crate) fn columns(table: &Layout, count: usize) -> String {
    names_of(table, &table.columns[..count])
}

pub(crate) fn names_of(table: &Layout, columns: &[Column]) -> String {
    let names = columns.iter().map(|each| format!("\"{}\"", column(table, each.name)));
    names.collect::<Vec<_>>().join(", ")
}

pub(crate) fn marks(count: usize) -> String {
    vec!["?"; count].join(", ")
}

impl ToSql for Cell<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Cell::Null => ToSqlOutput::Owned(Value::Null),
            Cell::Number(number) => ToSqlOutput::Owned(Value::Integer(*number)),
            Cell::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Cell::Id(id) => ToSqlOutput::Borrowed(ValueRef::Blob(id.as_bytes())),
            Cell::Bytes(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
        })
    }
}

/// The values of a row without interpretation. Text that is not valid is returned as bytes.
pub(crate) fn cells_of(row: &Row<'_>, count: usize) -> Result<Cells, Fault> {
    cells_or(row, count, |value| {
        Ok(match value {
            ValueRef::Real(real) => Cell::Text(real.to_string().into()),
            other => Cell::Bytes(other.as_bytes().unwrap_or_default().to_vec().into()),
        })
    })
}

/// The values of a row. `other` reads the values that no column may hold: text that is not valid, and floating-point
/// numbers.
pub(crate) fn cells_or(
    row: &Row<'_>,
    count: usize,
    other: impl Fn(ValueRef<'_>) -> Result<Cell<'static>, Fault>,
) -> Result<Cells, Fault> {
    let cell = |place| {
        let value = row.get_ref(place)?;
        Ok(match value {
            ValueRef::Null => Cell::Null,
            ValueRef::Integer(number) => Cell::Number(number),
            ValueRef::Blob(bytes) => Cell::Bytes(bytes.to_vec().into()),
            ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Cell::Text(text.to_owned().into()),
                Err(_) => other(value)?,
            },
            ValueRef::Real(_) => other(value)?,
        })
    };
    (0..count).map(cell).collect()
}
