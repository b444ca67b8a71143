//! Taking in outcomes: history, then another attempt or the end of the occurrence.

use super::begin::begun_with;
use super::lease::FIND_LIVE;
use crate::sqlite::core::{Memory, Tx};
use crate::sqlite::fault::Fault;
use crate::sqlite::rows::{
    Code, INSERT_HISTORY, LiveRow, UPDATE_LIVE, decode, insert_history, one, read_settings, settings_columns,
    update_live,
};
use punctual_core::ids::{JobId, OccurrenceId, SessionId};
use punctual_core::job::{JobMark, Settings};
use punctual_core::lifecycle::{Ending, Status};
use punctual_core::occurrence::{End, Finished, Lease, Next, Settled};
use punctual_core::ports::{Begun, LeaseRef, Report, ReportAnswer, ReportOutcome};
use punctual_core::time::Timestamp;
use rusqlite::{CachedStatement, Connection, params};

const ACCEPTED: &str = "SELECT epoch, session, status FROM history \
     WHERE job = ?1 AND occurrence = ?2 AND attempt = ?3";
pub(crate) const DELETE_LIVE: &str = "DELETE FROM live WHERE job = ?1 AND occurrence = ?2";
const SETTINGS_OF_JOB: &str = concat!("SELECT ", settings_columns!(), " FROM jobs WHERE id = ?1");

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
        return Ok(ReportOutcome { answer, retry: Begun::default() });
    };
    let retry = settling.settle(memory, &row, held, end, now)?;
    Ok(ReportOutcome { answer: ReportAnswer::Accepted, retry })
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
    ) -> Result<Begun, Fault> {
        let is_plain_success = end.ending == Ending::Succeeded && !held.cancel_requested;
        // The common way needs nothing of the wide job row.
        let settings = if is_plain_success { None } else { settings_of(self.conn, row.live.id.job)? };
        let settled = row.live.settled(end, settings.as_ref(), now)?;
        self.record(memory, row, settled, now)
    }

    /// Writes down an attempt that has ended and what follows it.
    pub fn record(
        &mut self,
        memory: &mut Memory,
        row: &LiveRow,
        settled: Settled,
        now: Timestamp,
    ) -> Result<Begun, Fault> {
        let worker = match settled.finished.session {
            Some(session) => memory.workers.worker(self.conn, session)?,
            None => None,
        };
        insert_history(&mut self.append, &settled.finished, worker)?;
        match settled.next {
            Next::Retry(next) => {
                update_live(&mut *self.conn.prepare_cached(UPDATE_LIVE)?, &next)?;
                let lane = memory.lanes.lane(self.conn, row.lane)?;
                begun_with(&next, &lane, None, || unreachable!("a retry is never leased"))
            }
            Next::Closed { dead_letter, job_mark } => {
                self.close(row.live.id, job_mark)?;
                if dead_letter {
                    bury(self.conn, &settled.finished, now)?;
                }
                Ok(Begun::default())
            }
        }
    }

    /// The live row goes, and a one-shot job is marked if it did not succeed.
    fn close(&mut self, id: OccurrenceId, mark: Option<JobMark>) -> Result<(), Fault> {
        self.delete.execute(params![id.job.as_bytes(), id.number])?;
        if let Some(mark) = mark {
            self.conn
                .prepare_cached("UPDATE jobs SET mark = ?2 WHERE id = ?1")?
                .execute(params![id.job.as_bytes(), mark.code()])?;
        }
        Ok(())
    }
}

pub(super) fn settings_of(conn: &Connection, job: JobId) -> Result<Option<Settings>, Fault> {
    let mut select = conn.prepare_cached(SETTINGS_OF_JOB)?;
    one(&mut select, [job.as_bytes()], |row| read_settings(row, 0))
}

fn bury(conn: &Connection, finished: &Finished, now: Timestamp) -> Result<(), Fault> {
    conn.prepare_cached(
        "INSERT INTO dead_letters (job, occurrence, attempts, died_at, error) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute(params![
        finished.id.occurrence.job.as_bytes(),
        finished.id.occurrence.number,
        finished.id.attempt,
        now.as_micros(),
        finished.error,
    ])?;
    Ok(())
}
