//! How counters are stored in tables: see [`crate::counters`]. `integrity.rs` counts the rows and compares.

use super::active::ActiveLanes;
use super::names::LaneNumbers;
use super::rows::{all, decode, one, one_readable, time};
use crate::counters::{CounterChanges, LaneCounts, LimiterCounts, shown, status};
use crate::fault::Fault;
use crate::malformed::pass_over;
use punctual_core::ids::JobId;
use punctual_core::job::JobStatus;
use punctual_core::limiter::LimiterId;
use punctual_core::ports::JobCounts;
use punctual_core::time::Timestamp;
use rusqlite::{Connection, Row, params};
use std::collections::BTreeMap;

/// Limiters that are remembered at once: there may be as many as keys. Beyond this, all are looked up
/// again.
const LIMITERS_REMEMBERED_MAX: usize = 10_000;

const LANE: &str = "SELECT waiting, queued, running FROM lane_tallies WHERE lane = ?1";
const PUT_LANE: &str = "INSERT INTO lane_tallies (lane, waiting, queued, running) VALUES (?1, ?2, ?3, ?4) \
     ON CONFLICT (lane) DO UPDATE SET waiting = ?2, queued = ?3, running = ?4";
const LIMITER: &str = "SELECT waiting, in_use FROM limiter_tallies WHERE limiter = ?1";
const PUT_LIMITER: &str = "INSERT INTO limiter_tallies (limiter, waiting, in_use) VALUES (?1, ?2, ?3) \
     ON CONFLICT (limiter) DO UPDATE SET waiting = ?2, in_use = ?3";
const LAST_START: &str = "SELECT last_at FROM limiter_paces WHERE limiter = ?1";
const PUT_LAST_START: &str = "INSERT INTO limiter_paces (limiter, last_at) VALUES (?1, ?2) \
     ON CONFLICT (limiter) DO UPDATE SET last_at = ?2";
/// A damaged counter must not overflow: that would roll back the whole transaction.
const ADD_TO_JOBS: &str = "UPDATE job_tally SET active = min(active, 1 << 62) + ?1, paused = min(paused, 1 << 62) + ?2, \
     completed = min(completed, 1 << 62) + ?3, failed = min(failed, 1 << 62) + ?4, \
     cancelled = min(cancelled, 1 << 62) + ?5, dead_letters = min(dead_letters, 1 << 62) + ?6 WHERE id = 1";
pub(crate) const STATUS_OF_JOB: &str = "SELECT mark, EXISTS (SELECT 1 FROM schedules WHERE job = ?1) \
     OR EXISTS (SELECT 1 FROM live WHERE job = ?1) FROM jobs WHERE id = ?1";
pub(crate) const LANE_COUNTERS: &str =
    "SELECT lane, waiting, queued, running FROM lane_tallies ORDER BY lane";
pub(crate) const JOB_COUNTERS: &str =
    "SELECT active, paused, completed, failed, cancelled, dead_letters FROM job_tally WHERE id = 1";

/// A cache of the stored counters. Only the writer changes them, so the cache stays valid between
/// transactions. After a transaction that did not commit it must be discarded.
#[derive(Debug, Default)]
pub(crate) struct CounterCache {
    limiters: BTreeMap<LimiterId, WrittenLimiter>,
}

/// The stored counters of one limiter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WrittenLimiter {
    pub counts: LimiterCounts,
    pub last_at: Option<Timestamp>,
}

impl CounterCache {
    /// The use of a limiter as last written.
    pub fn limiter(&mut self, conn: &Connection, limiter: LimiterId) -> Result<WrittenLimiter, Fault> {
        if let Some(written) = self.limiters.get(&limiter) {
            return Ok(*written);
        }
        let written = read_limiter(conn, limiter)?;
        if self.limiters.len() >= LIMITERS_REMEMBERED_MAX {
            self.limiters.clear();
        }
        self.limiters.insert(limiter, written);
        Ok(written)
    }

    /// Discards everything; the next lookup reads the tables again.
    pub fn forget(&mut self) {
        *self = CounterCache::default();
    }

    /// Writes the changes of a transaction. The counters of lanes are in `active`.
    pub fn add(
        &mut self,
        conn: &Connection,
        names: &mut LaneNumbers,
        active: &mut ActiveLanes,
        counts: CounterChanges,
    ) -> Result<(), Fault> {
        let CounterChanges { lanes, limiters, last_starts, jobs, dead_letters } = counts;
        for (limiter, changes) in limiters {
            if changes != [0; 2] {
                self.add_to_limiter(conn, limiter, changes)?;
            }
        }
        for (limiter, at) in last_starts {
            conn.prepare_cached(PUT_LAST_START)?.execute([limiter.number(), at.as_micros()])?;
            if let Some(written) = self.limiters.get_mut(&limiter) {
                written.last_at = Some(at);
            }
        }
        for (lane, changes) in lanes {
            // Wrong counters of a lane that does not exist can be repaired as well.
            let mut counts = match active.known(lane) {
                Some(counts) => counts,
                None => read_lane(conn, lane)?,
            };
            if changes != [0; 3] {
                counts
                    .iter_mut()
                    .zip(changes)
                    .for_each(|(count, change)| *count = count.saturating_add(change));
                put_lane(conn, lane, counts)?;
            }
            active.written(conn, names, lane, counts)?;
        }
        if jobs != [0; 5] || dead_letters != 0 {
            let [active, paused, completed, failed, cancelled] = jobs;
            let changes = [active, paused, completed, failed, cancelled, dead_letters];
            conn.prepare_cached(ADD_TO_JOBS)?.execute(changes)?;
        }
        Ok(())
    }

