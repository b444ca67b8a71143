//! A truncated write-ahead log, as a power loss leaves it: every commit before the end is complete, and nothing of
//! later commits is visible.

use super::{apply, claim, job, open_session, report, submit};
use crate::sqlite::SqliteCore;
use punctual_core::ports::{JobQuery, Outcome};
use std::fs;
use std::path::Path;

const COMMITS: u64 = 12;
/// Where the log is truncated, in addition to the ends of commits: at every multiple of this, which hits
/// headers and pages alike.
const TEAR_EVERY_BYTES: u64 = 3_001;

/// The length of the log after each commit, and the rows that must be found after it.
struct Committed {
    log_bytes: u64,
    jobs: usize,
    finished: usize,
}

fn log_bytes(database: &Path) -> u64 {
    fs::metadata(log_of(database)).unwrap().len()
}

fn log_of(database: &Path) -> std::path::PathBuf {
    database.with_extension("db-wal")
}

/// Submits and runs a job in turn, and records how the log grows.
fn work(core: &mut SqliteCore, database: &Path) -> Vec<Committed> {
    let session = open_session(core);
    let mut committed = vec![Committed { log_bytes: log_bytes(database), jobs: 0, finished: 0 }];
    for number in 1..=COMMITS {
        apply(core, submit([job(number)]));
        let finished = (number - 1) as usize;
        committed.push(Committed { log_bytes: log_bytes(database), jobs: number as usize, finished });
        let assignments = claim(core, session, number, 1);
        committed.push(Committed { log_bytes: log_bytes(database), jobs: number as usize, finished });
        report(core, session, &assignments, Outcome::Succeeded { result: None });
        let finished = number as usize;
        committed.push(Committed { log_bytes: log_bytes(database), jobs: number as usize, finished });
    }
    committed
}

#[test]
fn a_truncated_log_keeps_every_commit_before_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let database = dir.path().join("punctual.db");
    // Opened twice: the first open creates the tables and checkpoints them into the database.
    drop(SqliteCore::open(&database).unwrap());
    let mut core = SqliteCore::open(&database).unwrap();
    let committed = work(&mut core, &database);
    assert!(committed.is_sorted_by(|a, b| a.log_bytes < b.log_bytes), "every commit adds to the log");
    let whole = committed.last().unwrap().log_bytes;
    let (image, log) = (fs::read(&database).unwrap(), fs::read(log_of(&database)).unwrap());

    let ends = committed.iter().map(|commit| commit.log_bytes);
    let tears = (committed[0].log_bytes..whole).step_by(TEAR_EVERY_BYTES as usize).chain(ends);
    for tear in tears {
        let torn = tempfile::tempdir().unwrap();
        let database = torn.path().join("punctual.db");
        fs::write(&database, &image).unwrap();
        fs::write(log_of(&database), &log[..tear as usize]).unwrap();
        let mut core = SqliteCore::open(&database).unwrap();
        assert_eq!(core.integrity_check().unwrap(), Vec::<String>::new(), "torn at {tear}");
        let kept = committed.iter().rev().find(|commit| commit.log_bytes <= tear).unwrap();
        let page = core.reads().jobs(&JobQuery { limit: 100, ..JobQuery::default() }).unwrap();
        let finished = page.items.iter().filter(|view| view.last_finished.is_some()).count();
        assert_eq!((page.items.len(), finished), (kept.jobs, kept.finished), "torn at {tear}");
        apply(&mut core, submit([job(1_000)]));
    }
}
