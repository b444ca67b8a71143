//! Damaged files: detected at the start, by the background check, by `check_files` and by a backup.

use super::{Still, apply, at, claim, job, open, open_session, report, submit};
use crate::sqlite::background::{CheckLoad, check_once};
use crate::sqlite::connection::{Durability, open_for_reading, open_for_writing};
use crate::sqlite::open::OpenFile;
use crate::sqlite::scan::{ScanReport, TableScan, scan_all, tables};
use crate::sqlite::{
    BackupError, LogCore, OpenError, SqliteCore, SqliteOptions, SqliteStore, backup, check_files, damage,
    migrate,
};
use punctual_core::ids::ExecutionId;
use punctual_core::ports::{LogLine, LogStream, Outcome, Store, StoreError};
use rusqlite::Connection;
use rusqlite::types::Value;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PAGE: usize = 4_096;
/// Enough time for SQLite's own check of any file in these tests.
const AT_LEISURE: CheckLoad = CheckLoad { structure_max: Duration::from_secs(600), rest_factor: 0 };
/// The pace for tables that are too large for SQLite's own check.
const IN_STEPS: CheckLoad = CheckLoad { structure_max: Duration::ZERO, rest_factor: 0 };

/// A store with rows in every kind of page: interior pages, pages of large values, free pages.
fn fill(dir: &Path) {
    fs::create_dir_all(dir).unwrap();
    let mut core = SqliteCore::open(&dir.join("punctual.db")).unwrap();
    let session = open_session(&mut core);
    let jobs = (0..600).map(|number| {
        let mut job = job(number);
        if number % 50 == 0 {
            job.spec.payload = format!("\"{}\"", "y".repeat(20_000));
        }
        job
    });
    apply(&mut core, submit(jobs));
    for turn in 1..=3 {
        let claimed = claim(&mut core, session, turn, 100);
        report(&mut core, session, &claimed, Outcome::Succeeded { result: None });
    }
    let conn = core.into_connection();
    conn.execute_batch("CREATE TABLE gone (a TEXT) STRICT").unwrap();
    for _ in 0..100 {
        conn.execute("INSERT INTO gone (a) VALUES (?1)", ["z".repeat(2_000)]).unwrap();
    }
    conn.execute_batch("DROP TABLE gone").unwrap();
    drop(conn);
    let mut logs = LogCore::open(&dir.join("logs.db")).unwrap();
    let lines: Vec<LogLine> =
        (0..2_000).map(|number| line(job(number % 600).id.occurrence(1).attempt(1))).collect();
    logs.append(&lines).unwrap();
}

fn line(execution: ExecutionId) -> LogLine {
    let message = "a line of output that is as long as many others".to_owned();
    LogLine { number: 0, execution, timestamp: at(1), stream: LogStream::Log, message }
}

/// All rows of all tables, read from the tables and through every index; `None` if they cannot be read.
fn dump(path: &Path) -> Option<Vec<Vec<Value>>> {
    fn read(path: &Path) -> rusqlite::Result<Vec<Vec<Value>>> {
        let conn = Connection::open(path)?;
        let mut sql = Vec::new();
        let mut find =
            conn.prepare("SELECT tbl_name, name, sql FROM sqlite_schema WHERE type IN ('table', 'index')")?;
        let mut rows = find.query([])?;
        while let Some(row) = rows.next()? {
            let (table, name, created): (String, String, Option<String>) =
                (row.get(0)?, row.get(1)?, row.get(2)?);
            if table == name {
                sql.push(format!("SELECT * FROM \"{table}\" NOT INDEXED"));
            } else if let Some(created) = created {
                let part = created.split_once(" WHERE ").map_or("1", |(_, part)| part);
                sql.push(format!("SELECT * FROM \"{table}\" INDEXED BY \"{name}\" WHERE {part}"));
            }
        }
        let mut all = Vec::new();
        for sql in sql {
            let mut statement = conn.prepare(&sql)?;
            let columns = statement.column_count();
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                all.push((0..columns).map(|column| row.get(column)).collect::<Result<_, _>>()?);
            }
        }
        Ok(all)
    }
    read(path).ok()
}

