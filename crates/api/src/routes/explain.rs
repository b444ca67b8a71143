//! Gathering what an explanation of a job is made of.

use crate::Api;
use crate::error::ApiError;
use crate::explain::{self, Facts, Parent};
use crate::extract::IdInPath;
use crate::query::QueryParams;
use crate::routes::jobs;
use axum::Json;
use axum::extract::State;
use punctual_client::ExplainBody;
use punctual_core::gates::Gate;
use punctual_core::ids::{JobId, OccurrenceId};
use punctual_core::job::JobStatus;
use punctual_core::limiter::{LimiterId, LimiterUse, Line};
use punctual_core::limits;
use punctual_core::notes::Noted;
use punctual_core::occurrence::LiveState;
use punctual_core::ports::{DeadLetterQuery, JobView, OPEN_IN_VIEW_MAX, StoreError};
use punctual_core::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// Finished executions that are looked at.
const HISTORY_MAX: usize = 50;
/// Skipped ranges that are shown.
const SKIPPED_MAX: usize = 10;

pub async fn explain(
    State(api): State<Api>,
    IdInPath(id): IdInPath<JobId>,
    query: QueryParams,
) -> Result<Json<ExplainBody>, ApiError> {
    query.finish()?;
    let view = jobs::view(&api, id).await?;
    let store = api.store();
    let dead = DeadLetterQuery { job: Some(id), limit: 1, ..DeadLetterQuery::default() };
    let paused = store.paused_queues().await?;
    let facts = Facts {
        parents: unfinished_parents(&api, &view).await?,
        sessions: store.sessions().await?,
        depths: store.depths().await?,
        queue_paused_at: paused
            .into_iter()
            .find(|paused| paused.queue == view.job.spec.queue)
            .map(|paused| paused.paused_at),
        ahead: ahead(&api, &view).await?,
        skipped: store.skipped(id, SKIPPED_MAX).await?,
        history: store.history(id, None, HISTORY_MAX).await?.items,
        dead: store.dead_letters(dead).await?.items.into_iter().next(),
        blamed: jobs::blamed(&api, &view).await?,
        parents_ended_at: parents_ended_at(&api, &view).await?,
        is_stopping: api.is_stopping(),
        notes: notes(&api, &view).await?,
        lines: lines(&api, &view).await?,
        limits: store
            .queues()
            .await?
            .into_iter()
            .find(|row| row.queue == view.job.spec.queue)
            .map(|row| row.settings.limits)
            .unwrap_or_default(),
        now: api.engine.now(),
        view,
    };
    Ok(Json(explain::explain(facts)))
}

/// The jobs that this one still waits for, or will.
async fn unfinished_parents(api: &Api, view: &JobView) -> Result<Vec<Parent>, StoreError> {
    let waits = view.open.iter().any(|live| live.is_closed_by(Gate::Dependency));
    let mut parents = Vec::new();
    for id in view.job.spec.settings.depends_on.iter().filter(|_| waits || view.schedule.is_some()) {
        let parent = api.store().job(*id).await?;
        let known = parent.map(|parent| (parent.job.spec.name.clone(), parent.status()));
        // One that is gone before the time of the child has come was cleaned up when it had succeeded.
        let is_over = match &known {
            Some((_, status)) => *status == JobStatus::Completed,
            None => !waits,
        };
        if !is_over {
            parents.push(Parent { id: *id, known });
        }
    }
    Ok(parents)
}

/// When the last of the jobs ended that this one, which is over, depended on.
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
    api.store().notes(view.job.id, u32::MAX, OPEN_IN_VIEW_MAX).await
}

/// How the limiters are used that executions of the job wait for.
async fn lines(api: &Api, view: &JobView) -> Result<BTreeMap<LimiterId, LimiterUse>, StoreError> {
    let waiting = view.open.iter().filter_map(|live| Some((live.line?, live.limiter)));
    let lines: BTreeSet<Line> = waiting
        .map(|(line, key)| Line { queue: view.job.spec.queue.clone(), key: key.filter(|key| *key == line) })
        .collect();
    let lines: Vec<Line> = lines.into_iter().collect();
    if lines.is_empty() {
        return Ok(BTreeMap::new());
    }
    let used = api.store().limiters(lines.clone()).await?;
    Ok(lines.iter().map(Line::id).zip(used).collect())
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
