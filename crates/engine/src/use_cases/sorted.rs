//! Jobs in another order than the latest first. An index has the times of the next runs; for the other orders, a bounded
//! number of jobs is read and compared.

use super::scope::JobsMatching;
use super::{UseCase, UseCaseError, UseCases};
use futures_util::future::try_join_all;
use punctual_core::ids::{JobId, Segment, SegmentSet};
use punctual_core::job::JobStatus;
use punctual_core::job_predicate::{JobOrder, JobPredicate};
use punctual_core::limits;
use punctual_core::ports::{
    Due, DueKind, ExecutionQuery, ExecutionWalk, JobQuery, JobView, Page, StoreError,
};
use punctual_core::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// Jobs that are read at once.
const READ_AT_ONCE: usize = 16;

/// The first jobs in some order, of those that were read.
#[derive(Debug, Clone)]
pub struct SortedJobs {
    pub items: Vec<JobView>,
    /// How many matching jobs were compared.
    pub matched: u64,
    /// Whether no other job could be among the first.
    pub is_all: bool,
}

impl SortedJobs {
    /// The first of them, as far as a page has room.
    fn within_page(mut self) -> Self {
        let mut bytes = 0;
        self.items.retain(|view| {
            let has_room = bytes < limits::PAGE_BYTES_MAX;
            bytes += view.job.spec.payload.len();
            has_room
        });
        self
    }
}

impl UseCases {
    pub async fn jobs_sorted(
        &self,
        query: JobQuery,
        predicate: &JobPredicate,
        order: JobOrder,
    ) -> Result<SortedJobs, UseCaseError> {
        self.permit(UseCase::ReadJobs)?;
        self.check_predicate(predicate)?;
        if order == JobOrder::NextRun
            && let Some(sorted) = self.next_to_run(&query, predicate).await?
        {
            return Ok(sorted.within_page());
        }
        Ok(self.compared(query, predicate, order).await?.within_page())
    }

    /// The jobs whose next run comes first, among any number of jobs. `None` if fewer than the page holds were found.
    async fn next_to_run(
        &self,
        query: &JobQuery,
        predicate: &JobPredicate,
    ) -> Result<Option<SortedJobs>, UseCaseError> {
        // Only active jobs have a next run.
        if query.text.is_some() || !matches!(query.status, None | Some(JobStatus::Active)) {
            return Ok(None);
        }
        let limit = query.limit.clamp(1, limits::PAGE_ITEMS_MAX);
        let (ready, are_all_ready) = self.ready_jobs().await?;
        let due = self.store().due(SegmentSet::ALL, Timestamp::MAX, limits::NEXT_RUNS_READ).await?;
        let coming = ComingRuns::of(due, limits::NEXT_RUNS_READ);
        // A job runs at or after the time at which the scheduler looks at it.
        let ready = ready.into_iter().map(|job| (Timestamp::MIN, job));
        let candidates: Vec<(Timestamp, JobId)> = ready.chain(coming.in_order).collect();
        let (now, mut seen) = (self.now(), BTreeSet::new());
        let mut sorted = SortedJobs { items: vec![], matched: 0, is_all: are_all_ready };
        for some in candidates.chunks(READ_AT_ONCE).take(limits::NEXT_RUNS_COMPARED / READ_AT_ONCE) {
            let last = sorted.items.get(limit - 1).and_then(JobView::next_run_time);
            if last.is_some_and(|last| some.iter().all(|(at, _)| *at > last)) {
                return Ok(Some(sorted));
            }
            let new = some.iter().map(|(_, job)| *job).filter(|job| seen.insert(*job));
            let read: Vec<Option<JobView>> = try_join_all(new.map(|job| self.store().job(job))).await?;
            let meant = |view: &JobView| self.is_in_scope(&view.job.spec) && query.selects(view);
            let read = read.into_iter().flatten().filter(meant).collect();
            let shown = self.shown_page(Page { items: read, next: None }).await?;
            let has_time = |view: &JobView| view.next_run_time().is_some() && predicate.matches(view);
            let found: Vec<JobView> = shown.items.into_iter().filter(has_time).collect();
            sorted.matched += found.len() as u64;
            sorted.items.extend(found);
            sorted.items.sort_by(|one, other| JobOrder::NextRun.compare(one, other, now));
            sorted.items.truncate(limit);
        }
        let is_exhausted = candidates.len() <= limits::NEXT_RUNS_COMPARED && coming.is_complete;
        Ok((is_exhausted && sorted.items.len() == limit).then_some(sorted))
    }