/// Pseudo-random numbers that are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
}

fn found_at_start(path: &Path, steps: &[&str]) -> bool {
    match open_for_writing(path, Durability::PowerLoss) {
        Ok(mut conn) => !damage::at_start(&mut conn, steps).unwrap().is_empty(),
        Err(fault) => damage::as_problem(fault).is_ok(),
    }
}

/// By the background check: as damage, or as values that cannot be read.
fn found_later(path: &Path, pace: CheckLoad) -> bool {
    let has_malformed = || {
        scan_all(&open_for_reading(path).unwrap(), 1_000).is_ok_and(|found| found != ScanReport::default())
    };
    !check_once(&[OpenFile::of(path.to_owned()).unwrap()], pace).is_empty() || has_malformed()
}

#[test]
fn a_damaged_page_is_found_or_harmless() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path());
    let mut numbers = Numbers(7);
    for (file, steps, rounds) in [("punctual.db", migrate::MAIN, 150), ("logs.db", migrate::LOGS, 40)] {
        let path = dir.path().join(file);
        let whole = fs::read(&path).unwrap();
        let contents = dump(&path).unwrap();
        assert!(!found_at_start(&path, steps));
        assert!(!found_later(&path, AT_LEISURE) && !found_later(&path, IN_STEPS));
        let (mut at_start, mut harmless) = (0, 0);
        for round in 0..rounds {
            let page = numbers.next() as usize % (whole.len() / PAGE);
            // A page that was never written, one of ones, one of noise, and the second half of one.
            let (from, filling): (usize, fn(&mut Numbers) -> u8) = match round % 4 {
                0 => (0, |_| 0),
                1 => (0, |_| 0xff),
                2 => (0, |numbers| numbers.next() as u8),
                _ => (PAGE / 2, |numbers| numbers.next() as u8),
            };
            let mut bytes = whole.clone();
            bytes[page * PAGE + from..(page + 1) * PAGE].fill_with(|| filling(&mut numbers));
            fs::write(&path, &bytes).unwrap();
            let is_harmless = || dump(&path).as_ref() == Some(&contents);
            let at = format!("{file}: page {} of {}, round {round}", page + 1, whole.len() / PAGE);
            if found_at_start(&path, steps) {
                at_start += 1;
            } else if !found_later(&path, AT_LEISURE) {
                assert!(is_harmless(), "{at}");
                harmless += 1;
            }
            assert!(is_harmless() || found_later(&path, IN_STEPS), "in steps: {at}");
            for beside in ["-wal", "-shm"] {
                let _ = fs::remove_file(dir.path().join(format!("{file}{beside}")));
            }
        }
        assert!(
            at_start > harmless,
            "{file}: {at_start} of {rounds} were found at the start, {harmless} are harmless"
        );
        fs::write(&path, whole).unwrap();
    }
}

/// Waits for the background check.
async fn eventually(condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "the condition never became true");
        tokio::task::yield_now().await;
    }
}

/// Damages the root page of an empty table, so that everything else continues.
fn damage_table(dir: &Path, table: &str) {
    let path = dir.join("punctual.db");
    let conn = Connection::open(&path).unwrap();
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
    let page: u32 = conn.query_row(sql, [table], |row| row.get(0)).unwrap();
    drop(conn);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[0xff; PAGE], u64::from(page - 1) * PAGE as u64).unwrap();
}

#[tokio::test]
async fn a_damaged_file_is_neither_opened_nor_changed() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path());
    damage_table(dir.path(), "skipped");
    let before = fs::read(dir.path().join("punctual.db")).unwrap();
    let refused = SqliteStore::open(&SqliteOptions::new(dir.path()), Arc::new(Still)).err().unwrap();
    assert!(
        matches!(&refused, OpenError::Damaged { path, .. } if path.ends_with("punctual.db")),
        "{refused}"
    );
    assert!(fs::read(dir.path().join("punctual.db")).unwrap() == before);
    let found = check_files(dir.path()).unwrap();
    assert!(found.problems.iter().any(|problem| problem.starts_with("punctual.db: ")), "{found:?}");
}

