//! Lists of jobs.

use super::Reads;
use super::keys::{VIEWS_AT_ONCE, json_of_jobs, key};
use super::page::Filling;
use crate::cells::get;
use crate::codecs::{job_id, limit};
use crate::codes::Code;
use crate::fault::Fault;
use crate::lists::{Candidate, JobFilter, bytes_of_view, jobs_looked_at};
use crate::malformed::pass_over;
use crate::server::rows::{candidate, candidate_columns};
use mysql_async::Value;
use punctual_core::ids::JobId;
use punctual_core::job::{JobMark, JobStatus};
use punctual_core::ports::{JobQuery, JobView, Page};
use std::collections::{BTreeMap, BTreeSet};

/// A key after all job ids.
pub(super) const AFTER_ALL: [u8; 16] = [0xFF; 16];

pub(crate) const LATEST_JOBS: &str = concat!(
    "SELECT ",
    candidate_columns!(),
    " FROM jobs FORCE INDEX (PRIMARY) WHERE jobs.id < ? ORDER BY jobs.id DESC LIMIT ?"
);
pub(crate) const MARKED_JOBS: &str = concat!(
    "SELECT ",
    candidate_columns!(),
    " FROM jobs FORCE INDEX (jobs_marked) WHERE jobs.mark = ? AND jobs.id < ? ORDER BY jobs.id DESC LIMIT ?"
);
pub(crate) const TAGGED_JOBS: &str = concat!(
    "SELECT ",
    candidate_columns!(),
    " FROM job_tags FORCE INDEX (PRIMARY) STRAIGHT_JOIN jobs ON jobs.id = job_tags.job \
     WHERE job_tags.tag = ? AND job_tags.job < ? ORDER BY job_tags.job DESC LIMIT ?"
);
pub(crate) const JOBS_BY_ID: &str = concat!(
    "SELECT ",
    candidate_columns!(),
    " FROM JSON_TABLE(?, '$[*]' COLUMNS (job CHAR(32) PATH '$[0]')) AS wanted \
     STRAIGHT_JOIN jobs ON jobs.id = UNHEX(wanted.job)"
);
pub(crate) const TAGS_OF_JOBS: &str = "SELECT job_tags.job, job_tags.tag \
     FROM JSON_TABLE(?, '$[*]' COLUMNS (job CHAR(32) PATH '$[0]')) AS wanted \
     STRAIGHT_JOIN job_tags FORCE INDEX (job_tags_job) ON job_tags.job = UNHEX(wanted.job)";
pub(crate) const ACTIVE_LIVE: &str = "SELECT live.job FROM live FORCE INDEX (PRIMARY) WHERE live.job < ? \
     GROUP BY live.job ORDER BY live.job DESC LIMIT ?";
pub(crate) const ACTIVE_SCHEDULES: &str = "SELECT schedules.job FROM schedules FORCE INDEX (PRIMARY) WHERE schedules.job < ? \
     ORDER BY schedules.job DESC LIMIT ?";

impl Reads {
    pub async fn jobs(&mut self, query: &JobQuery) -> Result<Page<JobView, JobId>, Fault> {
        self.begin_snapshot().await?;
        let page = self.page_of_jobs(query).await?;
        self.end_snapshot().await?;
        Ok(page)
    }

    async fn page_of_jobs(&mut self, query: &JobQuery) -> Result<Page<JobView, JobId>, Fault> {
        let looked_at_max = jobs_looked_at(query);
        let candidates = self.candidates(query, looked_at_max).await?;
        let wanted = JobFilter::of(query);
        let mut page = Filling::of(query.limit);
        for some in candidates.chunks(VIEWS_AT_ONCE) {
            let meant = self.meant(query, &wanted, some).await?;
            let mut views = self.views(&meant).await?;
            for Candidate { id, .. } in some {
                let view = views.remove(id);
                let has_status = |view: &JobView| query.status.is_none_or(|status| view.status() == status);
                let has_room = match view.filter(has_status) {
                    Some(view) => {
                        let bytes = bytes_of_view(&view);
                        page.add(view, bytes, *id)
                    }
                    None => page.pass(*id),
                };
                if !has_room {
                    return Ok(page.cut_off());
                }
            }
        }
        Ok(if candidates.len() == looked_at_max { page.cut_off() } else { page.ended() })
    }

