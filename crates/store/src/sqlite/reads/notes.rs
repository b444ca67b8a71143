//! Notes of handlers.

use super::Reads;
use crate::fault::Fault;
use crate::server::rows::read_noted;
use crate::sqlite::rows::{self, bound};
use crate::sqlite::tx::read_checkpoint;
use punctual_core::ids::{JobId, OccurrenceId};
use punctual_core::limits;
use punctual_core::notes::{Checkpoint, Noted};
use punctual_core::ports::StoreError;
use rusqlite::params;

pub(crate) const NOTES_OF_JOB: &str = "SELECT notes.occurrence, notes.attempt, notes.percent, notes.message, \
     notes.noted_at, (SELECT length(CAST(document AS BLOB)) FROM checkpoints \
     WHERE checkpoints.job = notes.job AND checkpoints.occurrence = notes.occurrence) \
     FROM notes WHERE notes.job = ?1 AND notes.occurrence <= ?2 ORDER BY notes.occurrence DESC LIMIT ?3";

impl Reads<'_> {
    /// The notes of a job's open and dead occurrences up to this number, latest first.
    pub fn notes(&mut self, job: JobId, up_to: u32, count: usize) -> Result<Vec<Noted>, StoreError> {
        let count = count.min(limits::PAGE_ITEMS_MAX);
        let bounds = params![job.as_bytes(), up_to, bound(count)];
        let mut select = self.conn.prepare_cached(NOTES_OF_JOB).map_err(Fault::from)?;
        Ok(rows::up_to(count, &mut select, bounds, |row| read_noted(job, row))?)
    }

    pub fn checkpoint(&mut self, occurrence: OccurrenceId) -> Result<Option<Checkpoint>, StoreError> {
        Ok(read_checkpoint(self.conn, occurrence)?)
    }
}