#[tokio::test]
async fn a_file_without_a_table_or_a_version_is_not_opened() {
    for (sql, expected) in [
        ("DROP INDEX skipped_job", "index skipped_job is missing"),
        ("PRAGMA user_version = 0", "no schema version"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        open(dir.path()).close();
        Connection::open(dir.path().join("punctual.db")).unwrap().execute_batch(sql).unwrap();
        let refused = SqliteStore::open(&SqliteOptions::new(dir.path()), Arc::new(Still)).err().unwrap();
        assert!(refused.to_string().contains(expected), "{refused}");
    }
}

#[tokio::test]
async fn damage_of_an_open_store_makes_it_unready_while_other_work_continues() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path());
    let options =
        SqliteOptions { check_interval: Some(Duration::from_millis(1)), ..SqliteOptions::new(dir.path()) };
    let store = SqliteStore::open(&options, Arc::new(Still)).unwrap();
    eventually(|| store.health().checks_completed > 0).await;
    assert_eq!(store.health().damage, Vec::<String>::new());
    store.probe(at(1)).await.unwrap();
    damage_table(dir.path(), "skipped_job");
    eventually(|| !store.health().damage.is_empty()).await;
    let error = store.probe(at(2)).await.unwrap_err();
    assert!(matches!(&error, StoreError::Broken(reason) if reason.contains("punctual.db: ")), "{error}");
    let corruptions = |store: &SqliteStore| {
        store.health().errors.into_iter().find(|(kind, _)| *kind == "corruption").map(|(_, count)| count)
    };
    let before = corruptions(&store).unwrap();
    assert!(store.skipped(job(1).id, 10).await.is_err());
    assert!(corruptions(&store).unwrap() > before);
    let jobs = vec![punctual_core::ports::NewJob { job: job(9_999), reservation: None }];
    store.submit(at(3), jobs).await.unwrap();

    let error = backup(dir.path(), &dir.path().join("copy"), |_| {}).unwrap_err();
    assert!(matches!(error, BackupError::Damaged { .. }), "{error}");
    assert!(!dir.path().join("copy").exists());
}

#[tokio::test]
async fn a_read_that_meets_damage_starts_a_check() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path());
    let options =
        SqliteOptions { check_interval: Some(Duration::from_secs(86_400)), ..SqliteOptions::new(dir.path()) };
    let store = SqliteStore::open(&options, Arc::new(Still)).unwrap();
    eventually(|| store.health().checks_completed > 0).await;
    damage_table(dir.path(), "skipped_job");
    assert!(store.skipped(job(1).id, 10).await.is_err());
    eventually(|| !store.health().damage.is_empty()).await;
    assert!(store.probe(at(2)).await.is_err());
}

#[tokio::test]
async fn a_file_that_is_replaced_under_an_open_store_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let options =
        SqliteOptions { check_interval: Some(Duration::from_millis(1)), ..SqliteOptions::new(dir.path()) };
    let store = SqliteStore::open(&options, Arc::new(Still)).unwrap();
    fs::rename(dir.path().join("logs.db"), dir.path().join("aside")).unwrap();
    eventually(|| !store.health().damage.is_empty()).await;
    assert!(store.health().damage[0].contains("logs.db cannot be found"), "{:?}", store.health());
}

#[test]
fn every_index_of_the_schema_is_searched() {
    let core = SqliteCore::open_in_memory().unwrap();
    let conn = core.connection();
    for table in tables(conn).unwrap() {
        TableScan::of(conn, &table).unwrap().step(conn, None, 10).unwrap();
    }
    assert_eq!(scan_all(conn, 10).unwrap(), ScanReport::default());
}

