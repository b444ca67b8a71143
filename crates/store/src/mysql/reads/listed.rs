//! Executions of all jobs by state. Each list follows an index and reads a bounded number of rows.

use super::Reads;
use super::events::{RunningPage, place_of};
use super::jobs::AFTER_ALL;
use super::keys::{VIEWS_AT_ONCE, json_of_jobs, key};
use super::page::Filling;
use super::views::EndedAt;
use crate::cells::{get, read};
use crate::codecs::{counter, job_id, limit, read_live, read_settings, settings_columns, time};
use crate::fault::Fault;
use crate::layout::mysql_live_columns as live_columns;
use crate::lists::{bytes_of_listed, executions_looked_at, is_execution_meant};
use crate::malformed::pass_over;
use crate::rows::LiveRow;
use mysql_async::{Row, Value};
use punctual_core::ids::{JobId, OccurrenceId};
use punctual_core::job::JobMark;
use punctual_core::lifecycle::Status;
use punctual_core::occurrence::{Finished, LiveState};
use punctual_core::ports::{
    ExecutionQuery, ExecutionView, ExecutionWalk, Lane, ListedExecution, Page, RunningPlace,
};
use std::collections::BTreeMap;

/// The comparison of pairs is spelled out: neither server uses an index for `(a, b) < (?, ?)`.
pub(crate) const OPEN_BEFORE: &str = concat!(
    "SELECT ",
    live_columns!(),
    " FROM live FORCE INDEX (PRIMARY) WHERE live.job < ? OR (live.job = ? AND live.occurrence < ?) \
     ORDER BY live.job DESC, live.occurrence DESC LIMIT ?"
);
/// Only the columns that decide whether a row matches: results and errors are large.
pub(crate) const FINISHED_BEFORE: &str = "SELECT history.place, history.status, workers.name, jobs.lane, jobs.mark, \
     history.job, history.completed_at FROM history FORCE INDEX (PRIMARY) LEFT JOIN workers ON workers.id = history.worker \
     LEFT JOIN jobs ON jobs.id = history.job WHERE history.place < ? ORDER BY history.place DESC LIMIT ?";
pub(crate) const NAMES_OF_JOBS: &str = concat!(
    "SELECT jobs.id, jobs.name, ",
    settings_columns!(),
    ", jobs.mark FROM JSON_TABLE(?, '$[*]' COLUMNS (job CHAR(32) PATH '$[0]')) AS wanted \
     STRAIGHT_JOIN jobs ON jobs.id = UNHEX(wanted.job)"
);

/// A row that was read: the cursor after it, and what to show if it matches.
struct ListedRow {
    walk: ExecutionWalk,
    meant: Option<Meant>,
}

struct Meant {
    job: JobId,
    lane: Lane,
    shown: ListedItem,
}

/// A finished execution is read completely only when there is room for it: results and errors are large.
enum ListedItem {
    Live(ExecutionView),
    Finished(EndedAt),
}

/// The name of a job, and how often its executions are retried.
struct NamedJob {
    name: Option<String>,
    max_retries: u32,
}

/// The rows that a list has read, and their number: some may be malformed.
struct ListedRows {
    looked_at: Vec<ListedRow>,
    rows: usize,
}

