//! The embedded store as one side of a data migration.

use super::connection::{Durability, open_for_writing};
use super::lock::DirectoryLock;
use super::malformed::{cells_or, columns, marks, read_from};
use super::migrate;
use super::open::{LOGS_FILE, MAIN_FILE, OpenError, is_unfinished};
use crate::data_migration::{
    COPY_QUEUES, Cell, Cells, DataMigrationError, Forked, Layout, MigrationSide, Notes, OPEN_SESSIONS,
    Portion, StoreRole, TABLES, fork_statements, number_statement,
};
use crate::fault::Fault;
use async_trait::async_trait;
use punctual_core::limits::{MOVING_PAGE_BYTES_MAX, MOVING_PAGE_ROWS_MAX};
use punctual_core::time::Timestamp;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, Transaction, params_from_iter};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Together these find the next line number of an execution that no other line has.
const LAST_LINE: &str = "SELECT max(number) FROM lines WHERE job = ?1 AND occurrence = ?2 AND attempt = ?3";
const LINE_AT: &str = "SELECT 1 FROM lines WHERE number = ?1";

/// Both files of a data directory, which no other process has open meanwhile.
pub(crate) struct SqliteSide {
    main: Connection,
    logs: Connection,
    identity: String,
    _lock: DirectoryLock,
}

pub(crate) fn open(directory: &Path, end: StoreRole) -> Result<SqliteSide, DataMigrationError> {
    let unusable =
        |error: &dyn std::fmt::Display| DataMigrationError::Unusable { end, reason: error.to_string() };
    let main = directory.join(MAIN_FILE);
    match end {
        StoreRole::Source | StoreRole::Copy if !main.is_file() => {
            return Err(DataMigrationError::NoStore(directory.display().to_string()));
        }
        StoreRole::Source | StoreRole::Copy => {}
        StoreRole::Target => {
            let create = DirBuilder::new().recursive(true).mode(0o700).create(directory);
            create.map_err(|error| unusable(&format!("{}: {error}", directory.display())))?;
        }
    }
    let path = directory.canonicalize().map_err(|error| unusable(&error))?;
    let lock = DirectoryLock::take(directory).map_err(|error| match error {
        OpenError::InUse { .. } => DataMigrationError::InUse {
            end,
            by: format!("a process has the directory {} open", directory.display()),
        },
        other => unusable(&other),
    })?;
    let main = open_file(&main, migrate::MAIN, end)?;
    let logs = open_file(&directory.join(LOGS_FILE), migrate::LOGS, end)?;
    Ok(SqliteSide { main, logs, identity: format!("sqlite:{}", path.display()), _lock: lock })
}

/// Opens a file, and creates its tables if it is new.
fn open_file(path: &Path, steps: &[&str], end: StoreRole) -> Result<Connection, DataMigrationError> {
    let mut conn = open_for_writing(path, Durability::PowerLoss).map_err(DataMigrationError::at(end))?;
    let (found, needed) = (migrate::version(&conn).map_err(DataMigrationError::at(end))?, steps.len());
    if found == 0 {
        let migrated = migrate::migrate(&mut conn, steps);
        migrated.map_err(|error| DataMigrationError::Unusable { end, reason: error.to_string() })?;
    } else if found != needed {
        let advice = if found < needed {
            "bring it up with `punctual check --repair`, after a `punctual backup`"
        } else {
            "run the newer binary that wrote it"
        };
        return Err(DataMigrationError::Version { end, found, needed, advice });
    }
    Ok(conn)
}

impl SqliteSide {
    fn conn(&mut self, table: &Layout) -> &mut Connection {
        if table.name == "lines" { &mut self.logs } else { &mut self.main }
    }
}

/// Values that no column may hold are not copied.
fn read(row: &Row<'_>, count: usize) -> Result<Cells, Fault> {
    cells_or(row, count, |value| match value {
        ValueRef::Real(real) => Err(Fault::damaged("a column", real)),
        _ => Err(Fault::damaged("a column", "a text that is not valid UTF-8")),
    })
}