#[test]
fn rows_that_an_index_lacks_are_found_in_steps() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path());
    let path = dir.path().join("punctual.db");
    // Makes the pages of the index hold an earlier state.
    let conn = Connection::open(&path).unwrap();
    let sql = "SELECT sql FROM sqlite_schema WHERE name = 'live_claim'";
    let created: String = conn.query_row(sql, [], |row| row.get(0)).unwrap();
    conn.execute_batch(&format!(
        "DROP INDEX live_claim; {created} AND rank IS NULL; PRAGMA writable_schema = ON; \
         UPDATE sqlite_schema SET sql = '{created}' WHERE name = 'live_claim'; PRAGMA writable_schema = OFF"
    ))
    .unwrap();
    drop(conn);
    let found = check_once(&[OpenFile::of(path).unwrap()], IN_STEPS);
    assert!(!found.is_empty());
    assert!(found.iter().all(|problem| problem.contains("index live_claim does not find")), "{found:?}");
}

fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
}

#[test]
fn a_check_reads_the_log_that_a_killed_server_left_and_changes_nothing() {
    let original = tempfile::tempdir().unwrap();
    fill(original.path());
    let mut core = SqliteCore::open(&original.path().join("punctual.db")).unwrap();
    apply(&mut core, submit([job(5_000)]));
    core.connection().execute_batch("DELETE FROM lanes").unwrap();
    let dir = tempfile::tempdir().unwrap();
    // With and without the index of the log: a copy of files, or a read-only disk, has none.
    for left in
        [&["punctual.db", "punctual.db-wal"][..], &["punctual.db", "punctual.db-wal", "punctual.db-shm"]]
    {
        for file in left {
            fs::copy(original.path().join(file), dir.path().join(file)).unwrap();
        }
        let before = files(dir.path());
        let found = check_files(dir.path()).unwrap();
        assert!(found.problems.iter().any(|problem| problem.contains("unknown lane")), "{found:?}");
        assert!(files(dir.path()) == before, "{:?}", files(dir.path()).keys());
    }
    assert!(found_note(dir.path()).contains("logs.db"));
}

fn found_note(dir: &Path) -> String {
    check_files(dir).unwrap().notes.join("; ")
}

/// Only `punctual check` reports it; the start and the background check are about the file.
#[test]
fn a_malformed_value_is_not_damage_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path());
    let path = dir.path().join("punctual.db");
    let conn = open_for_writing(&path, Durability::PowerLoss).unwrap();
    conn.execute("INSERT INTO queues (queue, limits) VALUES ('mail', '{garbage')", []).unwrap();
    drop(conn);
    assert_eq!(check_once(&[OpenFile::of(path).unwrap()], IN_STEPS), Vec::<String>::new());
    open(dir.path()).close();
    let found = check_files(dir.path()).unwrap();
    assert!(found.problems.iter().any(|problem| problem.contains("queues")), "{found:?}");
}

#[test]
fn a_check_of_a_closed_store_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).close();
    let before = files(dir.path());
    assert_eq!(check_files(dir.path()).unwrap(), Default::default());
    assert!(files(dir.path()) == before, "{:?}", files(dir.path()).keys());

    let store = open(dir.path());
    assert!(matches!(check_files(dir.path()), Err(OpenError::InUse { .. })));
    store.close();
    fs::write(dir.path().join("punctual.db"), "").unwrap();
    assert_eq!(check_files(dir.path()).unwrap().problems, ["punctual.db: the file is empty"]);
    fs::remove_file(dir.path().join("punctual.db")).unwrap();
    let before = files(dir.path());
    assert!(matches!(check_files(dir.path()), Err(OpenError::NoDatabase { .. })));
    assert!(files(dir.path()) == before);
}

