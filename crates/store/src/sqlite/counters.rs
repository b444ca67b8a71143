//! How counters are stored in tables: see [`crate::counters`]. `integrity.rs` counts the rows and compares.

use super::active_lanes::ActiveLanes;
use super::names::LaneNumbers;
use super::rows::{decode, one, one_readable, time};
use crate::counters::{CounterChanges, LaneCounts, LimiterCounts, StoredCounts, status};
use crate::fault::Fault;
use crate::layout::{each_job_count, each_lane_count, each_limiter_count};
use punctual_core::ids::JobId;
use punctual_core::job::JobStatus;
use punctual_core::limiter::LimiterId;
use punctual_core::time::Timestamp;
use rusqlite::{Connection, ParamsFromIter, Row, params_from_iter};
use std::collections::BTreeMap;

/// Limiters that are remembered at once: there may be as many as keys. Beyond this, all are looked up
/// again.
const LIMITERS_REMEMBERED_MAX: usize = 10_000;

const LANE: &str = concat!("SELECT ", each_lane_count!(", ", "", ""), " FROM lane_tallies WHERE lane = ?");
const PUT_LANE: &str = concat!(
    "INSERT INTO lane_tallies (lane, ",
    each_lane_count!(", ", "", ""),
    ") VALUES (?, ",
    each_lane_count!(", ", "?"),
    ") ON CONFLICT (lane) DO UPDATE SET ",
    each_lane_count!(", ", "", " = excluded.", "")
);
const LIMITER: &str =
    concat!("SELECT ", each_limiter_count!(", ", "", ""), " FROM limiter_tallies WHERE limiter = ?");
const PUT_LIMITER: &str = concat!(
    "INSERT INTO limiter_tallies (limiter, ",
    each_limiter_count!(", ", "", ""),
    ") VALUES (?, ",
    each_limiter_count!(", ", "?"),
    ") ON CONFLICT (limiter) DO UPDATE SET ",
    each_limiter_count!(", ", "", " = excluded.", "")
);
const LAST_START: &str = "SELECT last_at FROM limiter_paces WHERE limiter = ?1";
const PUT_LAST_START: &str = "INSERT INTO limiter_paces (limiter, last_at) VALUES (?1, ?2) \
     ON CONFLICT (limiter) DO UPDATE SET last_at = ?2";
/// A damaged counter must not overflow: that would roll back the whole transaction.
const ADD_TO_JOBS: &str =
    concat!("UPDATE job_tally SET ", each_job_count!(", ", "", " = min(", ", 1 << 62) + ?"), " WHERE id = 1");
pub(crate) const STATUS_OF_JOB: &str = "SELECT mark, EXISTS (SELECT 1 FROM schedules WHERE job = ?1) \
     OR EXISTS (SELECT 1 FROM live WHERE job = ?1) FROM jobs WHERE id = ?1";
pub(crate) const JOB_COUNTERS: &str =
    concat!("SELECT ", each_job_count!(", ", "", ""), " FROM job_tally WHERE id = 1");

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
        let CounterChanges { lanes, limiters, last_starts, jobs } = counts;
        for (limiter, changes) in limiters {
            if !changes.is_zero() {
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
            if !changes.is_zero() {
                counts.add(changes);
                put_lane(conn, lane, counts)?;
            }
            active.written(conn, names, lane, counts)?;
        }
        if !jobs.is_zero() {
            conn.prepare_cached(ADD_TO_JOBS)?.execute(params_from_iter(jobs.each()))?;
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
        written.counts.add(changes);
        if written.counts.is_zero() {
            conn.prepare_cached("DELETE FROM limiter_tallies WHERE limiter = ?1")?
                .execute([limiter.number()])?;
        } else {
            conn.prepare_cached(PUT_LIMITER)?.execute(keyed(limiter.number(), written.counts))?;
        }
        self.limiters.insert(limiter, written);
        Ok(())
    }
}

/// A lane without live executions has no row, so that unused lanes cost nothing.
fn put_lane(conn: &Connection, lane: i64, counts: LaneCounts) -> Result<(), Fault> {
    if counts.is_zero() {
        conn.prepare_cached("DELETE FROM lane_tallies WHERE lane = ?1")?.execute([lane])?;
    } else {
        conn.prepare_cached(PUT_LANE)?.execute(keyed(lane, counts))?;
    }
    Ok(())
}

/// The parameters of a statement that writes a row of counters.
fn keyed(key: i64, counts: impl StoredCounts) -> ParamsFromIter<impl Iterator<Item = i64>> {
    params_from_iter([key].into_iter().chain(counts.each()))
}

fn read_lane(conn: &Connection, lane: i64) -> Result<LaneCounts, Fault> {
    let written = one(&mut *conn.prepare_cached(LANE)?, [lane], |row| read_counts(row, 0))?;
    Ok(written.unwrap_or_default())
}

/// The use of a limiter.
pub(crate) fn read_limiter(conn: &Connection, limiter: LimiterId) -> Result<WrittenLimiter, Fault> {
    let mut counts = conn.prepare_cached(LIMITER)?;
    let counts = one(&mut counts, [limiter.number()], |row| read_counts(row, 0))?;
    // Without the last start the rate is exceeded once at most, and the next start repairs the row.
    let mut last_start = conn.prepare_cached(LAST_START)?;
    let last_at = one_readable(&mut last_start, [limiter.number()], |row| time(row, 0))?;
    Ok(WrittenLimiter { counts: counts.unwrap_or_default(), last_at })
}

/// The counters in a row, from this column on.
pub(crate) fn read_counts<C: StoredCounts>(row: &Row<'_>, first: usize) -> Result<C, Fault> {
    Ok(C::read(first, |column| row.get(column))?)
}

/// The current status of a job; `None` if it is deleted or does not exist.
pub(crate) fn status_of(conn: &Connection, job: JobId) -> Result<Option<JobStatus>, Fault> {
    let mut select = conn.prepare_cached(STATUS_OF_JOB)?;
    let found = one_readable(&mut select, [job.as_bytes()], |row| {
        Ok(status(decode(row, 0, "jobs.mark")?, row.get::<_, bool>(1)?))
    })?;
    Ok(found.flatten())
}