impl Reads {
    /// Executions in one state, a page at a time.
    pub async fn executions(
        &mut self,
        query: &ExecutionQuery,
    ) -> Result<Page<ListedExecution, ExecutionWalk>, Fault> {
        self.begin_snapshot().await?;
        let page = self.page_of_executions(query).await?;
        self.end_snapshot().await?;
        Ok(page)
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
            ExecutionWalk::Finished { status, before } => {
                self.look_at_finished(status, before, looked_at_max, query).await?
            }
        };
        let is_cut_off = rows == looked_at_max;
        let mut page = Filling::of(query.limit);
        for some in looked_at.chunks_mut(VIEWS_AT_ONCE) {
            let names = self.names_of(some).await?;
            let mut finished = self.finished_of(some).await?;
            for ListedRow { walk, meant } in some {
                let listed = meant.take().and_then(|meant| listed(meant, &names, &mut finished));
                let has_room = match listed {
                    Some(listed) => {
                        let bytes = bytes_of_listed(&listed);
                        page.add(listed, bytes, *walk)
                    }
                    None => page.pass(*walk),
                };
                if !has_room {
                    return Ok(page.cut_off());
                }
            }
        }
        Ok(if is_cut_off { page.cut_off() } else { page.ended() })
    }

    async fn look_at_running(
        &mut self,
        after: Option<RunningPlace>,
        most: usize,
        query: &ExecutionQuery,
    ) -> Result<ListedRows, Fault> {
        let RunningPage { rows, read } = self.running_after(after, most).await?;
        let places: BTreeMap<OccurrenceId, RunningPlace> =
            rows.iter().filter_map(|row| Some((row.live.id, place_of(row)?))).collect();
        let mut looked_at = Vec::with_capacity(rows.len());
        for open in self.named(rows).await? {
            let place = places.get(&open.live.id).copied();
            let lane = Lane::new(&open.queue, &open.job_type);
            let is_meant = is_execution_meant(query, &lane, open.worker.as_deref());
            let job = open.live.id.job;
            let shown = ListedItem::Live(ExecutionView::Live { live: open.live, worker: open.worker });
            let walk = ExecutionWalk::Running { after: place };
            looked_at.push(ListedRow { walk, meant: is_meant.then_some(Meant { job, lane, shown }) });
        }
        Ok(ListedRows { looked_at, rows: read })
    }

    async fn look_at_open(
        &mut self,
        before: Option<OccurrenceId>,
        most: usize,
        query: &ExecutionQuery,
    ) -> Result<ListedRows, Fault> {
        let (job, number) = match before {
            Some(occurrence) => (key(occurrence.job), i64::from(occurrence.number)),
            None => (Value::Bytes(AFTER_ALL.to_vec()), 0),
        };
        let rows = self.all(OPEN_BEFORE, (job.clone(), job, number, limit(most))).await?;
        let mut looked_at = Vec::with_capacity(rows.len());
        for row in &rows {
            let Some(LiveRow { live, lane, .. }) = pass_over(read_live(row, 0))? else { continue };
            let (job, before) = (live.id.job, Some(live.id));
            let (walk, is_in_state) = match query.walk {
                ExecutionWalk::Queued { .. } => {
                    (ExecutionWalk::Queued { before }, matches!(live.state, LiveState::Queued))
                }
                _ => (ExecutionWalk::Waiting { before }, matches!(live.state, LiveState::Waiting(_))),
            };
            let Some(lane) = pass_over(self.lane(lane).await)? else { continue };
            let is_meant = is_in_state && is_execution_meant(query, &lane, None);
            let shown = ListedItem::Live(ExecutionView::Live { live, worker: None });
            looked_at.push(ListedRow { walk, meant: is_meant.then_some(Meant { job, lane, shown }) });
        }
        Ok(ListedRows { looked_at, rows: rows.len() })
    }

    async fn look_at_finished(
        &mut self,
        status: Status,
        before: Option<u64>,
        most: usize,
        query: &ExecutionQuery,
    ) -> Result<ListedRows, Fault> {
        let rows = self.all(FINISHED_BEFORE, (before.map_or(i64::MAX, counter), limit(most))).await?;
        let mut looked_at = Vec::with_capacity(rows.len());
        for row in &rows {
            let Some(place) = pass_over(read(row, 0, "history.place"))? else { continue };
            let walk = ExecutionWalk::Finished { status, before: Some(place) };
            let meant = pass_over(self.meant_of_finished(row, place, status, query).await)?.flatten();
            looked_at.push(ListedRow { walk, meant });
        }
        Ok(ListedRows { looked_at, rows: rows.len() })
    }

    async fn meant_of_finished(
        &mut self,
        row: &Row,
        place: u64,
        status: Status,
        query: &ExecutionQuery,
    ) -> Result<Option<Meant>, Fault> {
        let ended: Status = read(row, 1, "history.status")?;
        // A job without a row is gone; a job marked as deleted is treated the same.
        let mark: Option<JobMark> = read(row, 4, "jobs.mark")?;
        let is_there = mark.is_some_and(|mark| mark != JobMark::Deleted);
        if !is_there || ended != status {
            return Ok(None);
        }
        let lane = self.lane(get(row, 3)?).await?;
        if !is_execution_meant(query, &lane, get::<Option<String>>(row, 2)?.as_deref()) {
            return Ok(None);
        }
        let shown = ListedItem::Finished(EndedAt { place, completed_at: time(row, 6)? });
        Ok(Some(Meant { job: job_id(row, 5)?, lane, shown }))
    }

    /// The names of these rows' jobs; deleted ones are left out.
    async fn names_of(&mut self, looked_at: &[ListedRow]) -> Result<BTreeMap<JobId, NamedJob>, Fault> {
        let mut jobs: Vec<JobId> = meant_of(looked_at).map(|meant| meant.job).collect();
        jobs.sort_unstable();
        jobs.dedup();
        let mut names = BTreeMap::new();
        if jobs.is_empty() {
            return Ok(names);
        }
        for row in &self.all(NAMES_OF_JOBS, (json_of_jobs(jobs),)).await? {
            let read = || -> Result<Option<NamedJob>, Fault> {
                let mark = read::<JobMark>(row, 5, "jobs.mark")?;
                let max_retries = read_settings(row, 2)?.max_retries;
                Ok((mark != JobMark::Deleted).then_some(NamedJob { name: get(row, 1)?, max_retries }))
            };
            if let Some(name) = pass_over(read())?.flatten() {
                names.insert(job_id(row, 0)?, name);
            }
        }
        Ok(names)
    }

    async fn finished_of(&mut self, looked_at: &[ListedRow]) -> Result<BTreeMap<u64, Finished>, Fault> {
        let places = meant_of(looked_at).filter_map(|meant| match meant.shown {
            ListedItem::Finished(ended) => Some(ended),
            ListedItem::Live(_) => None,
        });
        let places: Vec<EndedAt> = places.collect();
        self.finished_at(&places).await
    }
}

fn meant_of(looked_at: &[ListedRow]) -> impl Iterator<Item = &Meant> {
    looked_at.iter().filter_map(|looked| looked.meant.as_ref())
}

/// Adds the names of the job; `None` if it is deleted.
fn listed(
    meant: Meant,
    names: &BTreeMap<JobId, NamedJob>,
    finished: &mut BTreeMap<u64, Finished>,
) -> Option<ListedExecution> {
    let NamedJob { name, max_retries } = names.get(&meant.job)?;
    let view = match meant.shown {
        ListedItem::Live(view) => view,
        ListedItem::Finished(ended) => ExecutionView::Finished(finished.remove(&ended.place)?),
    };
    Some(ListedExecution {
        view,
        job_name: name.clone().unwrap_or_else(|| meant.lane.job_type().to_owned()),
        job_type: meant.lane.job_type().to_owned(),
        queue: meant.lane.queue().to_owned(),
        max_retries: *max_retries,
    })
}
