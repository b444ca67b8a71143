//! Jobs with everything that their status is derived from, many at a time.

use super::Reads;
use super::keys::{VIEWS_AT_ONCE, branches, json_of_jobs, json_of_pairs, keys_of_jobs};
use crate::cells::read;
use crate::codecs::{
    FINISHED_COLUMNS, counter, execution_id, read_finished, read_job, read_live, read_schedule, time,
};
use crate::fault::Fault;
use crate::layout::{
    mysql_history_columns as history_columns, mysql_job_columns as job_columns,
    mysql_live_columns as live_columns, mysql_schedule_columns as schedule_columns,
};
use crate::malformed::pass_over;
use crate::rows::LiveRow;
use mysql_async::Row;
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::job::{Job, JobMark};
use punctual_core::occurrence::{Finished, Live};
use punctual_core::ports::{JobView, OPEN_IN_VIEW_MAX};
use punctual_core::schedule::ScheduleState;
use punctual_core::time::Timestamp;
use std::collections::BTreeMap;

pub(crate) const JOBS: &str = concat!(
    "SELECT ",
    job_columns!(),
    " FROM JSON_TABLE(?, '$[*]' COLUMNS (job CHAR(32) PATH '$[0]')) AS wanted \
     STRAIGHT_JOIN jobs ON jobs.id = UNHEX(wanted.job)"
);
pub(crate) const SCHEDULES: &str = concat!(
    "SELECT ",
    schedule_columns!(),
    " FROM JSON_TABLE(?, '$[*]' COLUMNS (job CHAR(32) PATH '$[0]')) AS wanted \
     STRAIGHT_JOIN schedules ON schedules.job = UNHEX(wanted.job)"
);
/// A branch for each job: a window function would read all open occurrences of a job to return a few rows.
pub(crate) const OPEN_OF_JOB: &str = concat!(
    "(SELECT ",
    live_columns!(),
    " FROM live FORCE INDEX (PRIMARY) WHERE live.job = ? ORDER BY live.occurrence DESC LIMIT 10)"
);
const _: () = assert!(OPEN_IN_VIEW_MAX == 10, "the limit of OPEN_OF_JOB");
/// Finished executions that are searched for the last to end: overlapping occurrences may end in any order.
/// Only the columns that decide it, because results and errors are large.
pub(crate) const LATEST_OF_JOB: &str = "(SELECT history.job, history.occurrence, history.attempt, history.completed_at, \
     history.place FROM history FORCE INDEX (history_job) WHERE history.job = ? \
     ORDER BY history.occurrence DESC, history.attempt DESC LIMIT 8)";
/// By position and time: the time determines the partition.
pub(crate) const FINISHED_AT: &str = concat!(
    "SELECT ",
    history_columns!(),
    ", workers.name, history.place FROM JSON_TABLE(?, '$[*]' COLUMNS (place BIGINT PATH '$[0]', ended BIGINT PATH '$[1]')) AS wanted \
     STRAIGHT_JOIN history FORCE INDEX (PRIMARY) ON history.place = wanted.place AND history.completed_at = wanted.ended \
     LEFT JOIN workers ON workers.id = history.worker"
);

fn is_readable(row: &Row) -> Result<(), Fault> {
    read_job(row, 0).map(drop)
}

impl Reads {
    pub async fn job(&mut self, id: JobId) -> Result<Option<JobView>, Fault> {
        self.begin_snapshot().await?;
        let view = self.views(&[id]).await?.remove(&id);
        if view.is_none() {
            // A job that exists and cannot be read is an error.
            self.all(JOBS, (json_of_jobs([id]),)).await?.iter().try_for_each(is_readable)?;
        }
        self.end_snapshot().await?;
        Ok(view)
    }

    /// Those of these jobs that exist and are not deleted; the caller passes at most [`VIEWS_AT_ONCE`].
    pub(super) async fn views(&mut self, ids: &[JobId]) -> Result<BTreeMap<JobId, JobView>, Fault> {
        assert!(ids.len() <= VIEWS_AT_ONCE, "{} jobs", ids.len());
        let jobs = self.jobs_there(ids).await?;
        if jobs.is_empty() {
            return Ok(BTreeMap::new());
        }
        let there: Vec<JobId> = jobs.keys().copied().collect();
        let mut schedules = self.schedules_of(&there).await?;
        let mut open = self.open_of_jobs(&there).await?;
        let mut last_finished = self.last_finished_of(&there).await?;
        let view = |(id, job)| {
            let view = JobView {
                job,
                schedule: schedules.remove(&id),
                open: open.remove(&id).unwrap_or_default(),
                last_finished: last_finished.remove(&id),
            };
            (id, view)
        };
        Ok(jobs.into_iter().map(view).collect())
    }

