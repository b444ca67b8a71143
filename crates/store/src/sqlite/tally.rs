//! Counts that are kept beside the rows they count: what is live in each lane, jobs by status, dead letters. A write notes
//! here what it changes; the transaction adds it all up and writes each count that moved once, before it commits.
//! So a glance at the whole house costs a few rows, and a thousand jobs in one transaction cost as many writes of
//! counts as one job does.
//!
//! The one thing decided by these counts is whether a queue with a `max_depth` is full; what a job's status is, its
//! rows say. `integrity.rs` counts the rows and compares.

use super::fault::Fault;
use super::rows::{all, decode, one, state};
use punctual_core::defects::{Defect, planted};
use punctual_core::ids::JobId;
use punctual_core::job::{JobMark, JobStatus};
use punctual_core::occurrence::LiveState;
use punctual_core::ports::JobCounts;
use rusqlite::{Connection, Row, params};
use std::collections::BTreeMap;

const LANE: &str = "SELECT waiting, queued, running FROM lane_tallies WHERE lane = ?1";
const PUT_LANE: &str = "INSERT INTO lane_tallies (lane, waiting, queued, running) VALUES (?1, ?2, ?3, ?4) \
     ON CONFLICT (lane) DO UPDATE SET waiting = ?2, queued = ?3, running = ?4";
const ADD_TO_JOBS: &str = "UPDATE job_tally SET active = active + ?1, paused = paused + ?2, \
     completed = completed + ?3, failed = failed + ?4, cancelled = cancelled + ?5, \
     dead_letters = dead_letters + ?6 WHERE id = 1";
pub(crate) const STATUS_OF_JOB: &str = "SELECT mark, EXISTS (SELECT 1 FROM schedules WHERE job = ?1) \
     OR EXISTS (SELECT 1 FROM live WHERE job = ?1) FROM jobs WHERE id = ?1";
pub(crate) const LANE_TALLIES: &str = "SELECT lane, waiting, queued, running FROM lane_tallies ORDER BY lane";
pub(crate) const JOB_TALLY: &str =
    "SELECT active, paused, completed, failed, cancelled, dead_letters FROM job_tally WHERE id = 1";

/// By `live.state`.
type LaneCounts = [i64; 3];

/// What a transaction has changed so far and not written yet.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// By the writes of the transaction that are done.
    kept: Changes,
    /// By the write that is under way.
    current: Changes,
}

#[derive(Debug, Default)]
struct Changes {
    lanes: BTreeMap<i64, LaneCounts>,
    /// In the order of [`JobStatus`].
    jobs: [i64; 5],
    dead_letters: i64,
}

impl Tally {
    /// An occurrence has come to be open in this lane.
    pub fn opened(&mut self, lane: i64, state: LiveState) {
        self.current.add(lane, state, 1);
    }

    /// One that was open in this lane has ended.
    pub fn closed(&mut self, lane: i64, state: LiveState) {
        self.current.add(lane, state, -1);
    }

    /// One that was open in a lane is now in another, or in another state.
    pub fn moved(&mut self, (from_lane, from): (i64, LiveState), (to_lane, to): (i64, LiveState)) {
        if from_lane != to_lane || column(from) != column(to) {
            let from_lane = if planted(Defect::DriftTally) { to_lane } else { from_lane };
            self.current.add(from_lane, from, -1);
            self.current.add(to_lane, to, 1);
        }
    }

    /// A job has another status. `None` stands for one that is not there, or no longer.
    pub fn job(&mut self, from: Option<JobStatus>, to: Option<JobStatus>) {
        if let Some(from) = from {
            self.current.jobs[from as usize] -= 1;
        }
        if let Some(to) = to {
            self.current.jobs[to as usize] += 1;
        }
    }

    /// How many executions of this lane have not started, as the transaction under way sees it.
    pub fn unstarted(&self, conn: &Connection, lane: i64) -> Result<u64, Fault> {
        let written = one(&mut *conn.prepare_cached(LANE)?, [lane], |row| lane_counts(row, 0))?;
        let noted = [&self.kept, &self.current].map(|changes| changes.lanes.get(&lane).copied());
        let counts = noted.into_iter().flatten().chain(written);
        Ok(shown(counts.map(|[waiting, queued, _]| waiting + queued).sum()))
    }

    /// So many dead letters have come, or gone if there are fewer.
    pub fn dead_letters(&mut self, change: i64) {
        self.current.dead_letters += change;
    }

    /// The write that was under way is done.
    pub fn keep(&mut self) {
        for (lane, counts) in std::mem::take(&mut self.current.lanes) {
            let kept = self.kept.lanes.entry(lane).or_default();
            kept.iter_mut().zip(counts).for_each(|(kept, count)| *kept += count);
        }
        let Changes { jobs, dead_letters, .. } = std::mem::take(&mut self.current);
        self.kept.jobs.iter_mut().zip(jobs).for_each(|(kept, count)| *kept += count);
        self.kept.dead_letters += dead_letters;
    }

    /// The write that was under way was undone.
    pub fn undo(&mut self) {
        self.current = Changes::default();
    }

    /// The whole transaction was undone.
    pub fn forget(&mut self) {
        *self = Tally::default();
    }

    /// Writes what the transaction has changed.
    pub fn write(&mut self, conn: &Connection) -> Result<(), Fault> {
        let Changes { lanes, jobs, dead_letters } = std::mem::take(&mut self.kept);
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
}

impl Changes {
    fn add(&mut self, lane: i64, state: LiveState, count: i64) {
        self.lanes.entry(lane).or_default()[column(state)] += count;
    }
}

fn column(live: LiveState) -> usize {
    let code = match live {
        LiveState::Waiting(_) => state::WAITING,
        LiveState::Queued => state::QUEUED,
        LiveState::Running(_) => state::RUNNING,
    };
    code as usize
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

/// The status of a job with this mark, of which something is open or to come or not; `None` if it is deleted.
pub(crate) fn status(mark: JobMark, is_unfinished: bool) -> Option<JobStatus> {
    (mark != JobMark::Deleted).then(|| mark.status(is_unfinished, is_unfinished))
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

/// A count as people see it. One below zero would be a defect that a check of the database reports; a glance at
/// it must not fail for that.
fn shown(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}
