//! The background check of all files: it starts with the server, uses a small part of one CPU, and repeats
//! at an interval, or at once when a read or write meets damage that no check has found yet.
//!
//! SQLite's own check needs a single snapshot of the file while it runs, and meanwhile the write-ahead log
//! cannot be reset. So it is used only where it is short. Everything else is read in steps (`scan.rs`),
//! each with its own snapshot.

use super::connection::open_for_reading;
use super::damage::{CheckScope, Until, as_problem, structure};
use super::open::OpenFile;
use super::scan::{ScanKey, TableScan, tables};
use crate::failures;
use crate::fault::Fault;
use crate::malformed;
use punctual_core::limits;
use rusqlite::Connection;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The findings of the checks so far.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    problems: Mutex<Vec<String>>,
    completed: AtomicU64,
}

impl Findings {
    /// Empty if there are no problems.
    pub fn problems(&self) -> Vec<String> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Checks that have covered everything.
    pub fn completed(&self) -> u64 {
        self.completed.load(Ordering::Relaxed)
    }

    /// Records a finding at once. It stays until a later check has covered everything without finding it.
    fn add(&self, problem: &str) {
        let mut problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        if problems.len() < limits::DAMAGE_LISTED_MAX && !problems.iter().any(|known| known == problem) {
            tracing::error!(problem, "the store is damaged: restore a backup");
            problems.push(problem.to_owned());
        }
    }

    fn complete(&self, found: Vec<String>) {
        *self.problems.lock().unwrap_or_else(PoisonError::into_inner) = found;
        self.completed.fetch_add(1, Ordering::Relaxed);
    }
}

/// The thread that runs the checks. It ends when this value is dropped, even in the middle of a check.
#[derive(Debug)]
pub(crate) struct BackgroundCheck {
    stop: Option<Sender<()>>,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl BackgroundCheck {
    pub fn spawn(files: Vec<OpenFile>, interval: Duration, findings: Arc<Findings>) -> io::Result<Self> {
        let (stop, stopped) = channel();
        let stopping = Arc::new(AtomicBool::new(false));
        let mut checker =
            Checker { stopped, stopping: stopping.clone(), findings, found: vec![], pace: CheckLoad::GENTLE };
        let thread = thread::Builder::new().name("store-check".to_owned()).spawn(move || {
            let mut damaged_files = failures::damaged_files();
            while checker.check(&files).is_ok() {
                match checker.wait_for_next(interval, damaged_files) {
                    Ok(known) => damaged_files = known,
                    Err(StoreClosing) => break,
                }
            }
        })?;
        Ok(BackgroundCheck { stop: Some(stop), stopping, thread: Some(thread) })
    }
}

impl Drop for BackgroundCheck {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.stop = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that checks the store has panicked");
        }
    }
}

/// The load that a check may cause.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CheckLoad {
    /// How long SQLite may check the structure of a file or table at a time.
    pub structure_max: Duration,
    /// How long to rest after work, as a multiple of the work time.
    pub rest_factor: u32,
}

impl CheckLoad {
    /// Next to a running server.
    const GENTLE: CheckLoad =
        CheckLoad { structure_max: limits::CHECK_STRUCTURE_MAX, rest_factor: limits::CHECK_REST_FACTOR };
}

/// Checks files once, on the calling thread.
#[cfg(test)]
pub(crate) fn check_once(files: &[OpenFile], pace: CheckLoad) -> Vec<String> {
    let (_stop, stopped) = channel();
    let findings = Arc::new(Findings::default());
    let mut checker =
        Checker { stopped, stopping: Arc::default(), findings: findings.clone(), found: vec![], pace };
    assert!(checker.check(files).is_ok(), "the check is not stopped");
    findings.problems()
}

/// The store is being closed.
struct StoreClosing;

/// Why a file was not covered.
enum NotCovered {
    Off(StoreClosing),
    /// It could not be checked, which is no sign of damage.
    Failed(Fault),
}

impl From<Fault> for NotCovered {
    fn from(fault: Fault) -> Self {
        NotCovered::Failed(fault)
    }
}

impl From<StoreClosing> for NotCovered {
    fn from(stopped: StoreClosing) -> Self {
        NotCovered::Off(stopped)
    }
}

struct Checker {
    stopped: Receiver<()>,
    stopping: Arc<AtomicBool>,
    findings: Arc<Findings>,
    /// The findings of this check.
    found: Vec<String>,
    pace: CheckLoad,
}

impl Checker {
    /// Checks all files once.
    fn check(&mut self, files: &[OpenFile]) -> Result<(), StoreClosing> {
        self.found.clear();
        let mut is_covered = true;
        for file in files {
            match self.check_file(file) {
                Ok(()) => {}
                Err(NotCovered::Off(stopped)) => return Err(stopped),
                Err(NotCovered::Failed(fault)) => {
                    is_covered = false;
                    let path = file.path().display();
                    tracing::warn!(%path, error = %fault, "the file could not be checked; the next check tries again");
                }
            }
        }
        if is_covered {
            self.findings.complete(std::mem::take(&mut self.found));
        }
        Ok(())
    }

