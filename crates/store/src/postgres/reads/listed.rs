//! Executions of all jobs by state. Each list follows an index and reads a bounded number of rows. Details
//! of the listed ones are read afterwards, within the same transaction.

use super::events::{RunningPage, place_of};
use super::{Reads, worker_of_history};
use crate::cells::{get, read};
use crate::codecs::{
    FINISHED_COLUMNS, counter, job_id, limit, read_finished, read_live, read_settings, settings_columns,
};
use crate::fault::Fault;
use crate::layout::{history_columns, live_columns};
use crate::lists::{Room, bytes_of_listed, executions_looked_at, is_execution_meant};
use crate::malformed::{pass_over, readable};
use crate::postgres::rows::uuid;
use crate::rows::LiveRow;
use deadpool_postgres::GenericClient;
use futures_util::future::try_join;
use punctual_core::ids::{JobId, OccurrenceId};
use punctual_core::job::JobMark;
use punctual_core::lifecycle::Status;
use punctual_core::occurrence::{Finished, LiveState};
use punctual_core::ports::{
    ExecutionQuery, ExecutionView, ExecutionWalk, Lane, ListedExecution, Page, RunningPlace, StoreError,
};
use std::collections::BTreeMap;
use tokio_postgres::Row;
use uuid::Uuid;

pub(crate) const OPEN_BEFORE: &str = concat!(
    "SELECT ",
    live_columns!(),
    " FROM live WHERE (live.job, live.occurrence) < ($1, $2) \
     ORDER BY live.job DESC, live.occurrence DESC LIMIT $3"
);
/// Only the columns that decide whether a row matches, and the lengths of its result and error, which are
/// large.
pub(crate) const FINISHED_BEFORE: &str = concat!(
    "SELECT history.place, history.completed_at, history.status, history.bytes, history.job, workers.name, \
     jobs.lane, jobs.mark FROM (SELECT place, completed_at, status, worker, job, \
     coalesce(octet_length(error), 0) + coalesce(octet_length(result), 0) AS bytes FROM history \
     WHERE place < $1 ORDER BY place DESC LIMIT $2) AS history",
    worker_of_history!(),
    "LEFT JOIN LATERAL (SELECT lane, mark FROM jobs WHERE jobs.id = history.job LIMIT 1) AS jobs ON true \
     ORDER BY history.place DESC"
);
/// The time of its end determines the partition of a row.
pub(crate) const FINISHED_AT: &str = concat!(
    "SELECT ",
    history_columns!(),
    ", workers.name, history.place FROM unnest($1::bigint[], $2::bigint[]) AS wanted (completed_at, place) CROSS JOIN LATERAL \
     (SELECT * FROM history WHERE history.completed_at = wanted.completed_at AND history.place = wanted.place \
     LIMIT 1) AS history",
    worker_of_history!()
);
pub(crate) const NAMES_OF_JOBS: &str = concat!(
    "SELECT jobs.id, jobs.mark, jobs.name, ",
    settings_columns!(),
    " FROM jobs WHERE jobs.id = ANY ($1)"
);

/// A row that was read: the cursor after it, and what to show if it matches.
struct ListedRow {
    walk: ExecutionWalk,
    shown: Option<ListedItem>,
}

struct ListedItem {
    what: ListedContent,
    job: JobId,
    lane: Lane,
    /// The bytes of its error and result.
    bytes: usize,
}

/// A finished execution is read completely only when there is room for it.
enum ListedContent {
    Live(ExecutionView),
    Finished { completed_at: i64, place: u64 },
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

/// The rows that a list has read, and their number: some may be malformed.
struct ListedRows {
    looked_at: Vec<ListedRow>,
    rows: usize,
}

impl<C: GenericClient> Reads<'_, C> {
    /// Executions in one state, a page at a time. Within a transaction.
    pub async fn executions(
        &self,
        query: &ExecutionQuery,
    ) -> Result<Page<ListedExecution, ExecutionWalk>, StoreError> {
        Ok(self.page_of_executions(query).await?)
    }

