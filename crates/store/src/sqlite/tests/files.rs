//! Files: locks, versions, backups, closing.

use super::{Still, at, job, open};
use crate::sqlite::{BackupError, OpenError, SqliteCore, SqliteOptions, SqliteStore, backup};
use punctual_core::ports::{FireRequest, JobQuery, JobView, LogLine, LogStream, NewJob, Store, StoreError};
use rusqlite::Connection;
use std::error::Error;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

#[tokio::test]
async fn a_second_open_of_the_same_directory_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path());
    let refused = SqliteStore::open(&SqliteOptions::new(dir.path()), Arc::new(Still)).err().unwrap();
    assert!(matches!(refused, OpenError::InUse { .. }));
    let lock = dir.path().join("punctual.lock");
    assert!(refused.to_string().contains(&lock.display().to_string()), "{refused}");
    first.close();
    open(dir.path());
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_rejected() {
    for file in ["punctual.db", "logs.db"] {
        let dir = tempfile::tempdir().unwrap();
        open(dir.path()).close();
        let conn = Connection::open(dir.path().join(file)).unwrap();
        conn.pragma_update(None, "user_version", 99).unwrap();
        drop(conn);
        let refused = SqliteStore::open(&SqliteOptions::new(dir.path()), Arc::new(Still)).err().unwrap();
        let reason = refused.source().unwrap().to_string();
        assert!(refused.to_string().contains(file), "{refused}");
        assert!(reason.contains("version 99") && reason.contains("newer binary"), "{reason}");
    }
}

#[tokio::test]
async fn a_file_that_is_not_a_database_is_rejected_and_not_changed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("punctual.db");
    std::fs::write(&path, "not a database at all, but long enough to be mistaken for one").unwrap();
    assert!(SqliteStore::open(&SqliteOptions::new(dir.path()), Arc::new(Still)).is_err());
    assert!(std::fs::read_to_string(&path).unwrap().starts_with("not a database"));
}

#[tokio::test]
async fn an_emptied_database_is_rejected_instead_of_created_again() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).close();
    std::fs::write(dir.path().join("punctual.db"), "").unwrap();
    let refused = SqliteStore::open(&SqliteOptions::new(dir.path()), Arc::new(Still)).err().unwrap();
    assert!(refused.source().unwrap().to_string().contains("restore"), "{refused}");
}

#[tokio::test]
async fn a_deleted_database_is_rejected_instead_of_created_again() {
    for (left, removed) in [("logs.db", "punctual.db-wal"), ("punctual.db-wal", "logs.db")] {
        let dir = tempfile::tempdir().unwrap();
        open(dir.path()).close();
        std::fs::remove_file(dir.path().join("punctual.db")).unwrap();
        for file in [removed, "punctual.lock"] {
            let _ = std::fs::remove_file(dir.path().join(file));
        }
        std::fs::write(dir.path().join(left), "what was written last").unwrap();
        let refused = SqliteStore::open(&SqliteOptions::new(dir.path()), Arc::new(Still)).err().unwrap();
        let reason = refused.source().unwrap().to_string();
        assert!(reason.contains(&format!("the file is gone, although {left}")), "{reason}");
        assert!(reason.contains("restore punctual.db and logs.db"), "{reason}");
        let files = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(files.collect::<Vec<_>>(), [left], "nothing was created");
        assert_eq!(std::fs::read(dir.path().join(left)).unwrap(), b"what was written last");
    }
}

#[tokio::test]
async fn nothing_is_acknowledged_once_the_file_is_deleted_or_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.probe(at(1)).await.unwrap();
    let (path, aside) = (dir.path().join("punctual.db"), dir.path().join("aside"));
    std::fs::rename(&path, &aside).unwrap();
    assert!(matches!(store.probe(at(2)).await, Err(StoreError::Unavailable(_))));
    std::fs::write(&path, "").unwrap();
    assert!(matches!(store.probe(at(3)).await, Err(StoreError::Unavailable(_))));
    std::fs::rename(&aside, &path).unwrap();
    store.probe(at(4)).await.unwrap();
}

