//! Finished and open executions.

use super::events::looked_at;
use super::{PAGE_BYTES, Params, Reads, worker_of_history};
use crate::cells::{get, read};
use crate::codecs::{
    FINISHED_COLUMNS, LETTER_COLUMNS, counter, limit, read_dead_letter, read_finished, read_live,
};
use crate::fault::Fault;
use crate::layout::{LiveColumns, dead_letter_columns, history_columns, live_columns};
use crate::lists::{LOOKED_AT_MAX, Room, bytes_of, executions_merged, is_letter_meant};
use crate::malformed::{pass_over, readable};
use crate::postgres::rows::{integer, uuid};
use crate::server::rows::read_skipped;
use deadpool_postgres::GenericClient;
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::limits;
use punctual_core::occurrence::Finished;
use punctual_core::ports::{DeadLetter, DeadLetterQuery, ExecutionView, Page, StoreError};
use punctual_core::schedule::SkipRange;
use std::collections::BTreeMap;
use tokio_postgres::Row;

/// Latest first; omits rows after the one that fills the page.
pub(crate) const HISTORY_OF_JOB: &str = concat!(
    "SELECT ",
    history_columns!(),
    ", workers.name, history.looked_at FROM (SELECT *, sum(bytes) OVER (ORDER BY occurrence DESC, attempt DESC \
     ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before, count(*) OVER () AS looked_at FROM \
     (SELECT *, coalesce(octet_length(error), 0) + coalesce(octet_length(result), 0) AS bytes FROM history \
     WHERE job = $1 AND (occurrence, attempt) < ($2, $3) ORDER BY occurrence DESC, attempt DESC LIMIT $4) \
     AS history) AS history",
    worker_of_history!(),
    "WHERE coalesce(history.bytes_before, 0) <= $5 ORDER BY history.occurrence DESC, history.attempt DESC"
);
/// Both sides in one statement, so that an execution that ends meanwhile is in one of them.
pub(crate) const EXECUTION: &str = concat!(
    "SELECT live.job IS NOT NULL, history.job IS NOT NULL, ",
    live_columns!(),
    ", holder.name, ",
    history_columns!(),
    ", workers.name FROM (VALUES ($1::uuid, $2::bigint, $3::integer)) AS wanted (job, occurrence, attempt) \
     LEFT JOIN LATERAL (SELECT * FROM live WHERE live.job = wanted.job AND live.occurrence = wanted.occurrence \
     AND live.attempt = wanted.attempt LIMIT 1) AS live ON true \
     LEFT JOIN LATERAL (SELECT workers.name FROM sessions JOIN workers ON workers.id = sessions.worker \
     WHERE sessions.id = live.session LIMIT 1) AS holder ON true \
     LEFT JOIN LATERAL (SELECT * FROM history WHERE history.job = wanted.job \
     AND history.occurrence = wanted.occurrence AND history.attempt = wanted.attempt LIMIT 1) AS history ON true",
    worker_of_history!(),
    "WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.id = wanted.job AND jobs.mark = 4)"
);
/// The first column of the finished execution: after two flags, the live one and its worker.
const FINISHED_FROM: usize = 2 + LiveColumns::COUNT + 1;
pub(crate) const OPEN_OF_JOB_BEFORE: &str = concat!(
    "SELECT ",
    live_columns!(),
    ", holder.name FROM (SELECT * FROM live WHERE job = $1 AND occurrence <= $2 \
     AND (occurrence < $2 OR attempt < $3) ORDER BY occurrence DESC LIMIT $4) AS live \
     LEFT JOIN LATERAL (SELECT workers.name FROM sessions JOIN workers ON workers.id = sessions.worker \
     WHERE sessions.id = live.session LIMIT 1) AS holder ON true ORDER BY live.occurrence DESC"
);
pub(crate) const SKIPPED: &str =
    "SELECT first, last, count, reason FROM skipped WHERE job = $1 ORDER BY last DESC LIMIT $2";

