//! The limit on the total size of log lines: the oldest are removed, and the file stops growing.

use super::{Still, at, job};
use crate::sqlite::{LogCore, SqliteOptions, SqliteStore};
use punctual_core::ids::ExecutionId;
use punctual_core::limits;
use punctual_core::ports::{LogLine, LogStream, Store};
use std::sync::Arc;

const LIMIT: u64 = limits::LOGS_BYTES_MIN;
/// Lines per append, about 200 bytes each.
const BATCH: usize = 500;
const BATCHES: usize = 60;

fn execution(number: usize) -> ExecutionId {
    job(number as u64).id.occurrence(1).attempt(1)
}

/// The lines of one execution, written in the second of its number.
fn lines(number: usize) -> Vec<LogLine> {
    let line = |n: usize| LogLine {
        number: 0,
        execution: execution(number),
        timestamp: at(number as i64),
        stream: LogStream::Stdout,
        message: format!("{number} {n} {}", "x".repeat(190)),
    };
    (0..BATCH).map(line).collect()
}

fn pages(logs: &LogCore) -> u64 {
    logs.connection().query_row("PRAGMA page_count", [], |row| row.get::<_, i64>(0)).unwrap() as u64
}

fn kept(logs: &mut LogCore, number: usize) -> usize {
    let lines = logs.lines(execution(number), limits::PAGE_ITEMS_MAX);
    lines.len()
}

#[test]
fn the_oldest_lines_are_removed_and_the_file_stays_within_its_limit() {
    let dir = tempfile::tempdir().unwrap();
    let mut logs = LogCore::open(&dir.path().join("logs.db")).unwrap().with_bytes_max(Some(LIMIT));
    let mut written_bytes = 0;
    for number in 0..BATCHES {
        let lines = lines(number);
        written_bytes += lines.iter().map(|line| line.message.len() as u64).sum::<u64>();
        logs.append(&lines).unwrap();
        // One append may exceed the limit before the oldest lines are removed, and only once: freed pages
        // are reused.
        assert!(pages(&logs) * 4_096 <= LIMIT + LIMIT / 4, "{} pages after append {number}", pages(&logs));
    }
    assert!(written_bytes > 5 * LIMIT, "{written_bytes} bytes are several times the limit");
    let kept: Vec<usize> = (0..BATCHES).map(|number| kept(&mut logs, number)).collect();
    assert_eq!(kept.last(), Some(&BATCH), "the newest lines are kept");
    assert!(kept.is_sorted() && kept[0] == 0, "the oldest are removed first: {kept:?}");
    assert_eq!(kept.iter().filter(|lines| ![0, BATCH].contains(lines)).count(), 1, "one is cut: {kept:?}");
    let left: usize = kept.iter().sum();
    assert_eq!(logs.removed().lines as usize, BATCHES * BATCH - left, "every removed line is counted");
    assert!(logs.removed().bytes < written_bytes && logs.removed().bytes > written_bytes - 2 * LIMIT);
}

#[test]
fn without_a_limit_nothing_is_removed() {
    let mut logs = LogCore::open_in_memory().unwrap();
    for number in 0..20 {
        logs.append(&lines(number)).unwrap();
    }
    assert_eq!((kept(&mut logs, 0), logs.removed().lines), (BATCH, 0));
}

#[tokio::test]
async fn readers_learn_up_to_which_time_lines_are_missing() {
    let dir = tempfile::tempdir().unwrap();
    let options = SqliteOptions { log_bytes_max: Some(LIMIT), ..SqliteOptions::new(dir.path()) };
    let open = || SqliteStore::open(&options, Arc::new(Still)).unwrap();
    let store = open();
    assert_eq!(store.logs_removed_until().await.unwrap(), None);
    for number in 0..20 {
        store.append_logs(lines(number)).await.unwrap();
    }
    let until = store.logs_removed_until().await.unwrap().expect("lines were removed");
    let first_kept = store.last_logs(execution(19), None, 1).await.unwrap().remove(0).timestamp;
    assert!(at(0) < until && until < first_kept, "{until}");
    let figures = store.figures().await.unwrap();
    assert!(figures.log_lines_removed > BATCH as u64 && figures.log_bytes_removed > 0, "{figures:?}");
    store.close();
    assert_eq!(open().logs_removed_until().await.unwrap(), Some(until), "also after a restart");
}
