//! Executions: open, finished and skipped; and cancelling one.

use crate::error::ApiError;
use crate::extract::{IdInPath, NoBody};
use crate::query::{QueryParams, next_cursor};
use crate::routes::jobs;
use crate::{Api, views};
use axum::Json;
use axum::extract::State;
use punctual_client::{ExecutionBody, ExecutionsPage, SkipRangeBody};
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::limits;
use punctual_core::ports::{CancelOutcome, StoreError};

/// Open and finished executions in one order, page by page; the skipped ranges on the first page.
pub async fn of_job(
    State(api): State<Api>,
    IdInPath(job): IdInPath<JobId>,
    mut query: QueryParams,
) -> Result<Json<ExecutionsPage>, ApiError> {
    let before: Option<ExecutionId> = query.cursor("executions");
    let limit = query.limit();
    query.finish()?;
    jobs::view(&api, job).await?;
    let skipped = match before {
        None => skipped(&api, job, limit).await?,
        Some(_) => vec![],
    };
    let page = api.store().executions_of_job(job, before, limit).await?;
    let mut items: Vec<ExecutionBody> = page.items.into_iter().map(views::execution).collect();
    add_notes(&api, job, &mut items).await?;
    Ok(Json(ExecutionsPage { items, skipped, next_cursor: next_cursor("executions", page.next) }))
}

/// Adds the notes to the executions of one job.
async fn add_notes(api: &Api, job: JobId, items: &mut [ExecutionBody]) -> Result<(), StoreError> {
    let Some(latest) = items.iter().map(|item| item.execution_id.occurrence.number).max() else {
        return Ok(());
    };
    let notes = api.store().notes(job, latest, items.len()).await?;
    for item in items {
        notes.iter().for_each(|noted| views::add_notes(item, noted));
    }
    Ok(())
}

async fn skipped(api: &Api, job: JobId, limit: usize) -> Result<Vec<SkipRangeBody>, StoreError> {
    // A small limit is meant for executions, so it does not apply to skipped ranges.
    let ranges = api.store().skipped(job, limit.max(limits::PAGE_ITEMS_DEFAULT)).await?;
    Ok(ranges.into_iter().map(views::skip_range).collect())
}

pub async fn show(
    State(api): State<Api>,
    IdInPath(id): IdInPath<ExecutionId>,
) -> Result<Json<ExecutionBody>, ApiError> {
    Ok(Json(read(&api, id).await?))
}

pub async fn read(api: &Api, id: ExecutionId) -> Result<ExecutionBody, ApiError> {
    let view = api.store().execution(id).await?;
    let mut execution = view.map(views::execution).ok_or_else(|| no_such_execution(id))?;
    add_notes(api, id.occurrence.job, std::slice::from_mut(&mut execution)).await?;
    if execution.checkpoint_bytes.is_some() {
        let checkpoint = api.store().checkpoint(id.occurrence).await?;
        execution.checkpoint = checkpoint.and_then(|checkpoint| views::raw_json(checkpoint.into_json()));
    }
    Ok(execution)
}

fn no_such_execution(id: ExecutionId) -> ApiError {
    ApiError::NotFound(format!("there is no execution {id}"))
}

/// Ends executions that have not started and asks running ones to stop.
pub async fn cancel(
    State(api): State<Api>,
    IdInPath(id): IdInPath<ExecutionId>,
    _: NoBody,
) -> Result<Json<ExecutionBody>, ApiError> {
    match api.engine.cancel_execution(id).await? {
        CancelOutcome::Cancelled(_) | CancelOutcome::Asked => Ok(Json(read(&api, id).await?)),
        CancelOutcome::Finished => {
            let ended = read(&api, id).await?;
            Err(ApiError::Conflict(format!(
                "the execution has already ended {}: it cannot be cancelled",
                ended.status
            )))
        }
        CancelOutcome::NotThere => Err(no_such_execution(id)),
    }
}