#[test]
fn a_check_of_an_earlier_version_does_not_migrate_it() {
    let dir = tempfile::tempdir().unwrap();
    let conn = open_for_writing(&dir.path().join("punctual.db"), Durability::PowerLoss).unwrap();
    conn.execute_batch(migrate::MAIN[0]).unwrap();
    conn.pragma_update(None, "user_version", 1).unwrap();
    drop(conn);
    assert!(found_note(dir.path()).contains("schema version 1"));
    assert_eq!(check_files(dir.path()).unwrap().problems, Vec::<String>::new());
    let conn = open_for_reading(&dir.path().join("punctual.db")).unwrap();
    assert_eq!(migrate::version(&conn).unwrap(), 1);
}

#[tokio::test]
async fn an_interrupted_backup_is_recognised() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    fill(&data);
    // Between copying and renaming, between the two renames, and as earlier versions left it.
    let large = "x".repeat(100_000);
    for left in [
        &[("punctual.db.partial", "x")][..],
        &[("punctual.db.partial", "x"), ("logs.db", "x")],
        &[("punctual.db", &large), ("punctual.db-journal", "x")],
    ] {
        let copy = dir.path().join("copy");
        fs::create_dir(&copy).unwrap();
        for (file, text) in left {
            fs::write(copy.join(file), text).unwrap();
        }
        let before = files(&copy);
        let refused = [check_files(&copy).err().unwrap(), crate::sqlite::inspect(&copy).err().unwrap()];
        for refused in refused {
            assert!(matches!(refused, OpenError::Incomplete { .. }), "{refused}");
        }
        assert!(files(&copy) == before);
        let refused = SqliteStore::open(&SqliteOptions::new(&copy), Arc::new(Still)).err().unwrap();
        assert!(matches!(refused, OpenError::Incomplete { .. }), "{refused}");
        assert!(matches!(
            backup(&data, &copy, |_| {}),
            Err(BackupError::Interrupted(_) | BackupError::AlreadyThere(_))
        ));
        assert!(matches!(
            backup(&copy, &dir.path().join("of copy"), |_| {}),
            Err(BackupError::Source(OpenError::Incomplete { .. }))
        ));
        fs::remove_dir_all(&copy).unwrap();
    }
}

#[test]
fn files_have_their_names_only_when_a_backup_is_complete() {
    let dir = tempfile::tempdir().unwrap();
    let [data, copy] = ["data", "copy"].map(|name| dir.path().join(name));
    fill(&data);
    let mut reports = 0;
    backup(&data, &copy, |_| {
        reports += 1;
        assert!(files(&copy).keys().all(|name| name.ends_with(".partial")), "{:?}", files(&copy).keys());
    })
    .unwrap();
    assert!(reports > 0);
    assert_eq!(files(&copy).into_keys().collect::<Vec<_>>(), ["logs.db", "punctual.db"]);
    assert_eq!(check_files(&copy).unwrap(), Default::default());
    assert_eq!(dump(&copy.join("punctual.db")), dump(&data.join("punctual.db")));
}

#[tokio::test]
async fn the_database_file_itself_is_locked() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path());
    fs::remove_file(dir.path().join("punctual.lock")).unwrap();
    let refused = SqliteStore::open(&SqliteOptions::new(dir.path()), Arc::new(Still)).err().unwrap();
    assert!(matches!(refused, OpenError::InUse { .. }), "{refused}");
    assert!(matches!(check_files(dir.path()), Err(OpenError::InUse { .. })));
    first.close();
    open(dir.path());
}

#[test]
fn the_store_of_these_tests_has_pages_of_every_kind() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path());
    let conn = Connection::open(dir.path().join("punctual.db")).unwrap();
    for (sql, least) in [
        ("SELECT count(*) FROM jobs", 600),
        ("SELECT count(*) FROM history", 300),
        ("SELECT count(*) FROM live", 300),
        ("PRAGMA freelist_count", 20),
        ("SELECT count(*) FROM dbstat WHERE pagetype = 'overflow'", 40),
        ("SELECT count(*) FROM dbstat WHERE pagetype = 'internal'", 2),
    ] {
        let count: i64 = conn.query_row(sql, [], |row| row.get(0)).unwrap();
        assert!(count >= least, "{sql}: {count}");
    }
}