    /// Jobs with an execution that could start now, and whether there are no others.
    async fn ready_jobs(&self) -> Result<(Vec<JobId>, bool), StoreError> {
        let query = ExecutionQuery {
            walk: ExecutionWalk::Queued { before: None },
            limit: limits::PAGE_ITEMS_MAX,
            queue: None,
            job_type: None,
            owner: None,
            worker: None,
            ended_from: None,
            ended_until: None,
        };
        let page = self.store().executions(query).await?;
        let jobs: BTreeSet<JobId> = page.items.iter().map(|one| one.view.id().occurrence.job).collect();
        Ok((jobs.into_iter().collect(), page.next.is_none()))
    }

    /// Reads a bounded number of jobs and compares them.
    async fn compared(
        &self,
        query: JobQuery,
        predicate: &JobPredicate,
        order: JobOrder,
    ) -> Result<SortedJobs, UseCaseError> {
        let (limit, now) = (query.limit, self.now());
        let mut query = JobQuery { limit: limits::PAGE_ITEMS_MAX, ..query };
        let mut sorted = SortedJobs { items: vec![], matched: 0, is_all: false };
        for _ in 0..limits::SORTED_PAGES_MAX {
            let page = self.read_in_scope(JobsMatching { query: query.clone(), predicate }).await?;
            sorted.matched += page.items.len() as u64;
            sorted.items.extend(self.shown_page(Page { items: page.items, next: None }).await?.items);
            sorted.items.sort_by(|one, other| order.compare(one, other, now));
            sorted.items.truncate(limit);
            query.before = page.next;
            if page.next.is_none() {
                sorted.is_all = true;
                break;
            }
        }
        Ok(sorted)
    }
}

/// The first times at which the scheduler looks at jobs.
#[derive(Debug, PartialEq, Eq)]
struct ComingRuns {
    in_order: Vec<(Timestamp, JobId)>,
    /// Whether there are no later ones.
    is_complete: bool,
}

impl ComingRuns {
    /// `due` has at most `count` of each kind and segment. Later times than the last one of a kind and segment that is
    /// full are left out: others may come before them.
    fn of(due: Vec<Due>, count: usize) -> Self {
        let mut read: BTreeMap<(bool, Segment), (usize, Timestamp)> = BTreeMap::new();
        let job_of = |what: DueKind| match what {
            DueKind::Schedule { job, .. } => (true, job),
            DueKind::Live { occurrence, .. } => (false, occurrence.job),
        };
        for Due { at, what, .. } in &due {
            let (is_schedule, job) = job_of(*what);
            let (number, last) = read.entry((is_schedule, job.segment())).or_insert((0, *at));
            (*number, *last) = (*number + 1, (*last).max(*at));
        }
        let known_until = read.values().filter(|(number, _)| *number == count).map(|(_, last)| *last).min();
        let is_known = |due: &Due| known_until.is_none_or(|until| due.at <= until);
        let in_order = due.into_iter().filter(is_known).map(|due| (due.at, job_of(due.what).1)).collect();
        ComingRuns { in_order, is_complete: known_until.is_none() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::ports::Lane;

    #[test]
    fn times_after_the_end_of_a_full_segment_are_unknown() {
        let at = Timestamp::from_micros;
        let job = |number: u64| JobId::new(at(0), number);
        let due = |when: i64, number: u64| Due {
            at: at(when),
            lane: Lane::new("default", "noop"),
            what: DueKind::Schedule { job: job(number), version: 1 },
        };
        let full = (0..).find(|number| job(*number).segment() != job(1 << 40).segment()).unwrap();
        let read = || vec![due(1, full), due(2, 1 << 40), due(3, full), due(4, 1 << 40)];
        let all = ComingRuns::of(read(), 3);
        assert!(all.is_complete && all.in_order.len() == 4, "{all:?}");
        let some = ComingRuns::of(read(), 2);
        assert_eq!((some.is_complete, some.in_order.len()), (false, 3), "{some:?}");
    }
}
