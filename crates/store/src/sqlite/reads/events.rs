//! Events of executions for readers that follow them: finished executions in commit order, and the state of
//! open ones.

use super::Reads;
use crate::codecs::FINISHED_COLUMNS;
use crate::fault::Fault;
use crate::layout::{sqlite_history_columns as history_columns, sqlite_live_columns as live_columns};
use crate::lists::{PageRoom, bytes_of};
use crate::malformed::pass_over;
use crate::rows::LiveRow;
use crate::sqlite::names::last_history_number;
use crate::sqlite::rows::{
    bound, count, counter, limit, located, one_readable, read_finished, read_live, up_to,
};
use punctual_core::defects::{Defect, planted};
use punctual_core::ids::{OccurrenceId, SessionId};
use punctual_core::limits;
use punctual_core::occurrence::LiveState;
use punctual_core::ports::{
    FinishedEvent, FinishedPage, HistorySpan, OpenExecution, Page, RunningPlace, StoreError,
};
use rusqlite::params;
use std::collections::BTreeMap;

pub(crate) const FINISHED_AFTER: &str = concat!(
    "SELECT ",
    history_columns!(),
    ", workers.name, history.seq, jobs.lane FROM history LEFT JOIN workers ON workers.id = history.worker \
     LEFT JOIN jobs ON jobs.id = history.job WHERE history.seq > ?1 ORDER BY history.seq LIMIT ?2"
);
const OPEN: &str =
    concat!("SELECT ", live_columns!(), " FROM live WHERE live.job = ?1 AND live.occurrence = ?2");
pub(crate) const RUNNING: &str = concat!(
    "SELECT ",
    live_columns!(),
    " FROM live WHERE live.state = 2 AND (live.session, live.job, live.occurrence) > (?1, ?2, ?3) \
     ORDER BY live.session, live.job, live.occurrence LIMIT ?4"
);
/// A subquery, because in a join SQLite scans all sessions once its statistics were taken with few of them.
pub(crate) const WORKER_OF_SESSION: &str =
    "SELECT name FROM workers WHERE id = (SELECT worker FROM sessions WHERE id = ?1)";

