//! Executions of all jobs by state. Each list follows an index and reads a bounded number of rows. Details
//! of the listed ones are read afterwards, from the same snapshot.

use super::events::{RunningPage, place_of};
use super::jobs::AFTER_ALL;
use super::page::PageFilling;
use super::views::EndedAt;
use super::{AnyRow, FetchedRows, Query, ReadKind, Reads};
use crate::cells::{get, read};
use crate::codecs::{FINISHED_COLUMNS, counter, job_id, limit, read_finished, read_live, read_settings};
use crate::fault::Fault;
use crate::lists::{PageRoom, bytes_of_listed, executions_looked_at, is_execution_meant};
use crate::malformed::{readable, skip_malformed};
use crate::row_list::{self, row};
use crate::rows::LiveRow;
use punctual_core::ids::{JobId, OccurrenceId};
use punctual_core::job::StoredStatus;
use punctual_core::lifecycle::Status;
use punctual_core::occurrence::{Finished, LiveState};
use punctual_core::ports::{
    ExecutionQuery, ExecutionView, ExecutionWalk, Lane, ListedExecution, Page, RunningPlace,
};
use punctual_core::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A row that was read: the cursor after it, and its item if it matches.
struct ListedRow {
    walk: ExecutionWalk,
    shown: Option<ListedItem>,
}

struct ListedItem {
    what: ListedContent,
    job: JobId,
    lane: Lane,
    /// The bytes of its error and result, if they are known yet.
    bytes: usize,
}

/// A finished execution is read completely only when there is room for it: results and errors are large.
enum ListedContent {
    Live(ExecutionView),
    Finished(EndedAt),
}

/// The job's data that is shown with its executions.
struct JobName {
    name: Option<String>,
    max_retries: u32,
}

/// The details of the listed executions.
struct Details {
    /// Deleted jobs are not included.
    names: BTreeMap<JobId, JobName>,
    finished: BTreeMap<u64, Finished>,
}

/// Lanes of a queue that are merged into the order of its claims. Queues have few job types.
const LANES_MERGED_MAX: usize = 500;
/// Executions of a queue that are listed in the order of claims.
const NEXT_MAX: usize = 100;
/// How much later than it ended an execution may be committed, compared with others: clocks differ, and commits wait.
const COMMIT_LAG: Duration = Duration::from_secs(60);

/// Whether all executions from this one on, which ended at this time, ended before another time.
fn is_past(from: Option<Timestamp>, ended: Option<Timestamp>) -> bool {
    from.zip(ended).is_some_and(|(from, ended)| ended.plus(COMMIT_LAG) < from)
}

fn ended_within(query: &ExecutionQuery, ended: Timestamp) -> bool {
    query.ended_from.is_none_or(|from| ended >= from) && query.ended_until.is_none_or(|until| ended < until)
}

/// The rows that a list has read, and their number: some may be malformed.
struct ListedRows {
    looked_at: Vec<ListedRow>,
    rows: usize,
}

