//! Events of executions for readers that follow them: finished executions ordered by position, and the
//! state of open ones.
//!
//! A position is built from the number of the transaction that wrote the row. Transactions do not commit in
//! the order of their numbers. So only positions below every open transaction may be shown: a follower
//! never goes back.

use super::{PAGE_BYTES, Reads, worker_of_history};
use crate::cells::{get, read};
use crate::codecs::{FINISHED_COLUMNS, counter, limit, read_finished, read_live};
use crate::fault::Fault;
use crate::layout::{LiveColumns, history_columns, live_columns};
use crate::lists::{Room, bytes_of};
use crate::malformed::{pass_over, readable};
use crate::postgres::rows::uuid;
use crate::rows::LiveRow;
use deadpool_postgres::GenericClient;
use futures_util::future::try_join;
use punctual_core::defects::{Defect, planted};
use punctual_core::ids::OccurrenceId;
use punctual_core::limits;
use punctual_core::occurrence::LiveState;
use punctual_core::ports::{
    FinishedEvent, FinishedPage, HistorySpan, OpenExecution, Page, RunningPlace, StoreError,
};
use std::collections::BTreeSet;
use tokio_postgres::Row;
use uuid::Uuid;

/// Rows ordered by position. The statement omits rows after the one that fills the page, so that large
/// results are not sent needlessly. Each row contains the total number of rows.
pub(crate) const FINISHED_AFTER: &str = concat!(
    "SELECT ",
    history_columns!(),
    ", workers.name, history.place, jobs.lane, history.looked_at FROM \
     (SELECT *, sum(bytes) OVER (ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before, \
     count(*) OVER () AS looked_at FROM \
     (SELECT *, coalesce(octet_length(error), 0) + coalesce(octet_length(result), 0) AS bytes FROM history \
     WHERE place > $1 AND place < $2 ORDER BY place LIMIT $3) AS history) AS history",
    worker_of_history!(),
    "LEFT JOIN LATERAL (SELECT lane FROM jobs WHERE jobs.id = history.job LIMIT 1) AS jobs ON true \
     WHERE coalesce(history.bytes_before, 0) <= $4 ORDER BY history.place"
);
/// The open transactions: the lowest, the first unassigned, and those in between; and the offset between
/// numbers and positions.
const SNAPSHOT: &str = "SELECT pg_current_snapshot()::text, (SELECT place_base FROM punctual)";
/// Transactions that are known to belong to another database of the same server: they write nothing here.
const ELSEWHERE: &str = "SELECT backend_xid::text::bigint FROM pg_stat_activity WHERE backend_xid IS NOT NULL \
     AND datid <> (SELECT oid FROM pg_database WHERE datname = current_database())";
pub(crate) const LAST_PLACE: &str = "SELECT place FROM history WHERE place < $1 ORDER BY place DESC LIMIT 1";
const BOUNDS: &str = "SELECT given, retained FROM history_bounds WHERE id = 1";
/// The bits by which a transaction's number is shifted in a position; the lower bits number the rows within
/// it.
const PLACE_BITS: u32 = 20;

/// The worker that holds a live row.
macro_rules! worker_of_live {
    () => {
        " LEFT JOIN LATERAL (SELECT workers.name FROM sessions JOIN workers ON workers.id = sessions.worker \
         WHERE sessions.id = live.session LIMIT 1) AS workers ON true "
    };
}
pub(crate) const OPEN: &str = concat!(
    "SELECT ",
    live_columns!(),
    ", workers.name FROM unnest($1::uuid[], $2::bigint[]) WITH ORDINALITY AS wanted (job, occurrence, number) \
     CROSS JOIN LATERAL (SELECT * FROM live WHERE live.job = wanted.job AND live.occurrence = wanted.occurrence \
     LIMIT 1) AS live",
    worker_of_live!(),
    "ORDER BY wanted.number"
);
pub(crate) const RUNNING: &str = concat!(
    "SELECT ",
    live_columns!(),
    ", workers.name FROM (SELECT * FROM live WHERE state = 2 AND (session, job, occurrence) > ($1, $2, $3) \
     ORDER BY session, job, occurrence LIMIT $4) AS live",
    worker_of_live!(),
    "ORDER BY live.session, live.job, live.occurrence"
);

