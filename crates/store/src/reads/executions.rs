//! Finished and open executions of a job, its notes and skipped occurrences, and dead letters.

use super::page::{PageFilling, PageItem};
use super::{AnyRow, PAGE_BYTES, Query, ReadKind, Reads, attempt_of};
use crate::cells::{get, read};
use crate::codecs::{
    LETTER_COLUMNS, counter, limit, owner_of_letter, read_dead_letter, read_finished, read_live,
};
use crate::fault::Fault;
use crate::layout::LiveColumns;
use crate::lists::{LOOKED_AT_MAX, bytes_of, executions_merged, is_letter_meant};
use crate::malformed::{readable, skip_malformed};
use crate::reads::rows::{read_noted, read_skipped};
use crate::row_list::{self, row};
use crate::server::loaded::read_checkpoint;
use punctual_core::ids::{ExecutionId, JobId, OccurrenceId};
use punctual_core::limits;
use punctual_core::notes::{Checkpoint, Noted};
use punctual_core::occurrence::Finished;
use punctual_core::ports::{DeadLetter, DeadLetterQuery, ExecutionView, Page};
use punctual_core::schedule::SkipRange;
use std::collections::BTreeMap;

impl Reads<'_> {
    /// The finished executions of a job, latest occurrence and attempt first.
    pub async fn history(
        &mut self,
        job: JobId,
        before: Option<ExecutionId>,
        wanted: usize,
    ) -> Result<Page<Finished, ExecutionId>, Fault> {
        let query = |before: Option<ExecutionId>, count| {
            let (occurrence, attempt) = place_of(before);
            Query::of(ReadKind::HistoryOfJob, row![job, occurrence, attempt, limit(count), PAGE_BYTES])
        };
        let read = |row: &AnyRow| {
            let finished = read_finished(row, 0)?;
            Ok(PageItem { bytes: bytes_of(&finished), cursor: finished.id, item: finished })
        };
        self.page(wanted, before, query, read).await
    }

    /// All executions of a job, latest occurrence and attempt first.
    pub async fn executions_of_job(
        &mut self,
        job: JobId,
        before: Option<ExecutionId>,
        wanted: usize,
    ) -> Result<Page<ExecutionView, ExecutionId>, Fault> {
        let wanted = wanted.clamp(1, limits::PAGE_ITEMS_MAX);
        let (occurrence, attempt) = place_of(before);
        let bounds = row![job, occurrence, attempt, limit(wanted + 1)];
        let read = |row: &AnyRow| -> Result<ExecutionView, Fault> {
            Ok(ExecutionView::Live { live: read_live(row, 0)?.live, worker: get(row, LiveColumns::COUNT)? })
        };
        let open = readable(self.rows(Query::of(ReadKind::OpenOfJobBefore, bounds)).await?.iter().map(read))?;
        Ok(executions_merged(open, self.history(job, before, wanted).await?, wanted))
    }

    /// An execution that ends meanwhile is found, open or finished.
    pub async fn execution(&mut self, id: ExecutionId) -> Result<Option<ExecutionView>, Fault> {
        let OccurrenceId { job, number } = id.occurrence;
        let fetched = self.rows(Query::of(ReadKind::Execution, row![job, number, attempt_of(id)])).await?;
        let Some(row) = fetched.first() else { return Ok(None) };
        Ok(if get(row, 0)? {
            let worker = get(row, 2 + LiveColumns::COUNT)?;
            Some(ExecutionView::Live { live: read_live(row, 2)?.live, worker })
        } else if get(row, 1)? {
            Some(ExecutionView::Finished(read_finished(row, 2 + LiveColumns::COUNT + 1)?))
        } else {
            None
        })
    }

    /// Ranges of skipped occurrences, latest first.
    pub async fn skipped(&mut self, job: JobId, wanted: usize) -> Result<Vec<SkipRange>, Fault> {
        let bounds = row![job, limit(wanted.min(limits::PAGE_ITEMS_MAX))];
        readable(self.rows(Query::of(ReadKind::Skipped, bounds)).await?.iter().map(read_skipped))
    }

    /// The notes of a job's open and dead occurrences up to this number, latest first.
    pub async fn notes(&mut self, job: JobId, up_to: u32, wanted: usize) -> Result<Vec<Noted>, Fault> {
        let bounds = row![job, up_to, limit(wanted.min(limits::PAGE_ITEMS_MAX))];
        let fetched = self.rows(Query::of(ReadKind::NotesOfJob, bounds)).await?;
        readable(fetched.iter().map(|row| read_noted(job, row)))
    }

    pub async fn checkpoint(&mut self, id: OccurrenceId) -> Result<Option<Checkpoint>, Fault> {
        let fetched = self.rows(Query::of(ReadKind::Checkpoint, row![id.job, id.number])).await?;
        fetched.first().map(|row| read_checkpoint(row, 0)).transpose()
    }

    /// Latest first.
    pub async fn dead_letters(&mut self, query: &DeadLetterQuery) -> Result<Page<DeadLetter, u64>, Fault> {
        let mut page = self.page_of_dead_letters(query).await?;
        if self.connection.batches().has_errors_apart {
            let shown = row_list::numbers(page.items.iter().map(|letter| counter(letter.number)));
            let fetched = self.rows(Query::listed(ReadKind::ErrorsOfLetters, shown)).await?;
            let read = |row: &AnyRow| Ok((read(row, 0, "dead_letters.number")?, get(row, 1)?));
            let mut errors: BTreeMap<u64, String> = fetched.iter().map(read).collect::<Result<_, Fault>>()?;
            for letter in &mut page.items {
                letter.error = errors.remove(&letter.number);
            }
        }
        Ok(page)
    }

    async fn page_of_dead_letters(
        &mut self,
        query: &DeadLetterQuery,
    ) -> Result<Page<DeadLetter, u64>, Fault> {
        let batches = self.connection.batches();
        let at_once = batches.dead_letters;
        let mut wanted = query.clone();
        if batches.has_errors_apart {
            // The database searches for the text.
            wanted.error = None;
        }
        let mut before = query.before.map_or(i64::MAX, counter);
        let mut page = PageFilling::of(query.limit);
        for _ in 0..LOOKED_AT_MAX / at_once {
            let (count, text) = (limit(at_once), query.error.as_deref());
            let letters = match query.job {
                None => Query::of(ReadKind::DeadLetters, row![before, count, text]),
                Some(job) => Query::of(ReadKind::DeadLettersOfJob, row![before, count, text, job]),
            };
            let fetched = self.rows(letters).await?;
            let lanes = self.lanes_in(&fetched, LETTER_COLUMNS - 1).await?;
            for row in fetched.iter() {
                let lane = lanes.lane(get(row, LETTER_COLUMNS - 1)?);
                let read = lane.and_then(|lane| Ok((read_dead_letter(row, 0, lane)?, owner_of_letter(row)?)));
                let Some((letter, owner)) = skip_malformed(read)? else { continue };
                let number = letter.number;
                let (is_found, bytes) = if batches.has_errors_apart {
                    (get(row, LETTER_COLUMNS + 1)?, get(row, LETTER_COLUMNS)?)
                } else {
                    (true, letter.error.as_ref().map_or(0, String::len))
                };
                let is_meant = is_found && is_letter_meant(&wanted, &letter, owner);
                let has_room = if is_meant { page.add(letter, bytes, number) } else { page.pass(number) };
                if !has_room {
                    return Ok(page.cut_off());
                }
                before = counter(number);
            }
            if fetched.len() < at_once {
                return Ok(page.ended());
            }
        }
        Ok(page.cut_off())
    }
}

/// The position of an execution among those of its job; after all of them without one.
fn place_of(id: Option<ExecutionId>) -> (i64, i32) {
    id.map_or((i64::MAX, 0), |id| (id.occurrence.number.into(), attempt_of(id)))
}
