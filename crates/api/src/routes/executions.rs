//! Reading executions: open, finished, skipped and dead.

use crate::error::ApiError;
use crate::extract::IdInPath;
use crate::query::{QueryParams, next_cursor};
use crate::routes::jobs::no_such_job;
use crate::{Api, views};
use axum::Json;
use axum::extract::State;
use punctual_client::{DeadLetterBody, ExecutionBody, ExecutionsPage, Page, SkipRangeBody};
use punctual_core::ids::{ExecutionId, JobId, SessionId};
use punctual_core::limits;
use punctual_core::occurrence::{Live, LiveState};
use punctual_core::ports::{ExecutionView, StoreError};
use std::collections::HashMap;

/// The open ones and the skipped ranges on the first page, then history page by page.
pub async fn of_job(
    State(api): State<Api>,
    IdInPath(job): IdInPath<JobId>,
    mut query: QueryParams,
) -> Result<Json<ExecutionsPage>, ApiError> {
    let before: Option<ExecutionId> = query.cursor("executions");
    let limit = query.limit();
    query.finish()?;
    let view = api.store().job(job).await?.ok_or_else(|| no_such_job(job))?;
    let (mut items, skipped) = match before {
        None => (open(&api, &view.open).await?, skipped(&api, job).await?),
        Some(_) => (vec![], vec![]),
    };
    // A history page of at least one keeps the cursor moving, however small the limit.
    let history = api.store().history(job, before, limit.saturating_sub(items.len()).max(1)).await?;
    items.extend(history.items.into_iter().map(views::finished));
    Ok(Json(ExecutionsPage { items, skipped, next_cursor: next_cursor("executions", history.next) }))
}

async fn open(api: &Api, open: &[Live]) -> Result<Vec<ExecutionBody>, StoreError> {
    let any_running = open.iter().any(|live| matches!(live.state, LiveState::Running(_)));
    let workers: HashMap<SessionId, String> = if any_running {
        let sessions = api.store().sessions().await?;
        sessions.into_iter().map(|row| (row.pulse.session, row.worker)).collect()
    } else {
        HashMap::new()
    };
    let worker_of = |live: &Live| match live.state {
        LiveState::Running(lease) => workers.get(&lease.session).cloned(),
        LiveState::Waiting(_) | LiveState::Queued => None,
    };
    Ok(open.iter().map(|live| views::live(live, worker_of(live))).collect())
}

async fn skipped(api: &Api, job: JobId) -> Result<Vec<SkipRangeBody>, StoreError> {
    let ranges = api.store().skipped(job, limits::PAGE_ITEMS_DEFAULT).await?;
    Ok(ranges.into_iter().map(views::skip_range).collect())
}

pub async fn show(
    State(api): State<Api>,
    IdInPath(id): IdInPath<ExecutionId>,
) -> Result<Json<ExecutionBody>, ApiError> {
    match api.store().execution(id).await? {
        Some(ExecutionView::Live { live, worker }) => Ok(Json(views::live(&live, worker))),
        Some(ExecutionView::Finished(finished)) => Ok(Json(views::finished(finished))),
        None => Err(ApiError::NotFound(format!("there is no execution {id}"))),
    }
}

pub async fn dead_letters(
    State(api): State<Api>,
    mut query: QueryParams,
) -> Result<Json<Page<DeadLetterBody>>, ApiError> {
    let before: Option<u64> = query.cursor("dead-letters");
    let limit = query.limit();
    query.finish()?;
    let page = api.store().dead_letters(before, limit).await?;
    Ok(Json(Page {
        items: page.items.into_iter().map(views::dead_letter).collect(),
        next_cursor: next_cursor("dead-letters", page.next),
    }))
}
