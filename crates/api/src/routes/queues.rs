//! Queues: how much is in them, and whether they hand it out.

use crate::auth::Caller;
use crate::error::ApiError;
use crate::extract::{IdInPath, NoBody};
use crate::query::QueryParams;
use crate::{Api, views};
use axum::Json;
use axum::extract::State;
use punctual_client::{Page, QueueBody};
use punctual_core::limits;
use punctual_core::ports::{Pausing, StoreError};

pub async fn list(State(api): State<Api>, query: QueryParams) -> Result<Json<Page<QueueBody>>, ApiError> {
    query.finish()?;
    Ok(Json(Page { items: read(&api).await?, next_cursor: None }))
}

async fn read(api: &Api) -> Result<Vec<QueueBody>, StoreError> {
    let depths = api.store().depths().await?;
    let paused = api.store().paused_queues().await?;
    Ok(views::queues(depths, paused))
}

pub async fn pause(
    State(api): State<Api>,
    caller: Caller,
    IdInPath(queue): IdInPath<String>,
    _: NoBody,
) -> Result<Json<QueueBody>, ApiError> {
    set(&api, &caller, queue, Pausing::Pause).await
}

pub async fn resume(
    State(api): State<Api>,
    caller: Caller,
    IdInPath(queue): IdInPath<String>,
    _: NoBody,
) -> Result<Json<QueueBody>, ApiError> {
    set(&api, &caller, queue, Pausing::Resume).await
}

async fn set(
    api: &Api,
    caller: &Caller,
    queue: String,
    pausing: Pausing,
) -> Result<Json<QueueBody>, ApiError> {
    caller.check_operator()?;
    if queue.len() > limits::NAME_BYTES_MAX || queue.chars().any(char::is_control) {
        // No job could name it either.
        return Err(ApiError::NotFound("no queue can have this name".to_owned()));
    }
    api.engine.pause_queue(queue.clone(), pausing).await?;
    let found = read(api).await?.into_iter().find(|body| body.queue == queue);
    Ok(Json(found.unwrap_or_else(|| views::idle_queue(queue))))
}