impl Reads<'_> {
    /// Executions in one state, a page at a time.
    pub async fn executions(
        &mut self,
        query: &ExecutionQuery,
    ) -> Result<Page<ListedExecution, ExecutionWalk>, Fault> {
        self.connection.begin_snapshot().await?;
        let page = self.page_of_executions(query).await?;
        self.connection.end_snapshot().await?;
        // The first of each lane are all that was read.
        let next = page.next.filter(|walk| !matches!(walk, ExecutionWalk::Next));
        Ok(Page { next, ..page })
    }

    async fn page_of_executions(
        &mut self,
        query: &ExecutionQuery,
    ) -> Result<Page<ListedExecution, ExecutionWalk>, Fault> {
        let looked_at_max = executions_looked_at(query);
        let ListedRows { mut looked_at, rows } = match query.walk {
            ExecutionWalk::Running { after } => self.look_at_running(after, looked_at_max, query).await?,
            ExecutionWalk::Queued { before } | ExecutionWalk::Waiting { before } => {
                self.look_at_open(before, looked_at_max, query).await?
            }
            ExecutionWalk::Next => self.look_at_next(query).await?,
            ExecutionWalk::Finished { status, before } => {
                let before = match (before, query.ended_until) {
                    (None, Some(until)) => Some(self.place_after(until).await?),
                    (before, _) => before,
                };
                self.look_at_finished(status, before, looked_at_max, query).await?
            }
        };
        if let Some(owner) = &query.owner {
            self.leave_out_others(&mut looked_at, owner).await?;
        }
        let mut page = PageFilling::of(query.limit);
        while !looked_at.is_empty() {
            let fitting = fitting(&looked_at, page.room.clone()).min(self.connection.batches().details);
            if fitting == 0 {
                return Ok(page.cut_off());
            }
            let portion: Vec<ListedRow> = looked_at.drain(..fitting).collect();
            let mut details = self.details(&portion).await?;
            for ListedRow { walk, shown } in portion {
                let has_room = match shown.and_then(|shown| details.listed(shown)) {
                    Some(listed) => {
                        let bytes = bytes_of_listed(&listed);
                        page.add(listed, bytes, walk)
                    }
                    None => page.pass(walk),
                };
                if !has_room {
                    return Ok(page.cut_off());
                }
            }
        }
        Ok(if rows == looked_at_max { page.cut_off() } else { page.ended() })
    }

    /// Hides jobs of other owners.
    async fn leave_out_others(&mut self, looked_at: &mut [ListedRow], owner: &str) -> Result<(), Fault> {
        let shown = looked_at.iter().filter_map(|looked| looked.shown.as_ref());
        let jobs: BTreeSet<JobId> = shown.map(|shown| shown.job).collect();
        let owners = self.job_owners(&Vec::from_iter(jobs)).await?;
        let own: BTreeSet<JobId> =
            owners.into_iter().filter(|of| of.owner == owner).map(|of| of.job).collect();
        for looked in looked_at {
            looked.shown.take_if(|shown| !own.contains(&shown.job));
        }
        Ok(())
    }

    async fn look_at_running(
        &mut self,
        after: Option<RunningPlace>,
        most: usize,
        query: &ExecutionQuery,
    ) -> Result<ListedRows, Fault> {
        let RunningPage { items, rows } = self.running_after(after, most).await?;
        let mut looked_at = Vec::with_capacity(rows);
        for open in items {
            let Some(place) = place_of(&open) else { continue };
            let lane = Lane::new(open.queue, open.job_type);
            let is_meant = is_execution_meant(query, &lane, open.worker.as_deref());
            let view = ExecutionView::Live { live: open.live, worker: open.worker };
            let walk = ExecutionWalk::Running { after: Some(place) };
            let shown = is_meant.then_some(ListedItem::live(place.occurrence.job, lane, view));
            looked_at.push(ListedRow { walk, shown });
        }
        Ok(ListedRows { looked_at, rows })
    }

    async fn look_at_open(
        &mut self,
        before: Option<OccurrenceId>,
        most: usize,
        query: &ExecutionQuery,
    ) -> Result<ListedRows, Fault> {
        let OccurrenceId { job, number } = before.unwrap_or(AFTER_ALL.occurrence(0));
        let found = self.rows(Query::of(ReadKind::OpenBefore, row![job, number, limit(most)])).await?;
        let rows: Vec<LiveRow> = readable(found.iter().map(|row| read_live(row, 0)))?;
        let lanes = self.lanes(rows.iter().map(|row| row.lane)).await?;
        let mut looked_at = Vec::with_capacity(rows.len());
        for LiveRow { live, lane, .. } in rows {
            let (job, before) = (live.id.job, Some(live.id));
            let (walk, is_in_state) = match query.walk {
                ExecutionWalk::Queued { .. } => {
                    (ExecutionWalk::Queued { before }, matches!(live.state, LiveState::Queued))
                }
                _ => (ExecutionWalk::Waiting { before }, matches!(live.state, LiveState::Waiting(_))),
            };
            let Some(lane) = skip_malformed(lanes.lane(lane))?.cloned() else { continue };
            let is_meant = is_in_state && is_execution_meant(query, &lane, None);
            let view = ExecutionView::Live { live, worker: None };
            looked_at.push(ListedRow { walk, shown: is_meant.then_some(ListedItem::live(job, lane, view)) });
        }
        Ok(ListedRows { looked_at, rows: found.len() })
    }

    /// The executions of a queue that workers claim next.
    async fn look_at_next(&mut self, query: &ExecutionQuery) -> Result<ListedRows, Fault> {
        let Some(queue) = query.queue.as_deref() else {
            return Ok(ListedRows { looked_at: vec![], rows: 0 });
        };
        let lanes =
            self.rows(Query::of(ReadKind::LanesOfQueue, row![queue, limit(LANES_MERGED_MAX)])).await?;
        let lanes = lanes.iter().map(|row| get(row, 0)).collect::<Result<Vec<i64>, _>>()?;
        let heads = Query::listed(ReadKind::HeadsOfLanes, row_list::numbers(lanes));
        let found = self.rows(heads.with(row![limit(query.limit.clamp(1, NEXT_MAX))])).await?;
        let mut rows: Vec<LiveRow> = readable(found.iter().map(|row| read_live(row, 0)))?;
        rows.sort_unstable_by_key(|row| (row.live.rank, row.live.id));
        let lanes = self.lanes(rows.iter().map(|row| row.lane)).await?;
        let mut looked_at = Vec::with_capacity(rows.len());
        for LiveRow { live, lane, .. } in rows {
            let Some(lane) = skip_malformed(lanes.lane(lane))?.cloned() else { continue };
            if looked_at.len() < query.limit && is_execution_meant(query, &lane, None) {
                let job = live.id.job;
                let shown = Some(ListedItem::live(job, lane, ExecutionView::Live { live, worker: None }));
                looked_at.push(ListedRow { walk: ExecutionWalk::Next, shown });
            }
        }
        Ok(ListedRows { looked_at, rows: 0 })
    }

    /// A position in history, before which are all executions that ended before a time. Found by halving: positions
    /// follow the order of commits, which is that of the times except for [`COMMIT_LAG`].
    async fn place_after(&mut self, until: Timestamp) -> Result<u64, Fault> {
        let until = until.plus(COMMIT_LAG);
        let (mut low, mut high) = (0, i64::MAX as u64);
        while low < high {
            let middle = low + (high - low) / 2;
            let rows =
                self.rows(Query::of(ReadKind::FinishedBefore, row![counter(middle + 1), limit(1)])).await?;
            let read = |row: &AnyRow| -> Result<(u64, Timestamp), Fault> {
                Ok((read(row, 0, "history.place")?, read(row, 1, "history.completed_at")?))
            };
            match rows.first().map(|row| skip_malformed(read(row))).transpose()?.flatten() {
                Some((place, ended)) if ended >= until => high = place,
                _ => low = middle + 1,
            }
        }
        Ok(high)
    }

    async fn look_at_finished(
        &mut self,
        status: Status,
        before: Option<u64>,
        most: usize,
        query: &ExecutionQuery,
    ) -> Result<ListedRows, Fault> {
        let bounds = row![before.map_or(i64::MAX, counter), limit(most)];
        let rows = self.rows(Query::of(ReadKind::FinishedBefore, bounds)).await?;
        let lanes = self.lanes_in(&rows, 5).await?;
        let mut looked_at = Vec::with_capacity(rows.len());
        for row in rows.iter() {
            let Some(place) = skip_malformed(read(row, 0, "history.place"))? else { continue };
            let ended: Option<Timestamp> = skip_malformed(read(row, 1, "history.completed_at"))?;
            if is_past(query.ended_from, ended) {
                return Ok(ListedRows { looked_at, rows: 0 });
            }
            let read = || -> Result<Option<ListedItem>, Fault> {
                let ended: Status = read(row, 2, "history.status")?;
                // A job without a row is gone; a job marked as deleted is treated the same.
                let mark: Option<StoredStatus> = read(row, 6, "jobs.mark")?;
                let is_there = mark.is_some_and(|mark| mark != StoredStatus::Deleted);
                let lane: Option<i64> = get(row, 5)?;
                let Some(lane) = lane.filter(|_| is_there && ended == status) else { return Ok(None) };
                let lane = lanes.lane(lane)?.clone();
                let completed_at = read(row, 1, "history.completed_at")?;
                let what = ListedContent::Finished(EndedAt { place, completed_at });
                let is_meant =
                    is_execution_meant(query, &lane, get(row, 4)?) && ended_within(query, completed_at);
                Ok(is_meant.then_some(ListedItem { what, job: job_id(row, 3)?, lane, bytes: get(row, 7)? }))
            };
            let shown = skip_malformed(read())?.flatten();
            let walk = ExecutionWalk::Finished { status, before: Some(place) };
            looked_at.push(ListedRow { walk, shown });
        }
        Ok(ListedRows { looked_at, rows: rows.len() })
    }

    /// Reads the details of a portion.
    async fn details(&mut self, portion: &[ListedRow]) -> Result<Details, Fault> {
        let shown = || portion.iter().filter_map(|looked| looked.shown.as_ref());
        let jobs: BTreeSet<JobId> = shown().map(|shown| shown.job).collect();
        let ended = shown().filter_map(|shown| match shown.what {
            ListedContent::Finished(ended) => Some(ended),
            ListedContent::Live(_) => None,
        });
        let queries = [
            Query::listed(ReadKind::NamesOfJobs, row_list::ids(&jobs)),
            Query::listed(ReadKind::FinishedAt, EndedAt::list(ended)),
        ];
        let [names, finished] = self.fetch(queries).await?;
        Ok(Details { names: read_names(&names)?, finished: read_finished_at(&finished)? })
    }
}

