//! Taking in outcomes: history, then another attempt or the end of the occurrence.

use super::begin::begun;
use super::dependents;
use super::keys::is_unfinished;
use super::lease::{FIND_LIVE, first_behind};
use super::notes;
use crate::sqlite::core::{Memory, Tx};
use crate::sqlite::fault::Fault;
use crate::sqlite::rows::{
    Code, INSERT_HISTORY, LiveRow, UPDATE_LIVE, decode, insert_history, one, read_settings, settings_columns,
    update_live,
};
use crate::sqlite::tally;
use punctual_core::defects::{Defect, planted};
use punctual_core::gates::Gate;
use punctual_core::ids::{JobId, OccurrenceId, SessionId};
use punctual_core::job::{JobMark, Settings};
use punctual_core::lifecycle::{Ending, Status};
use punctual_core::limits;
use punctual_core::occurrence::{End, Finished, Lease, Live, Next, Settled, Terms, Ties};
use punctual_core::ports::{Begun, LeaseRef, Report, ReportAnswer, ReportOutcome};
use punctual_core::time::Timestamp;
use rusqlite::{CachedStatement, Connection, params};

const ACCEPTED: &str = "SELECT epoch, session, status FROM history \
     WHERE job = ?1 AND occurrence = ?2 AND attempt = ?3";
pub(crate) const DELETE_LIVE: &str = "DELETE FROM live WHERE job = ?1 AND occurrence = ?2";
const TERMS_OF_JOB: &str = concat!("SELECT jobs.mark, ", settings_columns!(), " FROM jobs WHERE id = ?1");
pub(crate) const HAS_OPEN_NOT_IN_LINE: &str =
    "SELECT 1 FROM live WHERE job = ?1 AND NOT (state = 0 AND (gates & 4) = 4) LIMIT 1";

pub(super) fn report(
    tx: &mut Tx<'_>,
    now: Timestamp,
    reports: Vec<Report>,
) -> Result<Vec<ReportOutcome>, Fault> {
    let mut settling = Settling::prepare(tx.conn)?;
    reports.into_iter().map(|report| report_one(tx.memory, &mut settling, now, report)).collect()
}

fn report_one(
    memory: &mut Memory,
    settling: &mut Settling<'_>,
    now: Timestamp,
    report: Report,
) -> Result<ReportOutcome, Fault> {
    let Report { session, lease, end } = report;
    let row = settling.find(lease.execution.occurrence)?;
    let held = row.and_then(|row| {
        let held = row.live.held_by(session, lease.execution, lease.epoch)?;
        Some((row, held))
    });
    let Some((row, held)) = held else {
        let was_accepted = was_accepted(settling.conn, session, lease)?;
        let answer = if was_accepted { ReportAnswer::AlreadyAccepted } else { ReportAnswer::Stale };
        return Ok(ReportOutcome { answer, is_retried: false, begun: Begun::default() });
    };
    let Recorded { is_retried, begun } = settling.settle(memory, &row, held, end, now)?;
    Ok(ReportOutcome { answer: ReportAnswer::Accepted, is_retried, begun })
}

/// Whether this very report was taken in before. What recovery wrote under the same lease is not the worker's
/// word: a late outcome of a lost attempt counts for nothing.
fn was_accepted(conn: &Connection, session: SessionId, lease: LeaseRef) -> Result<bool, Fault> {
    let execution = lease.execution;
    let mut select = conn.prepare_cached(ACCEPTED)?;
    let key = params![execution.occurrence.job.as_bytes(), execution.occurrence.number, execution.attempt];
    let found = one(&mut select, key, |row| {
        let is_same_lease =
            row.get::<_, u32>(0)? == lease.epoch.0 && row.get::<_, Option<i64>>(1)? == Some(session.0);
        Ok(is_same_lease && decode::<Status>(row, 2, "history.status")? != Status::Lost)
    })?;
    Ok(found.unwrap_or(false))
}

/// What ends runs: the statements of the common way, prepared once for all of a call.
pub(super) struct Settling<'conn> {
    conn: &'conn Connection,
    find: CachedStatement<'conn>,
    append: CachedStatement<'conn>,
    delete: CachedStatement<'conn>,
}

