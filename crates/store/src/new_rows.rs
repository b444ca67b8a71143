//! The columns of new rows, the same for every database, in the order of the layout: see
//! [`crate::server::changes::TableChange::shape`]. [`crate::codecs`] has those of the wide tables.

use crate::cells::Cell;
use crate::codecs::input_column;
use crate::codes::{limits_column, readmission_column};
use crate::fault::Fault;
use crate::layout::{DEAD_LETTERS, DeadLetterColumns, QUEUES, SESSIONS, SKIPPED};
use crate::row_list::row;
use crate::rows::JobKey;
use punctual_core::ids::{JobId, OccurrenceId};
use punctual_core::notes::{LastNote, Progress};
use punctual_core::occurrence::Finished;
use punctual_core::ports::{NewRequest, QueueRow, SessionOpening};
use punctual_core::schedule::SkipRange;
use punctual_core::time::{Timestamp, duration_micros};
use std::borrow::Cow;

/// A version, an attempt or an epoch: values that no correct caller reaches saturate.
pub(crate) fn integer<'a>(value: u32) -> Cell<'a> {
    Cell::Number(i64::from(value.min(i32::MAX as u32)))
}

/// The columns of a session after its id.
pub(crate) fn session_cells(
    opening: &SessionOpening,
    worker: i64,
    opened_at: Timestamp,
) -> Result<[Cell<'_>; SESSIONS.columns.len() - 1], Fault> {
    let about = &opening.about;
    let queues = match about.queues.as_slice() {
        [] => None,
        queues => Some(serde_json::to_string(queues)?),
    };
    let (none, off) = (0_i64, false);
    Ok(row![
        worker,
        duration_micros(opening.lease),
        none,
        none,
        opened_at,
        opened_at,
        opening.slots,
        none,
        opening.embedded,
        off,
        off,
        serde_json::to_string(&opening.job_types)?,
        queues,
        about.version.as_deref(),
        about.host.as_deref(),
        opening.token.as_deref(),
    ])
}

pub(crate) fn key_cells(key: &JobKey, job: JobId) -> [Cell<'_>; 4] {
    row![key.owner.as_str(), key.kind, key.key.as_str(), job]
}

/// The columns of a skipped range after its number.
pub(crate) fn skipped_cells<'a>(job: JobId, range: &SkipRange) -> [Cell<'a>; SKIPPED.columns.len() - 1] {
    row![job, range.first, range.last, range.count, range.reason]
}

/// The columns of a dead letter after its number.
pub(crate) fn dead_letter_cells(
    finished: &Finished,
    noted: bool,
    died_at: Timestamp,
) -> [Cell<'_>; DEAD_LETTERS.columns.len() - 1] {
    let columns = DeadLetterColumns {
        number: 0,
        job: finished.id.occurrence.job,
        occurrence: finished.id.occurrence.number,
        scheduled_time: finished.scheduled_time,
        died_at,
        attempts: finished.id.attempt,
        epoch: finished.epoch,
        origin: finished.origin,
        noted,
        error: finished.error.as_deref().map(Cow::Borrowed),
        input: input_column(finished.input.as_deref()),
    };
    let [_number, rest @ ..] = columns.into_cells();
    rest
}

/// The columns of a note before the progress.
pub(crate) fn note_cells<'a>(
    id: OccurrenceId,
    last: LastNote,
    noted_at: Timestamp,
    attempt: u32,
) -> [Cell<'a>; 6] {
    let [job, number, last_number, at] = row![id.job, id.number, last.number, noted_at];
    [job, number, last_number, at, integer(last.epoch.0), integer(attempt)]
}

/// All columns of a note with progress.
pub(crate) fn progress_cells<'a>(note: [Cell<'a>; 6], progress: &'a Progress) -> [Cell<'a>; 8] {
    let [job, number, last_number, at, epoch, attempt] = note;
    let [percent, message] = row![progress.percent, progress.message.as_deref()];
    [job, number, last_number, at, epoch, attempt, percent, message]
}

pub(crate) fn queue_cells(queue: &QueueRow) -> Result<[Cell<'_>; QUEUES.columns.len()], Fault> {
    let limits = limits_column(&queue.settings.limits)?;
    let readmission = readmission_column(queue.readmission.as_ref())?;
    Ok(row![queue.queue.as_str(), queue.paused_at, queue.settings.max_depth, limits, readmission])
}

/// The columns of a request before its answer.
pub(crate) fn request_cells(new: &NewRequest, begun_at: Timestamp) -> [Cell<'_>; 5] {
    let (token, key) = (new.request.token.as_str(), new.request.key.as_str());
    row![token, key, new.fingerprint.as_slice(), begun_at, new.seed.cast_signed()]
}
