//! Executions of all jobs by state. Each list follows an index and reads a bounded number of rows.

use super::Reads;
use super::events::RUNNING;
use crate::codecs::{read_settings, settings_columns};
use crate::fault::Fault;
use crate::layout::{sqlite_history_columns as history_columns, sqlite_live_columns as live_columns};
use crate::lists::{PageRoom, bytes_of_listed, executions_looked_at, is_execution_meant};
use crate::malformed::pass_over;
use crate::rows::LiveRow;
use crate::sqlite::rows::{
    bound, count, counter, decode, decode_or_none, job_id, one_readable, read_finished, read_live, up_to,
};
use punctual_core::ids::{JobId, OccurrenceId};
use punctual_core::job::{Settings, StoredStatus};
use punctual_core::lifecycle::Status;
use punctual_core::occurrence::LiveState;
use punctual_core::ports::{
    ExecutionQuery, ExecutionView, ExecutionWalk, Lane, ListedExecution, Page, RunningPlace, StoreError,
};
use rusqlite::params;

/// A key after all job ids.
const AFTER_ALL: [u8; 17] = [0xFF; 17];

pub(crate) const OPEN_BEFORE: &str = concat!(
    "SELECT ",
    live_columns!(),
    " FROM live WHERE (live.job, live.occurrence) < (?1, ?2) \
     ORDER BY live.job DESC, live.occurrence DESC LIMIT ?3"
);
/// Only the columns that decide whether a row matches: results and errors are large.
pub(crate) const FINISHED_BEFORE: &str = "SELECT history.seq, history.status, workers.name, jobs.lane, jobs.mark, history.job \
     FROM history LEFT JOIN workers ON workers.id = history.worker LEFT JOIN jobs ON jobs.id = history.job \
     WHERE history.seq < ?1 ORDER BY history.seq DESC LIMIT ?2";
pub(crate) const FINISHED_AT: &str = concat!(
    "SELECT ",
    history_columns!(),
    ", workers.name FROM history LEFT JOIN workers ON workers.id = history.worker WHERE history.seq = ?1"
);
pub(crate) const NAME_OF_JOB: &str =
    concat!("SELECT jobs.mark, jobs.name, ", settings_columns!(), " FROM jobs WHERE jobs.id = ?1");

/// A row that was read: the cursor after it, and what to show if it matches.
struct ListedRow {
    walk: ExecutionWalk,
    shown: Option<(ListedItem, Lane)>,
}

/// A finished execution is read completely only when there is room for it: results and errors are large.
enum ListedItem {
    Live(ExecutionView),
    Finished { place: u64, job: JobId },
}

impl ListedItem {
    fn job(&self) -> JobId {
        match self {
            ListedItem::Live(view) => view.id().occurrence.job,
            ListedItem::Finished { job, .. } => *job,
        }
    }
}

