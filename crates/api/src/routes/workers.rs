//! Workers: which are connected, and the control verbs on them.

use crate::auth::Call;
use crate::error::ApiError;
use crate::extract::{IdInPath, NoBody};
use crate::query::QueryParams;
use crate::views;
use axum::Json;
use punctual_client::{Page, WorkerSessionBody};
use punctual_core::ids::SessionId;
use punctual_core::session::SessionOrder;

/// The prefix of this list's cursors.
const LIST: &str = "workers";

pub async fn list(call: Call, mut query: QueryParams) -> Result<Json<Page<WorkerSessionBody>>, ApiError> {
    let (after, limit) = (query.cursor(LIST).map(SessionId), query.limit_or_most());
    query.finish()?;
    let page = call.cases.workers(after, limit).await?;
    let items = page.items.into_iter().map(views::worker_session).collect();
    Ok(Json(Page { items, next_cursor: call.next_cursor(LIST, page.next).await? }))
}

pub async fn show(
    call: Call,
    IdInPath(id): IdInPath<String>,
    query: QueryParams,
) -> Result<Json<WorkerSessionBody>, ApiError> {
    query.finish()?;
    Ok(Json(views::worker_session(call.cases.worker(&id).await?)))
}

pub async fn pause(
    call: Call,
    IdInPath(id): IdInPath<String>,
    _: NoBody,
) -> Result<Json<WorkerSessionBody>, ApiError> {
    order(&call, &id, SessionOrder::Pause).await
}

pub async fn resume(
    call: Call,
    IdInPath(id): IdInPath<String>,
    _: NoBody,
) -> Result<Json<WorkerSessionBody>, ApiError> {
    order(&call, &id, SessionOrder::Resume).await
}

pub async fn drain(
    call: Call,
    IdInPath(id): IdInPath<String>,
    _: NoBody,
) -> Result<Json<WorkerSessionBody>, ApiError> {
    order(&call, &id, SessionOrder::Drain).await
}

async fn order(call: &Call, id: &str, order: SessionOrder) -> Result<Json<WorkerSessionBody>, ApiError> {
    Ok(Json(views::worker_session(call.cases.order_worker(id, order).await?)))
}
