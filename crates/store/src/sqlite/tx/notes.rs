//! Notes of handlers. Progress and checkpoints have separate tables, so that a progress update does not
//! rewrite a large checkpoint.

use super::Tx;
use crate::fault::Fault;
use crate::sqlite::rows::{count, counter, one_readable};
use punctual_core::ids::{Epoch, JobId, OccurrenceId};
use punctual_core::notes::{Checkpoint, LastNote, Note};
use punctual_core::time::Timestamp;
use rusqlite::{Connection, params};

const LAST_NOTE: &str = "SELECT epoch, number FROM notes WHERE job = ?1 AND occurrence = ?2";
pub(crate) const CHECKPOINT: &str = "SELECT document FROM checkpoints WHERE job = ?1 AND occurrence = ?2";
const COUNT_NOTE: &str = "INSERT INTO notes (job, occurrence, attempt, epoch, number, noted_at) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (job, occurrence) DO UPDATE SET epoch = ?4, number = ?5, noted_at = ?6";
const PUT_PROGRESS: &str =
    "UPDATE notes SET attempt = ?3, percent = ?4, message = ?5 WHERE job = ?1 AND occurrence = ?2";
const PUT_CHECKPOINT: &str = "INSERT INTO checkpoints (job, occurrence, document) VALUES (?1, ?2, ?3) \
     ON CONFLICT (job, occurrence) DO UPDATE SET document = ?3";
/// The notes of a deleted job, except those of running executions: they are deleted when the executions
/// end.
pub(crate) const FORGET_NOTES: [&str; 2] = [
    "DELETE FROM notes WHERE job = ?1 AND occurrence NOT IN (SELECT occurrence FROM live WHERE job = ?1)",
    "DELETE FROM checkpoints WHERE job = ?1 AND occurrence NOT IN (SELECT occurrence FROM live WHERE job = ?1)",
];

pub(super) fn last_note(tx: &mut Tx<'_>, id: OccurrenceId) -> Result<Option<LastNote>, Fault> {
    one_readable(&mut *tx.conn.prepare_cached(LAST_NOTE)?, params![id.job.as_bytes(), id.number], |row| {
        Ok(LastNote { epoch: Epoch(row.get(0)?), number: count(row, 1, "notes.number")? })
    })
}

pub(super) fn checkpoint(tx: &mut Tx<'_>, id: OccurrenceId) -> Result<Option<Checkpoint>, Fault> {
    read_checkpoint(tx.conn, id)
}

fn read_checkpoint(conn: &Connection, id: OccurrenceId) -> Result<Option<Checkpoint>, Fault> {
    one_readable(&mut *conn.prepare_cached(CHECKPOINT)?, params![id.job.as_bytes(), id.number], |row| {
        let document: String = row.get(0)?;
        Checkpoint::stored(document).map_err(|too_large| Fault::damaged("checkpoints.document", too_large))
    })
}

pub(super) fn keep_note(tx: &mut Tx<'_>, note: &Note, last: LastNote, now: Timestamp) -> Result<(), Fault> {
    let execution = note.lease.execution;
    let (job, number) = (execution.occurrence.job.as_bytes(), execution.occurrence.number);
    tx.conn.prepare_cached(COUNT_NOTE)?.execute(params![
        job,
        number,
        execution.attempt,
        last.epoch.0,
        counter(last.number),
        now.as_micros()
    ])?;
    if let Some(progress) = &note.progress {
        let percent = progress.percent.map(|percent| percent.hundredths());
        tx.conn.prepare_cached(PUT_PROGRESS)?.execute(params![
            job,
            number,
            execution.attempt,
            percent,
            progress.message
        ])?;
    }
    match &note.checkpoint {
        None => Ok(()),
        Some(checkpoint) if checkpoint.is_null() => forget_checkpoint(tx, execution.occurrence),
        Some(checkpoint) => {
            let document = checkpoint.as_json();
            tx.conn.prepare_cached(PUT_CHECKPOINT)?.execute(params![job, number, document])?;
            Ok(())
        }
    }
}

pub(super) fn forget_notes(tx: &mut Tx<'_>, id: OccurrenceId) -> Result<(), Fault> {
    tx.conn
        .prepare_cached("DELETE FROM notes WHERE job = ?1 AND occurrence = ?2")?
        .execute(params![id.job.as_bytes(), id.number])?;
    forget_checkpoint(tx, id)
}

fn forget_checkpoint(tx: &mut Tx<'_>, id: OccurrenceId) -> Result<(), Fault> {
    tx.conn
        .prepare_cached("DELETE FROM checkpoints WHERE job = ?1 AND occurrence = ?2")?
        .execute(params![id.job.as_bytes(), id.number])?;
    Ok(())
}

pub(super) fn forget_notes_of_job(tx: &mut Tx<'_>, job: JobId) -> Result<(), Fault> {
    for sql in FORGET_NOTES {
        tx.conn.prepare_cached(sql)?.execute([job.as_bytes()])?;
    }
    Ok(())
}
