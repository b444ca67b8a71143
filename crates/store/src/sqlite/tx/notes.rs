//! Notes of handlers. Progress and checkpoints have separate tables, so that a progress update does not
//! rewrite a large checkpoint.

use super::Tx;
use crate::fault::Fault;
use crate::new_rows::{note_cells, progress_cells};
use crate::row_list::row;
use crate::server::changes::TableChange;
use crate::sqlite::rows::{count, insertion, one_readable, write_row};
use punctual_core::ids::{Epoch, JobId, OccurrenceId};
use punctual_core::notes::{Checkpoint, LastNote, Note};
use punctual_core::time::Timestamp;
use rusqlite::{Connection, params};
use std::sync::LazyLock;

const LAST_NOTE: &str = "SELECT epoch, number FROM notes WHERE job = ?1 AND occurrence = ?2";
pub(crate) const CHECKPOINT: &str = "SELECT document FROM checkpoints WHERE job = ?1 AND occurrence = ?2";
static COUNT_NOTE: LazyLock<String> = LazyLock::new(|| insertion(TableChange::CountNotes));
static PUT_PROGRESS: LazyLock<String> = LazyLock::new(|| insertion(TableChange::PutProgress));
static PUT_CHECKPOINT: LazyLock<String> = LazyLock::new(|| insertion(TableChange::PutCheckpoints));
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
    let id = execution.occurrence;
    let counted = note_cells(id, last, now, execution.attempt);
    match &note.progress {
        None => write_row(tx.conn, &COUNT_NOTE, &counted)?,
        Some(progress) => write_row(tx.conn, &PUT_PROGRESS, &progress_cells(counted, progress))?,
    }
    match &note.checkpoint {
        None => Ok(()),
        Some(checkpoint) if checkpoint.is_null() => forget_checkpoint(tx, id),
        Some(checkpoint) => {
            write_row(tx.conn, &PUT_CHECKPOINT, &row![id.job, id.number, checkpoint.as_json()])
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
