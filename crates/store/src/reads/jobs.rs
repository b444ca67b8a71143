//! Single jobs, and lists of jobs. A list reads its candidates, the values to filter by and the views one
//! after the other, from one snapshot.

use super::page::PageFilling;
use super::{Query, ReadKind, Reads};
use crate::cells::{Cell, get};
use crate::codecs::{job_id, limit};
use crate::codes::{Code, read_owner};
use crate::counters::status;
use crate::fault::Fault;
use crate::lists::{Candidate, JobPostFilter, bytes_of_view, jobs_looked_at};
use crate::malformed::{readable, skip_malformed};
use crate::reads::rows::candidate;
use crate::row_list::{self, row};
use crate::rows::KeyKind;
use punctual_core::ids::JobId;
use punctual_core::job::{JobStatus, StoredStatus};
use punctual_core::ports::{JobOwner, JobQuery, JobView, Page};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// After all jobs.
pub(super) const AFTER_ALL: JobId = JobId::from_bytes([0xFF; 16]);

impl Reads<'_> {
    pub async fn job(&mut self, id: JobId) -> Result<Option<JobView>, Fault> {
        self.connection.begin_snapshot().await?;
        let view = self.views(&[id]).await?.remove(&id);
        if view.is_none() {
            self.check_readable(id).await?;
        }
        self.connection.end_snapshot().await?;
        Ok(view)
    }

    pub async fn jobs(&mut self, query: &JobQuery) -> Result<Page<JobView, JobId>, Fault> {
        self.connection.begin_snapshot().await?;
        let page = self.page_of_jobs(query).await?;
        self.connection.end_snapshot().await?;
        Ok(page)
    }

    pub async fn named_job(&mut self, owner: &str, name: &str) -> Result<Option<JobId>, Fault> {
        let kind = Cell::Number(KeyKind::Name.code());
        let key = [Cell::Text(owner.into()), kind, Cell::Text(name.into())];
        let fetched = self.rows(Query::of(ReadKind::KeyHolder, key)).await?;
        fetched.first().map(|row| job_id(row, 0)).transpose()
    }

    pub async fn job_owners(&mut self, jobs: &[JobId]) -> Result<Vec<JobOwner>, Fault> {
        let fetched = self.rows(Query::listed(ReadKind::OwnersOfJobs, row_list::ids(jobs))).await?;
        let lanes = self.lanes_in(&fetched, 2).await?;
        readable(fetched.iter().map(|row| {
            let lane = lanes.lane(get(row, 2)?)?.clone();
            Ok(JobOwner { job: job_id(row, 0)?, owner: read_owner(get(row, 1)?), lane })
        }))
    }

    async fn page_of_jobs(&mut self, query: &JobQuery) -> Result<Page<JobView, JobId>, Fault> {
        let batches = self.connection.batches();
        let looked_at_max = jobs_looked_at(query);
        let candidates = self.candidates(query, looked_at_max).await?;
        let wanted = JobPostFilter::of(query);
        // If only their views tell the status, most of them may not match.
        let is_status_in_view = query.status.is_some() && !batches.has_standing;
        let mut page = PageFilling::of(query.limit);
        for some in candidates.chunks(batches.candidates) {
            let mut meant = self.meant(query, &wanted, some).await?;
            let mut views = BTreeMap::new();
            for Candidate { id, .. } in some {
                if page.room.is_full() {
                    return Ok(page.cut_off());
                }
                if meant.front() == Some(id) {
                    let most = if is_status_in_view { meant.len() } else { page.room.items() };
                    let portion = most.min(batches.views).min(meant.len());
                    views = self.views(&meant.drain(..portion).collect::<Vec<_>>()).await?;
                }
                let has_status = |view: &JobView| query.status.is_none_or(|status| view.status() == status);
                let has_room = match views.remove(id).filter(has_status) {
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

    /// The candidates that match as far as that is known without their views, in their order.
    async fn meant(
        &mut self,
        query: &JobQuery,
        wanted: &JobPostFilter<'_>,
        candidates: &[Candidate],
    ) -> Result<VecDeque<JobId>, Fault> {
        let lanes = self.lanes(candidates.iter().map(|candidate| candidate.lane)).await?;
        let (mut meant, mut by_tags) = (Vec::new(), Vec::new());
        for candidate in candidates {
            if let Some(lane) = skip_malformed(lanes.lane(candidate.lane))?
                && candidate.matches(query, lane)
            {
                meant.push((candidate, lane));
                by_tags.extend(candidate.needs_tags(wanted, lane).then_some(candidate.id));
            }
        }
        if !by_tags.is_empty() {
            let tags = self.tags_of(&by_tags).await?;
            meant.retain(|(candidate, lane)| {
                let tags = tags.get(&candidate.id).map_or(&[][..], Vec::as_slice);
                !candidate.needs_tags(wanted, lane) || candidate.has_tags_and_text(wanted, lane, tags)
            });
        }
        let mut meant: VecDeque<&Candidate> = meant.into_iter().map(|(candidate, _)| candidate).collect();
        if let Some(wanted) = query.status
            && self.connection.batches().has_standing
        {
            let unfinished = self.unfinished_of(meant.iter().map(|candidate| &candidate.id)).await?;
            let of = |candidate: &Candidate| status(candidate.mark, unfinished.contains(&candidate.id));
            meant.retain(|candidate| of(candidate) == Some(wanted));
        }
        Ok(meant.into_iter().map(|candidate| candidate.id).collect())
    }

    async fn tags_of(&mut self, ids: &[JobId]) -> Result<BTreeMap<JobId, Vec<String>>, Fault> {
        let mut tags: BTreeMap<JobId, Vec<String>> = BTreeMap::new();
        let fetched = self.rows(Query::listed(ReadKind::TagsOfJobs, row_list::ids(ids))).await?;
        for (job, tag) in readable(fetched.iter().map(|row| Ok((job_id(row, 0)?, get(row, 1)?))))? {
            tags.entry(job).or_default().push(tag);
        }
        Ok(tags)
    }

    /// Those of these jobs with open or future occurrences.
    async fn unfinished_of<'b>(
        &mut self,
        ids: impl Iterator<Item = &'b JobId> + Send,
    ) -> Result<BTreeSet<JobId>, Fault> {
        let mut unfinished = BTreeSet::new();
        for row in self.rows(Query::listed(ReadKind::StandingOfJobs, row_list::ids(ids))).await?.iter() {
            if get(row, 1)? {
                unfinished.insert(job_id(row, 0)?);
            }
        }
        Ok(unfinished)
    }

    /// The latest jobs before the cursor that may have the requested status, found without scanning jobs
    /// with another status.
    async fn candidates(&mut self, query: &JobQuery, count: usize) -> Result<Vec<Candidate>, Fault> {
        let (before, most) = (query.before.unwrap_or(AFTER_ALL), limit(count));
        let marked = |mark: StoredStatus| Query::of(ReadKind::MarkedJobs, row![before, most, mark]);
        let jobs = if query.scheduled {
            Query::of(ReadKind::ScheduledJobs, row![before, most])
        } else if let Some(id) = query.text.as_ref().and_then(|text| text.parse::<JobId>().ok()) {
            if id >= before {
                return Ok(vec![]);
            }
            Query::of(ReadKind::OneJob, row![id])
        } else if let Some(tag) = query.tags.first() {
            Query::of(ReadKind::TaggedJobs, row![before, most, tag.as_str()])
        } else {
            match query.status {
                None | Some(JobStatus::Completed) => Query::of(ReadKind::LatestJobs, row![before, most]),
                Some(JobStatus::Paused) => marked(StoredStatus::Paused),
                Some(JobStatus::Failed) => marked(StoredStatus::Failed),
                Some(JobStatus::Cancelled) => marked(StoredStatus::Cancelled),
                Some(JobStatus::Active) => Query::of(ReadKind::ActiveJobs, row![before, most]),
            }
        };
        let fetched = self.rows(jobs).await?;
        let mut candidates = readable(fetched.iter().map(candidate))?;
        candidates.sort_by_key(|candidate| Reverse(candidate.id));
        Ok(candidates)
    }
}