    /// The candidates that match, as far as that is known without their views.
    async fn meant(
        &mut self,
        query: &JobQuery,
        wanted: &JobFilter<'_>,
        candidates: &[Candidate],
    ) -> Result<Vec<JobId>, Fault> {
        let mut meant = Vec::with_capacity(candidates.len());
        let mut in_doubt = Vec::new();
        for candidate in candidates {
            let Some(lane) = pass_over(self.lane(candidate.lane).await)? else { continue };
            if !candidate.matches(query, &lane) {
                continue;
            }
            if candidate.needs_tags(wanted, &lane) {
                in_doubt.push((candidate, lane));
            } else {
                meant.push(candidate.id);
            }
        }
        if !in_doubt.is_empty() {
            let tags = self.tags_of(in_doubt.iter().map(|(candidate, _)| candidate.id)).await?;
            for (candidate, lane) in in_doubt {
                let tags = tags.get(&candidate.id).map_or(&[][..], Vec::as_slice);
                if candidate.has_tags_and_text(wanted, &lane, tags) {
                    meant.push(candidate.id);
                }
            }
        }
        Ok(meant)
    }

    async fn tags_of(
        &mut self,
        jobs: impl IntoIterator<Item = JobId>,
    ) -> Result<BTreeMap<JobId, Vec<String>>, Fault> {
        let mut tags: BTreeMap<JobId, Vec<String>> = BTreeMap::new();
        for row in self.all(TAGS_OF_JOBS, (json_of_jobs(jobs),)).await? {
            tags.entry(job_id(&row, 0)?).or_default().push(get(&row, 1)?);
        }
        Ok(tags)
    }

    /// The latest jobs before the cursor that may have the requested status, found without scanning jobs
    /// with another status.
    async fn candidates(&mut self, query: &JobQuery, count: usize) -> Result<Vec<Candidate>, Fault> {
        let before = query.before.map_or_else(|| Value::Bytes(AFTER_ALL.to_vec()), key);
        if let Some(id) = query.text.as_ref().and_then(|text| text.parse::<JobId>().ok()) {
            let is_before = query.before.is_none_or(|before| id < before);
            return self.candidates_by_id(&BTreeSet::from_iter(is_before.then_some(id))).await;
        }
        if let Some(tag) = query.tags.first() {
            let rows = self.all(TAGGED_JOBS, (tag.as_bytes(), before, limit(count))).await?;
            return rows.iter().map(candidate).collect();
        }
        let mark = match query.status {
            None | Some(JobStatus::Completed) => {
                let rows = self.all(LATEST_JOBS, (before, limit(count))).await?;
                return rows.iter().map(candidate).collect();
            }
            Some(JobStatus::Active) => return self.active(before, count).await,
            Some(JobStatus::Paused) => JobMark::Paused,
            Some(JobStatus::Failed) => JobMark::Failed,
            Some(JobStatus::Cancelled) => JobMark::Cancelled,
        };
        let rows = self.all(MARKED_JOBS, (mark.code(), before, limit(count))).await?;
        rows.iter().map(candidate).collect()
    }

    /// The latest jobs with open or future occurrences.
    async fn active(&mut self, before: Value, count: usize) -> Result<Vec<Candidate>, Fault> {
        let mut ids = BTreeSet::new();
        for sql in [ACTIVE_LIVE, ACTIVE_SCHEDULES] {
            for row in self.all(sql, (before.clone(), limit(count))).await? {
                ids.insert(job_id(&row, 0)?);
            }
        }
        let latest = ids.into_iter().rev().take(count).collect();
        self.candidates_by_id(&latest).await
    }

    /// These jobs, the latest first.
    async fn candidates_by_id(&mut self, ids: &BTreeSet<JobId>) -> Result<Vec<Candidate>, Fault> {
        if ids.is_empty() {
            return Ok(vec![]);
        }
        let rows = self.all(JOBS_BY_ID, (json_of_jobs(ids.iter().copied()),)).await?;
        let mut candidates = rows.iter().map(candidate).collect::<Result<Vec<_>, _>>()?;
        candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.id));
        Ok(candidates)
    }
}
