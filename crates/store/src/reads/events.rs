//! Events of executions for readers that follow them: finished executions ordered by position, and the
//! state of open ones.
//!
//! Transactions do not commit in the order of the positions that they write. A follower never goes back, so
//! it must not go past a position that may still appear. Each dialect knows when that is.

use super::{AnyRow, FetchedRows, PAGE_BYTES, Query, ReadKind, Reads};
use crate::cells::{RowCells, get, read};
use crate::codecs::{FINISHED_COLUMNS, counter, limit, read_finished, read_live};
use crate::codes::read_owner;
use crate::fault::Fault;
use crate::layout::LiveColumns;
use crate::lists::{PageRoom, bytes_of};
use crate::malformed::{readable, skip_malformed};
use crate::row_list::{self, row};
use crate::rows::LiveRow;
use punctual_core::defects::{Defect, planted};
use punctual_core::ids::{JobId, OccurrenceId, SessionId};
use punctual_core::limits;
use punctual_core::occurrence::LiveState;
use punctual_core::ports::{
    FinishedEvent, FinishedPage, Lane, OpenExecution, Page, RunTimes, RunTimesPage, RunningPlace,
};
use std::collections::BTreeMap;

/// The extent of deleted rows of history.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HistoryBounds {
    pub given: u64,
    pub retained: u64,
}

impl HistoryBounds {
    pub fn read(row: &(impl RowCells + ?Sized)) -> Result<Self, Fault> {
        Ok(HistoryBounds {
            given: read(row, 0, "history_bounds.given")?,
            retained: read(row, 1, "history_bounds.retained")?,
        })
    }

    /// The last position of a deleted row. Rows are deleted long after they were written, so everything before it has
    /// settled.
    pub fn deleted(self) -> u64 {
        self.given.max(self.retained)
    }
}

/// Running executions, and how many rows were read: some may be malformed.
pub(super) struct RunningPage {
    pub items: Vec<OpenExecution>,
    pub rows: usize,
}

