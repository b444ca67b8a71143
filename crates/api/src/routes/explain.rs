//! Gathers the facts for an explanation of a job.

use crate::Api;
use crate::error::ApiError;
use crate::explain::{self, Facts, Holder, MoreOpen, Parent};
use crate::extract::IdInPath;
use crate::query::QueryParams;
use crate::reasons;
use crate::routes::jobs;
use axum::Json;
use axum::extract::State;
use punctual_client::ExplainBody;
use punctual_core::gates::Gate;
use punctual_core::ids::{JobId, OccurrenceId};
use punctual_core::job::JobStatus;
use punctual_core::lifecycle::Status;
use punctual_core::limiter::{LimiterId, LimiterUse, Line, QueueLimits};
use punctual_core::limits;
use punctual_core::notes::Noted;
use punctual_core::occurrence::{Live, LiveState};
use punctual_core::ports::{
    DeadLetterQuery, ExecutionQuery, ExecutionView, ExecutionWalk, JobView, Lane, ListedExecution,
    OPEN_IN_VIEW_MAX, SessionRow, StoreError,
};
use punctual_core::time::Timestamp;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Finished executions that are read.
const HISTORY_MAX: usize = 50;
/// Running executions that are read, and as many queued ones, to list the holders of a limit.
const HOLDERS_LOOKED_AT: usize = 200;
/// Skipped ranges that are shown.
const SKIPPED_MAX: usize = 10;

pub async fn explain(
    State(api): State<Api>,
    IdInPath(id): IdInPath<JobId>,
    query: QueryParams,
) -> Result<Json<ExplainBody>, ApiError> {
    query.finish()?;
    let mut view = jobs::view(&api, id).await?;
    let store = api.store();
    let more_open = choose_open(&api, &mut view).await?;
    let dead = DeadLetterQuery { job: Some(id), limit: 1, ..DeadLetterQuery::default() };
    let sessions = store.sessions().await?;
    let row = store.queues().await?.into_iter().find(|row| row.queue == view.job.spec.queue);
    let (queue_paused_at, queue_unreadable) =
        row.as_ref().map_or((None, None), |row| (row.paused_at, row.unreadable.clone()));
    let limits = row.map(|row| row.settings.limits).unwrap_or_default();
    let lines = lines(&api, &view).await?;
    let facts = Facts {
        parents: unfinished_parents(&api, &view).await?,
        depths: store.depths().await?,
        queue_paused_at,
        queue_unreadable,
        ahead: ahead(&api, &view).await?,
        skipped: store.skipped(id, SKIPPED_MAX).await?,
        history: store.history(id, None, HISTORY_MAX).await?.items,
        dead: store.dead_letters(dead).await?.items.into_iter().next(),
        blamed: jobs::blamed(&api, &view).await?,
        parents_ended_at: parents_ended_at(&api, &view).await?,
        is_stopping: api.is_stopping(),
        notes: notes(&api, &view).await?,
        holders: holders(&api, full(&lines, &limits), &sessions).await?,
        lines: lines.into_iter().map(|(line, used)| (line.id(), used)).collect(),
        limits,
        sessions,
        now: api.engine.now(),
        more_open,
        view,
    };
    Ok(Json(explain::explain(facts)))
}

/// A job may have more open executions than its view contains. Puts the most important ones into the view:
/// running ones, then the earliest. Returns how many are left out.
async fn choose_open(api: &Api, view: &mut JobView) -> Result<MoreOpen, StoreError> {
    if view.open.len() < OPEN_IN_VIEW_MAX {
        return Ok(MoreOpen::NONE);
    }
    let page = api.store().executions_of_job(view.job.id, None, limits::PAGE_ITEMS_MAX).await?;
    let is_all = page.next.is_none();
    let open = page.items.into_iter().filter_map(|item| match item {
        ExecutionView::Live { live, .. } => Some(live),
        ExecutionView::Finished(_) => None,
    });
    let mut open: Vec<Live> = open.collect();
    let counted = open.len().saturating_sub(OPEN_IN_VIEW_MAX);
    if counted > 0 {
        open.sort_by_key(|live| (!live.is_running(), live.id.number));
        open.truncate(OPEN_IN_VIEW_MAX);
        open.sort_by_key(|live| Reverse(live.id.number));
        view.open = open;
    }
    Ok(MoreOpen { counted, is_all })
}

/// The jobs that this one waits for or will wait for.
async fn unfinished_parents(api: &Api, view: &JobView) -> Result<Vec<Parent>, StoreError> {
    let waits = view.open.iter().any(|live| live.is_closed_by(Gate::Dependency));
    let mut parents = Vec::new();
    for id in view.job.spec.settings.depends_on.iter().filter(|_| waits || view.schedule.is_some()) {
        let parent = api.store().job(*id).await?;
        let known = parent.map(|parent| (parent.job.spec.name.clone(), parent.status()));
        let is_over = match &known {
            Some((_, status)) => *status == JobStatus::Completed,
            None => has_succeeded(api, *id).await?,
        };
        if !is_over {
            parents.push(Parent { id: *id, known });
        }
    }
    Ok(parents)
}

