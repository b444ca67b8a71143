//! Notes of handlers.

use super::Reads;
use crate::codecs::limit;
use crate::fault::Fault;
use crate::malformed::readable;
use crate::postgres::rows::uuid;
use crate::server::loaded::read_checkpoint;
use crate::server::rows::read_noted;
use deadpool_postgres::GenericClient;
use punctual_core::ids::{JobId, OccurrenceId};
use punctual_core::limits;
use punctual_core::notes::{Checkpoint, Noted};
use punctual_core::ports::StoreError;

pub(crate) const NOTES_OF_JOB: &str = "SELECT notes.occurrence, notes.attempt, notes.percent, notes.message, \
     notes.noted_at, (SELECT octet_length(document) FROM checkpoints \
     WHERE checkpoints.job = notes.job AND checkpoints.occurrence = notes.occurrence) \
     FROM notes WHERE notes.job = $1 AND notes.occurrence <= $2 ORDER BY notes.occurrence DESC LIMIT $3";
pub(crate) const CHECKPOINT: &str = "SELECT document FROM checkpoints WHERE job = $1 AND occurrence = $2";

impl<C: GenericClient> Reads<'_, C> {
    /// The notes of a job's open and dead occurrences up to this number, latest first.
    pub async fn notes(&self, job: JobId, up_to: u32, count: usize) -> Result<Vec<Noted>, StoreError> {
        Ok(self.notes_of(job, up_to, count.min(limits::PAGE_ITEMS_MAX)).await?)
    }

    pub async fn checkpoint(&self, occurrence: OccurrenceId) -> Result<Option<Checkpoint>, StoreError> {
        Ok(self.checkpoint_of(occurrence).await?)
    }

    async fn notes_of(&self, job: JobId, up_to: u32, count: usize) -> Result<Vec<Noted>, Fault> {
        let rows = self.all(NOTES_OF_JOB, &[&uuid(job), &i64::from(up_to), &limit(count)]).await?;
        readable(rows.iter().map(|row| read_noted(job, row)))
    }

    async fn checkpoint_of(&self, id: OccurrenceId) -> Result<Option<Checkpoint>, Fault> {
        let row = self.one(CHECKPOINT, &[&uuid(id.job), &i64::from(id.number)]).await?;
        row.map(|row| read_checkpoint(&row, 0)).transpose()
    }
}
