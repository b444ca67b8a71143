//! Queues: their depth, their limits, and whether they are paused.

use crate::auth::Call;
use crate::error::ApiError;
use crate::extract::{BODY_BYTES_MAX, IdInPath, JsonBody, NoBody};
use crate::json::DocumentShape;
use crate::query::QueryParams;
use crate::{json, views};
use axum::Json;
use punctual_client::{Page, QueueBody, SetQueue};
use punctual_core::ports::Pausing;
use punctual_engine::UseCaseError;

/// The prefix of this list's cursors.
const LIST: &str = "queues";

pub async fn list(call: Call, mut query: QueryParams) -> Result<Json<Page<QueueBody>>, ApiError> {
    let (after, limit) = (query.cursor::<String>(LIST), query.limit_or_most());
    query.finish()?;
    let page = call.cases.queues(after.as_deref(), limit).await?;
    let items = page.items.into_iter().map(views::queue).collect();
    Ok(Json(Page { items, next_cursor: call.next_cursor(LIST, page.next).await? }))
}

/// Any valid queue name: an unused queue is empty and not paused.
pub async fn show(
    call: Call,
    IdInPath(queue): IdInPath<String>,
    query: QueryParams,
) -> Result<Json<QueueBody>, ApiError> {
    query.finish()?;
    match call.cases.queue(&queue).await {
        Ok(view) => Ok(Json(views::queue(view))),
        Err(UseCaseError::InvalidQueueName { problem, .. }) => {
            Err(ApiError::NotFound(format!("no queue has this name: it {problem}")))
        }
        Err(error) => Err(error.into()),
    }
}

/// Sets all settings of a queue: fields that the body leaves out get their defaults.
pub async fn set(
    call: Call,
    IdInPath(queue): IdInPath<String>,
    body: JsonBody<BODY_BYTES_MAX>,
) -> Result<Json<QueueBody>, ApiError> {
    // The name comes first: it is what the request is about.
    call.cases.check_queue_name(&queue).await?;
    let set: SetQueue = json::parse(&body.bytes, DocumentShape::Queue)?;
    Ok(Json(views::queue(call.cases.set_queue(&queue, set.into()).await?)))
}

pub async fn pause(
    call: Call,
    IdInPath(queue): IdInPath<String>,
    _: NoBody,
) -> Result<Json<QueueBody>, ApiError> {
    Ok(Json(views::queue(call.cases.pause_queue(&queue, Pausing::Pause).await?)))
}

pub async fn resume(
    call: Call,
    IdInPath(queue): IdInPath<String>,
    _: NoBody,
) -> Result<Json<QueueBody>, ApiError> {
    Ok(Json(views::queue(call.cases.pause_queue(&queue, Pausing::Resume).await?)))
}
