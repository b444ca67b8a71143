//! Inspects a store from outside and changes nothing: it holds no lock, recovers no log and creates no
//! file.

use super::connection::open_unchanged;
use super::damage::{CheckScope, as_problem, read_structure};
use super::lock::DirectoryLock;
use super::migrate;
use super::open::{LOGS_FILE, MAIN_FILE, OpenError, missing_tables, refuse_emptied, refuse_incomplete};
use crate::fault::Fault;
use punctual_core::ports::StoreError;
use std::fs;
use std::path::Path;
use std::time::SystemTime;

/// The state of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreState {
    /// A process has it open, so that no other process can inspect it.
    InUse,
    /// Its last process did not close it. The next start recovers it.
    NotClosed {
        log_bytes: u64,
    },
    Closed(Inspection),
}

/// The result of inspecting a closed store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    pub version: usize,
    /// The version to which this binary migrates it.
    pub version_known: usize,
    /// The problems that SQLite finds in the file.
    pub problems: Vec<String>,
}

/// Inspects the store in a directory. Reads its whole file.
pub fn inspect(dir: &Path) -> Result<StoreState, OpenError> {
    refuse_incomplete(dir)?;
    refuse_emptied(dir)?;
    let main = dir.join(MAIN_FILE);
    let seen = OpenSigns::of(dir)?;
    if seen.in_use {
        return Ok(StoreState::InUse);
    }
    if seen.log_bytes > 0 {
        return Ok(StoreState::NotClosed { log_bytes: seen.log_bytes });
    }
    let database =
        |source: Fault| OpenError::Database { path: main.clone(), source: StoreError::from(source) };
    let inspection = read(dir).map_err(database);
    // A process that has opened it meanwhile may have changed it during the read.
    let again = OpenSigns::of(dir)?;
    if again != seen {
        return Ok(StoreState::InUse);
    }
    inspection.map(StoreState::Closed)
}

/// What shows from outside whether a process has a store open.
#[derive(Debug, PartialEq, Eq)]
struct OpenSigns {
    in_use: bool,
    log_bytes: u64,
    changed_at: Option<SystemTime>,
}

impl OpenSigns {
    fn of(dir: &Path) -> Result<Self, OpenError> {
        let log_bytes =
            fs::metadata(dir.join(format!("{MAIN_FILE}-wal"))).map_or(0, |metadata| metadata.len());
        let changed_at = fs::metadata(dir.join(MAIN_FILE)).and_then(|metadata| metadata.modified()).ok();
        Ok(OpenSigns { in_use: is_in_use(dir)?, log_bytes, changed_at })
    }
}

/// Tries the locks and releases them at once. They are shared, so that two inspections do not detect each
/// other.
fn is_in_use(dir: &Path) -> Result<bool, OpenError> {
    match DirectoryLock::share(dir) {
        Ok(_) => Ok(false),
        Err(OpenError::InUse { .. }) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Reads the files as immutable: SQLite then creates neither locks nor files.
fn read(dir: &Path) -> Result<Inspection, Fault> {
    let conn = open_unchanged(&dir.join(MAIN_FILE))?;
    let version = migrate::version(&conn)?;
    let mut problems = read_structure(&conn, CheckScope::Pages)?;
    problems.extend(missing_tables(&conn, dir, MAIN_FILE)?);
    let logs = dir.join(LOGS_FILE);
    if logs.exists() {
        let of_logs = open_unchanged(&logs).and_then(|conn| read_structure(&conn, CheckScope::Pages));
        let of_logs = of_logs.or_else(|fault| as_problem(fault).map(|problem| vec![problem]))?;
        problems.extend(of_logs.into_iter().map(|problem| format!("{LOGS_FILE}: {problem}")));
    }
    Ok(Inspection { version, version_known: migrate::MAIN.len(), problems })
}