    async fn jobs_there(&mut self, ids: &[JobId]) -> Result<BTreeMap<JobId, Job>, Fault> {
        let mut jobs = BTreeMap::new();
        if ids.is_empty() {
            return Ok(jobs);
        }
        for row in self.all(JOBS, (json_of_jobs(ids.iter().copied()),)).await? {
            let Some(unnamed) = pass_over(read_job(&row, 0))? else { continue };
            let Some(lane) = pass_over(self.lane(unnamed.lane).await)? else { continue };
            let job = unnamed.named(&lane).job;
            if job.mark != JobMark::Deleted {
                jobs.insert(job.id, job);
            }
        }
        Ok(jobs)
    }

    async fn schedules_of(&mut self, ids: &[JobId]) -> Result<BTreeMap<JobId, ScheduleState>, Fault> {
        let mut schedules = BTreeMap::new();
        for row in self.all(SCHEDULES, (json_of_jobs(ids.iter().copied()),)).await? {
            let Some(unnamed) = pass_over(read_schedule(&row, 0))? else { continue };
            let Some(lane) = pass_over(self.lane(unnamed.lane).await)? else { continue };
            let state = unnamed.named(&lane).state;
            schedules.insert(state.job, state);
        }
        Ok(schedules)
    }

    /// The latest of each job first.
    async fn open_of_jobs(&mut self, ids: &[JobId]) -> Result<BTreeMap<JobId, Vec<Live>>, Fault> {
        let mut open: BTreeMap<JobId, Vec<Live>> = BTreeMap::new();
        for row in self.all(&branches(OPEN_OF_JOB, ids.len()), keys_of_jobs(ids)).await? {
            let Some(LiveRow { live, .. }) = pass_over(read_live(&row, 0))? else { continue };
            open.entry(live.id.job).or_default().push(live);
        }
        // The order of a union is undefined.
        open.values_mut().for_each(|lives| lives.sort_by_key(|live| std::cmp::Reverse(live.id)));
        Ok(open)
    }

    /// The execution of each job that ended last among the latest few.
    async fn last_finished_of(&mut self, ids: &[JobId]) -> Result<BTreeMap<JobId, Finished>, Fault> {
        let mut latest: BTreeMap<JobId, (Timestamp, ExecutionId, u64)> = BTreeMap::new();
        for row in self.all(&branches(LATEST_OF_JOB, ids.len()), keys_of_jobs(ids)).await? {
            let read = || -> Result<_, Fault> {
                Ok((time(&row, 3)?, execution_id(&row, 0)?, read(&row, 4, "history.place")?))
            };
            let Some(candidate) = pass_over(read())? else { continue };
            let id = candidate.1;
            let last = latest.entry(id.occurrence.job).or_insert(candidate);
            *last = candidate.max(*last);
        }
        let places: Vec<EndedAt> =
            latest.into_values().map(|(completed_at, _, place)| EndedAt { place, completed_at }).collect();
        let finished = self.finished_at(&places).await?;
        Ok(finished.into_values().map(|finished| (finished.id.occurrence.job, finished)).collect())
    }

    /// The entries at these positions of history.
    pub(super) async fn finished_at(&mut self, places: &[EndedAt]) -> Result<BTreeMap<u64, Finished>, Fault> {
        let mut finished = BTreeMap::new();
        if places.is_empty() {
            return Ok(finished);
        }
        let pairs = places.iter().map(|ended| (counter(ended.place), ended.completed_at.as_micros()));
        for row in self.all(FINISHED_AT, (json_of_pairs(pairs),)).await? {
            if let Some(ended) = pass_over(read_finished(&row, 0))? {
                finished.insert(read(&row, FINISHED_COLUMNS, "history.place")?, ended);
            }
        }
        Ok(finished)
    }
}

/// A position in history and the end time of its entry, which are the key of its row.
#[derive(Debug, Clone, Copy)]
pub(super) struct EndedAt {
    pub place: u64,
    pub completed_at: Timestamp,
}
