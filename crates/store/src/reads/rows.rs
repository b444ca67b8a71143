//! Rows that reads of all databases return, in the same order of columns.

use crate::cells::{RowCells, get, read};
use crate::codecs::{job_id, occurrence_id};
use crate::codes::{read_condition, read_names};
use crate::counters::{JobTally, StoredCounts};
use crate::fault::Fault;
use crate::lists::Candidate;
use crate::malformed::skip_malformed;
use punctual_core::ids::JobId;
use punctual_core::notes::{Noted, Progress};
use punctual_core::ports::{DueKind, JobCounts, SessionRow, WorkerAbout};
use punctual_core::schedule::SkipRange;
use punctual_core::session::Pulse;
use punctual_core::time::Timestamp;
use std::time::Duration;

/// The columns that [`read_session`] expects.
macro_rules! session_columns {
    () => {
        "sessions.id, sessions.beat, sessions.lease_us, workers.name, sessions.embedded, sessions.job_types, \
         sessions.slots, sessions.opened_at, sessions.beaten_at, sessions.queues, sessions.version, sessions.host, \
         sessions.mode, session_conditions.document, sessions.token"
    };
}
pub(crate) use session_columns;

pub(crate) fn read_session(row: &(impl RowCells + ?Sized)) -> Result<SessionRow, Fault> {
    let lease = Duration::from_micros(read(row, 2, "sessions.lease_us")?);
    Ok(SessionRow {
        pulse: Pulse { session: get(row, 0)?, beat: read(row, 1, "sessions.beat")?, lease },
        worker: get(row, 3)?,
        embedded: get(row, 4)?,
        job_types: read_names(get(row, 5)?, "sessions.job_types"),
        slots: read(row, 6, "sessions.slots")?,
        opened_at: read(row, 7, "sessions.opened_at")?,
        beaten_at: read(row, 8, "sessions.beaten_at")?,
        about: WorkerAbout {
            queues: read_names(get(row, 9)?, "sessions.queues"),
            version: get(row, 10)?,
            host: get(row, 11)?,
        },
        // A document that cannot be read says nothing about the session.
        condition: read_condition(get(row, 13).unwrap_or_default()),
        mode: read(row, 12, "sessions.mode")?,
        token: get(row, 14)?,
    })
}

pub(crate) fn read_job_counts(row: &(impl RowCells + ?Sized)) -> Result<JobCounts, Fault> {
    Ok(JobTally::read(0, |column| get(row, column))?.shown())
}

pub(crate) fn read_noted(job: JobId, row: &(impl RowCells + ?Sized)) -> Result<Noted, Fault> {
    Ok(Noted {
        occurrence: job.occurrence(read(row, 0, "notes.occurrence")?),
        attempt: read(row, 1, "notes.attempt")?,
        progress: Progress { percent: read(row, 2, "notes.percent")?, message: get(row, 3)? },
        noted_at: read(row, 4, "notes.noted_at")?,
        checkpoint_bytes: get(row, 5)?,
    })
}

pub(crate) fn read_skipped(row: &(impl RowCells + ?Sized)) -> Result<SkipRange, Fault> {
    Ok(SkipRange {
        first: read(row, 0, "skipped.first")?,
        last: read(row, 1, "skipped.last")?,
        count: read(row, 2, "skipped.count")?,
        reason: read(row, 3, "skipped.reason")?,
    })
}

/// The columns that [`candidate`] expects.
macro_rules! candidate_columns {
    () => {
        "jobs.id, jobs.lane, jobs.mark, jobs.priority, jobs.owner, jobs.name, jobs.schedule_type"
    };
}
pub(crate) use candidate_columns;

/// A job that cannot be read still advances the list.
pub(crate) fn candidate(row: &(impl RowCells + ?Sized)) -> Result<Candidate, Fault> {
    let id = job_id(row, 0)?;
    Ok(skip_malformed(read_candidate(row))?.unwrap_or_else(|| Candidate::unreadable(id)))
}

pub(crate) fn read_candidate(row: &(impl RowCells + ?Sized)) -> Result<Candidate, Fault> {
    Ok(Candidate {
        id: job_id(row, 0)?,
        lane: get(row, 1)?,
        mark: read(row, 2, "jobs.mark")?,
        priority: read(row, 3, "jobs.priority")?,
        owner: get(row, 4)?,
        name: get(row, 5)?,
        schedule_type: get(row, 6)?,
    })
}

/// A due time, its lane, and what becomes due.
pub(crate) type DueEntry = (Timestamp, i64, DueKind);

pub(crate) fn read_due_schedule(row: &(impl RowCells + ?Sized)) -> Result<DueEntry, Fault> {
    let what = DueKind::Schedule { job: job_id(row, 2)?, version: read(row, 3, "schedules.version")? };
    Ok((read(row, 0, "schedules.due_at")?, get(row, 1)?, what))
}

pub(crate) fn read_due_live(row: &(impl RowCells + ?Sized)) -> Result<DueEntry, Fault> {
    let what = DueKind::Live { occurrence: occurrence_id(row, 2)?, attempt: read(row, 4, "live.attempt")? };
    Ok((read(row, 0, "live.look_at")?, get(row, 1)?, what))
}