impl Reads<'_> {
    /// Executions that finished after a position in history, in commit order.
    pub fn finished_after(&mut self, after: u64, wanted: usize) -> Result<FinishedPage, StoreError> {
        Ok(self.page_of_finished(after, wanted.clamp(1, limits::PAGE_ITEMS_MAX))?)
    }

    /// The range of positions in history.
    pub fn history_span(&mut self) -> Result<HistorySpan, StoreError> {
        Ok(self.span()?)
    }

    /// The state of these occurrences, if they are open.
    pub fn open_executions(&mut self, ids: &[OccurrenceId]) -> Result<Vec<OpenExecution>, StoreError> {
        Ok(self.open_of(ids)?)
    }

    /// Running executions, a page at a time.
    pub fn running(
        &mut self,
        after: Option<RunningPlace>,
        wanted: usize,
    ) -> Result<Page<OpenExecution, RunningPlace>, StoreError> {
        Ok(self.page_of_running(after, wanted.clamp(1, limits::PAGE_ITEMS_MAX))?)
    }

    fn page_of_finished(&mut self, after: u64, wanted: usize) -> Result<FinishedPage, Fault> {
        let (conn, lanes) = (self.conn, &mut *self.lanes);
        let mut select = conn.prepare_cached(FINISHED_AFTER)?;
        let mut rows = select.query(params![counter(after), limit(wanted)])?;
        let mut page = FinishedPage { items: vec![], looked_to: after, more: false };
        let (mut room, mut looked_at) = (PageRoom::of(wanted), 0);
        while let Some(row) = rows.next()? {
            let place = count(row, FINISHED_COLUMNS, "history.seq")?;
            // A job without a row is gone. A job that is only marked as deleted is still reported.
            let told = row.get::<_, Option<i64>>(FINISHED_COLUMNS + 1)?.map(|lane| {
                let queue = lanes.lane(conn, lane)?.queue().to_owned();
                Ok((queue, read_finished(row).map_err(|fault| located(fault, row))?))
            });
            if let Some((queue, finished)) = pass_over(told.transpose())?.flatten() {
                if !room.take(bytes_of(&finished)) {
                    page.more = true;
                    break;
                }
                page.items.push(FinishedEvent { place, queue, finished });
            }
            page.looked_to = place;
            looked_at += 1;
        }
        page.more |= looked_at == wanted;
        page.looked_to += u64::from(page.more && planted(Defect::SkipHistoryRow));
        Ok(page)
    }

    fn span(&mut self) -> Result<HistorySpan, Fault> {
        let mut select = self.conn.prepare_cached("SELECT retained FROM history_bounds WHERE id = 1")?;
        let begins_after = one_readable(&mut select, [], |row| count(row, 0, "history_bounds.retained"))?;
        let ends_at = last_history_number(self.conn)?;
        Ok(HistorySpan {
            begins_after: begins_after.unwrap_or(0),
            ends_at: u64::try_from(ends_at).map_err(|_| Fault::damaged("history.seq", ends_at))?,
        })
    }

    fn open_of(&mut self, ids: &[OccurrenceId]) -> Result<Vec<OpenExecution>, Fault> {
        let snapshot = self.conn.unchecked_transaction()?;
        let mut select = self.conn.prepare_cached(OPEN)?;
        let mut rows = Vec::with_capacity(ids.len());
        for id in ids {
            rows.extend(one_readable(&mut select, params![id.job.as_bytes(), id.number], read_live)?);
        }
        let open = self.named(rows)?;
        drop(snapshot);
        Ok(open)
    }

    fn page_of_running(
        &mut self,
        after: Option<RunningPlace>,
        wanted: usize,
    ) -> Result<Page<OpenExecution, RunningPlace>, Fault> {
        let (session, job, number) = match &after {
            Some(RunningPlace { session, occurrence }) => {
                (session.0, &occurrence.job.as_bytes()[..], i64::from(occurrence.number))
            }
            None => (0, &[][..], 0),
        };
        let snapshot = self.conn.unchecked_transaction()?;
        let mut select = self.conn.prepare_cached(RUNNING)?;
        let rows = up_to(wanted, &mut select, params![session, job, number, bound(wanted)], read_live)?;
        let next = rows.last().filter(|_| rows.len() == wanted).and_then(|last| match last.live.state {
            LiveState::Running(lease) => {
                Some(RunningPlace { session: lease.session, occurrence: last.live.id })
            }
            LiveState::Waiting(_) | LiveState::Queued => None,
        });
        let items = self.named(rows)?;
        drop(snapshot);
        Ok(Page { items, next })
    }

    /// Adds the names that rows refer to by number. Few workers run many executions, so each is looked up
    /// once.
    pub(super) fn named(&mut self, rows: Vec<LiveRow>) -> Result<Vec<OpenExecution>, Fault> {
        let mut workers: BTreeMap<SessionId, Option<String>> = BTreeMap::new();
        let mut open = Vec::with_capacity(rows.len());
        for LiveRow { live, lane, .. } in rows {
            let worker = match live.state {
                LiveState::Running(lease) => match workers.get(&lease.session) {
                    Some(worker) => worker.clone(),
                    None => {
                        let mut select = self.conn.prepare_cached(WORKER_OF_SESSION)?;
                        let worker = one_readable(&mut select, [lease.session.0], |row| Ok(row.get(0)?))?;
                        workers.insert(lease.session, worker.clone());
                        worker
                    }
                },
                LiveState::Waiting(_) | LiveState::Queued => None,
            };
            let Some(lane) = pass_over(self.lanes.lane(self.conn, lane))? else { continue };
            let (queue, job_type) = (lane.queue().to_owned(), lane.job_type().to_owned());
            open.push(OpenExecution { live, worker, queue, job_type });
        }
        Ok(open)
    }
}