    fn check_file(&mut self, file: &OpenFile) -> Result<(), NotCovered> {
        if let Err(gone) = file.is_still_there() {
            self.note(file.path(), gone.to_string());
            return Ok(());
        }
        match self.check_open(file.path()) {
            Err(NotCovered::Failed(fault)) => {
                let problem = as_problem(fault)?;
                self.note(file.path(), problem);
                Ok(())
            }
            checked => checked,
        }
    }

    fn check_open(&mut self, path: &Path) -> Result<(), NotCovered> {
        let mut conn = open_for_reading(path)?;
        if !self.check_structure(&mut conn, path, CheckScope::File)? {
            for table in tables(&conn)? {
                self.check_structure(&mut conn, path, CheckScope::Table(&table))?;
            }
        }
        for table in tables(&conn)? {
            let read = self.read_table(&conn, path, &table);
            if let Err(NotCovered::Failed(fault)) = read {
                let problem = as_problem(fault)?;
                self.note(path, format!("table {table}: {problem}"));
            } else {
                read?;
            }
        }
        Ok(())
    }

    /// Returns whether there was enough time.
    fn check_structure(
        &mut self,
        conn: &mut Connection,
        path: &Path,
        scope: CheckScope<'_>,
    ) -> Result<bool, NotCovered> {
        let started = Instant::now();
        let until = Until { deadline: started + self.pace.structure_max, stopping: self.stopping.clone() };
        let found = structure(conn, scope, until)?;
        let is_done = found.is_some();
        for problem in found.into_iter().flatten() {
            self.note(path, problem);
        }
        self.rest(started)?;
        Ok(is_done)
    }

    fn read_table(&mut self, conn: &Connection, path: &Path, table: &str) -> Result<(), NotCovered> {
        let scan = TableScan::of(conn, table)?;
        let mut last: Option<ScanKey> = None;
        loop {
            let started = Instant::now();
            let snapshot = conn.unchecked_transaction().map_err(Fault::from)?;
            loop {
                let step = scan.step(&snapshot, last.as_ref(), limits::CHECK_ROWS)?;
                for problem in step.problems {
                    self.note(path, problem);
                }
                step.malformed.into_iter().for_each(malformed::note_text);
                last = step.last;
                if last.is_none() || started.elapsed() >= limits::CHECK_STEP_MAX {
                    break;
                }
            }
            drop(snapshot);
            // The cache holds pages that were read before; the next step must read the disk.
            conn.release_memory().map_err(Fault::from)?;
            self.rest(started)?;
            if last.is_none() {
                return Ok(());
            }
        }
    }

    fn note(&mut self, path: &Path, problem: String) {
        let file = path.file_name().unwrap_or(path.as_os_str()).display();
        let problem = format!("{file}: {problem}");
        self.findings.add(&problem);
        if self.found.len() < limits::DAMAGE_LISTED_MAX && !self.found.contains(&problem) {
            self.found.push(problem);
        }
    }

    /// Rests in proportion to the work since `started`.
    fn rest(&self, started: Instant) -> Result<(), StoreClosing> {
        self.wait(started.elapsed().saturating_mul(self.pace.rest_factor))
    }

    /// Waits until the next check is due. While none has found damage, an error of SQLite about a damaged file
    /// makes it due early, also an error since the last check began, because that check may have passed the
    /// damaged page before. `known` is the number of such errors when it began; returns it for the next one.
    fn wait_for_next(&self, interval: Duration, known: u64) -> Result<u64, StoreClosing> {
        let due = Instant::now() + interval;
        loop {
            let left = due.saturating_duration_since(Instant::now());
            let damaged_files = failures::damaged_files();
            if left.is_zero() || (damaged_files > known && self.findings.problems().is_empty()) {
                return Ok(damaged_files);
            }
            self.wait(left.min(limits::CHECK_TRIGGER_INTERVAL))?;
        }
    }

    fn wait(&self, duration: Duration) -> Result<(), StoreClosing> {
        match self.stopped.recv_timeout(duration) {
            Err(RecvTimeoutError::Timeout) if !self.stopping.load(Ordering::Relaxed) => Ok(()),
            _ => Err(StoreClosing),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_occurs_during_a_check_makes_the_next_one_due_at_once() {
        let (stop, stopped) = channel();
        let checker = Checker {
            stopped,
            stopping: Arc::default(),
            findings: Arc::default(),
            found: vec![],
            pace: CheckLoad::GENTLE,
        };
        let when_it_began = failures::damaged_files();
        failures::count_damaged_file();
        // Otherwise this would take a day.
        let known = checker.wait_for_next(Duration::from_secs(86_400), when_it_began);
        assert!(known.is_ok_and(|known| known > when_it_began));
        drop(stop);
    }
}