impl<C: GenericClient> Reads<'_, C> {
    /// Executions that finished after a position in history, ordered by position. Not within a transaction:
    /// each statement must see what was committed before it.
    pub async fn finished_after(&self, after: u64, wanted: usize) -> Result<FinishedPage, StoreError> {
        Ok(self.page_of_finished(after, wanted.clamp(1, limits::PAGE_ITEMS_MAX)).await?)
    }

    /// The range of positions in history. Not within a transaction, like [`Self::finished_after`].
    pub async fn history_span(&self) -> Result<HistorySpan, StoreError> {
        Ok(self.span().await?)
    }

    /// The state of these occurrences, if they are open.
    pub async fn open_executions(&self, ids: &[OccurrenceId]) -> Result<Vec<OpenExecution>, StoreError> {
        Ok(self.open_of(ids).await?)
    }

    /// Running executions, a page at a time.
    pub async fn running(
        &self,
        after: Option<RunningPlace>,
        wanted: usize,
    ) -> Result<Page<OpenExecution, RunningPlace>, StoreError> {
        Ok(self.page_of_running(after, wanted.clamp(1, limits::PAGE_ITEMS_MAX)).await?)
    }

    async fn page_of_finished(&self, after: u64, wanted: usize) -> Result<FinishedPage, Fault> {
        let bound = self.settled_below().await?;
        let bounds: super::Params<'_> = &[&counter(after), &bound, &limit(wanted), &PAGE_BYTES];
        let rows = self.all(FINISHED_AFTER, bounds).await?;
        let numbers: Vec<Option<i64>> =
            rows.iter().map(|row| get(row, FINISHED_COLUMNS + 1)).collect::<Result<_, _>>()?;
        let lanes = self.named_lanes(numbers.iter().flatten().copied()).await?;
        let mut page = FinishedPage { items: vec![], looked_to: after, more: false };
        let mut room = Room::of(wanted);
        for (row, lane) in rows.iter().zip(&numbers) {
            let place = read(row, FINISHED_COLUMNS, "history.place")?;
            // A job without a row is gone. A job that is only marked as deleted is still reported.
            let told = lane.map(|lane| Ok((lanes.lane(lane)?.queue().to_owned(), read_finished(row, 0)?)));
            if let Some((queue, finished)) = pass_over(told.transpose())?.flatten() {
                if !room.take(bytes_of(&finished)) {
                    page.more = true;
                    break;
                }
                page.items.push(FinishedEvent { place, queue, finished });
            }
            page.looked_to = place;
        }
        let looked_at = looked_at(rows.first(), FINISHED_COLUMNS + 2)?;
        page.more |= looked_at == wanted || looked_at > rows.len();
        page.looked_to += u64::from(page.more && planted(Defect::SkipHistoryRow));
        Ok(page)
    }

    async fn span(&self) -> Result<HistorySpan, Fault> {
        let bound = self.settled_below().await?;
        let (bounds, last) = try_join(self.one(BOUNDS, &[]), self.one(LAST_PLACE, &[&bound])).await?;
        let bounds = bounds.ok_or_else(|| Fault::Missing("history_bounds".to_owned()))?;
        let last = last.map_or(Ok(0), |row| read(&row, 0, "history.place"))?;
        let (given, retained) =
            (read(&bounds, 0, "history_bounds.given")?, read(&bounds, 1, "history_bounds.retained")?);
        // The last rows may have been deleted with their job, or by retention.
        let ends_at = last.max(given).max(retained).min(u64::try_from(bound - 1).unwrap_or(0));
        Ok(HistorySpan { begins_after: retained, ends_at })
    }

    /// The position below which no new row can appear: that of the first open transaction of this database.
    async fn settled_below(&self) -> Result<i64, Fault> {
        let first = self.snapshot().await?;
        if first.running.is_empty() {
            return Ok(first.place_of(first.next));
        }
        // A transaction that is open in both snapshots, and is not seen in another database in between, may
        // write history here. One that has ended by the second snapshot is visible to later reads.
        let (elsewhere, second) = try_join(self.all(ELSEWHERE, &[]), self.snapshot()).await?;
        let elsewhere: BTreeSet<i64> = elsewhere.iter().map(|row| get(row, 0)).collect::<Result<_, _>>()?;
        let may_write = |number: &&i64| second.is_running(**number) && !elsewhere.contains(&short(**number));
        let lowest = first.running.iter().filter(may_write).min();
        Ok(first.place_of(lowest.copied().unwrap_or(first.next)))
    }

    async fn snapshot(&self) -> Result<TransactionSnapshot, Fault> {
        let row = self.one(SNAPSHOT, &[]).await?.ok_or_else(|| Fault::Missing("punctual".to_owned()))?;
        TransactionSnapshot::read(get(&row, 0)?, get(&row, 1)?)
    }

    async fn open_of(&self, ids: &[OccurrenceId]) -> Result<Vec<OpenExecution>, Fault> {
        let jobs: Vec<Uuid> = ids.iter().map(|id| uuid(id.job)).collect();
        let numbers: Vec<i64> = ids.iter().map(|id| i64::from(id.number)).collect();
        let rows = self.all(OPEN, &[&jobs, &numbers]).await?;
        self.named(&rows).await
    }

    async fn page_of_running(
        &self,
        after: Option<RunningPlace>,
        wanted: usize,
    ) -> Result<Page<OpenExecution, RunningPlace>, Fault> {
        let RunningPage { items, rows } = self.running_after(after, wanted).await?;
        let next = items.last().filter(|_| rows == wanted).and_then(place_of);
        Ok(Page { items, next })
    }

    pub(super) async fn running_after(
        &self,
        after: Option<RunningPlace>,
        most: usize,
    ) -> Result<RunningPage, Fault> {
        let (session, job, number) = after.map_or((0, Uuid::nil(), 0), |place| {
            (place.session.0, uuid(place.occurrence.job), i64::from(place.occurrence.number))
        });
        let rows = self.all(RUNNING, &[&session, &job, &number, &limit(most)]).await?;
        Ok(RunningPage { items: self.named(&rows).await?, rows: rows.len() })
    }

    /// Reads live rows and their workers, and adds the names of their lanes.
    async fn named(&self, rows: &[Row]) -> Result<Vec<OpenExecution>, Fault> {
        let read = |row: &Row| -> Result<(LiveRow, Option<String>), Fault> {
            Ok((read_live(row, 0)?, get(row, LiveColumns::COUNT)?))
        };
        let rows = readable(rows.iter().map(read))?;
        let lanes = self.named_lanes(rows.iter().map(|(row, _)| row.lane)).await?;
        let open = rows.into_iter().map(|(LiveRow { live, lane, .. }, worker)| {
            let lane = lanes.lane(lane)?;
            let (queue, job_type) = (lane.queue().to_owned(), lane.job_type().to_owned());
            Ok(OpenExecution { live, worker, queue, job_type })
        });
        readable(open)
    }
}

