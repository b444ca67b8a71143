//! Conversion between rows and core's types. It knows columns, not rules.

mod history;
mod jobs;
mod live;
mod schedules;

pub(crate) use history::{INSERT_HISTORY, insert_history};
pub(crate) use jobs::{INSERT_JOB, UPDATE_JOB, read_job, write_job};
pub(crate) use live::{
    FORGET_SOLE, INSERT_LIVE, PLACE_LIVE, REPLACE_LIVE, UPDATE_LIVE, insert_live, is_only_placed, place_live,
    read_live, replace_live, update_in_state, update_live,
};
pub(crate) use schedules::{ADVANCE_SCHEDULE, PUT_SCHEDULE, advance_schedule, put_schedule, read_schedule};

use super::malformed::{cells_of, columns, marks, names_of};
use crate::cells::{Cell, Cells, RowCells};
use crate::codes::Code;
use crate::fault::Fault;
use crate::layout::Layout;
use crate::malformed::skip_malformed;
use crate::server::changes::{ChangeShape, Conflict, TableChange};
use punctual_core::ids::JobId;
use punctual_core::time::Timestamp;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Params, Row, Statement, params_from_iter};
use std::sync::Arc;

/// The statement of a change that inserts one row.
pub(crate) fn insertion(change: TableChange) -> String {
    let ChangeShape::Insert { table, columns, conflict } = change.shape() else {
        unreachable!("{change:?} inserts no row");
    };
    let rest = &table.columns[table.key..];
    let overwritten = |count: usize| {
        let columns = rest[..count].iter().map(|column| format!("{0} = excluded.{0}", column.name));
        columns.collect::<Vec<_>>().join(", ")
    };
    let key = names_of(&table, table.key_columns());
    let on_conflict = match conflict {
        Conflict::Fail => String::new(),
        Conflict::Ignore => format!(" ON CONFLICT ({key}) DO NOTHING"),
        Conflict::Replace(count) => format!(" ON CONFLICT ({key}) DO UPDATE SET {}", overwritten(count)),
        Conflict::Add => unreachable!("{change:?} adds to counters"),
    };
    let names = names_of(&table, columns);
    format!("INSERT INTO {} ({names}) VALUES ({}){on_conflict}", table.name, marks(columns.len()))
}

/// Runs the statement of a change with the columns of its row.
pub(crate) fn write_row(conn: &Connection, sql: &str, cells: &[Cell<'_>]) -> Result<(), Fault> {
    conn.prepare_cached(sql)?.execute(params_from_iter(cells))?;
    Ok(())
}

/// Writes a whole row.
pub(crate) fn insert(verb: &str, table: &Layout) -> String {
    let count = table.columns.len();
    format!("{verb} INTO {} ({}) VALUES ({})", table.name, columns(table, count), marks(count))
}

/// Sets all columns after the first, which is the key and the first parameter.
fn set(table: &Layout) -> String {
    let set = table.columns.iter().zip(1..).skip(1).map(|(column, n)| format!("{} = ?{n}", column.name));
    set.collect::<Vec<_>>().join(", ")
}

/// The fault of a value that its column cannot hold.
fn unfit(row: &Row<'_>, column: usize, value: ValueRef<'_>) -> Fault {
    Fault::damaged(column_name(row, column), format!("a value of type {}", value.data_type()))
}

fn column_name(row: &Row<'_>, column: usize) -> String {
    row.as_ref().column_name(column).unwrap_or("a column").to_owned()
}

impl RowCells for Row<'_> {
    fn number(&self, column: usize) -> Result<Option<i64>, Fault> {
        match self.get_ref(column)? {
            ValueRef::Null => Ok(None),
            ValueRef::Integer(number) => Ok(Some(number)),
            other => Err(unfit(self, column, other)),
        }
    }

    fn text(&self, column: usize) -> Result<Option<&str>, Fault> {
        let value = self.get_ref(column)?;
        value.as_str_or_null().map_err(|_| unfit(self, column, value))
    }

    fn bytes(&self, column: usize) -> Result<Option<&[u8]>, Fault> {
        let value = self.get_ref(column)?;
        value.as_blob_or_null().map_err(|_| unfit(self, column, value))
    }
}

/// A row that was copied out of the database, with the names of its columns for errors.
pub(crate) struct SqliteRow {
    names: Arc<[String]>,
    cells: Cells,
}

impl SqliteRow {
    /// The rows of a statement that is run once for each list of parameters. Parameters that it does not
    /// have are left out.
    pub fn all<'p, P: AsRef<[Cell<'p>]>>(
        conn: &Connection,
        sql: &str,
        parameters: impl IntoIterator<Item = P>,
    ) -> Result<Vec<Self>, Fault> {
        let mut statement = conn.prepare_cached(sql)?;
        let names: Arc<[String]> = statement.column_names().map(str::to_owned).collect();
        let mut found = Vec::new();
        for given in parameters {
            for (place, cell) in (1..=statement.parameter_count()).zip(given.as_ref()) {
                statement.raw_bind_parameter(place, cell)?;
            }
            let mut rows = statement.raw_query();
            while let Some(row) = rows.next()? {
                found.push(SqliteRow { names: names.clone(), cells: cells_of(row, names.len())? });
            }
        }
        Ok(found)
    }

    fn named<T>(&self, column: usize, read: Result<T, Fault>) -> Result<T, Fault> {
        read.map_err(|_| Fault::damaged(self.names[column].clone(), self.cells[column].kind()))
    }
}

