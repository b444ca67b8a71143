//! Executions: those that are over and the one that is under way.

use super::Reads;
use crate::sqlite::fault::Fault;
use crate::sqlite::rows::{
    LIVE_COLUMNS, LiveRow, all, count, decode, history_columns, job_id, limit, live_columns, one,
    read_finished, time,
};
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::limits;
use punctual_core::occurrence::Finished;
use punctual_core::ports::{DeadLetter, ExecutionView, Page, StoreError};
use punctual_core::schedule::SkipRange;
use rusqlite::params;

pub(crate) const HISTORY_OF_JOB: &str = concat!(
    "SELECT ",
    history_columns!(),
    " FROM history LEFT JOIN workers ON workers.id = history.worker \
     WHERE history.job = ?1 AND (history.occurrence, history.attempt) < (?2, ?3) \
     ORDER BY history.occurrence DESC, history.attempt DESC LIMIT ?4"
);
const FINISHED: &str = concat!(
    "SELECT ",
    history_columns!(),
    " FROM history LEFT JOIN workers ON workers.id = history.worker \
     WHERE history.job = ?1 AND history.occurrence = ?2 AND history.attempt = ?3"
);
const LIVE_WITH_WORKER: &str = concat!(
    "SELECT ",
    live_columns!(),
    ", workers.name FROM live LEFT JOIN sessions ON sessions.id = live.session \
     LEFT JOIN workers ON workers.id = sessions.worker WHERE live.job = ?1 AND live.occurrence = ?2"
);
const SKIPPED: &str =
    "SELECT first, last, count, reason FROM skipped WHERE job = ?1 ORDER BY last DESC LIMIT ?2";
const DEAD_LETTERS: &str = "SELECT dead_letters.number, dead_letters.job, dead_letters.occurrence, \
     dead_letters.attempts, dead_letters.died_at, dead_letters.error, jobs.lane, jobs.name \
     FROM dead_letters JOIN jobs ON jobs.id = dead_letters.job \
     WHERE dead_letters.number < ?1 ORDER BY dead_letters.number DESC LIMIT ?2";

impl Reads<'_> {
    /// The finished executions of a job, latest occurrence and attempt first.
    pub fn history(
        &mut self,
        job: JobId,
        before: Option<ExecutionId>,
        count: usize,
    ) -> Result<Page<Finished, ExecutionId>, StoreError> {
        let wanted = count.clamp(1, limits::PAGE_ITEMS_MAX);
        let mut items = self.history_before(job, before, wanted + 1)?;
        let next = cut(&mut items, wanted, |last| last.id);
        Ok(Page { items, next })
    }

    pub fn execution(&mut self, id: ExecutionId) -> Result<Option<ExecutionView>, StoreError> {
        Ok(self.find_execution(id)?)
    }

    /// Ranges of occurrences that did not run, latest first.
    pub fn skipped(&mut self, job: JobId, count: usize) -> Result<Vec<SkipRange>, StoreError> {
        Ok(self.skipped_of(job, count.min(limits::PAGE_ITEMS_MAX))?)
    }

    /// Latest first.
    pub fn dead_letters(
        &mut self,
        before: Option<u64>,
        count: usize,
    ) -> Result<Page<DeadLetter, u64>, StoreError> {
        let wanted = count.clamp(1, limits::PAGE_ITEMS_MAX);
        let mut items = self.dead_letters_before(before, wanted + 1)?;
        let next = cut(&mut items, wanted, |last| last.number);
        Ok(Page { items, next })
    }

    pub(super) fn last_finished(&mut self, job: JobId) -> Result<Option<Finished>, Fault> {
        Ok(self.history_before(job, None, 1)?.pop())
    }

    fn history_before(
        &mut self,
        job: JobId,
        before: Option<ExecutionId>,
        count: usize,
    ) -> Result<Vec<Finished>, Fault> {
        let (occurrence, attempt) =
            before.map_or((i64::MAX, 0), |id| (i64::from(id.occurrence.number), id.attempt));
        let mut select = self.conn.prepare_cached(HISTORY_OF_JOB)?;
        all(&mut select, params![job.as_bytes(), occurrence, attempt, limit(count)], read_finished)
    }

    fn find_execution(&mut self, id: ExecutionId) -> Result<Option<ExecutionView>, Fault> {
        // Within one snapshot, so that an execution that ends meanwhile is seen on one side or the other.
        let snapshot = self.conn.unchecked_transaction()?;
        let occurrence = params![id.occurrence.job.as_bytes(), id.occurrence.number];
        let live = one(&mut *self.conn.prepare_cached(LIVE_WITH_WORKER)?, occurrence, |row| {
            Ok((LiveRow::read(row)?.live, row.get(LIVE_COLUMNS)?))
        })?;
        let view = match live.filter(|(live, _)| live.attempt == id.attempt) {
            Some((live, worker)) => Some(ExecutionView::Live { live, worker }),
            None => {
                let key = params![id.occurrence.job.as_bytes(), id.occurrence.number, id.attempt];
                one(&mut *self.conn.prepare_cached(FINISHED)?, key, read_finished)?
                    .map(ExecutionView::Finished)
            }
        };
        drop(snapshot);
        Ok(view)
    }

    fn skipped_of(&mut self, job: JobId, wanted: usize) -> Result<Vec<SkipRange>, Fault> {
        let mut select = self.conn.prepare_cached(SKIPPED)?;
        all(&mut select, params![job.as_bytes(), limit(wanted)], |row| {
            Ok(SkipRange {
                first: time(row, 0)?,
                last: time(row, 1)?,
                count: count(row, 2, "skipped.count")?,
                reason: decode(row, 3, "skipped.reason")?,
            })
        })
    }

    fn dead_letters_before(&mut self, before: Option<u64>, wanted: usize) -> Result<Vec<DeadLetter>, Fault> {
        let mut select = self.conn.prepare_cached(DEAD_LETTERS)?;
        let before = before.map_or(i64::MAX, crate::sqlite::rows::counter);
        all(&mut select, params![before, limit(wanted)], |row| {
            let lane = self.lanes.lane(self.conn, row.get(6)?)?;
            let name: Option<String> = row.get(7)?;
            Ok(DeadLetter {
                number: count(row, 0, "dead_letters.number")?,
                occurrence: job_id(row, 1)?.occurrence(row.get(2)?),
                job_name: name.unwrap_or_else(|| lane.job_type().to_owned()),
                job_type: lane.job_type().to_owned(),
                queue: lane.queue().to_owned(),
                attempts: row.get(3)?,
                died_at: time(row, 4)?,
                error: row.get(5)?,
            })
        })
    }
}

/// Cuts a list that was read one item too far back to its page; the cursor of the next one, if there is one.
pub(crate) fn cut<T, C>(items: &mut Vec<T>, wanted: usize, cursor: impl FnOnce(&T) -> C) -> Option<C> {
    if items.len() <= wanted {
        return None;
    }
    items.truncate(wanted);
    items.last().map(cursor)
}
