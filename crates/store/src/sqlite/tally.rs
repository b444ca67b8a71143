//! How counts are kept in tables: see [`crate::tally`]. `integrity.rs` counts the rows and compares.

use super::rows::{all, decode, one};
use crate::fault::Fault;
use crate::tally::{Counts, LaneCounts, LimiterCounts, shown, status};
use punctual_core::ids::JobId;
use punctual_core::job::JobStatus;
use punctual_core::limiter::LimiterId;
use punctual_core::ports::JobCounts;
use rusqlite::{Connection, Row, params};

const LANE: &str = "SELECT waiting, queued, running FROM lane_tallies WHERE lane = ?1";
const PUT_LANE: &str = "INSERT INTO lane_tallies (lane, waiting, queued, running) VALUES (?1, ?2, ?3, ?4) \
     ON CONFLICT (lane) DO UPDATE SET waiting = ?2, queued = ?3, running = ?4";
const LIMITER: &str = "SELECT waiting, in_use FROM limiter_tallies WHERE limiter = ?1";
const ADD_TO_LIMITER: &str = "INSERT INTO limiter_tallies (limiter, waiting, in_use) VALUES (?1, ?2, ?3) \
     ON CONFLICT (limiter) DO UPDATE SET waiting = waiting + ?2, in_use = in_use + ?3";
const FORGET_LIMITER: &str = "DELETE FROM limiter_tallies WHERE limiter = ?1 AND waiting = 0 AND in_use = 0";
const ADD_TO_JOBS: &str = "UPDATE job_tally SET active = active + ?1, paused = paused + ?2, \
     completed = completed + ?3, failed = failed + ?4, cancelled = cancelled + ?5, \
     dead_letters = dead_letters + ?6 WHERE id = 1";
pub(crate) const STATUS_OF_JOB: &str = "SELECT mark, EXISTS (SELECT 1 FROM schedules WHERE job = ?1) \
     OR EXISTS (SELECT 1 FROM live WHERE job = ?1) FROM jobs WHERE id = ?1";
pub(crate) const LANE_TALLIES: &str = "SELECT lane, waiting, queued, running FROM lane_tallies ORDER BY lane";
pub(crate) const JOB_TALLY: &str =
    "SELECT active, paused, completed, failed, cancelled, dead_letters FROM job_tally WHERE id = 1";

/// Writes what a transaction has changed.
pub(crate) fn write(conn: &Connection, counts: Counts) -> Result<(), Fault> {
    for (limiter, changes) in counts.changed_limiters() {
        write_limiter(conn, limiter, changes)?;
    }
    let Counts { lanes, jobs, dead_letters, .. } = counts;
    for (lane, changes) in lanes {
        if changes != [0; 3] {
            write_lane(conn, lane, changes)?;
        }
    }
    if jobs != [0; 5] || dead_letters != 0 {
        let [active, paused, completed, failed, cancelled] = jobs;
        let changes = [active, paused, completed, failed, cancelled, dead_letters];
        conn.prepare_cached(ADD_TO_JOBS)?.execute(changes)?;
    }
    Ok(())
}

/// How many executions of this lane had not started when counts were last written.
pub(crate) fn unstarted(conn: &Connection, lane: i64) -> Result<i64, Fault> {
    let written = one(&mut *conn.prepare_cached(LANE)?, [lane], |row| lane_counts(row, 0))?;
    Ok(written.map_or(0, |[waiting, queued, _]| waiting + queued))
}

/// How many executions of this lane were queued or ran when counts were last written.
pub(crate) fn started(conn: &Connection, lane: i64) -> Result<i64, Fault> {
    let written = one(&mut *conn.prepare_cached(LANE)?, [lane], |row| lane_counts(row, 0))?;
    Ok(written.map_or(0, |[_, queued, running]| queued + running))
}

/// The counts of a limiter when they were last written.
pub(crate) fn limiter(conn: &Connection, limiter: LimiterId) -> Result<LimiterCounts, Fault> {
    let mut select = conn.prepare_cached(LIMITER)?;
    let written = one(&mut select, [limiter.number()], |row| Ok([row.get(0)?, row.get(1)?]))?;
    Ok(written.unwrap_or_default())
}

/// A limiter of which nothing is used and in whose line nobody waits has no row.
fn write_limiter(conn: &Connection, limiter: i64, [waiting, in_use]: LimiterCounts) -> Result<(), Fault> {
    conn.prepare_cached(ADD_TO_LIMITER)?.execute(params![limiter, waiting, in_use])?;
    conn.prepare_cached(FORGET_LIMITER)?.execute([limiter])?;
    Ok(())
}

/// A lane in which nothing is left has no row, so that lanes of the past cost nothing.
fn write_lane(conn: &Connection, lane: i64, changes: LaneCounts) -> Result<(), Fault> {
    let mut counts = one(&mut *conn.prepare_cached(LANE)?, [lane], |row| lane_counts(row, 0))?;
    let counts = counts.get_or_insert_default();
    counts.iter_mut().zip(changes).for_each(|(count, change)| *count += change);
    let [waiting, queued, running] = *counts;
    if *counts == [0; 3] {
        conn.prepare_cached("DELETE FROM lane_tallies WHERE lane = ?1")?.execute([lane])?;
    } else {
        conn.prepare_cached(PUT_LANE)?.execute(params![lane, waiting, queued, running])?;
    }
    Ok(())
}

fn lane_counts(row: &Row<'_>, first: usize) -> Result<LaneCounts, Fault> {
    Ok([row.get(first)?, row.get(first + 1)?, row.get(first + 2)?])
}

/// The status of a job as its rows stand; `None` if it is deleted or not there.
pub(crate) fn status_of(conn: &Connection, job: JobId) -> Result<Option<JobStatus>, Fault> {
    let mut select = conn.prepare_cached(STATUS_OF_JOB)?;
    let found = one(&mut select, [job.as_bytes()], |row| {
        Ok(status(decode(row, 0, "jobs.mark")?, row.get::<_, bool>(1)?))
    })?;
    Ok(found.flatten())
}

/// How much is live in one lane.
pub(crate) struct LaneTally {
    pub lane: i64,
    pub waiting: u64,
    pub queued: u64,
    pub running: u64,
}

/// All lanes in which anything is live.
pub(crate) fn lanes(conn: &Connection) -> Result<Vec<LaneTally>, Fault> {
    all(&mut *conn.prepare_cached(LANE_TALLIES)?, [], |row| {
        let [waiting, queued, running] = lane_counts(row, 1)?.map(shown);
        Ok(LaneTally { lane: row.get(0)?, waiting, queued, running })
    })
}

pub(crate) fn jobs(conn: &Connection) -> Result<JobCounts, Fault> {
    let counts = one(&mut *conn.prepare_cached(JOB_TALLY)?, [], |row| {
        Ok(JobCounts {
            active: shown(row.get(0)?),
            paused: shown(row.get(1)?),
            completed: shown(row.get(2)?),
            failed: shown(row.get(3)?),
            cancelled: shown(row.get(4)?),
            dead_letters: shown(row.get(5)?),
        })
    })?;
    counts.ok_or_else(|| Fault::Missing("job_tally".to_owned()))
}