impl<'conn> Settling<'conn> {
    pub fn prepare(conn: &'conn Connection) -> Result<Self, Fault> {
        Ok(Settling {
            conn,
            find: conn.prepare_cached(FIND_LIVE)?,
            append: conn.prepare_cached(INSERT_HISTORY)?,
            delete: conn.prepare_cached(DELETE_LIVE)?,
        })
    }

    fn find(&mut self, id: OccurrenceId) -> Result<Option<LiveRow>, Fault> {
        one(&mut self.find, params![id.job.as_bytes(), id.number], LiveRow::read)
    }

    /// Ends a run as the rules say.
    pub fn settle(
        &mut self,
        memory: &mut Memory,
        row: &LiveRow,
        held: Lease,
        end: End,
        now: Timestamp,
    ) -> Result<Recorded, Fault> {
        let is_plain_success = end.ending == Ending::Succeeded && !held.cancel_requested;
        // The common way needs nothing of the wide job row.
        let terms = if is_plain_success { None } else { terms_of(self.conn, row.live.id.job)? };
        let settled = row.live.settled(end, terms.as_ref().map(JobTerms::terms), now)?;
        self.record(memory, row, settled, now)
    }

    /// Writes down an attempt that has ended and all that follows from it.
    pub fn record(
        &mut self,
        memory: &mut Memory,
        row: &LiveRow,
        settled: Settled,
        now: Timestamp,
    ) -> Result<Recorded, Fault> {
        let (id, status) = (settled.finished.id, settled.finished.status);
        match self.write(memory, row, settled, now)? {
            Written::Retried(next) => {
                let lane = memory.lanes.lane(self.conn, row.lane)?;
                return Ok(Recorded { is_retried: true, begun: begun(&next, &lane) });
            }
            Written::Closed(Left::Something) => {}
            Written::Closed(Left::Nothing { before, after }) => {
                memory.tally.job(tally::status(before, true), tally::status(after, false));
            }
        }
        let mut begun = Begun::default();
        if !row.live.is_running() {
            begun.ended.push((id, status));
        }
        let ties = row.live.ties;
        if ties.followed || ties.awaited {
            let mut tx = Tx { conn: self.conn, memory };
            begun.add(follow(&mut tx, id.occurrence.job, ties, status == Status::Succeeded, now)?);
        }
        Ok(Recorded { is_retried: false, begun })
    }

    /// Writes down an attempt that has ended. Whether the job has another status by it is for the caller to
    /// count.
    pub fn write(
        &mut self,
        memory: &mut Memory,
        row: &LiveRow,
        settled: Settled,
        now: Timestamp,
    ) -> Result<Written, Fault> {
        let worker = match settled.finished.session {
            Some(session) => memory.workers.worker(self.conn, session)?,
            None => None,
        };
        let seq = memory.history.next(self.conn)?;
        insert_history(&mut self.append, &settled.finished, worker, seq)?;
        match settled.next {
            Next::Retry(next) => {
                let mut update = self.conn.prepare_cached(UPDATE_LIVE)?;
                update_live(&mut update, &mut memory.tally, row, &next)?;
                Ok(Written::Retried(next))
            }
            Next::Closed { dead_letter, job_mark } => {
                let left = self.close(memory, row, job_mark)?;
                memory.tally.dead_letters(i64::from(dead_letter));
                if dead_letter {
                    bury(self.conn, row, &settled.finished, now)?;
                } else if row.live.ties.noted {
                    notes::forget(self.conn, row.live.id)?;
                }
                Ok(Written::Closed(left))
            }
        }
    }

    /// The live row goes, and a one-shot job of which nothing is left is marked if it did not succeed.
    fn close(&mut self, memory: &mut Memory, row: &LiveRow, mark: Option<JobMark>) -> Result<Left, Fault> {
        let OccurrenceId { job, number } = row.live.id;
        // What was skipped before it fired has no row.
        if self.delete.execute(params![job.as_bytes(), number])? > 0 {
            memory.tally.closed(row.lane, row.live.state);
        }
        // The common way: nothing has to be looked up to know that nothing is left.
        if row.is_sole && mark.is_none() {
            return Ok(Left::Nothing { before: JobMark::Active, after: JobMark::Active });
        }
        if is_unfinished(self.conn, job)? {
            return Ok(Left::Something);
        }
        let before = mark_of(self.conn, job)?;
        if let Some(mark) = mark {
            self.conn
                .prepare_cached("UPDATE jobs SET mark = ?2 WHERE id = ?1")?
                .execute(params![job.as_bytes(), mark.code()])?;
        }
        Ok(Left::Nothing { before, after: mark.unwrap_or(before) })
    }
}

