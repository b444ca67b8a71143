//! Finished and open executions.

use super::Reads;
use super::keys::key;
use super::page::{Filling, ROWS_AT_ONCE, rows_at_once};
use crate::cells::get;
use crate::codecs::{LETTER_COLUMNS, counter, limit, read_dead_letter, read_finished, read_live};
use crate::fault::Fault;
use crate::layout::{
    LiveColumns, mysql_dead_letter_columns as dead_letter_columns, mysql_history_columns as history_columns,
    mysql_live_columns as live_columns,
};
use crate::lists::{LOOKED_AT_MAX, bytes_of, executions_merged, is_letter_meant};
use crate::malformed::{pass_over, readable};
use crate::server::rows::read_skipped;
use mysql_async::Row;
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::limits;
use punctual_core::occurrence::Finished;
use punctual_core::ports::{DeadLetter, DeadLetterQuery, ExecutionView, Page};
use punctual_core::schedule::SkipRange;

/// The comparison of pairs is spelled out: neither server uses an index for `(a, b) < (?, ?)`.
pub(crate) const HISTORY_OF_JOB: &str = concat!(
    "SELECT ",
    history_columns!(),
    ", workers.name FROM history FORCE INDEX (history_job) LEFT JOIN workers ON workers.id = history.worker \
     WHERE history.job = ? AND (history.occurrence < ? OR (history.occurrence = ? AND history.attempt < ?)) \
     ORDER BY history.occurrence DESC, history.attempt DESC LIMIT ?"
);
const FINISHED: &str = concat!(
    "SELECT ",
    history_columns!(),
    ", workers.name FROM history LEFT JOIN workers ON workers.id = history.worker \
     WHERE history.job = ? AND history.occurrence = ? AND history.attempt = ?"
);
const LIVE_WITH_WORKER: &str = concat!(
    "SELECT ",
    live_columns!(),
    ", workers.name FROM live LEFT JOIN sessions ON sessions.id = live.session \
     LEFT JOIN workers ON workers.id = sessions.worker WHERE live.job = ? AND live.occurrence = ?"
);
pub(crate) const OPEN_OF_JOB_BEFORE: &str = concat!(
    "SELECT ",
    live_columns!(),
    ", workers.name FROM live FORCE INDEX (PRIMARY) LEFT JOIN sessions ON sessions.id = live.session \
     LEFT JOIN workers ON workers.id = sessions.worker WHERE live.job = ? AND live.occurrence <= ? \
     AND (live.occurrence < ? OR live.attempt < ?) ORDER BY live.occurrence DESC LIMIT ?"
);
const IS_DELETED: &str = "SELECT 1 FROM jobs WHERE jobs.id = ? AND jobs.mark = 4";
pub(crate) const SKIPPED: &str = "SELECT skipped.first, skipped.last, skipped.count, skipped.reason \
     FROM skipped FORCE INDEX (skipped_job) WHERE skipped.job = ? ORDER BY skipped.last DESC LIMIT ?";
pub(crate) const DEAD_LETTERS: &str = concat!(
    "SELECT ",
    dead_letter_columns!(),
    ", jobs.name, jobs.lane FROM dead_letters FORCE INDEX (PRIMARY) STRAIGHT_JOIN jobs ON jobs.id = dead_letters.job \
     WHERE dead_letters.number < ? ORDER BY dead_letters.number DESC LIMIT ?"
);
pub(crate) const DEAD_LETTERS_OF_JOB: &str = concat!(
    "SELECT ",
    dead_letter_columns!(),
    ", jobs.name, jobs.lane FROM dead_letters FORCE INDEX (dead_letters_job) STRAIGHT_JOIN jobs ON jobs.id = dead_letters.job \
     WHERE dead_letters.job = ? AND dead_letters.number < ? ORDER BY dead_letters.number DESC LIMIT ?"
);

impl Reads {
    /// The finished executions of a job, latest occurrence and attempt first.
    pub async fn history(
        &mut self,
        job: JobId,
        before: Option<ExecutionId>,
        wanted: usize,
    ) -> Result<Page<Finished, ExecutionId>, Fault> {
        let mut place = before.map_or((i64::MAX, 0), place_of);
        let (mut page, at_once) = (Filling::of(wanted), rows_at_once(wanted));
        loop {
            let (occurrence, attempt) = place;
            let bounds = (key(job), occurrence, occurrence, attempt, limit(at_once));
            let rows = self.all(HISTORY_OF_JOB, bounds).await?;
            let mut is_past_any = false;
            for row in &rows {
                let Some(finished) = pass_over(read_finished(row, 0))? else { continue };
                is_past_any = true;
                let (id, bytes) = (finished.id, bytes_of(&finished));
                if !page.add(finished, bytes, id) {
                    return Ok(page.cut_off());
                }
                place = place_of(id);
            }
            // If no row can be read, there is no cursor to continue from.
            if rows.len() < at_once || !is_past_any {
                return Ok(page.ended());
            }
        }
    }