/// Running executions, and how many rows were read: some may be malformed.
pub(super) struct RunningPage {
    pub items: Vec<OpenExecution>,
    pub rows: usize,
}

/// Where a list of running executions continues after this one.
pub(super) fn place_of(open: &OpenExecution) -> Option<RunningPlace> {
    match open.live.state {
        LiveState::Running(lease) => Some(RunningPlace { session: lease.session, occurrence: open.live.id }),
        LiveState::Waiting(_) | LiveState::Queued => None,
    }
}

/// How many rows a statement read; it returns this number with each row.
pub(super) fn looked_at(first: Option<&Row>, column: usize) -> Result<usize, Fault> {
    let looked_at = first.map_or(Ok(0), |row| read(row, column, "looked_at"))?;
    Ok(usize::try_from(looked_at).unwrap_or(usize::MAX))
}

/// Transactions as one statement saw them.
#[derive(Debug, PartialEq, Eq)]
struct TransactionSnapshot {
    /// Open transactions with numbers below `next`.
    running: BTreeSet<i64>,
    /// All from here on were not assigned, or had not ended.
    next: i64,
    place_base: i64,
}

impl TransactionSnapshot {
    /// Reads `lowest:next:one,two,…`.
    fn read(text: &str, place_base: i64) -> Result<Self, Fault> {
        let damaged = || Fault::damaged("pg_current_snapshot", text);
        let number = |text: &str| text.parse::<i64>().map_err(|_| damaged());
        let mut parts = text.split(':').skip(1);
        let (Some(next), Some(running)) = (parts.next(), parts.next()) else { return Err(damaged()) };
        let running = running.split(',').filter(|number| !number.is_empty()).map(number);
        Ok(TransactionSnapshot {
            next: number(next)?,
            running: running.collect::<Result<_, _>>()?,
            place_base,
        })
    }

    fn is_running(&self, number: i64) -> bool {
        number >= self.next || self.running.contains(&number)
    }

    /// The first position of a transaction.
    fn place_of(&self, number: i64) -> i64 {
        (number + self.place_base) << PLACE_BITS
    }
}

/// A transaction's number as the activity view shows it: without the wraparound epoch.
fn short(number: i64) -> i64 {
    number & i64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_read_as_the_database_writes_it() {
        let snapshot = TransactionSnapshot::read("745:752:745,748", 3).unwrap();
        assert_eq!(
            snapshot,
            TransactionSnapshot { running: BTreeSet::from([745, 748]), next: 752, place_base: 3 }
        );
        assert!(snapshot.is_running(745) && snapshot.is_running(752) && !snapshot.is_running(746));
        assert_eq!(snapshot.place_of(745), 748 << 20);
        assert!(TransactionSnapshot::read("752:752:", 0).unwrap().running.is_empty());
        for damaged in ["", "1", "1:2", "1:x:", "1:2:y"] {
            assert!(TransactionSnapshot::read(damaged, 0).is_err(), "{damaged}");
        }
    }

    #[test]
    fn numbers_are_compared_without_the_rounds_they_have_made() {
        assert_eq!(short((7 << 32) + 745), 745);
    }
}
