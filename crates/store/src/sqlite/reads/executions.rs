//! Finished and open executions.

use super::Reads;
use super::jobs::IS_DELETED;
use super::page::{PageItem, page};
use crate::codecs::{self, LETTER_COLUMNS, owner_of_letter};
use crate::fault::Fault;
use crate::layout::{
    LiveColumns, sqlite_dead_letter_columns as dead_letter_columns,
    sqlite_history_columns as history_columns, sqlite_live_columns as live_columns,
};
use crate::lists::{LOOKED_AT_MAX, PageRoom, bytes_of, executions_merged, is_letter_meant};
use crate::malformed::pass_over;
use crate::server::rows::read_skipped;
use crate::sqlite::names::LaneNumbers;
use crate::sqlite::rows::{bound, counter, limit, located, one, read_finished, read_live, up_to};
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::limits;
use punctual_core::occurrence::Finished;
use punctual_core::ports::{DeadLetter, DeadLetterQuery, ExecutionView, Page, StoreError};
use punctual_core::schedule::SkipRange;
use rusqlite::{Connection, Row, params};

pub(crate) const HISTORY_OF_JOB: &str = concat!(
    "SELECT ",
    history_columns!(),
    ", workers.name FROM history LEFT JOIN workers ON workers.id = history.worker \
     WHERE history.job = ?1 AND (history.occurrence, history.attempt) < (?2, ?3) \
     ORDER BY history.occurrence DESC, history.attempt DESC LIMIT ?4"
);
const FINISHED: &str = concat!(
    "SELECT ",
    history_columns!(),
    ", workers.name FROM history LEFT JOIN workers ON workers.id = history.worker \
     WHERE history.job = ?1 AND history.occurrence = ?2 AND history.attempt = ?3"
);
const LIVE_WITH_WORKER: &str = concat!(
    "SELECT ",
    live_columns!(),
    ", workers.name FROM live LEFT JOIN sessions ON sessions.id = live.session \
     LEFT JOIN workers ON workers.id = sessions.worker WHERE live.job = ?1 AND live.occurrence = ?2"
);
pub(crate) const OPEN_OF_JOB_BEFORE: &str = concat!(
    "SELECT ",
    live_columns!(),
    ", (SELECT name FROM workers WHERE id = (SELECT worker FROM sessions WHERE id = live.session)) \
     FROM live WHERE live.job = ?1 AND live.occurrence <= ?2 \
     AND (live.occurrence < ?2 OR live.attempt < ?3) ORDER BY live.occurrence DESC LIMIT ?4"
);
const SKIPPED: &str =
    "SELECT first, last, count, reason FROM skipped WHERE job = ?1 ORDER BY last DESC LIMIT ?2";
/// A cross join, which makes SQLite start with the dead letters: they are few, and jobs are many.
macro_rules! from_dead_letters {
    () => {
        ", jobs.name, jobs.owner, jobs.lane FROM dead_letters CROSS JOIN jobs ON jobs.id = dead_letters.job "
    };
}
pub(crate) const DEAD_LETTERS: &str = concat!(
    "SELECT ",
    dead_letter_columns!(),
    from_dead_letters!(),
    "WHERE dead_letters.number < ?1 ORDER BY dead_letters.number DESC LIMIT ?2"
);
pub(crate) const DEAD_LETTERS_OF_JOB: &str = concat!(
    "SELECT ",
    dead_letter_columns!(),
    from_dead_letters!(),
    "WHERE dead_letters.job = ?3 AND dead_letters.number < ?1 ORDER BY dead_letters.number DESC LIMIT ?2"
);
pub(crate) const DEAD_LETTER: &str = concat!(
    "SELECT ",
    dead_letter_columns!(),
    from_dead_letters!(),
    "WHERE dead_letters.job = ?1 AND dead_letters.occurrence = ?2"
);
pub(crate) const LATEST_DEAD_LETTER: &str = concat!(
    "SELECT ",
    dead_letter_columns!(),
    from_dead_letters!(),
    "WHERE dead_letters.job = ?1 ORDER BY dead_letters.occurrence DESC LIMIT 1"
);
/// Finished executions that are searched for the last to end.
const LATEST_LOOKED_AT: usize = 8;

