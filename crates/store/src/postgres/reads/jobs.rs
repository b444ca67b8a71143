//! Single jobs, and lists of jobs. Both within a transaction: a list reads its candidates, the values to
//! filter by and the views one after the other.

use super::Reads;
use crate::cells::get;
use crate::codecs::{job_id, limit};
use crate::counters::status;
use crate::fault::Fault;
use crate::lists::{Candidate, JobFilter, Room, bytes_of_view, jobs_looked_at};
use crate::malformed::pass_over;
use crate::postgres::rows::{code, uuid};
use crate::server::rows::{candidate, candidate_columns};
use deadpool_postgres::GenericClient;
use punctual_core::ids::JobId;
use punctual_core::job::{JobMark, JobStatus};
use punctual_core::limits;
use punctual_core::ports::{JobQuery, JobView, Page, StoreError};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tokio_postgres::Row;
use uuid::Uuid;

/// Views to read at once, so that few payloads are read needlessly when a page is full.
const VIEWS_AT_ONCE: usize = 32;

/// How candidates were found, and the jobs themselves.
macro_rules! candidates_of {
    ($found:literal) => {
        concat!(
            "SELECT ",
            candidate_columns!(),
            " FROM (",
            $found,
            ") AS found CROSS JOIN LATERAL (SELECT id, lane, mark, priority, owner, name, schedule_type FROM jobs \
             WHERE jobs.id = found.job LIMIT 1) AS jobs ORDER BY found.job DESC"
        )
    };
}
pub(crate) const LATEST_JOBS: &str =
    concat!("SELECT ", candidate_columns!(), " FROM jobs WHERE id < $1 ORDER BY id DESC LIMIT $2");
pub(crate) const MARKED_JOBS: &str = concat!(
    "SELECT ",
    candidate_columns!(),
    " FROM jobs WHERE mark = $3 AND mark <> 0 AND id < $1 ORDER BY id DESC LIMIT $2"
);
pub(crate) const TAGGED_JOBS: &str =
    candidates_of!("SELECT job FROM job_tags WHERE tag = $3 AND job < $1 ORDER BY job DESC LIMIT $2");
/// Jobs with open or future occurrences.
pub(crate) const ACTIVE_JOBS: &str = candidates_of!(
    "SELECT job FROM ((SELECT DISTINCT job FROM live WHERE job < $1 ORDER BY job DESC LIMIT $2) \
     UNION (SELECT job FROM schedules WHERE job < $1 ORDER BY job DESC LIMIT $2)) AS either \
     ORDER BY job DESC LIMIT $2"
);
pub(crate) const ONE_JOB: &str = concat!("SELECT ", candidate_columns!(), " FROM jobs WHERE id = $1");
pub(crate) const TAGS_OF_JOBS: &str = "SELECT job, tag FROM job_tags WHERE job = ANY ($1)";
/// Whether these jobs have open or future occurrences.
pub(crate) const STANDING_OF_JOBS: &str = "SELECT wanted.job, coalesce(open.job, schedule.job) IS NOT NULL \
     FROM unnest($1::uuid[]) AS wanted (job) \
     LEFT JOIN LATERAL (SELECT job FROM live WHERE live.job = wanted.job LIMIT 1) AS open ON true \
     LEFT JOIN LATERAL (SELECT job FROM schedules WHERE schedules.job = wanted.job LIMIT 1) AS schedule ON true";