impl Reads<'_> {
    /// Executions that finished after a position in history, ordered by position. Not in one snapshot: each
    /// query must see what was committed before it.
    pub async fn finished_after(&mut self, after: u64, wanted: usize) -> Result<FinishedPage, Fault> {
        let mut page = FinishedPage { items: vec![], looked_to: after, more: false };
        self.follow(&mut page, wanted.clamp(1, limits::PAGE_ITEMS_MAX)).await?;
        page.looked_to += u64::from(page.more && planted(Defect::SkipHistoryRow));
        Ok(page)
    }

    async fn follow(&mut self, page: &mut FinishedPage, wanted: usize) -> Result<(), Fault> {
        let bound = self.connection.settled_below().await?;
        let (mut room, mut looked_at, mut deleted) = (PageRoom::of(wanted), 0, None);
        while looked_at < wanted {
            let at_once = self.connection.batches().rows.min(wanted - looked_at);
            let bounds = row![counter(page.looked_to), bound.unwrap_or(i64::MAX), limit(at_once), PAGE_BYTES];
            let rows = self.rows(Query::of(ReadKind::FinishedAfter, bounds)).await?;
            let lanes = self.lanes_in(&rows, FINISHED_COLUMNS + 1).await?;
            for row in rows.iter() {
                let place = read(row, FINISHED_COLUMNS, "history.place")?;
                let is_settled = bound.is_some() || get(row, FINISHED_COLUMNS + 2)?;
                if !is_settled && self.may_lack_rows(page.looked_to, place, &mut deleted).await? {
                    return Ok(());
                }
                // A job without a row is gone. A job that is only marked as deleted is still reported.
                let lane: Option<i64> = get(row, FINISHED_COLUMNS + 1)?;
                let event =
                    lane.map(|lane| Ok((lanes.lane(lane)?.queue().to_owned(), read_finished(row, 0)?)));
                if let Some((queue, finished)) = skip_malformed(event.transpose())?.flatten() {
                    if !room.take(bytes_of(&finished)) {
                        page.more = true;
                        return Ok(());
                    }
                    page.items.push(FinishedEvent { place, queue, finished });
                }
                page.looked_to = place;
                looked_at += 1;
            }
            page.more = rows.is_cut_off();
            if page.more || rows.len() < at_once {
                return Ok(());
            }
        }
        page.more = true;
        Ok(())
    }

    /// Whether a number between these positions may still appear: it is missing, and deletion has not passed it.
    async fn may_lack_rows(
        &mut self,
        looked_to: u64,
        place: u64,
        deleted: &mut Option<u64>,
    ) -> Result<bool, Fault> {
        if place <= looked_to + 1 {
            return Ok(false);
        }
        let deleted = match *deleted {
            Some(deleted) => deleted,
            None => *deleted.insert(self.history_bounds().await?.deleted()),
        };
        Ok(place > deleted + 1)
    }

    /// The times of executions that finished after a position in history, ordered by position. Not in one snapshot,
    /// as [`Self::finished_after`].
    pub async fn run_times_after(&mut self, after: u64, wanted: usize) -> Result<RunTimesPage, Fault> {
        let mut page = RunTimesPage { items: vec![], looked_to: after, more: false };
        let bound = self.connection.settled_below().await?;
        let bounds = row![counter(after), bound.unwrap_or(i64::MAX), limit(wanted)];
        let rows = self.rows(Query::of(ReadKind::RunTimesAfter, bounds)).await?;
        let lanes = self.lanes_in(&rows, 7).await?;
        let mut deleted = None;
        for row in rows.iter() {
            let place = read(row, 0, "history.place")?;
            let is_settled = bound.is_some() || get(row, 11)?;
            if !is_settled && self.may_lack_rows(page.looked_to, place, &mut deleted).await? {
                return Ok(page);
            }
            let lane: Option<i64> = get(row, 7)?;
            let event = lane.map(|lane| read_times(row, lanes.lane(lane)?));
            page.items.extend(skip_malformed(event.transpose())?.flatten());
            page.looked_to = place;
        }
        page.more = rows.len() == wanted;
        Ok(page)
    }

    async fn history_bounds(&mut self) -> Result<HistoryBounds, Fault> {
        HistoryBounds::read(self.rows(Query::of(ReadKind::HistoryBounds, [])).await?.only("history_bounds")?)
    }

    /// The state of these occurrences, if they are open.
    pub async fn open_executions(&mut self, ids: &[OccurrenceId]) -> Result<Vec<OpenExecution>, Fault> {
        if ids.is_empty() {
            return Ok(vec![]);
        }
        self.connection.begin_snapshot().await?;
        let rows = self.rows(Query::listed(ReadKind::OpenExecutions, row_list::occurrences(ids))).await?;
        let open = self.named(&rows).await?;
        self.connection.end_snapshot().await?;
        let mut open: BTreeMap<OccurrenceId, OpenExecution> =
            open.into_iter().map(|one| (one.live.id, one)).collect();
        Ok(ids.iter().filter_map(|id| open.remove(id)).collect())
    }

    /// Running executions, a page at a time.
    pub async fn running(
        &mut self,
        after: Option<RunningPlace>,
        wanted: usize,
    ) -> Result<Page<OpenExecution, RunningPlace>, Fault> {
        let wanted = wanted.clamp(1, limits::PAGE_ITEMS_MAX);
        self.connection.begin_snapshot().await?;
        let RunningPage { items, rows } = self.running_after(after, wanted).await?;
        self.connection.end_snapshot().await?;
        let next = items.last().filter(|_| rows == wanted).and_then(place_of);
        Ok(Page { items, next })
    }

    pub(super) async fn running_after(
        &mut self,
        after: Option<RunningPlace>,
        most: usize,
    ) -> Result<RunningPage, Fault> {
        let first =
            RunningPlace { session: SessionId(0), occurrence: JobId::from_bytes([0; 16]).occurrence(0) };
        let RunningPlace { session, occurrence } = after.unwrap_or(first);
        let bounds = row![session, occurrence.job, occurrence.number, limit(most)];
        let rows = self.rows(Query::of(ReadKind::Running, bounds)).await?;
        Ok(RunningPage { items: self.named(&rows).await?, rows: rows.len() })
    }

    /// Reads live rows and their workers, and adds the names of their lanes.
    async fn named(&mut self, rows: &FetchedRows) -> Result<Vec<OpenExecution>, Fault> {
        let read = |row: &AnyRow| -> Result<(LiveRow, Option<String>), Fault> {
            Ok((read_live(row, 0)?, get(row, LiveColumns::COUNT)?))
        };
        let rows = readable(rows.iter().map(read))?;
        let lanes = self.lanes(rows.iter().map(|(row, _)| row.lane)).await?;
        readable(rows.into_iter().map(|(LiveRow { live, lane, .. }, worker)| {
            let lane = lanes.lane(lane)?;
            let (queue, job_type) = (lane.queue().to_owned(), lane.job_type().to_owned());
            Ok(OpenExecution { live, worker, queue, job_type })
        }))
    }
}

fn read_times(row: &AnyRow, lane: &Lane) -> Result<RunTimes, Fault> {
    let name: Option<String> = get(row, 9)?;
    Ok(RunTimes {
        status: read(row, 1, "history.status")?,
        origin: read(row, 10, "history.origin")?,
        attempt: read(row, 2, "history.attempt")?,
        scheduled_time: read(row, 3, "history.scheduled_time")?,
        available_at: read(row, 4, "history.available_at")?,
        started_at: get(row, 5)?,
        completed_at: read(row, 6, "history.completed_at")?,
        owner: read_owner(get(row, 8)?),
        job_name: name.unwrap_or_else(|| lane.job_type().to_owned()),
        lane: lane.clone(),
    })
}

/// Where a list of running executions continues after this one.
pub(super) fn place_of(open: &OpenExecution) -> Option<RunningPlace> {
    match open.live.state {
        LiveState::Running(lease) => Some(RunningPlace { session: lease.session, occurrence: open.live.id }),
        LiveState::Waiting(_) | LiveState::Queued => None,
    }
}
