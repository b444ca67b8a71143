//! Notes of handlers.

use super::Reads;
use super::keys::key;
use crate::codecs::limit;
use crate::fault::Fault;
use crate::malformed::readable;
use crate::server::loaded::read_checkpoint;
use crate::server::rows::read_noted;
use punctual_core::ids::{JobId, OccurrenceId};
use punctual_core::limits;
use punctual_core::notes::{Checkpoint, Noted};

pub(crate) const NOTES_OF_JOB: &str = "SELECT notes.occurrence, notes.attempt, notes.percent, notes.message, \
     notes.noted_at, (SELECT LENGTH(checkpoints.document) FROM checkpoints \
     WHERE checkpoints.job = notes.job AND checkpoints.occurrence = notes.occurrence) \
     FROM notes FORCE INDEX (PRIMARY) WHERE notes.job = ? AND notes.occurrence <= ? \
     ORDER BY notes.occurrence DESC LIMIT ?";
const CHECKPOINT: &str =
    "SELECT checkpoints.document FROM checkpoints WHERE checkpoints.job = ? AND checkpoints.occurrence = ?";

impl Reads {
    /// The notes of a job's open and dead occurrences up to this number, latest first.
    pub async fn notes(&mut self, job: JobId, up_to: u32, wanted: usize) -> Result<Vec<Noted>, Fault> {
        let bounds = (key(job), up_to, limit(wanted.min(limits::PAGE_ITEMS_MAX)));
        readable(self.all(NOTES_OF_JOB, bounds).await?.iter().map(|row| read_noted(job, row)))
    }

    pub async fn checkpoint(&mut self, id: OccurrenceId) -> Result<Option<Checkpoint>, Fault> {
        let row = self.one(CHECKPOINT, (key(id.job), id.number)).await?;
        row.map(|row| read_checkpoint(&row, 0)).transpose()
    }
}