impl<C: GenericClient> Reads<'_, C> {
    pub async fn job(&self, id: JobId) -> Result<Option<JobView>, StoreError> {
        let view = self.views(&[id]).await?.remove(&id);
        if view.is_none() {
            self.check_readable(id).await?;
        }
        Ok(view)
    }

    pub async fn jobs(&self, query: &JobQuery) -> Result<Page<JobView, JobId>, StoreError> {
        Ok(self.page_of_jobs(query).await?)
    }

    async fn page_of_jobs(&self, query: &JobQuery) -> Result<Page<JobView, JobId>, Fault> {
        let looked_at_max = jobs_looked_at(query);
        let candidates = self.candidates(query, looked_at_max).await?;
        let is_cut_off = candidates.len() == looked_at_max;
        let mut meant = self.meant(query, &candidates).await?;
        let wanted = query.limit.clamp(1, limits::PAGE_ITEMS_MAX);
        let (mut items, mut last) = (Vec::new(), None);
        let (mut room, mut views) = (Room::of(wanted), BTreeMap::new());
        for Candidate { id, .. } in &candidates {
            if room.is_full() {
                return Ok(Page { items, next: last });
            }
            if meant.front() == Some(id) {
                let portion = (wanted - items.len()).min(VIEWS_AT_ONCE).min(meant.len());
                let portion: Vec<JobId> = meant.drain(..portion).collect();
                views = self.views(&portion).await?;
            }
            if let Some(view) = views.remove(id) {
                if !room.take(bytes_of_view(&view)) {
                    return Ok(Page { items, next: last });
                }
                items.push(view);
            }
            last = Some(*id);
        }
        Ok(Page { items, next: last.filter(|_| is_cut_off) })
    }

    /// The candidates that match the query, in their order.
    async fn meant(&self, query: &JobQuery, candidates: &[Candidate]) -> Result<VecDeque<JobId>, Fault> {
        let lanes = self.named_lanes(candidates.iter().map(|candidate| candidate.lane)).await?;
        let wanted = JobFilter::of(query);
        let (mut meant, mut by_tags) = (Vec::new(), Vec::new());
        for candidate in candidates {
            if let Some(lane) = pass_over(lanes.lane(candidate.lane))?
                && candidate.matches(query, lane)
            {
                meant.push((candidate, lane));
                by_tags.extend(candidate.needs_tags(&wanted, lane).then(|| uuid(candidate.id)));
            }
        }
        if !by_tags.is_empty() {
            let tags = self.tags_of(&by_tags).await?;
            let none = Vec::new();
            meant.retain(|(candidate, lane)| {
                let tags = tags.get(&candidate.id).unwrap_or(&none);
                !candidate.needs_tags(&wanted, lane) || candidate.has_tags_and_text(&wanted, lane, tags)
            });
        }
        if let Some(wanted) = query.status {
            let ids: Vec<Uuid> = meant.iter().map(|(candidate, _)| uuid(candidate.id)).collect();
            let unfinished = self.unfinished_of(&ids).await?;
            let of = |candidate: &Candidate| status(candidate.mark, unfinished.contains(&candidate.id));
            meant.retain(|(candidate, _)| of(candidate) == Some(wanted));
        }
        Ok(meant.into_iter().map(|(candidate, _)| candidate.id).collect())
    }

    async fn tags_of(&self, ids: &[Uuid]) -> Result<BTreeMap<JobId, Vec<String>>, Fault> {
        let mut tags: BTreeMap<JobId, Vec<String>> = BTreeMap::new();
        for row in self.all(TAGS_OF_JOBS, &[&ids]).await? {
            tags.entry(job_id(&row, 0)?).or_default().push(get(&row, 1)?);
        }
        Ok(tags)
    }

    /// Those of these jobs with open or future occurrences.
    async fn unfinished_of(&self, ids: &[Uuid]) -> Result<BTreeSet<JobId>, Fault> {
        let mut unfinished = BTreeSet::new();
        for row in self.all(STANDING_OF_JOBS, &[&ids]).await? {
            if get(&row, 1)? {
                unfinished.insert(job_id(&row, 0)?);
            }
        }
        Ok(unfinished)
    }

    /// The latest jobs before the cursor that may have the requested status, found without scanning jobs
    /// with another status.
    async fn candidates(&self, query: &JobQuery, count: usize) -> Result<Vec<Candidate>, Fault> {
        let (before, most) = (query.before.map_or(Uuid::max(), uuid), limit(count));
        let rows = if let Some(id) = query.text.as_ref().and_then(|text| text.parse::<JobId>().ok()) {
            let is_before = query.before.is_none_or(|before| id < before);
            let found = self.one(ONE_JOB, &[&uuid(id)]).await?;
            found.into_iter().filter(|_| is_before).collect()
        } else if let Some(tag) = query.tags.first() {
            self.all(TAGGED_JOBS, &[&before, &most, tag]).await?
        } else {
            match query.status {
                None | Some(JobStatus::Completed) => self.all(LATEST_JOBS, &[&before, &most]).await?,
                Some(JobStatus::Paused) => self.marked(before, most, JobMark::Paused).await?,
                Some(JobStatus::Failed) => self.marked(before, most, JobMark::Failed).await?,
                Some(JobStatus::Cancelled) => self.marked(before, most, JobMark::Cancelled).await?,
                Some(JobStatus::Active) => self.all(ACTIVE_JOBS, &[&before, &most]).await?,
            }
        };
        rows.iter().map(candidate).collect()
    }

    async fn marked(&self, before: Uuid, most: i64, mark: JobMark) -> Result<Vec<Row>, Fault> {
        self.all(MARKED_JOBS, &[&before, &most, &code(mark)]).await
    }
}