/// All of a dead letter except its error, which may be large: only the error's length, and whether it
/// contains a text.
macro_rules! letters_without_error {
    ($which:literal) => {
        concat!(
            "SELECT ",
            dead_letter_columns!(),
            ", jobs.name, jobs.lane, letters.error_bytes, letters.is_found FROM (SELECT number, job, occurrence, attempts, epoch, \
             scheduled_time, origin, died_at, NULL::text AS error, noted, coalesce(octet_length(error), 0) \
             AS error_bytes, $3::text IS NULL OR coalesce(position($3 IN error) > 0, false) AS is_found \
             FROM dead_letters WHERE ",
            $which,
            " AND number < $1 ORDER BY number DESC LIMIT $2) AS dead_letters \
             CROSS JOIN LATERAL (SELECT dead_letters.error_bytes, dead_letters.is_found) AS letters \
             CROSS JOIN LATERAL (SELECT name, lane FROM jobs WHERE jobs.id = dead_letters.job LIMIT 1) AS jobs \
             ORDER BY dead_letters.number DESC"
        )
    };
}
pub(crate) const DEAD_LETTERS: &str = letters_without_error!("true");
pub(crate) const DEAD_LETTERS_OF_JOB: &str = letters_without_error!("job = $4");
/// The errors of the dead letters that are shown.
pub(crate) const DEAD_LETTERS_NUMBERED: &str =
    "SELECT number, error FROM dead_letters WHERE number = ANY ($1) AND error IS NOT NULL";