impl Reads<'_> {
    /// Executions in one state, a page at a time.
    pub fn executions(
        &mut self,
        query: &ExecutionQuery,
    ) -> Result<Page<ListedExecution, ExecutionWalk>, StoreError> {
        let snapshot = self.conn.unchecked_transaction().map_err(Fault::from)?;
        let page = self.page_of_executions(query)?;
        drop(snapshot);
        Ok(page)
    }

    fn page_of_executions(
        &mut self,
        query: &ExecutionQuery,
    ) -> Result<Page<ListedExecution, ExecutionWalk>, Fault> {
        let looked_at_max = executions_looked_at(query);
        let looked_at = match query.walk {
            ExecutionWalk::Running { after } => self.look_at_running(after, looked_at_max, query)?,
            ExecutionWalk::Queued { before } | ExecutionWalk::Waiting { before } => {
                self.look_at_open(before, looked_at_max, query)?
            }
            ExecutionWalk::Finished { status, before } => {
                self.look_at_finished(status, before, looked_at_max, query)?
            }
        };
        let is_cut_off = looked_at.len() == looked_at_max;
        let (mut items, mut last) = (Vec::new(), None);
        let mut room = PageRoom::of(query.limit);
        for ListedRow { walk, shown } in looked_at {
            if room.is_full() {
                return Ok(Page { items, next: last });
            }
            if let Some(listed) = self.shown(shown, query.owner.as_deref())? {
                if !room.take(bytes_of_listed(&listed)) {
                    return Ok(Page { items, next: last });
                }
                items.push(listed);
            }
            last = Some(walk);
        }
        Ok(Page { items, next: last.filter(|_| is_cut_off) })
    }

    fn shown(
        &mut self,
        shown: Option<(ListedItem, Lane)>,
        owner: Option<&str>,
    ) -> Result<Option<ListedExecution>, Fault> {
        let Some((shown, lane)) = shown else { return Ok(None) };
        if let Some(owner) = owner
            && self.owner_of(shown.job())?.is_none_or(|of| of.owner != owner)
        {
            return Ok(None);
        }
        let view = match shown {
            ListedItem::Live(view) => Some(view),
            ListedItem::Finished { place, .. } => {
                let mut select = self.conn.prepare_cached(FINISHED_AT)?;
                one_readable(&mut select, [counter(place)], read_finished)?.map(ExecutionView::Finished)
            }
        };
        view.map_or(Ok(None), |view| self.listed(view, &lane))
    }

    fn look_at_running(
        &mut self,
        after: Option<RunningPlace>,
        most: usize,
        query: &ExecutionQuery,
    ) -> Result<Vec<ListedRow>, Fault> {
        let (session, job, number) = match &after {
            Some(RunningPlace { session, occurrence }) => {
                (session.0, &occurrence.job.as_bytes()[..], i64::from(occurrence.number))
            }
            None => (0, &[][..], 0),
        };
        let mut select = self.conn.prepare_cached(RUNNING)?;
        let rows = up_to(most, &mut select, params![session, job, number, bound(most)], read_live)?;
        let mut looked_at = Vec::with_capacity(rows.len());
        for open in self.named(rows)? {
            let LiveState::Running(lease) = open.live.state else { continue };
            let place = RunningPlace { session: lease.session, occurrence: open.live.id };
            let lane = Lane::new(&open.queue, &open.job_type);
            let is_meant = is_execution_meant(query, &lane, open.worker.as_deref());
            let view = ExecutionView::Live { live: open.live, worker: open.worker };
            let walk = ExecutionWalk::Running { after: Some(place) };
            looked_at.push(ListedRow { walk, shown: is_meant.then_some((ListedItem::Live(view), lane)) });
        }
        Ok(looked_at)
    }

    fn look_at_open(
        &mut self,
        before: Option<OccurrenceId>,
        most: usize,
        query: &ExecutionQuery,
    ) -> Result<Vec<ListedRow>, Fault> {
        let (job, number) = match &before {
            Some(occurrence) => (&occurrence.job.as_bytes()[..], i64::from(occurrence.number)),
            None => (&AFTER_ALL[..], 0),
        };
        let mut select = self.conn.prepare_cached(OPEN_BEFORE)?;
        let rows = up_to(most, &mut select, params![job, number, bound(most)], read_live)?;
        let mut looked_at = Vec::with_capacity(rows.len());
        for LiveRow { live, lane, .. } in rows {
            let before = Some(live.id);
            let (walk, is_in_state) = match query.walk {
                ExecutionWalk::Queued { .. } => {
                    (ExecutionWalk::Queued { before }, matches!(live.state, LiveState::Queued))
                }
                _ => (ExecutionWalk::Waiting { before }, matches!(live.state, LiveState::Waiting(_))),
            };
            let lane = pass_over(self.lanes.lane(self.conn, lane))?;
            let meant = lane.filter(|lane| is_in_state && is_execution_meant(query, lane, None));
            let view = ExecutionView::Live { live, worker: None };
            looked_at.push(ListedRow { walk, shown: meant.map(|lane| (ListedItem::Live(view), lane)) });
        }
        Ok(looked_at)
    }

    fn look_at_finished(
        &mut self,
        status: Status,
        before: Option<u64>,
        most: usize,
        query: &ExecutionQuery,
    ) -> Result<Vec<ListedRow>, Fault> {
        let conn = self.conn;
        let mut select = conn.prepare_cached(FINISHED_BEFORE)?;
        let before = before.map_or(i64::MAX, counter);
        let rows = up_to(most, &mut select, params![before, bound(most)], |row| {
            let place = count(row, 0, "history.seq")?;
            let ended: Status = decode(row, 1, "history.status")?;
            let worker: Option<String> = row.get(2)?;
            // A job without a row is gone; a job marked as deleted is treated the same.
            let mark: Option<StoredStatus> = decode_or_none(row, 4, "jobs.mark")?;
            let is_there = mark.is_some_and(|mark| mark != StoredStatus::Deleted);
            let lane = if is_there { Some(row.get::<_, i64>(3)?) } else { None };
            Ok((place, lane.filter(|_| ended == status), worker, job_id(row, 5)?))
        })?;
        let mut looked_at = Vec::with_capacity(rows.len());
        for (place, lane, worker, job) in rows {
            let walk = ExecutionWalk::Finished { status, before: Some(place) };
            let mut shown = None;
            if let Some(lane) = lane
                && let Some(lane) = pass_over(self.lanes.lane(conn, lane))?
            {
                let is_meant = is_execution_meant(query, &lane, worker.as_deref());
                shown = is_meant.then(|| (ListedItem::Finished { place, job }, lane.clone()));
            }
            looked_at.push(ListedRow { walk, shown });
        }
        Ok(looked_at)
    }

    /// Adds the names of the job; `None` if it is deleted.
    fn listed(&mut self, view: ExecutionView, lane: &Lane) -> Result<Option<ListedExecution>, Fault> {
        let job = view.id().occurrence.job;
        let mut select = self.conn.prepare_cached(NAME_OF_JOB)?;
        let found = one_readable(&mut select, [job.as_bytes()], |row| {
            let mark: StoredStatus = decode(row, 0, "jobs.mark")?;
            let (name, settings): (Option<String>, Settings) = (row.get(1)?, read_settings(row, 2)?);
            Ok((mark, name, settings.max_retries))
        })?;
        let found = found.filter(|(mark, ..)| *mark != StoredStatus::Deleted);
        Ok(found.map(|(_, name, max_retries)| ListedExecution {
            view,
            job_name: name.unwrap_or_else(|| lane.job_type().to_owned()),
            job_type: lane.job_type().to_owned(),
            queue: lane.queue().to_owned(),
            max_retries,
        }))
    }
}