    async fn page_of_executions(
        &self,
        query: &ExecutionQuery,
    ) -> Result<Page<ListedExecution, ExecutionWalk>, Fault> {
        let looked_at_max = executions_looked_at(query);
        let ListedRows { mut looked_at, rows } = match query.walk {
            ExecutionWalk::Running { after } => self.look_at_running(after, looked_at_max, query).await?,
            ExecutionWalk::Queued { before } | ExecutionWalk::Waiting { before } => {
                self.look_at_open(before, looked_at_max, query).await?
            }
            ExecutionWalk::Finished { status, before } => {
                self.look_at_finished(status, before, looked_at_max, query).await?
            }
        };
        let is_cut_off = rows == looked_at_max;
        let (mut items, mut last) = (Vec::new(), None);
        let mut room = Room::of(query.limit);
        while !looked_at.is_empty() {
            let portion: Vec<ListedRow> = looked_at.drain(..fitting(&looked_at, room.clone())).collect();
            if portion.is_empty() {
                return Ok(Page { items, next: last });
            }
            let mut details = self.details(&portion).await?;
            for ListedRow { walk, shown } in portion {
                if let Some(listed) = shown.and_then(|shown| details.listed(shown)) {
                    room.take(bytes_of_listed(&listed));
                    items.push(listed);
                }
                last = Some(walk);
            }
        }
        Ok(Page { items, next: last.filter(|_| is_cut_off) })
    }

    async fn look_at_running(
        &self,
        after: Option<RunningPlace>,
        most: usize,
        query: &ExecutionQuery,
    ) -> Result<ListedRows, Fault> {
        let mut looked_at = Vec::new();
        let RunningPage { items, rows } = self.running_after(after, most).await?;
        for open in items {
            let Some(place) = place_of(&open) else { continue };
            let lane = Lane::new(open.queue, open.job_type);
            let is_meant = is_execution_meant(query, &lane, open.worker.as_deref());
            let (job, worker) = (open.live.id.job, open.worker);
            let what = ListedContent::Live(ExecutionView::Live { live: open.live, worker });
            let walk = ExecutionWalk::Running { after: Some(place) };
            looked_at.push(ListedRow {
                walk,
                shown: is_meant.then_some(ListedItem { what, job, lane, bytes: 0 }),
            });
        }
        Ok(ListedRows { looked_at, rows })
    }

    async fn look_at_open(
        &self,
        before: Option<OccurrenceId>,
        most: usize,
        query: &ExecutionQuery,
    ) -> Result<ListedRows, Fault> {
        let (job, number) = before.map_or((Uuid::max(), 0), |id| (uuid(id.job), i64::from(id.number)));
        let found = self.all(OPEN_BEFORE, &[&job, &number, &limit(most)]).await?;
        let rows: Vec<LiveRow> = readable(found.iter().map(|row| read_live(row, 0)))?;
        let lanes = self.named_lanes(rows.iter().map(|row| row.lane)).await?;
        let mut looked_at = Vec::with_capacity(rows.len());
        for LiveRow { live, lane, .. } in rows {
            let before = Some(live.id);
            let (walk, is_in_state) = match query.walk {
                ExecutionWalk::Queued { .. } => {
                    (ExecutionWalk::Queued { before }, matches!(live.state, LiveState::Queued))
                }
                _ => (ExecutionWalk::Waiting { before }, matches!(live.state, LiveState::Waiting(_))),
            };
            let (job, lane) = (live.id.job, pass_over(lanes.lane(lane))?.cloned());
            let Some(lane) = lane else { continue };
            let is_meant = is_in_state && is_execution_meant(query, &lane, None);
            let what = ListedContent::Live(ExecutionView::Live { live, worker: None });
            looked_at.push(ListedRow {
                walk,
                shown: is_meant.then_some(ListedItem { what, job, lane, bytes: 0 }),
            });
        }
        Ok(ListedRows { looked_at, rows: found.len() })
    }

