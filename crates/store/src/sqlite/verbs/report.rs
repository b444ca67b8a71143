//! Taking in outcomes: history, then another attempt or the end of the occurrence.

use super::begin::begun_with;
use super::lease::find_live;
use crate::sqlite::core::{Memory, Tx};
use crate::sqlite::fault::Fault;
use crate::sqlite::rows::{
    Code, INSERT_HISTORY, LiveRow, UPDATE_LIVE, decode, insert_history, one, read_settings, settings_columns,
    update_live,
};
use punctual_core::ids::{JobId, OccurrenceId};
use punctual_core::job::{JobMark, Settings};
use punctual_core::lifecycle::{Ending, Status};
use punctual_core::occurrence::{End, Finished, Lease, Next};
use punctual_core::ports::{Begun, Report, ReportAnswer, ReportOutcome};
use punctual_core::time::Timestamp;
use rusqlite::{Connection, params};

const ACCEPTED: &str = "SELECT epoch, session, status FROM history \
     WHERE job = ?1 AND occurrence = ?2 AND attempt = ?3";
pub(crate) const DELETE_LIVE: &str = "DELETE FROM live WHERE job = ?1 AND occurrence = ?2";
const SETTINGS_OF_JOB: &str = concat!("SELECT ", settings_columns!(), " FROM jobs WHERE id = ?1");

pub(super) fn report(
    tx: &mut Tx<'_>,
    now: Timestamp,
    reports: Vec<Report>,
) -> Result<Vec<ReportOutcome>, Fault> {
    reports.into_iter().map(|report| report_one(tx, now, report)).collect()
}

fn report_one(tx: &mut Tx<'_>, now: Timestamp, report: Report) -> Result<ReportOutcome, Fault> {
    let Report { session, lease, end } = &report;
    let row = find_live(tx.conn, lease.execution.occurrence)?;
    let held = row.and_then(|row| {
        let held = row.live.held_by(*session, lease.execution, lease.epoch)?;
        Some((row, held))
    });
    let Some((row, held)) = held else {
        let answer =
            if was_accepted(tx.conn, &report)? { ReportAnswer::AlreadyAccepted } else { ReportAnswer::Stale };
        return Ok(ReportOutcome { answer, retry: Begun::default() });
    };
    let retry = settle(tx.conn, tx.memory, &row, held, end.clone(), now)?;
    Ok(ReportOutcome { answer: ReportAnswer::Accepted, retry })
}

/// Whether this very report was taken in before. What recovery wrote under the same lease is not the worker's
/// word: a late outcome of a lost attempt counts for nothing.
fn was_accepted(conn: &Connection, report: &Report) -> Result<bool, Fault> {
    let execution = report.lease.execution;
    let mut select = conn.prepare_cached(ACCEPTED)?;
    let key = params![execution.occurrence.job.as_bytes(), execution.occurrence.number, execution.attempt];
    let found = one(&mut select, key, |row| {
        let same_lease = row.get::<_, u32>(0)? == report.lease.epoch.0
            && row.get::<_, Option<i64>>(1)? == Some(report.session.0);
        Ok(same_lease && decode::<Status>(row, 2, "history.status")? != Status::Lost)
    })?;
    Ok(found.unwrap_or(false))
}

/// Ends a run as the rules say.
pub(super) fn settle(
    conn: &Connection,
    memory: &mut Memory,
    row: &LiveRow,
    held: Lease,
    end: End,
    now: Timestamp,
) -> Result<Begun, Fault> {
    let is_plain_success = end.ending == Ending::Succeeded && !held.cancel_requested;
    // The common way needs nothing of the wide job row.
    let settings = if is_plain_success { None } else { settings_of(conn, row.live.id.job)? };
    let settled = row.live.settled(end, settings.as_ref(), now)?;
    let worker = memory.workers.worker(conn, held.session)?;
    insert_history(&mut *conn.prepare_cached(INSERT_HISTORY)?, &settled.finished, worker)?;
    match settled.next {
        Next::Retry(next) => {
            update_live(&mut *conn.prepare_cached(UPDATE_LIVE)?, &next)?;
            let lane = memory.lanes.lane(conn, row.lane)?;
            begun_with(&next, &lane, None, || unreachable!("a retry is never leased"))
        }
        Next::Closed { dead_letter, job_mark } => {
            close(conn, row.live.id, job_mark)?;
            if dead_letter {
                bury(conn, &settled.finished, now)?;
            }
            Ok(Begun::default())
        }
    }
}

pub(super) fn settings_of(conn: &Connection, job: JobId) -> Result<Option<Settings>, Fault> {
    let mut select = conn.prepare_cached(SETTINGS_OF_JOB)?;
    one(&mut select, [job.as_bytes()], |row| read_settings(row, 0))
}

/// Ends an occurrence: its live row goes, and a one-shot job is marked if it did not succeed.
pub(super) fn close(conn: &Connection, id: OccurrenceId, mark: Option<JobMark>) -> Result<(), Fault> {
    conn.prepare_cached(DELETE_LIVE)?.execute(params![id.job.as_bytes(), id.number])?;
    if let Some(mark) = mark {
        conn.prepare_cached("UPDATE jobs SET mark = ?2 WHERE id = ?1")?
            .execute(params![id.job.as_bytes(), mark.code()])?;
    }
    Ok(())
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
