//! Single jobs, and lists of jobs.

use super::Reads;
use crate::codes::{Code, read_owner};
use crate::fault::Fault;
use crate::layout::{
    sqlite_job_columns as job_columns, sqlite_live_columns as live_columns,
    sqlite_schedule_columns as schedule_columns,
};
use crate::lists::{Candidate, JobPostFilter, PageRoom, bytes_of_view, jobs_looked_at};
use crate::malformed::pass_over;
use crate::server::rows::{candidate_columns, read_candidate};
use crate::sqlite::rows::{all, bound, job_id, one, one_readable, read_job, read_live, read_schedule, up_to};
use punctual_core::ids::JobId;
use punctual_core::job::{JobStatus, StoredStatus};
use punctual_core::ports::{JobOwner, JobQuery, JobView, Lane, OPEN_IN_VIEW_MAX, Page, StoreError};
use rusqlite::{Row, params};

/// A key after all job ids.
const AFTER_ALL: [u8; 17] = [0xFF; 17];

pub(crate) const JOB: &str = concat!("SELECT ", job_columns!(), " FROM jobs WHERE id = ?1");
pub(crate) const IS_DELETED: &str = "SELECT 1 FROM jobs WHERE id = ?1 AND mark = 4";
const SCHEDULE: &str = concat!("SELECT ", schedule_columns!(), " FROM schedules WHERE job = ?1");
pub(crate) const OPEN_OF_JOB: &str = concat!(
    "SELECT ",
    live_columns!(),
    " FROM live WHERE live.job = ?1 ORDER BY live.occurrence DESC LIMIT ?2"
);

macro_rules! candidates {
    ($which:literal) => {
        concat!("SELECT ", candidate_columns!(), " FROM ", $which)
    };
}
pub(crate) const LATEST_JOBS: &str = candidates!("jobs WHERE id < ?1 ORDER BY id DESC LIMIT ?2");
pub(crate) const MARKED_JOBS: &str =
    candidates!("jobs WHERE mark = ?3 AND mark <> 0 AND id < ?1 ORDER BY id DESC LIMIT ?2");
/// A cross join, which makes SQLite start with the tag.
pub(crate) const TAGGED_JOBS: &str = candidates!(
    "job_tags CROSS JOIN jobs ON jobs.id = job_tags.job \
     WHERE job_tags.tag = ?3 AND job_tags.job < ?1 ORDER BY job_tags.job DESC LIMIT ?2"
);
pub(crate) const TAGS_OF_JOB: &str = "SELECT tag FROM job_tags WHERE job = ?1";
pub(crate) const OWNER_OF_JOB: &str = "SELECT owner, lane FROM jobs WHERE id = ?1";
const ONE_JOB: &str = candidates!("jobs WHERE id = ?1");
pub(crate) const ACTIVE_LIVE: &str =
    "SELECT DISTINCT job FROM live WHERE job < ?1 ORDER BY job DESC LIMIT ?2";
pub(crate) const ACTIVE_SCHEDULES: &str =
    "SELECT job FROM schedules WHERE job < ?1 ORDER BY job DESC LIMIT ?2";

