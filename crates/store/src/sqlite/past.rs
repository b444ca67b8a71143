//! Writes a history for benchmarks into the files of a store that is not open.

use super::core::{CoreMemory, SqliteCore};
use super::lock::DirectoryLock;
use super::names::{LaneNumbers, last_history_number};
use super::open::{MAIN_FILE, OpenError};
use super::rows::{INSERT_HISTORY, INSERT_JOB, insert_history, write_job};
use crate::baseline::past::PastBatch;
use crate::baseline::{Past, RowProgress};
use crate::counters::CounterChanges;
use crate::fault::Fault;
use punctual_core::ports::StoreError;
use rusqlite::Connection;
use std::path::{Path, PathBuf};

/// Why a history was not written.
#[derive(Debug, thiserror::Error)]
pub enum PastError {
    #[error("{} contains jobs already: choose a directory without a store", dir.display())]
    NotEmpty { dir: PathBuf },
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Writes the rows of past executions into a store without jobs. Creates the store if the directory has none.
pub fn keep_past(dir: &Path, past: Past, progress: &RowProgress) -> Result<(), PastError> {
    let _lock = DirectoryLock::take(dir)?;
    let conn = SqliteCore::open(&dir.join(MAIN_FILE))?.into_connection();
    if has_jobs(&conn).map_err(StoreError::from)? {
        return Err(PastError::NotEmpty { dir: dir.to_owned() });
    }
    Ok(write_batches(&conn, past, progress).map_err(StoreError::from)?)
}

fn has_jobs(conn: &Connection) -> Result<bool, Fault> {
    Ok(conn.query_row("SELECT EXISTS (SELECT 1 FROM jobs)", [], |row| row.get(0))?)
}

fn write_batches(conn: &Connection, past: Past, progress: &RowProgress) -> Result<(), Fault> {
    let (lane, _) = LaneNumbers::default().intern(conn, "default", "noop")?;
    let worker = worker(conn)?;
    for batch in past.batches() {
        write(conn, &batch, lane, worker)?;
        progress(batch.ends.len() as u64);
    }
    Ok(())
}

fn worker(conn: &Connection) -> Result<i64, Fault> {
    conn.execute("INSERT INTO workers (name) VALUES ('past')", [])?;
    Ok(conn.last_insert_rowid())
}

fn write(conn: &Connection, batch: &PastBatch, lane: i64, worker: i64) -> Result<(), Fault> {
    let transaction = conn.unchecked_transaction()?;
    let mut job_insert = conn.prepare_cached(&INSERT_JOB)?;
    let mut history_insert = conn.prepare_cached(&INSERT_HISTORY)?;
    for job in &batch.jobs {
        write_job(&mut job_insert, job, lane)?;
    }
    let last = last_history_number(conn)?;
    for (seq, end) in (last + 1..).zip(&batch.ends) {
        insert_history(&mut history_insert, end, Some(worker), seq)?;
    }
    CoreMemory::default()
        .add_counts(conn, CounterChanges { jobs: batch.job_counts(), ..CounterChanges::default() })?;
    transaction.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::time::Timestamp;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    #[test]
    fn a_store_with_a_history_is_consistent() {
        let dir = tempfile::tempdir().unwrap();
        let until = Timestamp::from_micros(1_763_195_400_000_000);
        let past =
            Past { executions: 2_503, until, span: Duration::from_secs(29 * 86_400), payload_bytes: 50 };
        let written = Arc::new(AtomicU64::new(0));
        let progress: RowProgress = {
            let written = written.clone();
            Arc::new(move |rows| {
                written.fetch_add(rows, Ordering::Relaxed);
            })
        };
        keep_past(dir.path(), past, &progress).unwrap();
        assert_eq!(written.load(Ordering::Relaxed), 2_503);
        let core = SqliteCore::open(&dir.path().join(MAIN_FILE)).unwrap();
        assert_eq!(core.integrity_check().unwrap(), Vec::<String>::new());
        let count = |sql: &str| core.connection().query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(count("SELECT count(*) FROM history"), 2_503);
        assert_eq!(count("SELECT completed FROM job_tally"), 251);
        drop(core);
        let again = keep_past(dir.path(), past, &(Arc::new(|_| ()) as RowProgress));
        assert!(matches!(again, Err(PastError::NotEmpty { .. })), "{again:?}");
    }
}