/// What became of a live row whose attempt has ended.
pub(super) enum Written {
    Retried(Live),
    Closed(Left),
}

/// What is left of a job after the end of one of its occurrences.
pub(super) enum Left {
    Something,
    Nothing { before: JobMark, after: JobMark },
}

fn mark_of(conn: &Connection, job: JobId) -> Result<JobMark, Fault> {
    let mut select = conn.prepare_cached("SELECT mark FROM jobs WHERE id = ?1")?;
    let mark = one(&mut select, [job.as_bytes()], |row| decode(row, 0, "jobs.mark"))?;
    mark.ok_or_else(|| Fault::Missing(format!("job {job}")))
}

/// What became of an attempt that has ended.
pub(super) struct Recorded {
    pub is_retried: bool,
    pub begun: Begun,
}

/// What follows from the end of an occurrence with these ties: the next one in line may start, and jobs that
/// depend on it are told.
pub(super) fn follow(
    tx: &mut Tx<'_>,
    job: JobId,
    ties: Ties,
    succeeded: bool,
    now: Timestamp,
) -> Result<Begun, Fault> {
    let mut begun = Begun::default();
    if ties.followed && !planted(Defect::ForgetFollower) {
        begun.add(open_next_in_line(tx, job, now)?);
    }
    if ties.awaited {
        dependents::ended(tx.conn, job, succeeded)?;
        begun.add(dependents::resolve(tx, now, limits::DEPENDENTS_PER_STEP_MAX)?.begun);
    }
    Ok(begun)
}

/// Opens the overlap gate of the first occurrence in line, unless one is open that is not in line.
pub(super) fn open_next_in_line(tx: &mut Tx<'_>, job: JobId, now: Timestamp) -> Result<Begun, Fault> {
    if tx.conn.prepare_cached(HAS_OPEN_NOT_IN_LINE)?.exists([job.as_bytes()])? {
        return Ok(Begun::default());
    }
    let Some(row) = first_behind(tx.conn, job, Gate::Overlap)? else { return Ok(Begun::default()) };
    let opened = row.live.gate_opened(Gate::Overlap, now)?;
    update_live(&mut *tx.conn.prepare_cached(UPDATE_LIVE)?, &mut tx.memory.tally, &row, &opened)?;
    Ok(begun(&opened, &tx.memory.lanes.lane(tx.conn, row.lane)?))
}

/// What the rules need to know of a job when one of its attempts ends.
pub(super) struct JobTerms {
    settings: Settings,
    mark: JobMark,
}

impl JobTerms {
    pub fn terms(&self) -> Terms<'_> {
        Terms { settings: &self.settings, mark: self.mark }
    }
}

pub(super) fn terms_of(conn: &Connection, job: JobId) -> Result<Option<JobTerms>, Fault> {
    let mut select = conn.prepare_cached(TERMS_OF_JOB)?;
    one(&mut select, [job.as_bytes()], |row| {
        Ok(JobTerms { mark: decode(row, 0, "jobs.mark")?, settings: read_settings(row, 1)? })
    })
}

fn bury(conn: &Connection, row: &LiveRow, finished: &Finished, now: Timestamp) -> Result<(), Fault> {
    conn.prepare_cached(
        "INSERT INTO dead_letters (job, occurrence, attempts, epoch, scheduled_time, origin, died_at, error, \
         noted) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?
    .execute(params![
        finished.id.occurrence.job.as_bytes(),
        finished.id.occurrence.number,
        finished.id.attempt,
        finished.epoch.0,
        finished.scheduled_time.as_micros(),
        finished.origin.code(),
        now.as_micros(),
        finished.error,
        row.live.ties.noted,
    ])?;
    Ok(())
}