    async fn look_at_finished(
        &self,
        status: Status,
        before: Option<u64>,
        most: usize,
        query: &ExecutionQuery,
    ) -> Result<ListedRows, Fault> {
        let before = before.map_or(i64::MAX, counter);
        let rows = self.all(FINISHED_BEFORE, &[&before, &limit(most)]).await?;
        let numbers = rows.iter().map(|row| get(row, 6)).collect::<Result<Vec<Option<i64>>, _>>()?;
        let lanes = self.named_lanes(numbers.iter().flatten().copied()).await?;
        let mut looked_at = Vec::with_capacity(rows.len());
        for (row, lane) in rows.iter().zip(numbers) {
            let Some(place) = pass_over(read(row, 0, "history.place"))? else { continue };
            let read = || -> Result<Option<ListedItem>, Fault> {
                let ended: Status = read(row, 2, "history.status")?;
                // A job without a row is gone; a job marked as deleted is treated the same.
                let mark: Option<JobMark> = read(row, 7, "jobs.mark")?;
                let is_there = mark.is_some_and(|mark| mark != JobMark::Deleted);
                let Some(lane) = lane.filter(|_| is_there && ended == status) else { return Ok(None) };
                let lane = lanes.lane(lane)?.clone();
                let bytes = usize::try_from(get::<i64>(row, 3)?).unwrap_or(0);
                let what = ListedContent::Finished { completed_at: get(row, 1)?, place };
                let is_meant = is_execution_meant(query, &lane, get(row, 5)?);
                Ok(is_meant.then_some(ListedItem { what, job: job_id(row, 4)?, lane, bytes }))
            };
            let shown = pass_over(read())?.flatten();
            looked_at
                .push(ListedRow { walk: ExecutionWalk::Finished { status, before: Some(place) }, shown });
        }
        Ok(ListedRows { looked_at, rows: rows.len() })
    }

    /// Reads the details of a portion.
    async fn details(&self, portion: &[ListedRow]) -> Result<Details, Fault> {
        let shown: Vec<&ListedItem> = portion.iter().filter_map(|looked| looked.shown.as_ref()).collect();
        if shown.is_empty() {
            return Ok(Details { names: BTreeMap::new(), finished: BTreeMap::new() });
        }
        let (names, finished) = try_join(self.names_of(&shown), self.finished_of(&shown)).await?;
        Ok(Details { names, finished })
    }

    async fn names_of(&self, shown: &[&ListedItem]) -> Result<BTreeMap<JobId, JobName>, Fault> {
        let jobs: Vec<Uuid> = shown.iter().map(|shown| uuid(shown.job)).collect();
        let mut names = BTreeMap::new();
        for row in self.all(NAMES_OF_JOBS, &[&jobs]).await? {
            let read = || -> Result<Option<JobName>, Fault> {
                let mark = read::<JobMark>(&row, 1, "jobs.mark")?;
                let max_retries = read_settings(&row, 3)?.max_retries;
                Ok((mark != JobMark::Deleted).then_some(JobName { name: get(&row, 2)?, max_retries }))
            };
            if let Some(name) = pass_over(read())?.flatten() {
                names.insert(job_id(&row, 0)?, name);
            }
        }
        Ok(names)
    }

    async fn finished_of(&self, shown: &[&ListedItem]) -> Result<BTreeMap<u64, Finished>, Fault> {
        let ended = shown.iter().filter_map(|shown| match shown.what {
            ListedContent::Finished { completed_at, place } => Some((completed_at, counter(place))),
            ListedContent::Live(_) => None,
        });
        let (times, places): (Vec<i64>, Vec<i64>) = ended.unzip();
        if places.is_empty() {
            return Ok(BTreeMap::new());
        }
        let rows = self.all(FINISHED_AT, &[&times, &places]).await?;
        let read = |row: &Row| Ok((read(row, FINISHED_COLUMNS, "history.place")?, read_finished(row, 0)?));
        Ok(readable(rows.iter().map(read))?.into_iter().collect())
    }
}

impl Details {
    /// Adds the names of the job; `None` if it is deleted.
    fn listed(&mut self, shown: ListedItem) -> Option<ListedExecution> {
        let ListedItem { what, job, lane, .. } = shown;
        let view = match what {
            ListedContent::Live(view) => view,
            ListedContent::Finished { place, .. } => ExecutionView::Finished(self.finished.remove(&place)?),
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
fn fitting(looked_at: &[ListedRow], mut room: Room) -> usize {
    let mut fits = |looked: &ListedRow| {
        !room.is_full() && looked.shown.as_ref().is_none_or(|shown| room.take(shown.bytes))
    };
    looked_at.iter().take_while(|looked| fits(looked)).count()
}