#[tokio::test]
async fn only_the_owner_can_read_the_files_and_their_copies() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    fill(&store, 0..10).await;
    let copy = dir.path().join("copy");
    backup(dir.path(), &copy, |_| {}).unwrap();
    for file in ["punctual.db", "punctual.db-wal", "logs.db", "copy/punctual.db", "copy/logs.db"] {
        let mode = std::fs::metadata(dir.path().join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
}

#[tokio::test]
async fn a_closed_store_leaves_no_log_to_replay_and_reopens_with_all_rows() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    fill(&store, 0..100).await;
    let before = contents(&store).await;
    store.close();
    for file in ["punctual.db-wal", "logs.db-wal"] {
        assert!(!dir.path().join(file).exists(), "{file} is left behind");
    }
    assert_eq!(contents(&open(dir.path())).await, before);
}

#[tokio::test]
async fn a_call_that_changes_nothing_adds_nothing_to_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    fill(&store, 0..10).await;
    let log = || std::fs::read(dir.path().join("punctual.db-wal")).unwrap();
    let before = log();
    store.recover(at(9), 10).await.unwrap();
    store.submit(at(9), vec![NewJob { job: job(1), reservation: None }]).await.unwrap();
    store.fire(at(9), vec![FireRequest { job: job(1).id, version: 1, reservation: None }]).await.unwrap();
    assert!(log() == before, "a call that writes no page needs no sync");
}

#[tokio::test]
async fn an_open_store_passes_its_integrity_check() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    fill(&store, 0..100).await;
    assert_eq!(store.integrity_check().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn a_backup_opens_and_equals_the_original() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    fill(&store, 0..3_000).await;
    let to = dir.path().join("backup");
    let mut reports = Vec::new();
    backup(dir.path(), &to, |progress| reports.push(progress)).unwrap();
    assert!(reports.iter().all(|progress| progress.pages_done <= progress.pages_total));
    assert!(reports.last().is_some_and(|last| last.pages_done == last.pages_total));
    assert_eq!(contents(&open(&to)).await, contents(&store).await);
    let problems = SqliteCore::open(&to.join("punctual.db")).unwrap().integrity_check().unwrap();
    assert_eq!(problems, Vec::<String>::new());

    let again = backup(dir.path(), &to, |_| {}).err().unwrap();
    assert!(matches!(again, BackupError::AlreadyThere(_)), "{again}");
}

#[tokio::test]
async fn a_backup_is_a_snapshot_of_a_store_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    fill(&store, 0..3_000).await;
    let to = dir.path().join("backup");
    let writer = Connection::open(dir.path().join("punctual.db")).unwrap();
    let mut commits = 0;
    backup(dir.path(), &to, |_| {
        // A commit between two steps, as jobs continue during the copy.
        commits += 1;
        writer.execute("INSERT INTO workers (name) VALUES (?1)", [format!("w{commits}")]).unwrap();
    })
    .unwrap();
    assert!(commits > 0);
    let copy = Connection::open(to.join("punctual.db")).unwrap();
    let workers: i64 = copy.query_row("SELECT count(*) FROM workers", [], |row| row.get(0)).unwrap();
    assert_eq!(workers, 0, "the copy began before the first of them");
}

async fn fill(store: &SqliteStore, numbers: std::ops::Range<u64>) {
    let jobs: Vec<_> = numbers.map(|n| NewJob { job: job(n), reservation: None }).collect();
    let execution = jobs[0].job.id.occurrence(1).attempt(1);
    store.submit(at(1), jobs).await.unwrap();
    let line = LogLine {
        number: 0,
        execution,
        timestamp: at(1),
        stream: LogStream::Log,
        message: "hello".to_owned(),
    };
    store.append_logs(vec![line]).await.unwrap();
}

async fn contents(store: &SqliteStore) -> (Vec<JobView>, Vec<LogLine>) {
    let mut query = JobQuery { limit: 1_000, ..JobQuery::default() };
    let mut jobs = Vec::new();
    loop {
        let page = store.jobs(query.clone()).await.unwrap();
        jobs.extend(page.items);
        query.before = page.next;
        if query.before.is_none() {
            break;
        }
    }
    let execution = jobs.last().unwrap().job.id.occurrence(1).attempt(1);
    (jobs, store.logs(execution, None, 10).await.unwrap().items)
}

#[test]
fn a_directory_that_cannot_be_created_is_reported() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let below: &Path = &file.path().join("data");
    let refused = SqliteStore::open(&SqliteOptions::new(below), Arc::new(Still)).err().unwrap();
    assert!(refused.to_string().contains(&below.display().to_string()), "{refused}");
}
