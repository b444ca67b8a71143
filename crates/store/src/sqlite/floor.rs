//! What this disk and SQLite can do at best: the same rows as ours through the same settings, without rules,
//! threads or answers. A benchmark states its own figures as a share of these, so that they mean something on
//! any machine.

use super::core::SqliteCore;
use super::fault::Fault;
use super::names::last_history_number;
use super::rows::{
    INSERT_HISTORY, INSERT_JOB, INSERT_LIVE, LiveRow, UPDATE_LIVE, insert_history, insert_live, update_live,
    write_job,
};
use super::tally::Tally;
use super::verbs::{DELETE_LIVE, FIRST_OF_LANE};
use punctual_core::ids::{JobId, SessionId};
use punctual_core::job::{Job, JobMark, JobSpec};
use punctual_core::occurrence::{End, Finished, Live};
use punctual_core::ports::{Outcome, StoreError};
use punctual_core::rank::Shares;
use punctual_core::schedule::{Beginning, begin};
use punctual_core::time::Timestamp;
use rusqlite::{Connection, params};
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes of a job's payload.
const PAYLOAD_BYTES: usize = 200;
/// How long syncs are counted.
const SYNC_TIME: Duration = Duration::from_millis(500);

/// How much to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FloorOptions {
    pub jobs: usize,
    /// Jobs of one transaction.
    pub batch: usize,
}

/// What was measured, each in one thread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Floor {
    /// Jobs inserted as a submit does: the job and its live row.
    pub insert_per_sec: f64,
    /// Jobs claimed and completed, in a transaction each.
    pub claim_complete_per_sec: f64,
    /// Small appends to a file, each made durable.
    pub fdatasync_per_sec: f64,
}

/// The floor cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum FloorError {
    #[error("{} cannot be used", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Measures in a directory of its own below `dir`, which is removed afterwards.
pub fn measure_floor(dir: &Path, options: FloorOptions) -> Result<Floor, FloorError> {
    let place = dir.join(format!("floor-{}", std::process::id()));
    let io_error = |source| FloorError::Io { path: place.clone(), source };
    std::fs::create_dir_all(&place).map_err(io_error)?;
    let floor = measure_in(&place, options);
    std::fs::remove_dir_all(&place).map_err(io_error)?;
    floor
}

fn measure_in(place: &Path, options: FloorOptions) -> Result<Floor, FloorError> {
    let fdatasync_per_sec = syncs_per_sec(&place.join("sync"))
        .map_err(|source| FloorError::Io { path: place.to_owned(), source })?;
    let core = SqliteCore::open(&place.join("floor.db"))?;
    let conn = core.into_connection();
    let batch = options.batch.max(1);
    let jobs: Vec<(Job, LiveRow)> = (0..options.jobs.max(1)).map(sample).collect();

    let started = Instant::now();
    for jobs in jobs.chunks(batch) {
        insert(&conn, jobs).map_err(StoreError::from)?;
    }
    let insert_per_sec = rate(jobs.len(), started);

    let started = Instant::now();
    for jobs in jobs.chunks(batch) {
        claim(&conn, jobs).map_err(StoreError::from)?;
        complete(&conn, jobs).map_err(StoreError::from)?;
    }
    let claim_complete_per_sec = rate(jobs.len(), started);
    Ok(Floor { insert_per_sec, claim_complete_per_sec, fdatasync_per_sec })
}

fn rate(count: usize, since: Instant) -> f64 {
    count as f64 / since.elapsed().as_secs_f64().max(f64::EPSILON)
}

fn syncs_per_sec(path: &Path) -> io::Result<f64> {
    let mut file = File::create(path)?;
    let page = [7_u8; 4_096];
    let started = Instant::now();
    let mut count = 0;
    while started.elapsed() < SYNC_TIME {
        file.write_all(&page)?;
        file.sync_data()?;
        count += 1;
    }
    Ok(rate(count, started))
}

/// The n-th no-op job and its first execution.
fn sample(number: usize) -> (Job, LiveRow) {
    let now = Timestamp::from_micros(1_763_195_400_000_000 + number as i64);
    let mut spec = JobSpec::named("noop");
    spec.payload = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES - 2));
    let id = JobId::new(now, number as u64);
    let job = Job {
        id,
        version: 1,
        mark: JobMark::Active,
        numbered: None,
        fired: 0,
        created_at: now,
        updated_at: now,
        spec,
    };
    match begin(&job, now, false, &mut Shares::default()) {
        Beginning::Due(live) => (job, LiveRow { live, lane: LANE, is_sole: true }),
        other => unreachable!("an immediate job is due at once: {other:?}"),
    }
}

const SESSION: SessionId = SessionId(1);
const LANE: i64 = 1;

fn insert(conn: &Connection, jobs: &[(Job, LiveRow)]) -> Result<(), Fault> {
    let transaction = conn.unchecked_transaction()?;
    let mut job_insert = conn.prepare_cached(INSERT_JOB)?;
    let mut live_insert = conn.prepare_cached(INSERT_LIVE)?;
    // The counts of a transaction are not part of the floor.
    let mut tally = Tally::default();
    for (job, row) in jobs {
        write_job(&mut job_insert, job, LANE)?;
        insert_live(&mut live_insert, &mut tally, row)?;
    }
    transaction.commit()?;
    Ok(())
}

fn claim(conn: &Connection, jobs: &[(Job, LiveRow)]) -> Result<(), Fault> {
    let transaction = conn.unchecked_transaction()?;
    let mut select = conn.prepare_cached(FIRST_OF_LANE)?;
    let mut rows = select.query(params![LANE, jobs.len() as i64])?;
    while rows.next()?.is_some() {}
    drop(rows);
    let mut update = conn.prepare_cached(UPDATE_LIVE)?;
    // The counts of a transaction are not part of the floor.
    let mut tally = Tally::default();
    for (_, row) in jobs {
        let claimed = row.live.claimed(SESSION, 1, row.live.available_at)?;
        update_live(&mut update, &mut tally, row, &claimed)?;
    }
    transaction.commit()?;
    Ok(())
}

fn complete(conn: &Connection, jobs: &[(Job, LiveRow)]) -> Result<(), Fault> {
    let transaction = conn.unchecked_transaction()?;
    let mut delete = conn.prepare_cached(DELETE_LIVE)?;
    let mut history_insert = conn.prepare_cached(INSERT_HISTORY)?;
    let last = last_history_number(conn)?;
    for (seq, (_, row)) in (last + 1..).zip(jobs) {
        let live = &row.live;
        delete.execute(params![live.id.job.as_bytes(), live.id.number])?;
        insert_history(&mut history_insert, &finished(live)?, Some(1), seq)?;
    }
    transaction.commit()?;
    Ok(())
}

fn finished(live: &Live) -> Result<Finished, Fault> {
    let now = live.available_at;
    let end: End = Outcome::Succeeded { result: None }.into_end(now, now);
    Ok(live.claimed(SESSION, 1, now)?.settled(end, None, now)?.finished)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_is_measured_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let floor = measure_floor(dir.path(), FloorOptions { jobs: 500, batch: 100 }).unwrap();
        assert!(floor.insert_per_sec > 0.0 && floor.claim_complete_per_sec > 0.0);
        assert!(floor.fdatasync_per_sec > 0.0);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
