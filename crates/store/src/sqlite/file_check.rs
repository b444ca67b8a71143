//! The check of a store that no server has open. It changes and creates nothing, and works in a read-only
//! directory.

use super::connection::{beside, open_unchanged};
use super::damage::as_problem;
use super::integrity;
use super::lock::DirectoryLock;
use super::migrate::{self, MigrateError};
use super::open::{FILES, LOGS_FILE, MAIN_FILE, OpenError, is_unfinished, missing_tables, refuse_incomplete};
use crate::fault::Fault;
use crate::unfinished::UNFINISHED;
use punctual_core::ports::StoreError;
use rusqlite::Connection;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// The result of a check of a data directory's files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileCheck {
    /// The problems; empty if there are none.
    pub problems: Vec<String>,
    /// Information that is not a problem.
    pub notes: Vec<String>,
}

/// Checks the files of a store by reading all of them, including what the last process left in the
/// write-ahead log.
pub fn check_files(dir: &Path) -> Result<FileCheck, OpenError> {
    refuse_incomplete(dir)?;
    let main = dir.join(MAIN_FILE);
    match fs::metadata(&main) {
        Ok(found) if found.is_file() => {}
        Err(source) if source.kind() != ErrorKind::NotFound => {
            return Err(OpenError::Io { path: main, source });
        }
        _ => return Err(OpenError::NoDatabase { dir: dir.to_owned() }),
    }
    let _lock = DirectoryLock::share(dir)?;
    let mut found = FileCheck::default();
    for file in FILES {
        let path = dir.join(file);
        let journal = beside(&path, "-journal");
        let bytes = |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.len());
        if bytes(&journal) > 0 {
            found.problems.push(format!("{file}: {file}-journal is left over from an interrupted write"));
        } else if path.is_file() && bytes(&path) == 0 {
            found.problems.push(format!("{file}: the file is empty"));
        } else if file == LOGS_FILE && !path.is_file() {
            found
                .notes
                .push(format!("there is no {file}: the next start of the server creates an empty one"));
        } else {
            check_file(dir, file, &mut found)?;
        }
    }
    Ok(found)
}

fn check_file(dir: &Path, file: &str, found: &mut FileCheck) -> Result<(), OpenError> {
    let path = dir.join(file);
    let failed = |source: StoreError| OpenError::Database { path: path.clone(), source };
    let problems = match open_unchanged(&path)
        .and_then(|conn| whether_usable(&conn, file).map(|usable| (conn, usable)))
    {
        Ok((_, Err(refused))) => return Err(failed(refused)),
        Ok((conn, Ok(()))) => problems(&conn, dir, file, &mut found.notes),
        Err(fault) => Err(fault),
    };
    let problems = match problems {
        Err(fault) => vec![as_problem(fault).map_err(|fault| failed(fault.into()))?],
        Ok(problems) => problems,
    };
    found.problems.extend(problems.into_iter().map(|problem| format!("{file}: {problem}")));
    Ok(())
}

fn steps(file: &str) -> &'static [&'static str] {
    if file == MAIN_FILE { migrate::MAIN } else { migrate::LOGS }
}

/// Whether this binary may use the file, even if it is intact.
fn whether_usable(conn: &Connection, file: &str) -> Result<Result<(), StoreError>, Fault> {
    let (found, known) = (migrate::version(conn)?, steps(file).len());
    if found > known {
        return Ok(Err(MigrateError::Newer { found, known }.into()));
    }
    Ok(if is_unfinished(conn)? { Err(StoreError::Broken(UNFINISHED.to_owned())) } else { Ok(()) })
}

fn problems(
    conn: &Connection,
    dir: &Path,
    file: &str,
    notes: &mut Vec<String>,
) -> Result<Vec<String>, Fault> {
    if let Some(problem) = missing_tables(conn, dir, file)? {
        return Ok(vec![problem]);
    }
    let (version, known) = (migrate::version(conn)?, steps(file).len());
    if version < known {
        notes.push(format!(
            "{file} has schema version {version}, and the next start of this binary makes it {known}: only the file itself \
             was checked, not its rules between tables"
        ));
        return integrity::file_problems(conn);
    }
    if file == MAIN_FILE { integrity::problems(conn) } else { integrity::file_problems(conn) }
}