impl Reads<'_> {
    /// The finished executions of a job, latest occurrence and attempt first.
    pub fn history(
        &mut self,
        job: JobId,
        before: Option<ExecutionId>,
        count: usize,
    ) -> Result<Page<Finished, ExecutionId>, StoreError> {
        Ok(self.page_of_history(job, before, count.clamp(1, limits::PAGE_ITEMS_MAX))?)
    }

    /// All executions of a job, latest occurrence and attempt first.
    pub fn executions_of_job(
        &mut self,
        job: JobId,
        before: Option<ExecutionId>,
        count: usize,
    ) -> Result<Page<ExecutionView, ExecutionId>, StoreError> {
        Ok(self.page_of_job(job, before, count.clamp(1, limits::PAGE_ITEMS_MAX))?)
    }

    pub fn execution(&mut self, id: ExecutionId) -> Result<Option<ExecutionView>, StoreError> {
        Ok(self.find_execution(id)?)
    }

    /// Ranges of skipped occurrences, latest first.
    pub fn skipped(&mut self, job: JobId, count: usize) -> Result<Vec<SkipRange>, StoreError> {
        Ok(self.skipped_of(job, count.min(limits::PAGE_ITEMS_MAX))?)
    }

    /// Latest first.
    pub fn dead_letters(&mut self, query: &DeadLetterQuery) -> Result<Page<DeadLetter, u64>, StoreError> {
        Ok(self.page_of_dead_letters(query)?)
    }

    /// The execution that ended last among the latest few: overlapping occurrences may end in any order.
    pub(super) fn last_finished(&mut self, job: JobId) -> Result<Option<Finished>, Fault> {
        let latest = self.page_of_history(job, None, LATEST_LOOKED_AT)?.items;
        Ok(latest.into_iter().max_by_key(|finished| (finished.completed_at, finished.id)))
    }

    fn page_of_history(
        &mut self,
        job: JobId,
        before: Option<ExecutionId>,
        wanted: usize,
    ) -> Result<Page<Finished, ExecutionId>, Fault> {
        let (occurrence, attempt) =
            before.map_or((i64::MAX, 0), |id| (i64::from(id.occurrence.number), id.attempt));
        let mut select = self.conn.prepare_cached(HISTORY_OF_JOB)?;
        let bounds = params![job.as_bytes(), occurrence, attempt, bound(wanted + 1)];
        page(&mut select, bounds, PageRoom::of(wanted), |row| {
            let finished = read_finished(row)?;
            Ok(PageItem { bytes: bytes_of(&finished), cursor: finished.id, value: finished })
        })
    }

    fn page_of_job(
        &mut self,
        job: JobId,
        before: Option<ExecutionId>,
        wanted: usize,
    ) -> Result<Page<ExecutionView, ExecutionId>, Fault> {
        let (occurrence, attempt) =
            before.map_or((i64::MAX, 0), |id| (i64::from(id.occurrence.number), id.attempt));
        let bounds = params![job.as_bytes(), occurrence, attempt, bound(wanted + 1)];
        let mut select = self.conn.prepare_cached(OPEN_OF_JOB_BEFORE)?;
        let open = up_to(wanted + 1, &mut select, bounds, |row| {
            Ok(ExecutionView::Live { live: read_live(row)?.live, worker: row.get(LiveColumns::COUNT)? })
        })?;
        Ok(executions_merged(open, self.page_of_history(job, before, wanted)?, wanted))
    }

    fn find_execution(&mut self, id: ExecutionId) -> Result<Option<ExecutionView>, Fault> {
        // Within one snapshot, so that an execution that ends meanwhile is in one of the two lists.
        let snapshot = self.conn.unchecked_transaction()?;
        if self.conn.prepare_cached(IS_DELETED)?.exists([id.occurrence.job.as_bytes()])? {
            return Ok(None);
        }
        let occurrence = params![id.occurrence.job.as_bytes(), id.occurrence.number];
        let live = one(&mut *self.conn.prepare_cached(LIVE_WITH_WORKER)?, occurrence, |row| {
            Ok((read_live(row)?.live, row.get(LiveColumns::COUNT)?))
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
        up_to(wanted, &mut select, params![job.as_bytes(), bound(wanted)], |row| read_skipped(row))
    }

    fn page_of_dead_letters(&mut self, query: &DeadLetterQuery) -> Result<Page<DeadLetter, u64>, Fault> {
        let before = query.before.map_or(i64::MAX, counter);
        let (conn, lanes) = (self.conn, &mut *self.lanes);
        let sql = if query.job.is_some() { DEAD_LETTERS_OF_JOB } else { DEAD_LETTERS };
        let mut select = conn.prepare_cached(sql)?;
        let mut rows = match &query.job {
            None => select.query(params![before, limit(LOOKED_AT_MAX)])?,
            Some(job) => select.query(params![before, limit(LOOKED_AT_MAX), job.as_bytes()])?,
        };
        let (mut items, mut last) = (Vec::new(), None);
        let (mut room, mut looked_at) = (PageRoom::of(query.limit), 0);
        while let Some(row) = rows.next()? {
            if room.is_full() {
                return Ok(Page { items, next: last });
            }
            looked_at += 1;
            let read = read_dead_letter(row, conn, lanes).map_err(|fault| located(fault, row));
            let Some(letter) = pass_over(read)? else { continue };
            let number = letter.number;
            if is_letter_meant(query, &letter, owner_of_letter(row)?) {
                if !room.take(letter.error.as_ref().map_or(0, String::len)) {
                    return Ok(Page { items, next: last });
                }
                items.push(letter);
            }
            last = Some(number);
        }
        Ok(Page { items, next: last.filter(|_| looked_at == LOOKED_AT_MAX) })
    }
}

/// Reads the columns of [`DEAD_LETTER`] and similar statements.
pub(crate) fn read_dead_letter(
    row: &Row<'_>,
    conn: &Connection,
    lanes: &mut LaneNumbers,
) -> Result<DeadLetter, Fault> {
    let lane = lanes.lane(conn, row.get(LETTER_COLUMNS - 1)?)?;
    codecs::read_dead_letter(row, 0, &lane)
}