impl<C: GenericClient> Reads<'_, C> {
    /// The finished executions of a job, latest occurrence and attempt first.
    pub async fn history(
        &self,
        job: JobId,
        before: Option<ExecutionId>,
        count: usize,
    ) -> Result<Page<Finished, ExecutionId>, StoreError> {
        Ok(self.page_of_history(job, before, count.clamp(1, limits::PAGE_ITEMS_MAX)).await?)
    }

    /// All executions of a job, latest occurrence and attempt first.
    pub async fn executions_of_job(
        &self,
        job: JobId,
        before: Option<ExecutionId>,
        count: usize,
    ) -> Result<Page<ExecutionView, ExecutionId>, StoreError> {
        Ok(self.page_of_job(job, before, count.clamp(1, limits::PAGE_ITEMS_MAX)).await?)
    }

    pub async fn execution(&self, id: ExecutionId) -> Result<Option<ExecutionView>, StoreError> {
        Ok(self.find_execution(id).await?)
    }

    /// Ranges of skipped occurrences, latest first.
    pub async fn skipped(&self, job: JobId, count: usize) -> Result<Vec<SkipRange>, StoreError> {
        Ok(self.skipped_of(job, count.min(limits::PAGE_ITEMS_MAX)).await?)
    }

    /// Latest first. Within a transaction, because dead letters and their errors are read one after the
    /// other.
    pub async fn dead_letters(&self, query: &DeadLetterQuery) -> Result<Page<DeadLetter, u64>, StoreError> {
        Ok(self.page_of_dead_letters(query).await?)
    }

    async fn page_of_history(
        &self,
        job: JobId,
        before: Option<ExecutionId>,
        wanted: usize,
    ) -> Result<Page<Finished, ExecutionId>, Fault> {
        let (occurrence, attempt) =
            before.map_or((i64::MAX, 0), |id| (i64::from(id.occurrence.number), integer(id.attempt)));
        // One more than there is room for shows whether there is a next page.
        let bounds: Params<'_> = &[&uuid(job), &occurrence, &attempt, &limit(wanted + 1), &PAGE_BYTES];
        let rows = self.all(HISTORY_OF_JOB, bounds).await?;
        let (mut items, mut room) = (Vec::with_capacity(rows.len()), Room::of(wanted));
        let mut passed_over = 0;
        for row in &rows {
            match pass_over(read_finished(row, 0))? {
                Some(finished) if !room.take(bytes_of(&finished)) => break,
                Some(finished) => items.push(finished),
                None => passed_over += 1,
            }
        }
        let is_cut_off = items.len() + passed_over < looked_at(rows.first(), FINISHED_COLUMNS)?;
        let next = items.last().filter(|_| is_cut_off).map(|last: &Finished| last.id);
        Ok(Page { items, next })
    }

    async fn page_of_job(
        &self,
        job: JobId,
        before: Option<ExecutionId>,
        wanted: usize,
    ) -> Result<Page<ExecutionView, ExecutionId>, Fault> {
        let (occurrence, attempt) =
            before.map_or((i64::MAX, 0), |id| (i64::from(id.occurrence.number), integer(id.attempt)));
        let bounds: Params<'_> = &[&uuid(job), &occurrence, &attempt, &limit(wanted + 1)];
        let read = |row: &Row| -> Result<ExecutionView, Fault> {
            Ok(ExecutionView::Live { live: read_live(row, 0)?.live, worker: get(row, LiveColumns::COUNT)? })
        };
        let rows = self.all(OPEN_OF_JOB_BEFORE, bounds).await?;
        let open = readable(rows.iter().map(read))?;
        Ok(executions_merged(open, self.page_of_history(job, before, wanted).await?, wanted))
    }

    async fn find_execution(&self, id: ExecutionId) -> Result<Option<ExecutionView>, Fault> {
        let occurrence = id.occurrence;
        let key: Params<'_> = &[&uuid(occurrence.job), &i64::from(occurrence.number), &integer(id.attempt)];
        let Some(row) = self.one(EXECUTION, key).await? else { return Ok(None) };
        let (is_live, is_finished): (bool, bool) = (get(&row, 0)?, get(&row, 1)?);
        Ok(if is_live {
            let worker = get(&row, 2 + LiveColumns::COUNT)?;
            Some(ExecutionView::Live { live: read_live(&row, 2)?.live, worker })
        } else if is_finished {
            Some(ExecutionView::Finished(read_finished(&row, FINISHED_FROM)?))
        } else {
            None
        })
    }

    async fn skipped_of(&self, job: JobId, wanted: usize) -> Result<Vec<SkipRange>, Fault> {
        let rows = self.all(SKIPPED, &[&uuid(job), &limit(wanted)]).await?;
        readable(rows.iter().map(read_skipped))
    }

    async fn page_of_dead_letters(&self, query: &DeadLetterQuery) -> Result<Page<DeadLetter, u64>, Fault> {
        let (before, most) = (query.before.map_or(i64::MAX, counter), limit(LOOKED_AT_MAX));
        let rows = match query.job {
            None => self.all(DEAD_LETTERS, &[&before, &most, &query.error]).await?,
            Some(job) => self.all(DEAD_LETTERS_OF_JOB, &[&before, &most, &query.error, &uuid(job)]).await?,
        };
        let mut page = self.choose_letters(query, &rows).await?;
        let shown: Vec<i64> = page.items.iter().map(|letter| counter(letter.number)).collect();
        let errors = self.all(DEAD_LETTERS_NUMBERED, &[&shown]).await?;
        let read = |row: &Row| Ok((read(row, 0, "dead_letters.number")?, get(row, 1)?));
        let mut errors: BTreeMap<u64, String> = errors.iter().map(read).collect::<Result<_, Fault>>()?;
        for letter in &mut page.items {
            letter.error = errors.remove(&letter.number);
        }
        Ok(page)
    }

    /// The matching dead letters, as many as fit with their errors, which are still missing.
    async fn choose_letters(
        &self,
        query: &DeadLetterQuery,
        rows: &[Row],
    ) -> Result<Page<DeadLetter, u64>, Fault> {
        // The database has searched for the text.
        let query = DeadLetterQuery { error: None, ..query.clone() };
        let lane_of = |row: &Row| get::<i64>(row, LETTER_COLUMNS - 1);
        let numbers = rows.iter().map(lane_of).collect::<Result<Vec<_>, _>>()?;
        let lanes = self.named_lanes(numbers.iter().copied()).await?;
        let (mut items, mut last) = (Vec::new(), None);
        let mut room = Room::of(query.limit);
        for (row, lane) in rows.iter().zip(numbers) {
            if room.is_full() {
                return Ok(Page { items, next: last });
            }
            let read = lanes.lane(lane).and_then(|lane| read_dead_letter(row, 0, lane));
            let Some(letter) = pass_over(read)? else { continue };
            let number = letter.number;
            if get::<bool>(row, LETTER_COLUMNS + 1)? && is_letter_meant(&query, &letter) {
                let bytes: i64 = get(row, LETTER_COLUMNS)?;
                if !room.take(usize::try_from(bytes).unwrap_or(0)) {
                    return Ok(Page { items, next: last });
                }
                items.push(letter);
            }
            last = Some(number);
        }
        Ok(Page { items, next: last.filter(|_| rows.len() == LOOKED_AT_MAX) })
    }
}
