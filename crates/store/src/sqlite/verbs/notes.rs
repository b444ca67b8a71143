//! What handlers note of their executions. A tie of the live row says that there is something, so that whoever
//! notes nothing pays for nothing: only then does a lease look for a checkpoint, and an end take the notes away.
//!
//! Progress and checkpoints are in tables of their own, so that a word of progress does not write a large checkpoint
//! anew.

use super::lease::find_live;
use crate::sqlite::core::Tx;
use crate::sqlite::fault::Fault;
use crate::sqlite::rows::{count, counter, one};
use punctual_core::ids::{Epoch, JobId, OccurrenceId};
use punctual_core::notes::{Checkpoint, LastNote, Note, NoteAnswer};
use punctual_core::occurrence::{Live, Ties};
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
/// What is left of a job that is deleted, but for what still runs: that goes when it ends.
pub(crate) const FORGET_NOTES: [&str; 2] = [
    "DELETE FROM notes WHERE job = ?1 AND occurrence NOT IN (SELECT occurrence FROM live WHERE job = ?1)",
    "DELETE FROM checkpoints WHERE job = ?1 AND occurrence NOT IN (SELECT occurrence FROM live WHERE job = ?1)",
];

pub(super) fn note(tx: &mut Tx<'_>, now: Timestamp, notes: Vec<Note>) -> Result<Vec<NoteAnswer>, Fault> {
    notes.iter().map(|note| note_one(tx.conn, now, note)).collect()
}

fn note_one(conn: &Connection, now: Timestamp, note: &Note) -> Result<NoteAnswer, Fault> {
    let Some(row) = find_live(conn, note.lease.execution.occurrence)? else { return Ok(NoteAnswer::Stale) };
    let last = if row.live.ties.noted { last_note(conn, row.live.id)? } else { None };
    let answer = row.live.judge_note(note, last);
    if answer == NoteAnswer::Accepted {
        keep(conn, &row.live, note, LastNote::after(last, note), now)?;
    }
    Ok(answer)
}

fn last_note(conn: &Connection, id: OccurrenceId) -> Result<Option<LastNote>, Fault> {
    one(&mut *conn.prepare_cached(LAST_NOTE)?, params![id.job.as_bytes(), id.number], |row| {
        Ok(LastNote { epoch: Epoch(row.get(0)?), number: count(row, 1, "notes.number")? })
    })
}

fn keep(conn: &Connection, live: &Live, note: &Note, last: LastNote, now: Timestamp) -> Result<(), Fault> {
    let (job, number) = (live.id.job.as_bytes(), live.id.number);
    let attempt = note.lease.execution.attempt;
    conn.prepare_cached(COUNT_NOTE)?.execute(params![
        job,
        number,
        attempt,
        last.epoch.0,
        counter(last.number),
        now.as_micros()
    ])?;
    if let Some(progress) = &note.progress {
        let percent = progress.percent.map(|percent| percent.hundredths());
        conn.prepare_cached(PUT_PROGRESS)?.execute(params![
            job,
            number,
            attempt,
            percent,
            progress.message
        ])?;
    }
    match &note.checkpoint {
        None => {}
        Some(checkpoint) if checkpoint.is_null() => forget_checkpoint(conn, live.id)?,
        Some(checkpoint) => {
            conn.prepare_cached(PUT_CHECKPOINT)?.execute(params![job, number, checkpoint.as_json()])?;
        }
    }
    if !live.ties.noted {
        let noted = Ties { noted: true, ..Ties::default() };
        conn.prepare_cached("UPDATE live SET ties = ties | ?3 WHERE job = ?1 AND occurrence = ?2")?
            .execute(params![job, number, noted.bits()])?;
    }
    Ok(())
}

/// The checkpoint that a lease of this occurrence comes with.
pub(super) fn checkpoint_of(conn: &Connection, live: &Live) -> Result<Option<Checkpoint>, Fault> {
    if live.ties.noted { read_checkpoint(conn, live.id) } else { Ok(None) }
}

pub(crate) fn read_checkpoint(conn: &Connection, id: OccurrenceId) -> Result<Option<Checkpoint>, Fault> {
    one(&mut *conn.prepare_cached(CHECKPOINT)?, params![id.job.as_bytes(), id.number], |row| {
        let document: String = row.get(0)?;
        Checkpoint::new(document).map_err(|too_large| Fault::damaged("checkpoints.document", too_large))
    })
}

fn forget_checkpoint(conn: &Connection, id: OccurrenceId) -> Result<(), Fault> {
    conn.prepare_cached("DELETE FROM checkpoints WHERE job = ?1 AND occurrence = ?2")?
        .execute(params![id.job.as_bytes(), id.number])?;
    Ok(())
}

/// The notes of an occurrence that has ended go.
pub(super) fn forget(conn: &Connection, id: OccurrenceId) -> Result<(), Fault> {
    conn.prepare_cached("DELETE FROM notes WHERE job = ?1 AND occurrence = ?2")?
        .execute(params![id.job.as_bytes(), id.number])?;
    forget_checkpoint(conn, id)
}

/// The notes of a deleted job go, but for those of what still runs.
pub(super) fn forget_job(conn: &Connection, job: JobId) -> Result<(), Fault> {
    for sql in FORGET_NOTES {
        conn.prepare_cached(sql)?.execute([job.as_bytes()])?;
    }
    Ok(())
}
