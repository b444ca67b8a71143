//! The baseline of this disk and SQLite: the same rows as ours with the same settings, without rules,
//! threads or replies. A benchmark reports its results relative to these, so that they are comparable
//! across machines.

use super::core::SqliteCore;
use super::names::last_history_number;
use super::rows::{
    INSERT_HISTORY, INSERT_JOB, INSERT_LIVE, PUT_SCHEDULE, UPDATE_LIVE, insert_history, insert_live,
    put_schedule, update_live, write_job,
};
use super::tx::{DELETE_LIVE, FIRST_OF_LANE};
use crate::baseline::rows::{LANE, SESSION, due_job, finished, future_job};
use crate::baseline::{BaselineOptions, BaselineRates, per_sec};
use crate::counters::Counters;
use crate::fault::Fault;
use crate::rows::LiveRow;
use punctual_core::job::Job;
use punctual_core::ports::StoreError;
use punctual_core::schedule::ScheduleState;
use rusqlite::{Connection, params};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The baseline cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum BaselineError {
    #[error("{} cannot be used", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Measures in a new directory below `dir`, which is removed afterwards.
pub fn measure_baseline(dir: &Path, options: BaselineOptions) -> Result<BaselineRates, BaselineError> {
    let place = dir.join(format!("baseline-{}", std::process::id()));
    let io_error = |source| BaselineError::Io { path: place.clone(), source };
    std::fs::create_dir_all(&place).map_err(io_error)?;
    let rates = measure_in(&place, options);
    std::fs::remove_dir_all(&place).map_err(io_error)?;
    rates
}

fn measure_in(place: &Path, options: BaselineOptions) -> Result<BaselineRates, BaselineError> {
    let conn = SqliteCore::open(&place.join("baseline.db"))?.into_connection();
    let mut due = BaselinePace::default();
    let mut lives = Vec::new();
    for numbers in options.batches() {
        let jobs: Vec<(Job, LiveRow)> =
            numbers.map(|number| due_job(number, options.payload_bytes)).collect();
        due.time(jobs.len(), || insert(&conn, &jobs)).map_err(StoreError::from)?;
        lives.extend(jobs.into_iter().map(|(_, live)| live));
    }
    let mut finish = BaselinePace::default();
    for lives in lives.chunks(options.batch.max(1)) {
        let work = || claim(&conn, lives).and_then(|()| complete(&conn, lives));
        finish.time(lives.len(), work).map_err(StoreError::from)?;
    }

    let conn = SqliteCore::open(&place.join("held.db"))?.into_connection();
    let mut held = BaselinePace::default();
    for numbers in options.batches() {
        let jobs: Vec<(Job, ScheduleState)> =
            numbers.map(|number| future_job(number, options.payload_bytes)).collect();
        held.time(jobs.len(), || hold(&conn, &jobs)).map_err(StoreError::from)?;
    }
    Ok(BaselineRates {
        insert_per_sec: due.per_sec(),
        claim_complete_per_sec: finish.per_sec(),
        hold_per_sec: held.per_sec(),
    })
}

/// Counts only the time in the database: creating the rows' content is not part of the baseline.
#[derive(Default)]
struct BaselinePace {
    jobs: usize,
    spent: Duration,
}

impl BaselinePace {
    fn time(&mut self, jobs: usize, work: impl FnOnce() -> Result<(), Fault>) -> Result<(), Fault> {
        let started = Instant::now();
        work()?;
        self.spent += started.elapsed();
        self.jobs += jobs;
        Ok(())
    }

    fn per_sec(&self) -> f64 {
        per_sec(self.jobs, self.spent)
    }
}

fn insert(conn: &Connection, jobs: &[(Job, LiveRow)]) -> Result<(), Fault> {
    let transaction = conn.unchecked_transaction()?;
    let mut job_insert = conn.prepare_cached(&INSERT_JOB)?;
    let mut live_insert = conn.prepare_cached(&INSERT_LIVE)?;
    // The counters of a transaction are not part of the baseline.
    let mut counters = Counters::default();
    for (job, row) in jobs {
        write_job(&mut job_insert, job, LANE)?;
        insert_live(&mut live_insert, &mut counters, row)?;
    }
    transaction.commit()?;
    Ok(())
}

fn hold(conn: &Connection, jobs: &[(Job, ScheduleState)]) -> Result<(), Fault> {
    let transaction = conn.unchecked_transaction()?;
    let mut job_insert = conn.prepare_cached(&INSERT_JOB)?;
    let mut schedule_put = conn.prepare_cached(&PUT_SCHEDULE)?;
    for (job, state) in jobs {
        write_job(&mut job_insert, job, LANE)?;
        put_schedule(&mut schedule_put, state, LANE)?;
    }
    transaction.commit()?;
    Ok(())
}

fn claim(conn: &Connection, lives: &[LiveRow]) -> Result<(), Fault> {
    let transaction = conn.unchecked_transaction()?;
    let mut select = conn.prepare_cached(FIRST_OF_LANE)?;
    let mut rows = select.query(params![LANE, lives.len() as i64])?;
    while rows.next()?.is_some() {}
    drop(rows);
    let mut update = conn.prepare_cached(UPDATE_LIVE)?;
    // The counters of a transaction are not part of the baseline.
    let mut counters = Counters::default();
    for row in lives {
        let claimed = row.live.claimed(SESSION, 1, row.live.available_at)?;
        update_live(&mut update, &mut counters, row, &claimed)?;
    }
    transaction.commit()?;
    Ok(())
}

fn complete(conn: &Connection, lives: &[LiveRow]) -> Result<(), Fault> {
    let transaction = conn.unchecked_transaction()?;
    let mut delete = conn.prepare_cached(DELETE_LIVE)?;
    let mut history_insert = conn.prepare_cached(&INSERT_HISTORY)?;
    let last = last_history_number(conn)?;
    for (seq, row) in (last + 1..).zip(lives) {
        let live = &row.live;
        delete.execute(params![live.id.job.as_bytes(), live.id.number])?;
        insert_history(&mut history_insert, &finished(live)?, Some(1), seq)?;
    }
    transaction.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_baseline_is_measured_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let options = BaselineOptions { jobs: 550, batch: 100, payload_bytes: 200 };
        let rates = measure_baseline(dir.path(), options).unwrap();
        assert!(rates.insert_per_sec > 0.0 && rates.claim_complete_per_sec > 0.0);
        assert!(rates.hold_per_sec > 0.0);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