    /// A limiter that is unused and whose wait list is empty has no row.
    fn add_to_limiter(
        &mut self,
        conn: &Connection,
        limiter: LimiterId,
        changes: LimiterCounts,
    ) -> Result<(), Fault> {
        let mut written = self.limiter(conn, limiter)?;
        written
            .counts
            .iter_mut()
            .zip(changes)
            .for_each(|(count, change)| *count = count.saturating_add(change));
        let [waiting, in_use] = written.counts;
        if written.counts == [0; 2] {
            conn.prepare_cached("DELETE FROM limiter_tallies WHERE limiter = ?1")?
                .execute([limiter.number()])?;
        } else {
            conn.prepare_cached(PUT_LIMITER)?.execute([limiter.number(), waiting, in_use])?;
        }
        self.limiters.insert(limiter, written);
        Ok(())
    }
}

/// A lane without live executions has no row, so that unused lanes cost nothing.
fn put_lane(conn: &Connection, lane: i64, counts: LaneCounts) -> Result<(), Fault> {
    let [waiting, queued, running] = counts;
    if counts == [0; 3] {
        conn.prepare_cached("DELETE FROM lane_tallies WHERE lane = ?1")?.execute([lane])?;
    } else {
        conn.prepare_cached(PUT_LANE)?.execute(params![lane, waiting, queued, running])?;
    }
    Ok(())
}

fn read_lane(conn: &Connection, lane: i64) -> Result<LaneCounts, Fault> {
    let written = one(&mut *conn.prepare_cached(LANE)?, [lane], |row| lane_counts(row, 0))?;
    Ok(written.unwrap_or_default())
}

/// The use of a limiter.
pub(crate) fn read_limiter(conn: &Connection, limiter: LimiterId) -> Result<WrittenLimiter, Fault> {
    let mut counts = conn.prepare_cached(LIMITER)?;
    let counts = one(&mut counts, [limiter.number()], |row| Ok([row.get(0)?, row.get(1)?]))?;
    // Without the last start the rate is exceeded once at most, and the next start repairs the row.
    let mut last_start = conn.prepare_cached(LAST_START)?;
    let last_at = one_readable(&mut last_start, [limiter.number()], |row| time(row, 0))?;
    Ok(WrittenLimiter { counts: counts.unwrap_or_default(), last_at })
}

fn lane_counts(row: &Row<'_>, first: usize) -> Result<LaneCounts, Fault> {
    Ok([row.get(first)?, row.get(first + 1)?, row.get(first + 2)?])
}

/// The current status of a job; `None` if it is deleted or does not exist.
pub(crate) fn status_of(conn: &Connection, job: JobId) -> Result<Option<JobStatus>, Fault> {
    let mut select = conn.prepare_cached(STATUS_OF_JOB)?;
    let found = one_readable(&mut select, [job.as_bytes()], |row| {
        Ok(status(decode(row, 0, "jobs.mark")?, row.get::<_, bool>(1)?))
    })?;
    Ok(found.flatten())
}

/// The counters of one lane.
pub(crate) struct LaneCounters {
    pub lane: i64,
    pub waiting: u64,
    pub queued: u64,
    pub running: u64,
}

/// All lanes with live executions.
pub(crate) fn lanes(conn: &Connection) -> Result<Vec<LaneCounters>, Fault> {
    all(&mut *conn.prepare_cached(LANE_COUNTERS)?, [], |row| {
        let [waiting, queued, running] = lane_counts(row, 1)?.map(shown);
        Ok(LaneCounters { lane: row.get(0)?, waiting, queued, running })
    })
}

pub(crate) fn jobs(conn: &Connection) -> Result<JobCounts, Fault> {
    let counts = one(&mut *conn.prepare_cached(JOB_COUNTERS)?, [], |row| {
        Ok(JobCounts {
            active: shown(row.get(0)?),
            paused: shown(row.get(1)?),
            completed: shown(row.get(2)?),
            failed: shown(row.get(3)?),
            cancelled: shown(row.get(4)?),
            dead_letters: shown(row.get(5)?),
        })
    })?;
    let counts = pass_over(counts.ok_or_else(|| Fault::Missing("the row of job_tally".to_owned())))?;
    Ok(counts.unwrap_or_default())
}