impl ListedItem {
    fn live(job: JobId, lane: Lane, view: ExecutionView) -> Self {
        ListedItem { what: ListedContent::Live(view), job, lane, bytes: 0 }
    }
}

fn read_names(rows: &FetchedRows) -> Result<BTreeMap<JobId, JobName>, Fault> {
    let read = |row: &AnyRow| -> Result<Option<(JobId, JobName)>, Fault> {
        let mark = read::<StoredStatus>(row, 1, "jobs.mark")?;
        let name = JobName { name: get(row, 2)?, max_retries: read_settings(row, 3)?.max_retries };
        Ok((mark != StoredStatus::Deleted).then_some((job_id(row, 0)?, name)))
    };
    Ok(readable(rows.iter().map(read))?.into_iter().flatten().collect())
}

fn read_finished_at(rows: &FetchedRows) -> Result<BTreeMap<u64, Finished>, Fault> {
    let read = |row: &AnyRow| Ok((read(row, FINISHED_COLUMNS, "history.place")?, read_finished(row, 0)?));
    Ok(readable(rows.iter().map(read))?.into_iter().collect())
}

impl Details {
    /// Adds the names of the job; `None` if it is deleted.
    fn listed(&mut self, shown: ListedItem) -> Option<ListedExecution> {
        let ListedItem { what, job, lane, .. } = shown;
        let view = match what {
            ListedContent::Live(view) => view,
            ListedContent::Finished(ended) => ExecutionView::Finished(self.finished.remove(&ended.place)?),
        };
        let JobName { name, max_retries } = self.names.get(&job)?;
        Some(ListedExecution {
            view,
            job_name: name.clone().unwrap_or_else(|| lane.job_type().to_owned()),
            job_type: lane.job_type().to_owned(),
            queue: lane.queue().to_owned(),
            max_retries: *max_retries,
        })
    }
}

/// How many of the rows that were read fit, including those that show nothing.
fn fitting(looked_at: &[ListedRow], mut room: PageRoom) -> usize {
    let mut fits = |looked: &ListedRow| {
        !room.is_full() && looked.shown.as_ref().is_none_or(|shown| room.take(shown.bytes))
    };
    looked_at.iter().take_while(|looked| fits(looked)).count()
}
