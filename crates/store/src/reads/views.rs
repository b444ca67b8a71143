//! Jobs as users see them, with their schedules, open occurrences and last ends. They are read for many
//! jobs at once, from one snapshot.

use super::{AnyRow, FetchedRows, Query, ReadKind, Reads};
use crate::codecs::{
    UnnamedJob, UnnamedSchedule, counter, job_id, limit, read_finished, read_job, read_live, read_schedule,
};
use crate::fault::Fault;
use crate::malformed::{readable, skip_malformed};
use crate::row_list::{self, List, row};
use crate::rows::LiveRow;
use punctual_core::ids::JobId;
use punctual_core::job::StoredStatus;
use punctual_core::occurrence::{Finished, Live};
use punctual_core::ports::{JobView, OPEN_IN_VIEW_MAX};
use punctual_core::time::Timestamp;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Finished executions that are searched for the last to end: overlapping occurrences may end in any order.
const LATEST_LOOKED_AT: usize = 8;

/// A position in history and the end time of its entry, which determines the partition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndedAt {
    pub place: u64,
    pub completed_at: Timestamp,
}

impl EndedAt {
    pub fn list<'a>(ended: impl IntoIterator<Item = EndedAt>) -> List<'a> {
        List::of(ended.into_iter().map(|ended| row![counter(ended.place), ended.completed_at]))
    }
}

impl Reads<'_> {
    /// The views of those of these jobs that exist and are not deleted.
    pub(super) async fn views(&mut self, ids: &[JobId]) -> Result<BTreeMap<JobId, JobView>, Fault> {
        let about = |read| Query::listed(read, row_list::ids(ids));
        let parts = || {
            [
                about(ReadKind::Schedules),
                about(ReadKind::OpenOfJobs).with(row![limit(OPEN_IN_VIEW_MAX)]),
                about(ReadKind::LastFinished).with(row![limit(LATEST_LOOKED_AT)]),
            ]
        };
        let (jobs, [schedules, open, ended]) = if self.connection.batches().is_pipelined {
            let [one, two, three] = parts();
            let [jobs, one, two, three] = self.fetch([about(ReadKind::Jobs), one, two, three]).await?;
            (jobs, [one, two, three])
        } else {
            let jobs = self.rows(about(ReadKind::Jobs)).await?;
            if jobs.first().is_none() {
                return Ok(BTreeMap::new());
            }
            (jobs, self.fetch(parts()).await?)
        };
        let jobs: Vec<UnnamedJob> = readable(jobs.iter().map(|row| read_job(row, 0)))?;
        let mut schedules = read_schedules(&schedules)?;
        let mut open = read_open(&open)?;
        let ended = readable(ended.iter().map(|row| read_finished(row, 0)))?;
        let mut ended: BTreeMap<JobId, Finished> =
            ended.into_iter().map(|finished| (finished.id.occurrence.job, finished)).collect();
        let numbers = jobs.iter().map(|job| job.lane).chain(schedules.values().map(|schedule| schedule.lane));
        let lanes = self.lanes(numbers).await?;
        let mut views = BTreeMap::new();
        for job in jobs {
            let Some(lane) = skip_malformed(lanes.lane(job.lane))? else { continue };
            let job = job.named(lane).job;
            if job.mark == StoredStatus::Deleted {
                continue;
            }
            let schedule = match schedules.remove(&job.id) {
                Some(schedule) => {
                    let lane = skip_malformed(lanes.lane(schedule.lane))?;
                    lane.map(|lane| schedule.named(lane).state)
                }
                None => None,
            };
            let open = open.remove(&job.id).unwrap_or_default();
            let last_finished = ended.remove(&job.id);
            views.insert(job.id, JobView { job, schedule, open, last_finished });
        }
        Ok(views)
    }

    /// A job that exists and cannot be read is an error.
    pub(super) async fn check_readable(&mut self, id: JobId) -> Result<(), Fault> {
        let rows = self.rows(Query::listed(ReadKind::Jobs, row_list::ids(&[id]))).await?;
        rows.iter().try_for_each(|row| read_job(row, 0).map(drop))
    }
}

fn read_schedules(rows: &FetchedRows) -> Result<BTreeMap<JobId, UnnamedSchedule>, Fault> {
    let read = |row: &AnyRow| Ok((job_id(row, 0)?, read_schedule(row, 0)?));
    Ok(readable(rows.iter().map(read))?.into_iter().collect())
}

/// The latest of each job first.
fn read_open(rows: &FetchedRows) -> Result<BTreeMap<JobId, Vec<Live>>, Fault> {
    let mut open: BTreeMap<JobId, Vec<Live>> = BTreeMap::new();
    for LiveRow { live, .. } in readable(rows.iter().map(|row| read_live(row, 0)))? {
        open.entry(live.id.job).or_default().push(live);
    }
    // The order of joins and unions is undefined.
    open.values_mut().for_each(|lives| lives.sort_unstable_by_key(|live| Reverse(live.id)));
    Ok(open)
}