/// Whether a deleted job had succeeded, judging by what is left of it. If nothing is left, it had: a job that
/// ends otherwise takes its children with it.
async fn has_succeeded(api: &Api, gone: JobId) -> Result<bool, StoreError> {
    // It runs once; each trigger adds an occurrence.
    let numbers = 1..=OPEN_IN_VIEW_MAX as u32;
    let open = api.store().open_executions(numbers.map(|number| gone.occurrence(number)).collect()).await?;
    let last = api.store().history(gone, None, 1).await?.items.into_iter().next();
    Ok(open.is_empty() && last.is_none_or(|last| last.status == Status::Succeeded))
}

/// When the last of the jobs that this finished job depended on ended.
async fn parents_ended_at(api: &Api, view: &JobView) -> Result<Option<Timestamp>, StoreError> {
    let mut latest = None;
    for id in view.job.spec.settings.depends_on.iter().filter(|_| view.last_finished.is_some()) {
        let ended = api.store().job(*id).await?.and_then(|parent| parent.last_finished);
        latest = latest.max(ended.map(|ended| ended.completed_at));
    }
    Ok(latest)
}

async fn notes(api: &Api, view: &JobView) -> Result<Vec<Noted>, StoreError> {
    if !view.open.iter().any(|live| live.ties.noted) {
        return Ok(vec![]);
    }
    api.store().notes(view.job.id, u32::MAX, limits::PAGE_ITEMS_MAX).await
}

/// The use of the limiters that executions of the job wait for.
async fn lines(api: &Api, view: &JobView) -> Result<Vec<(Line, LimiterUse)>, StoreError> {
    let waiting = view.open.iter().filter_map(|live| Some((live.line?, live.limiter)));
    let lines: BTreeSet<Line> = waiting
        .map(|(line, key)| Line { queue: view.job.spec.queue.clone(), key: key.filter(|key| *key == line) })
        .collect();
    let lines: Vec<Line> = lines.into_iter().collect();
    if lines.is_empty() {
        return Ok(vec![]);
    }
    let used = api.store().limiters(lines.clone()).await?;
    Ok(lines.into_iter().zip(used).collect())
}

/// The wait lists that move only after an execution that counts there has ended.
fn full(lines: &[(Line, LimiterUse)], limits: &QueueLimits) -> Vec<Line> {
    let is_full = |line: &Line, used: &LimiterUse| {
        limits.of(line).concurrency.is_some_and(|most| used.in_use >= u64::from(most))
    };
    lines.iter().filter(|(line, used)| is_full(line, used)).map(|(line, _)| line.clone()).collect()
}

/// The executions that count against these limiters of a queue: queued and running ones; for a key, those
/// with that key.
async fn holders(
    api: &Api,
    lines: Vec<Line>,
    sessions: &[SessionRow],
) -> Result<BTreeMap<LimiterId, Vec<Holder>>, StoreError> {
    let Some(queue) = lines.first().map(|line| line.queue.clone()) else { return Ok(BTreeMap::new()) };
    let mut started = Vec::new();
    for walk in [ExecutionWalk::Running { after: None }, ExecutionWalk::Queued { before: None }] {
        let limit = HOLDERS_LOOKED_AT;
        let query = ExecutionQuery { walk, limit, queue: Some(queue.clone()), job_type: None, worker: None };
        started.extend(api.store().executions(query).await?.items);
    }
    let counts = |line: &Line, live: &Live| line.key.is_none() || live.limiter == line.key;
    let holders_of = |line: &Line| {
        let holder = |listed: &ListedExecution| match &listed.view {
            ExecutionView::Live { live, worker } if counts(line, live) => Some(holder(listed, live, worker)),
            _ => None,
        };
        let is_stuck =
            |holder: &Holder| holder.runs.is_none() && reasons::of_queueing(&holder.lane, sessions).is_some();
        explain::in_order(started.iter().filter_map(holder).collect(), is_stuck)
    };
    Ok(lines.iter().map(|line| (line.id(), holders_of(line))).collect())
}

fn holder(listed: &ListedExecution, live: &Live, worker: &Option<String>) -> Holder {
    let runs = match live.state {
        LiveState::Running(lease) => {
            Some((worker.clone().unwrap_or_else(|| lease.session.to_string()), lease.claimed_at))
        }
        LiveState::Queued | LiveState::Waiting(_) => None,
    };
    Holder {
        execution: live.execution(),
        job_name: listed.job_name.clone(),
        lane: Lane::new(&listed.queue, &listed.job_type),
        runs,
    }
}

async fn ahead(api: &Api, view: &JobView) -> Result<BTreeMap<OccurrenceId, usize>, StoreError> {
    let mut ahead = BTreeMap::new();
    for live in view.open.iter().filter(|live| matches!(live.state, LiveState::Queued)) {
        if let Some(count) = api.store().ahead(live.id, limits::POSITION_MAX).await? {
            ahead.insert(live.id, count);
        }
    }
    Ok(ahead)
}