fn read_notes(conn: &Connection) -> Result<Notes, Fault> {
    if !is_unfinished(conn)? {
        return Ok(Notes::new());
    }
    let mut select = conn.prepare_cached("SELECT name, value FROM moving")?;
    let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn make_notes_table(conn: &Connection) -> Result<(), Fault> {
    let sql =
        "CREATE TABLE IF NOT EXISTS moving (name TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL) STRICT";
    Ok(conn.execute_batch(sql)?)
}

fn write_note(conn: &Connection, name: &str, value: &str) -> Result<(), Fault> {
    let sql = "INSERT INTO moving (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    conn.prepare_cached(sql)?.execute([name, value])?;
    Ok(())
}

fn insert(transaction: &Transaction<'_>, table: &Layout, rows: &[Cells]) -> Result<(), Fault> {
    let count = table.columns.len();
    let sql = format!("INSERT INTO {} ({}) VALUES ({})", table.name, columns(table, count), marks(count));
    let mut statement = transaction.prepare_cached(&sql)?;
    for row in rows {
        statement.execute(params_from_iter(row))?;
    }
    Ok(())
}

/// Line numbers are unique across all executions here: if two executions wrote at the same time, the later
/// row takes the next number.
fn insert_lines(transaction: &Transaction<'_>, table: &Layout, rows: &[Cells]) -> Result<(), Fault> {
    let Some(place) = table.position("number") else { return Ok(()) };
    for row in rows {
        let mut row = row.clone();
        let last: Option<i64> = transaction
            .prepare_cached(LAST_LINE)?
            .query_row(params_from_iter(&row[..place]), |row| row.get(0))?;
        let mut number = row[place].number("lines.number")?.max(last.map_or(i64::MIN, |last| last + 1));
        while transaction.prepare_cached(LINE_AT)?.exists([number])? {
            number += 1;
        }
        row[place] = Cell::Number(number);
        insert(transaction, table, &[row])?;
    }
    Ok(())
}

fn set_session_number(number: i64) -> String {
    format!(
        "DELETE FROM sqlite_sequence WHERE name = 'sessions'; \
         INSERT INTO sqlite_sequence (name, seq) VALUES ('sessions', {number})"
    )
}

#[async_trait]
impl MigrationSide for SqliteSide {
    async fn identity(&mut self) -> Result<String, Fault> {
        Ok(self.identity.clone())
    }

    /// The lock on the directory is held, so there are none.
    async fn users(&mut self) -> Result<Option<String>, Fault> {
        Ok(None)
    }

    async fn count(&mut self, table: &'static Layout) -> Result<u64, Fault> {
        let sql = format!("SELECT count(*) FROM {}", read_from(table));
        let rows: i64 = self.conn(table).query_row(&sql, [], |row| row.get(0))?;
        Ok(rows.unsigned_abs())
    }

    async fn page(
        &mut self,
        table: &'static Layout,
        after: Option<&[Cell<'_>]>,
    ) -> Result<Vec<Cells>, Fault> {
        let count = table.columns.len();
        let key = columns(table, table.key);
        let behind =
            after.map(|after| format!("WHERE ({key}) > ({})", marks(after.len()))).unwrap_or_default();
        let from = read_from(table);
        let sql = format!(
            "SELECT {} FROM {from} {behind} ORDER BY {key} LIMIT {MOVING_PAGE_ROWS_MAX}",
            columns(table, count)
        );
        let mut statement = self.conn(table).prepare_cached(&sql)?;
        let mut found = statement.query(params_from_iter(after.unwrap_or_default()))?;
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while let Some(row) = found.next()? {
            let row = read(row, count)?;
            bytes += row.iter().map(Cell::weight).sum::<usize>();
            rows.push(row);
            if bytes >= MOVING_PAGE_BYTES_MAX {
                break;
            }
        }
        Ok(rows)
    }

    async fn notes(&mut self) -> Result<Notes, Fault> {
        let mut notes = read_notes(&self.main)?;
        notes.append(&mut read_notes(&self.logs)?);
        Ok(notes)
    }

    async fn note(&mut self, name: &str, value: &str) -> Result<(), Fault> {
        make_notes_table(&self.main)?;
        write_note(&self.main, name, value)
    }

    async fn empty(&mut self, about_tables: &str) -> Result<(), Fault> {
        make_notes_table(&self.logs)?;
        for table in TABLES.iter().filter(|table| table.name != "numbers") {
            self.conn(table).execute(&format!("DELETE FROM {}", table.name), [])?;
        }
        self.main.execute_batch(
            "DELETE FROM sqlite_sequence; UPDATE history_bounds SET given = 0, retained = 0",
        )?;
        self.logs.execute_batch("DELETE FROM sqlite_sequence")?;
        for conn in [&self.main, &self.logs] {
            conn.execute("DELETE FROM moving WHERE substr(name, 1, length(?1)) = ?1", [about_tables])?;
        }
        Ok(())
    }

    async fn put(&mut self, portion: Portion<'_>) -> Result<(), Fault> {
        let Portion { table, rows, note: (name, value) } = portion;
        let transaction = self.conn(table).transaction()?;
        match table.name {
            "lines" => insert_lines(&transaction, table, rows)?,
            "numbers" => rows.iter().try_for_each(|row| {
                Ok::<_, Fault>(transaction.execute_batch(&number_statement(row, set_session_number)?)?)
            })?,
            _ => insert(&transaction, table, rows)?,
        }
        write_note(&transaction, name, value)?;
        Ok(transaction.commit()?)
    }

    /// SQLite continues above the highest number of a table by itself.
    async fn settle(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// The main file last: as long as it is not released, the other one need not be complete.
    async fn release(&mut self) -> Result<(), Fault> {
        for conn in [&self.logs, &self.main] {
            conn.execute_batch("DROP TABLE IF EXISTS moving")?;
        }
        Ok(())
    }

    async fn fork(&mut self, now: Timestamp) -> Result<Forked, Fault> {
        let transaction = self.main.transaction()?;
        let sessions = transaction.query_row(OPEN_SESSIONS, [], |row| row.get::<_, i64>(0))?;
        transaction.execute_batch(&fork_statements(now).join(";"))?;
        let queues = transaction
            .prepare(COPY_QUEUES)?
            .query_map([], |row| row.get(0))?
            .collect::<rusqlite::Result<Vec<String>>>()?;
        transaction.commit()?;
        Ok(Forked { queues, sessions: sessions.unsigned_abs() })
    }
}
