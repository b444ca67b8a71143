//! What a caller with a limited scope sees of queues, workers and statistics: its own jobs and executions, read one
//! by one up to a limit. No figure covers the jobs of others.

use super::queues::{QueueView, by_name};
use super::scope::PagedQuery;
use super::server::{LookedAt, Stats};
use super::workers::WorkerView;
use super::{Overview, UseCases};
use crate::CounterSnapshot;
use punctual_core::access::Scope;
use punctual_core::ids::SessionId;
use punctual_core::job::JobStatus;
use punctual_core::limits;
use punctual_core::occurrence::LiveState;
use punctual_core::ports::{
    DeadLetterQuery, Depth, ExecutionQuery, ExecutionView, ExecutionWalk, JobCounts, JobQuery, Lane,
    ListedExecution, SessionRow, StoreError,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The live executions in a caller's scope.
#[derive(Default)]
pub(super) struct OwnWork {
    depths: BTreeMap<(String, String), Depth>,
    running: BTreeMap<SessionId, u64>,
    executions: u64,
    is_cut_off: bool,
}

impl UseCases {
    /// Whether the caller sees only some jobs.
    pub(super) fn is_limited(&self) -> bool {
        !self.caller.grant.scope.is_everything()
    }

    async fn own_work(&self) -> Result<OwnWork, StoreError> {
        let mut own = OwnWork::default();
        let walks = [
            ExecutionWalk::Running { after: None },
            ExecutionWalk::Queued { before: None },
            ExecutionWalk::Waiting { before: None },
        ];
        for walk in walks {
            let query = ExecutionQuery {
                walk,
                limit: limits::PAGE_ITEMS_MAX,
                queue: None,
                job_type: None,
                owner: None,
                worker: None,
                ended_from: None,
                ended_until: None,
            };
            let (items, is_all) = self.first_in_scope(query).await?;
            own.executions += items.len() as u64;
            own.is_cut_off |= !is_all;
            items.into_iter().for_each(|item| own.add(item));
        }
        Ok(own)
    }

    /// The first items of a list in the caller's scope, and whether these are all.
    async fn first_in_scope<Q: PagedQuery + Clone>(
        &self,
        mut query: Q,
    ) -> Result<(Vec<Q::Item>, bool), StoreError> {
        let mut items = Vec::new();
        for _ in 0..limits::OWN_PAGES_READ_MAX {
            let page = self.read_in_scope(query.clone()).await?;
            items.extend(page.items);
            let Some(next) = page.next else { return Ok((items, true)) };
            query.continue_at(next);
        }
        Ok((items, false))
    }

    /// The queues in which the caller has live work, and those that its scope names.
    pub(super) async fn own_queues(&self) -> Result<BTreeMap<String, QueueView>, StoreError> {
        let scope = &self.caller.grant.scope;
        let depths: Vec<Depth> = self.own_work().await?.depths.into_values().collect();
        let used: BTreeSet<&str> = depths.iter().map(|depth| depth.lane.queue()).collect();
        let is_named = |queue: &str| !scope.queues.is_empty() && scope.has_queue(queue);
        let mut rows = self.store().queues().await?;
        rows.retain(|row| used.contains(row.queue.as_str()) || is_named(&row.queue));
        Ok(by_name(&depths, rows))
    }

    /// The workers that could run the caller's jobs, without what they do for others.
    pub(super) async fn own_workers(&self, rows: Vec<SessionRow>) -> Result<Vec<WorkerView>, StoreError> {
        let (scope, own) = (&self.caller.grant.scope, self.own_work().await?);
        let rows = rows.into_iter().filter_map(|row| session_in_scope(scope, row));
        let running = |row: &SessionRow| own.running.get(&row.pulse.session).copied().unwrap_or(0);
        Ok(rows.map(|row| WorkerView { running: running(&row), is_partial: true, row }).collect())
    }

    pub(super) async fn own_stats(&self) -> Result<Stats, StoreError> {
        let own = self.own_work().await?;
        let limit = limits::PAGE_ITEMS_MAX;
        let (jobs, all_jobs) = self.first_in_scope(JobQuery { limit, ..JobQuery::default() }).await?;
        let dead = DeadLetterQuery { limit, ..DeadLetterQuery::default() };
        let (dead, all_dead) = self.first_in_scope(dead).await?;
        let mut counts = JobCounts { dead_letters: dead.len() as u64, ..JobCounts::default() };
        for job in &jobs {
            *(match job.status() {
                JobStatus::Active => &mut counts.active,
                JobStatus::Paused => &mut counts.paused,
                JobStatus::Completed => &mut counts.completed,
                JobStatus::Failed => &mut counts.failed,
                JobStatus::Cancelled => &mut counts.cancelled,
            }) += 1;
        }
        let scope = &self.caller.grant.scope;
        let sessions = self.store().sessions().await?.into_iter();
        let overview = Overview {
            depths: own.depths.into_values().collect(),
            sessions: sessions.filter_map(|row| session_in_scope(scope, row)).collect(),
            paused: vec![],
            now: self.now(),
        };
        Ok(Stats {
            now: self.now(),
            overview: Arc::new(overview),
            jobs: counts,
            counters: CounterSnapshot::default(),
            processes: 0,
            looked_at: Some(LookedAt {
                jobs: jobs.len() as u64,
                executions: own.executions,
                is_all: all_jobs && all_dead && !own.is_cut_off,
            }),
        })
    }
}

impl OwnWork {
    fn add(&mut self, ListedExecution { view, queue, job_type, .. }: ListedExecution) {
        let ExecutionView::Live { live, .. } = view else { return };
        let lane = Lane::new(&queue, &job_type);
        let none = Depth { lane, waiting: 0, queued: 0, running: 0, oldest_queued: None };
        let depth = self.depths.entry((queue, job_type)).or_insert(none);
        match live.state {
            LiveState::Waiting(_) => depth.waiting += 1,
            LiveState::Queued => {
                depth.queued += 1;
                depth.oldest_queued = depth.oldest_queued.into_iter().chain([live.available_at]).min();
            }
            LiveState::Running(lease) => {
                depth.running += 1;
                *self.running.entry(lease.session).or_default() += 1;
            }
        }
    }
}

/// The session as far as it is about the jobs in a scope. Its condition tells of the work of others, and the names
/// of other queues and job types are not the caller's business.
pub(super) fn session_in_scope(scope: &Scope, mut row: SessionRow) -> Option<SessionRow> {
    let serves_all = row.about.queues.is_empty();
    row.about.queues.retain(|queue| scope.has_queue(queue));
    row.job_types.retain(|job_type| scope.has_job_type(job_type));
    row.slots = row.slots_now();
    row.condition = None;
    let can_run = (serves_all || !row.about.queues.is_empty()) && !row.job_types.is_empty();
    can_run.then_some(row)
}