    /// All executions of a job, latest occurrence and attempt first.
    pub async fn executions_of_job(
        &mut self,
        job: JobId,
        before: Option<ExecutionId>,
        wanted: usize,
    ) -> Result<Page<ExecutionView, ExecutionId>, Fault> {
        let wanted = wanted.clamp(1, limits::PAGE_ITEMS_MAX);
        let (occurrence, attempt) = before.map_or((i64::MAX, 0), place_of);
        let bounds = (key(job), occurrence, occurrence, attempt, limit(wanted + 1));
        let read = |row: &Row| -> Result<ExecutionView, Fault> {
            Ok(ExecutionView::Live { live: read_live(row, 0)?.live, worker: get(row, LiveColumns::COUNT)? })
        };
        let rows = self.all(OPEN_OF_JOB_BEFORE, bounds).await?;
        let open = readable(rows.iter().map(read))?;
        Ok(executions_merged(open, self.history(job, before, wanted).await?, wanted))
    }

    pub async fn execution(&mut self, id: ExecutionId) -> Result<Option<ExecutionView>, Fault> {
        // Within one snapshot, so that an execution that ends meanwhile is in one of the two lists.
        self.begin_snapshot().await?;
        let view = self.find_execution(id).await?;
        self.end_snapshot().await?;
        Ok(view)
    }

    async fn find_execution(&mut self, id: ExecutionId) -> Result<Option<ExecutionView>, Fault> {
        let (job, number) = (key(id.occurrence.job), id.occurrence.number);
        if self.one(IS_DELETED, (job.clone(),)).await?.is_some() {
            return Ok(None);
        }
        if let Some(row) = self.one(LIVE_WITH_WORKER, (job.clone(), number)).await? {
            let live = read_live(&row, 0)?.live;
            if live.attempt == id.attempt {
                return Ok(Some(ExecutionView::Live { live, worker: get(&row, LiveColumns::COUNT)? }));
            }
        }
        let row = self.one(FINISHED, (job, number, id.attempt)).await?;
        row.map(|row| Ok(ExecutionView::Finished(read_finished(&row, 0)?))).transpose()
    }

    /// Ranges of skipped occurrences, latest first.
    pub async fn skipped(&mut self, job: JobId, wanted: usize) -> Result<Vec<SkipRange>, Fault> {
        let bounds = (key(job), limit(wanted.min(limits::PAGE_ITEMS_MAX)));
        readable(self.all(SKIPPED, bounds).await?.iter().map(read_skipped))
    }

    /// Latest first.
    pub async fn dead_letters(&mut self, query: &DeadLetterQuery) -> Result<Page<DeadLetter, u64>, Fault> {
        let mut before = query.before.map_or(i64::MAX, counter);
        let mut page = Filling::of(query.limit);
        for _ in 0..LOOKED_AT_MAX / ROWS_AT_ONCE {
            let rows = match query.job {
                None => self.all(DEAD_LETTERS, (before, limit(ROWS_AT_ONCE))).await?,
                Some(job) => self.all(DEAD_LETTERS_OF_JOB, (key(job), before, limit(ROWS_AT_ONCE))).await?,
            };
            for row in &rows {
                let lane = self.lane(get(row, LETTER_COLUMNS - 1)?).await;
                let read = lane.and_then(|lane| read_dead_letter(row, 0, &lane));
                let Some(letter) = pass_over(read)? else { continue };
                let (number, bytes) = (letter.number, letter.error.as_ref().map_or(0, String::len));
                let is_meant = is_letter_meant(query, &letter);
                let has_room = if is_meant { page.add(letter, bytes, number) } else { page.pass(number) };
                if !has_room {
                    return Ok(page.cut_off());
                }
                before = counter(number);
            }
            if rows.len() < ROWS_AT_ONCE {
                return Ok(page.ended());
            }
        }
        Ok(page.cut_off())
    }
}

/// The position of an execution among those of its job.
fn place_of(id: ExecutionId) -> (i64, u32) {
    (i64::from(id.occurrence.number), id.attempt)
}
