//! Jobs as users see them, with their schedules, open occurrences and last ends. They are read for many
//! jobs at once, within one transaction, so that a view is of a single snapshot.

use super::{Reads, worker_of_history};
use crate::codecs::{
    UnnamedJob, UnnamedSchedule, job_id, limit, read_finished, read_job, read_live, read_schedule,
};
use crate::fault::Fault;
use crate::layout::{history_columns, job_columns, live_columns, schedule_columns};
use crate::malformed::{pass_over, readable};
use crate::postgres::rows::uuid;
use crate::rows::LiveRow;
use deadpool_postgres::GenericClient;
use futures_util::future::try_join4;
use punctual_core::ids::JobId;
use punctual_core::job::JobMark;
use punctual_core::occurrence::{Finished, Live};
use punctual_core::ports::{JobView, OPEN_IN_VIEW_MAX};
use std::collections::BTreeMap;
use uuid::Uuid;

pub(crate) const JOBS: &str = concat!("SELECT ", job_columns!(), " FROM jobs WHERE jobs.id = ANY ($1)");
pub(crate) const SCHEDULES: &str =
    concat!("SELECT ", schedule_columns!(), " FROM schedules WHERE schedules.job = ANY ($1)");
pub(crate) const OPEN_OF_JOBS: &str = concat!(
    "SELECT ",
    live_columns!(),
    " FROM unnest($1::uuid[]) AS wanted (job) CROSS JOIN LATERAL (SELECT * FROM live WHERE live.job = wanted.job \
     ORDER BY live.occurrence DESC LIMIT $2) AS live"
);
/// The execution of each job that ended last among the latest few: overlapping occurrences may end in any
/// order.
pub(crate) const LAST_FINISHED: &str = concat!(
    "SELECT ",
    history_columns!(),
    ", workers.name FROM unnest($1::uuid[]) AS wanted (job) CROSS JOIN LATERAL (SELECT * FROM (SELECT * FROM history \
     WHERE history.job = wanted.job ORDER BY occurrence DESC, attempt DESC LIMIT $2) AS latest \
     ORDER BY completed_at DESC, occurrence DESC, attempt DESC LIMIT 1) AS history",
    worker_of_history!()
);
/// Finished executions that are searched for the last to end.
const LATEST_LOOKED_AT: usize = 8;

impl<C: GenericClient> Reads<'_, C> {
    /// The views of those of these jobs that exist and are not deleted.
    pub(super) async fn views(&self, ids: &[JobId]) -> Result<BTreeMap<JobId, JobView>, Fault> {
        let ids: Vec<Uuid> = ids.iter().map(|id| uuid(*id)).collect();
        let (jobs, schedules, open, ended) = try_join4(
            self.jobs_of(&ids),
            self.schedules_of(&ids),
            self.open_of_jobs(&ids),
            self.last_finished(&ids),
        )
        .await?;
        let numbers = jobs.iter().map(|job| job.lane).chain(schedules.values().map(|schedule| schedule.lane));
        let lanes = self.named_lanes(numbers).await?;
        let mut parts = Parts { schedules, open, ended };
        let mut views = BTreeMap::new();
        for job in jobs {
            let Some(lane) = pass_over(lanes.lane(job.lane))? else { continue };
            let job = job.named(lane).job;
            if job.mark == JobMark::Deleted {
                continue;
            }
            let schedule = match parts.schedules.remove(&job.id) {
                Some(schedule) => {
                    let lane = pass_over(lanes.lane(schedule.lane))?;
                    lane.map(|lane| schedule.named(lane).state)
                }
                None => None,
            };
            let open = parts.open.remove(&job.id).unwrap_or_default();
            let last_finished = parts.ended.remove(&job.id);
            views.insert(job.id, JobView { job, schedule, open, last_finished });
        }
        Ok(views)
    }

    /// A job that exists and cannot be read is an error.
    pub(super) async fn check_readable(&self, id: JobId) -> Result<(), Fault> {
        let rows = self.all(JOBS, &[&vec![uuid(id)]]).await?;
        rows.iter().try_for_each(|row| read_job(row, 0).map(drop))
    }

    async fn jobs_of(&self, ids: &[Uuid]) -> Result<Vec<UnnamedJob>, Fault> {
        readable(self.all(JOBS, &[&ids]).await?.iter().map(|row| read_job(row, 0)))
    }

    async fn schedules_of(&self, ids: &[Uuid]) -> Result<BTreeMap<JobId, UnnamedSchedule>, Fault> {
        let rows = self.all(SCHEDULES, &[&ids]).await?;
        let read = |row| Ok((job_id(row, 0)?, read_schedule(row, 0)?));
        Ok(readable(rows.iter().map(read))?.into_iter().collect())
    }

    async fn open_of_jobs(&self, ids: &[Uuid]) -> Result<BTreeMap<JobId, Vec<Live>>, Fault> {
        let mut open: BTreeMap<JobId, Vec<Live>> = BTreeMap::new();
        for row in self.all(OPEN_OF_JOBS, &[&ids, &limit(OPEN_IN_VIEW_MAX)]).await? {
            let Some(LiveRow { live, .. }) = pass_over(read_live(&row, 0))? else { continue };
            open.entry(live.id.job).or_default().push(live);
        }
        // Latest first, however the rows were joined.
        open.values_mut().for_each(|lives| lives.sort_unstable_by_key(|live| std::cmp::Reverse(live.id)));
        Ok(open)
    }

    async fn last_finished(&self, ids: &[Uuid]) -> Result<BTreeMap<JobId, Finished>, Fault> {
        let mut ended = BTreeMap::new();
        for row in self.all(LAST_FINISHED, &[&ids, &limit(LATEST_LOOKED_AT)]).await? {
            let Some(finished) = pass_over(read_finished(&row, 0))? else { continue };
            ended.insert(finished.id.occurrence.job, finished);
        }
        Ok(ended)
    }
}

/// What belongs to jobs, by their ids.
struct Parts {
    schedules: BTreeMap<JobId, UnnamedSchedule>,
    open: BTreeMap<JobId, Vec<Live>>,
    ended: BTreeMap<JobId, Finished>,
}
