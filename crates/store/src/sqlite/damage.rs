//! Damage of files: what a start checks before it trusts them, and how much of SQLite's own check fits into
//! a time limit. It must not know rules between tables; `integrity.rs` does.

use super::migrate;
use super::rows::all;
use super::scan::{TableScan, tables};
use crate::fault::Fault;
use punctual_core::limits;
use rusqlite::{Connection, ErrorCode, ffi};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// SQLite instructions, or pages that it checks, between two reads of the clock.
const OPERATIONS_PER_LOOK: i32 = 100;

/// Errors of the disk when reading a page. Write errors have other causes, such as a full disk.
const UNREADABLE: [i32; 4] = [
    ffi::SQLITE_IOERR_READ,
    ffi::SQLITE_IOERR_SHORT_READ,
    ffi::SQLITE_IOERR_DATA,
    ffi::SQLITE_IOERR_CORRUPTFS,
];

/// The deadline of some work, which may also be stopped earlier.
#[derive(Debug, Clone)]
pub(crate) struct Until {
    pub deadline: Instant,
    pub stopping: Arc<AtomicBool>,
}

impl Until {
    fn is_over(&self) -> bool {
        self.stopping.load(Ordering::Relaxed) || Instant::now() >= self.deadline
    }
}

/// How much of a file SQLite checks.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CheckScope<'a> {
    /// Pages and cells of the whole file, but not whether rows and indexes agree.
    Pages,
    /// The whole file.
    File,
    /// A table with its indexes.
    Table(&'a str),
}

/// The problems that SQLite finds, if it finishes in time.
pub(crate) fn structure(
    conn: &mut Connection,
    scope: CheckScope<'_>,
    until: Until,
) -> Result<Option<Vec<String>>, Fault> {
    conn.progress_handler(OPERATIONS_PER_LOOK, Some(move || until.is_over()))?;
    let found = read_structure(conn, scope);
    conn.progress_handler(0, None::<fn() -> bool>)?;
    match found {
        Ok(problems) => Ok(Some(problems)),
        Err(Fault::Sqlite(error)) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
            Ok(None)
        }
        Err(fault) => as_problem(fault).map(|problem| Some(vec![problem])),
    }
}

/// The problems that SQLite finds, however long it takes.
pub(crate) fn read_structure(conn: &Connection, scope: CheckScope<'_>) -> Result<Vec<String>, Fault> {
    let most = limits::DAMAGE_LISTED_MAX;
    let sql = match scope {
        CheckScope::Pages => format!("PRAGMA quick_check({most})"),
        CheckScope::File => format!("PRAGMA integrity_check({most})"),
        CheckScope::Table(table) => format!("PRAGMA integrity_check('{}')", table.replace('\'', "''")),
    };
    let mut lines = all(&mut conn.prepare(&sql)?, [], |row| Ok(row.get::<_, String>(0)?))?;
    lines.retain(|line| line != "ok");
    lines.truncate(most);
    Ok(lines)
}

/// Turns a fault that means damage of the file into a sentence; returns any other fault unchanged. A page
/// that the disk cannot read counts as damage.
pub(crate) fn as_problem(fault: Fault) -> Result<String, Fault> {
    let is_damage = match &fault {
        Fault::Sqlite(error) => match error.sqlite_error() {
            Some(error) => {
                matches!(error.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::TooBig)
                    || UNREADABLE.contains(&error.extended_code)
            }
            // Not an error of SQLite: a value that does not fit its column.
            None => true,
        },
        Fault::Damaged { .. } => true,
        _ => false,
    };
    if is_damage { Ok(fault.to_string()) } else { Err(fault) }
}

/// The problems of a file that a start can find: in its header, its schema, its structure if it is small
/// enough, and some rows of every table. Nothing is changed. `steps` are the migrations of the file.
pub(crate) fn at_start(conn: &mut Connection, steps: &[&str]) -> Result<Vec<String>, Fault> {
    match look(conn, steps) {
        Err(fault) => as_problem(fault).map(|problem| vec![problem]),
        problems => problems,
    }
}

fn look(conn: &mut Connection, steps: &[&str]) -> Result<Vec<String>, Fault> {
    let version = migrate::version(conn)?;
    // A file that a newer binary has written is rejected elsewhere for that reason.
    let Some(applied) = steps.get(..version) else { return Ok(vec![]) };
    let problems = missing(conn, applied)?;
    if !problems.is_empty() {
        return Ok(problems);
    }
    let deadline = Instant::now() + limits::START_CHECK_MAX;
    let until = Until { deadline, stopping: Arc::default() };
    let problems = structure(conn, CheckScope::Pages, until.clone())?.unwrap_or_default();
    if !problems.is_empty() {
        return Ok(problems);
    }
    sample(conn, &until)
}

/// The missing parts of the schema.
fn missing(conn: &Connection, applied: &[&str]) -> Result<Vec<String>, Fault> {
    let found = schema(conn)?;
    if applied.is_empty() {
        let is_new = found.is_empty();
        return Ok(if is_new { vec![] } else { vec!["it has tables, but no schema version".to_owned()] });
    }
    let fresh = Connection::open_in_memory()?;
    for step in applied {
        fresh.execute_batch(step)?;
    }
    let missing =
        schema(&fresh)?.difference(&found).map(|(kind, name)| format!("{kind} {name} is missing")).collect();
    Ok(missing)
}

fn schema(conn: &Connection) -> Result<BTreeSet<(String, String)>, Fault> {
    // SQLite creates and drops its own tables.
    let sql = "SELECT type, name FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";
    Ok(all(&mut conn.prepare(sql)?, [], |row| Ok((row.get(0)?, row.get(1)?)))?.into_iter().collect())
}

/// Reads both ends of every table, and samples in between if rows have numbers. It always reads the ends of
/// all tables; it reads samples only while there is time.
fn sample(conn: &Connection, until: &Until) -> Result<Vec<String>, Fault> {
    let rows = limits::START_SAMPLE_ROWS;
    let snapshot = conn.unchecked_transaction()?;
    let mut problems = Vec::new();
    for table in tables(&snapshot)? {
        let scan = TableScan::of(&snapshot, &table)?;
        problems.extend(scan.step(&snapshot, None, rows)?.problems);
        if let Some(key) = scan.key_before_last(&snapshot, rows)? {
            problems.extend(scan.step(&snapshot, Some(&key), rows)?.problems);
        }
        let numbers = if scan.is_numbered() { scan.numbers(&snapshot)? } else { None };
        for place in numbers.into_iter().flat_map(places) {
            if until.is_over() {
                break;
            }
            problems.extend(scan.step(&snapshot, Some(&vec![place.into()]), rows)?.problems);
        }
    }
    problems.truncate(limits::DAMAGE_LISTED_MAX);
    Ok(problems)
}

/// Evenly spaced positions between two numbers; none if the ends cover everything.
fn places((first, last): (i64, i64)) -> impl Iterator<Item = i64> {
    let parts = limits::START_SAMPLE_PLACES + 1;
    let width = last.saturating_sub(first) / parts;
    let is_covered = width < limits::START_SAMPLE_ROWS as i64;
    (1..parts).filter(move |_| !is_covered).map(move |part| first + width * part)
}
