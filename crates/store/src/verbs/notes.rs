//! Notes of handlers about their executions. A flag in the live row says that there are notes. Without it,
//! a lease reads no checkpoint and an end deletes no notes, so executions without notes pay nothing.

use super::missing_rows::each;
use crate::fault::Fault;
use crate::rows::Rows;
use punctual_core::notes::{Checkpoint, LastNote, Note, NoteAnswer};
use punctual_core::occurrence::{Live, OccurrenceFlags};
use punctual_core::time::Timestamp;

pub(super) fn note<R: Rows>(rows: &mut R, now: Timestamp, notes: &[Note]) -> Result<Vec<NoteAnswer>, Fault> {
    each(rows, notes, |rows, note| note_one(rows, now, note))
}

fn note_one<R: Rows>(rows: &mut R, now: Timestamp, note: &Note) -> Result<NoteAnswer, Fault> {
    let Some(row) = rows.live(note.lease.execution.occurrence)? else { return Ok(NoteAnswer::Stale) };
    let live = row.live;
    let last = if live.flags.noted { rows.last_note(live.id)? } else { None };
    let answer = live.judge_note(note, last);
    if answer == NoteAnswer::Accepted {
        rows.keep_note(note, LastNote::after(last, note), now)?;
        if !live.flags.noted {
            rows.add_live_flags(live.id, OccurrenceFlags { noted: true, ..OccurrenceFlags::default() })?;
        }
    }
    Ok(answer)
}

/// The checkpoint to hand out with a lease of this occurrence.
pub(super) fn checkpoint_of<R: Rows>(rows: &mut R, live: &Live) -> Result<Option<Checkpoint>, Fault> {
    if live.flags.noted { rows.checkpoint(live.id) } else { Ok(None) }
}