impl RowCells for SqliteRow {
    fn number(&self, column: usize) -> Result<Option<i64>, Fault> {
        self.named(column, self.cells[..].number(column))
    }

    fn text(&self, column: usize) -> Result<Option<&str>, Fault> {
        self.named(column, self.cells[..].text(column))
    }

    fn bytes(&self, column: usize) -> Result<Option<&[u8]>, Fault> {
        self.named(column, self.cells[..].bytes(column))
    }
}

/// Malformed rows that a list skips before it ends early.
const MALFORMED_SKIPPED_MAX: usize = 1_000;

/// The first row of a query, if there is one. A malformed row is a fault: the caller cannot continue
/// without it.
pub(crate) fn one<T>(
    statement: &mut Statement<'_>,
    params: impl Params,
    read: impl FnOnce(&Row<'_>) -> Result<T, Fault>,
) -> Result<Option<T>, Fault> {
    let mut rows = statement.query(params)?;
    rows.next()?.map(|row| read(row).map_err(|fault| located(fault, row))).transpose()
}

/// Like [`one`], for rows that the caller can do without: a malformed row counts as missing.
pub(crate) fn one_readable<T>(
    statement: &mut Statement<'_>,
    params: impl Params,
    read: impl FnOnce(&Row<'_>) -> Result<T, Fault>,
) -> Result<Option<T>, Fault> {
    Ok(skip_malformed(one(statement, params, read))?.flatten())
}

/// All rows of a query except malformed ones.
pub(crate) fn all<T>(
    statement: &mut Statement<'_>,
    params: impl Params,
    read: impl FnMut(&Row<'_>) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    up_to(usize::MAX, statement, params, read)
}

/// The first `count` readable rows of a query. The query is limited by [`bound`], so that a malformed row
/// does not make a list appear to end.
pub(crate) fn up_to<T>(
    count: usize,
    statement: &mut Statement<'_>,
    params: impl Params,
    mut read: impl FnMut(&Row<'_>) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    let mut items = Vec::new();
    if count == 0 {
        return Ok(items);
    }
    let mut rows = statement.query(params)?;
    while let Some(row) = rows.next()? {
        items.extend(skip_malformed(read(row).map_err(|fault| located(fault, row)))?);
        if items.len() == count {
            break;
        }
    }
    Ok(items)
}

/// Adds the column's name to the fault of a value that cannot be read.
pub(crate) fn located(fault: Fault, row: &Row<'_>) -> Fault {
    use rusqlite::Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType, Utf8Error};
    let (column, value) = match &fault {
        Fault::Sqlite(IntegralValueOutOfRange(column, value)) => (*column, value.to_string()),
        Fault::Sqlite(FromSqlConversionFailure(column, _, error)) => (*column, format!("a value ({error})")),
        Fault::Sqlite(Utf8Error(column, error)) => (*column, format!("a text ({error})")),
        Fault::Sqlite(InvalidColumnType(column, _, kind)) => (*column, format!("a value of type {kind}")),
        _ => return fault,
    };
    match row.as_ref().column_name(column) {
        Ok(name) => Fault::damaged(name.to_owned(), value),
        Err(_) => fault,
    }
}

/// A counter as a column value; values that no correct caller reaches saturate.
pub(crate) fn counter(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A limit as an SQL parameter.
pub(crate) fn limit(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The limit of a query of which [`up_to`] takes this many rows. Rows are read one by one, so unread rows
/// cost nothing.
pub(crate) fn bound(count: usize) -> i64 {
    limit(count.saturating_add(MALFORMED_SKIPPED_MAX))
}

pub(crate) fn count(row: &Row<'_>, column: usize, what: &'static str) -> Result<u64, Fault> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).map_err(|_| Fault::damaged(what, value))
}

pub(crate) fn time(row: &Row<'_>, column: usize) -> Result<Timestamp, Fault> {
    read_time(row, column, row.get(column)?)
}

fn read_time(row: &Row<'_>, column: usize, micros: i64) -> Result<Timestamp, Fault> {
    Timestamp::stored(micros).ok_or_else(|| Fault::damaged(column_name(row, column), micros))
}

pub(crate) fn job_id(row: &Row<'_>, column: usize) -> Result<JobId, Fault> {
    Ok(JobId::from_bytes(row.get(column)?))
}

pub(crate) fn decode<T: Code>(row: &Row<'_>, column: usize, what: &'static str) -> Result<T, Fault> {
    T::read(row.get(column)?, what)
}
