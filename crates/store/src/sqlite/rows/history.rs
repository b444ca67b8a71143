//! Finished executions.

use super::{decode, decode_or_none, job_id, time, time_or_none};
use crate::codes::Code;
use crate::fault::Fault;
use punctual_core::ids::{Epoch, SessionId};
use punctual_core::occurrence::Finished;
use punctual_core::time::Timestamp;
use rusqlite::{Row, Statement, params};

pub(crate) const INSERT_HISTORY: &str = "INSERT INTO history (job, occurrence, attempt, epoch, status, origin, job_version, scheduled_time, \
     available_at, started_at, completed_at, session, worker, error, result, reason, seq) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)";

pub(crate) fn insert_history(
    insert: &mut Statement<'_>,
    finished: &Finished,
    worker: Option<i64>,
    seq: i64,
) -> Result<(), Fault> {
    insert.execute(params![
        finished.id.occurrence.job.as_bytes(),
        finished.id.occurrence.number,
        finished.id.attempt,
        finished.epoch.0,
        finished.status.code(),
        finished.origin.code(),
        finished.job_version,
        finished.scheduled_time.as_micros(),
        finished.available_at.as_micros(),
        finished.started_at.map(Timestamp::as_micros),
        finished.completed_at.as_micros(),
        finished.session.map(|session| session.0),
        worker,
        finished.error,
        finished.result,
        finished.reason.map(Code::code),
        seq,
    ])?;
    Ok(())
}

/// The columns of `history` and the worker's name, in the order in which [`read_finished`] expects them.
macro_rules! history_columns {
    () => {
        "history.job, history.occurrence, history.attempt, history.epoch, history.status, history.origin, \
         history.job_version, history.scheduled_time, history.available_at, history.started_at, \
         history.completed_at, history.session, workers.name, history.error, history.result, history.reason"
    };
}
pub(crate) use history_columns;

pub(crate) fn read_finished(row: &Row<'_>) -> Result<Finished, Fault> {
    Ok(Finished {
        id: job_id(row, 0)?.occurrence(row.get(1)?).attempt(row.get(2)?),
        epoch: Epoch(row.get(3)?),
        status: decode(row, 4, "history.status")?,
        origin: decode(row, 5, "history.origin")?,
        job_version: row.get(6)?,
        scheduled_time: time(row, 7)?,
        available_at: time(row, 8)?,
        started_at: time_or_none(row, 9)?,
        completed_at: time(row, 10)?,
        session: row.get::<_, Option<i64>>(11)?.map(SessionId),
        worker: row.get(12)?,
        error: row.get(13)?,
        result: row.get(14)?,
        reason: decode_or_none(row, 15, "history.reason")?,
    })
}
