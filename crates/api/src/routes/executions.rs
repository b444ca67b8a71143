//! Executions: open, finished and skipped; and cancelling one.

use crate::auth::Call;
use crate::error::ApiError;
use crate::extract::{IdInPath, NoBody};
use crate::query::QueryParams;
use crate::views;
use axum::Json;
use punctual_client::{ExecutionBody, ExecutionsPage};
use punctual_core::ids::{ExecutionId, JobId};
use punctual_engine::{ExecutionDetails, ExecutionsOfJob};

/// Open and finished executions in one order, page by page; the skipped ranges on the first page.
pub async fn of_job(
    call: Call,
    IdInPath(job): IdInPath<JobId>,
    mut query: QueryParams,
) -> Result<Json<ExecutionsPage>, ApiError> {
    let before: Option<ExecutionId> = query.cursor("executions");
    let limit = query.limit();
    query.finish()?;
    let ExecutionsOfJob { page, notes, skipped } = call.cases.executions_of_job(job, before, limit).await?;
    let mut items: Vec<ExecutionBody> = page.items.into_iter().map(views::execution).collect();
    for item in &mut items {
        notes.iter().for_each(|noted| views::add_notes(item, noted));
    }
    let skipped = skipped.into_iter().map(views::skip_range).collect();
    let next_cursor = call.next_cursor("executions", page.next).await?;
    Ok(Json(ExecutionsPage { items, skipped, next_cursor }))
}

pub async fn show(call: Call, IdInPath(id): IdInPath<ExecutionId>) -> Result<Json<ExecutionBody>, ApiError> {
    Ok(Json(read(&call, id).await?))
}

pub async fn read(call: &Call, id: ExecutionId) -> Result<ExecutionBody, ApiError> {
    let ExecutionDetails { view, noted, checkpoint } = call.cases.execution(id).await?;
    let mut execution = views::execution(view);
    noted.iter().for_each(|noted| views::add_notes(&mut execution, noted));
    execution.checkpoint = checkpoint.and_then(|checkpoint| views::raw_json(checkpoint.into_json()));
    Ok(execution)
}

/// Ends executions that have not started and asks running ones to stop.
pub async fn cancel(
    call: Call,
    IdInPath(id): IdInPath<ExecutionId>,
    _: NoBody,
) -> Result<Json<ExecutionBody>, ApiError> {
    call.cases.cancel_execution(id).await?;
    Ok(Json(read(&call, id).await?))
}