impl Reads<'_> {
    pub fn job(&mut self, id: JobId) -> Result<Option<JobView>, StoreError> {
        let snapshot = self.conn.unchecked_transaction().map_err(Fault::from)?;
        let view = self.view(id)?;
        drop(snapshot);
        Ok(view)
    }

    pub fn jobs(&mut self, query: &JobQuery) -> Result<Page<JobView, JobId>, StoreError> {
        let snapshot = self.conn.unchecked_transaction().map_err(Fault::from)?;
        let page = self.page(query)?;
        drop(snapshot);
        Ok(page)
    }

    /// Jobs that are not stored, or cannot be read, are left out.
    pub fn job_owners(&mut self, jobs: &[JobId]) -> Result<Vec<JobOwner>, StoreError> {
        let mut owners = Vec::with_capacity(jobs.len());
        for job in jobs {
            owners.extend(self.owner_of(*job)?);
        }
        Ok(owners)
    }

    pub(super) fn owner_of(&mut self, job: JobId) -> Result<Option<JobOwner>, Fault> {
        let mut select = self.conn.prepare_cached(OWNER_OF_JOB)?;
        let read = |row: &Row<'_>| Ok((row.get(0)?, row.get::<_, i64>(1)?));
        let Some((owner, lane)) = one_readable(&mut select, [job.as_bytes()], read)? else { return Ok(None) };
        let lane = pass_over(self.lanes.lane(self.conn, lane))?;
        Ok(lane.map(|lane| JobOwner { job, owner: read_owner(owner), lane }))
    }

    fn view(&mut self, id: JobId) -> Result<Option<JobView>, Fault> {
        let conn = self.conn;
        let key = [id.as_bytes()];
        let Some(row) = one(&mut *conn.prepare_cached(JOB)?, key, read_job)? else { return Ok(None) };
        let lane = self.lanes.lane(conn, row.lane)?;
        let job = row.named(&lane).job;
        if job.mark == StoredStatus::Deleted {
            return Ok(None);
        }
        let schedule = match one_readable(&mut *conn.prepare_cached(SCHEDULE)?, key, read_schedule)? {
            Some(schedule) => {
                let lane = pass_over(self.lanes.lane(conn, schedule.lane))?;
                lane.map(|lane| schedule.named(&lane).state)
            }
            None => None,
        };
        let bounds = params![id.as_bytes(), bound(OPEN_IN_VIEW_MAX)];
        let mut select = conn.prepare_cached(OPEN_OF_JOB)?;
        let open = up_to(OPEN_IN_VIEW_MAX, &mut select, bounds, |row| Ok(read_live(row)?.live))?;
        let last_finished = self.last_finished(id)?;
        Ok(Some(JobView { job, schedule, open, last_finished }))
    }

    fn page(&mut self, query: &JobQuery) -> Result<Page<JobView, JobId>, Fault> {
        let looked_at_max = jobs_looked_at(query);
        let candidates = self.candidates(query, looked_at_max)?;
        let is_cut_off = candidates.len() == looked_at_max;
        let wanted = JobPostFilter::of(query);
        let (mut items, mut last) = (Vec::new(), None);
        let mut room = PageRoom::of(query.limit);
        for candidate in &candidates {
            if room.is_full() {
                return Ok(Page { items, next: last });
            }
            if let Some(lane) = pass_over(self.lanes.lane(self.conn, candidate.lane))?
                && candidate.matches(query, &lane)
                && self.has_tags_and_text(candidate, &lane, &wanted)?
                && let Some(Some(view)) = pass_over(self.view(candidate.id))?
                && query.status.is_none_or(|status| view.status() == status)
            {
                if !room.take(bytes_of_view(&view)) {
                    return Ok(Page { items, next: last });
                }
                items.push(view);
            }
            last = Some(candidate.id);
        }
        Ok(Page { items, next: last.filter(|_| is_cut_off) })
    }

    fn has_tags_and_text(
        &self,
        candidate: &Candidate,
        lane: &Lane,
        wanted: &JobPostFilter<'_>,
    ) -> Result<bool, Fault> {
        if !candidate.needs_tags(wanted, lane) {
            return Ok(true);
        }
        let mut select = self.conn.prepare_cached(TAGS_OF_JOB)?;
        let tags: Vec<String> = all(&mut select, [candidate.id.as_bytes()], |row| Ok(row.get(0)?))?;
        Ok(candidate.has_tags_and_text(wanted, lane, &tags))
    }

    /// The latest jobs before the cursor that may have the requested status, found without scanning jobs
    /// with another status.
    fn candidates(&mut self, query: &JobQuery, count: usize) -> Result<Vec<Candidate>, Fault> {
        let before = query.before.map_or(AFTER_ALL.to_vec(), |id| id.as_bytes().to_vec());
        let bounds = params![before, bound(count)];
        let marked = |mark: StoredStatus| {
            let mut select = self.conn.prepare_cached(MARKED_JOBS)?;
            up_to(count, &mut select, params![before, bound(count), mark.code()], |row| read_candidate(row))
        };
        if let Some(id) = query.text.as_ref().and_then(|text| text.parse::<JobId>().ok()) {
            let found =
                one(&mut *self.conn.prepare_cached(ONE_JOB)?, [id.as_bytes()], |row| read_candidate(row))?;
            return Ok(found.into_iter().filter(|_| query.before.is_none_or(|before| id < before)).collect());
        }
        if let Some(tag) = query.tags.first() {
            let mut select = self.conn.prepare_cached(TAGGED_JOBS)?;
            return up_to(count, &mut select, params![before, bound(count), tag], |row| read_candidate(row));
        }
        match query.status {
            None | Some(JobStatus::Completed) => {
                up_to(count, &mut *self.conn.prepare_cached(LATEST_JOBS)?, bounds, |row| read_candidate(row))
            }
            Some(JobStatus::Paused) => marked(StoredStatus::Paused),
            Some(JobStatus::Failed) => marked(StoredStatus::Failed),
            Some(JobStatus::Cancelled) => marked(StoredStatus::Cancelled),
            Some(JobStatus::Active) => self.active(&before, count),
        }
    }

    /// The latest jobs with open or future occurrences.
    fn active(&mut self, before: &[u8], count: usize) -> Result<Vec<Candidate>, Fault> {
        let bounds = params![before, bound(count)];
        let read = |row: &Row<'_>| job_id(row, 0);
        let mut ids = up_to(count, &mut *self.conn.prepare_cached(ACTIVE_LIVE)?, bounds, read)?;
        ids.extend(up_to(count, &mut *self.conn.prepare_cached(ACTIVE_SCHEDULES)?, bounds, read)?);
        ids.sort_unstable_by(|a, b| b.cmp(a));
        ids.dedup();
        ids.truncate(count);
        let mut select = self.conn.prepare_cached(ONE_JOB)?;
        let mut candidates = Vec::with_capacity(ids.len());
        for id in ids {
            let found = one(&mut select, [id.as_bytes()], |row| read_candidate(row))
                .and_then(|found| found.ok_or_else(|| Fault::Missing(format!("job {id}"))));
            // A job that cannot be read still advances the list.
            candidates.push(pass_over(found)?.unwrap_or_else(|| Candidate::unreadable(id)));
        }
        Ok(candidates)
    }
}
