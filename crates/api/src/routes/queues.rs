//! Queues: how much is in them, how much may be, and whether they hand it out.

use crate::auth::Caller;
use crate::error::ApiError;
use crate::extract::{BODY_BYTES_MAX, IdInPath, JsonBody, NoBody};
use crate::json::Shape;
use crate::query::QueryParams;
use crate::{Api, json, views};
use axum::Json;
use axum::extract::State;
use punctual_client::{API_PREFIX, Page, QueueBody, SetQueue};
use punctual_core::limiter::{Line, QueueLimits};
use punctual_core::limits;
use punctual_core::ports::{Pausing, StoreError};
use punctual_core::queue::QueueSettings;
use punctual_engine::ControlError;

pub async fn list(State(api): State<Api>, query: QueryParams) -> Result<Json<Page<QueueBody>>, ApiError> {
    query.finish()?;
    Ok(Json(Page { items: read(&api).await?, next_cursor: None }))
}

async fn read(api: &Api) -> Result<Vec<QueueBody>, StoreError> {
    let depths = api.store().depths().await?;
    let rows = api.store().queues().await?;
    let mut queues = views::queues(depths, rows);
    let is_limited = |body: &&mut QueueBody| body.concurrency.is_some() || body.rate.is_some();
    let limited: Vec<&mut QueueBody> = queues.iter_mut().filter(is_limited).collect();
    if !limited.is_empty() {
        let lines = limited.iter().map(|body| Line::of_queue(&body.queue)).collect();
        let used = api.store().limiters(lines).await?;
        limited.into_iter().zip(used).for_each(|(body, used)| body.in_line = used.waiting);
    }
    Ok(queues)
}

/// A queue of any possible name: one that nobody has used yet is empty and open.
pub async fn show(
    State(api): State<Api>,
    IdInPath(queue): IdInPath<String>,
    query: QueryParams,
) -> Result<Json<QueueBody>, ApiError> {
    query.finish()?;
    check_name(&queue)?;
    one(&api, queue).await
}

/// Sets all of a queue's settings: what the body leaves out is as by default.
pub async fn set(
    State(api): State<Api>,
    caller: Caller,
    IdInPath(queue): IdInPath<String>,
    body: JsonBody<BODY_BYTES_MAX>,
) -> Result<Json<QueueBody>, ApiError> {
    caller.check_operator()?;
    check_name(&queue)?;
    let set: SetQueue = json::parse(&body.bytes, Shape::Queue)?;
    let limits = QueueLimits {
        concurrency: set.concurrency,
        rate: set.rate.map(|rate| rate.0),
        key_concurrency: set.key_concurrency,
        key_rate: set.key_rate.map(|rate| rate.0),
        weights: set.weights,
    };
    let settings = QueueSettings { max_depth: set.max_depth, limits };
    match api.engine.set_queue(queue.clone(), settings).await {
        Ok(()) => one(&api, queue).await,
        Err(ControlError::Invalid(problems)) => Err(ApiError::invalid(problems)),
        Err(error) => Err(ApiError::Unavailable(error.to_string())),
    }
}

pub async fn pause(
    State(api): State<Api>,
    caller: Caller,
    IdInPath(queue): IdInPath<String>,
    _: NoBody,
) -> Result<Json<QueueBody>, ApiError> {
    hold(&api, &caller, queue, Pausing::Pause).await
}

pub async fn resume(
    State(api): State<Api>,
    caller: Caller,
    IdInPath(queue): IdInPath<String>,
    _: NoBody,
) -> Result<Json<QueueBody>, ApiError> {
    hold(&api, &caller, queue, Pausing::Resume).await
}

async fn hold(
    api: &Api,
    caller: &Caller,
    queue: String,
    pausing: Pausing,
) -> Result<Json<QueueBody>, ApiError> {
    caller.check_operator()?;
    check_name(&queue)?;
    let found = api.store().queues().await?.into_iter().find(|row| row.queue == queue);
    if let Some(reason) = found.and_then(|row| row.unreadable) {
        return Err(ApiError::Conflict(format!(
            "the settings of the queue {queue} cannot be read ({reason}): set them again with PUT {API_PREFIX}/queues/{queue}"
        )));
    }
    api.engine.pause_queue(queue.clone(), pausing).await?;
    one(api, queue).await
}

fn check_name(queue: &str) -> Result<(), ApiError> {
    if queue.is_empty() || queue.len() > limits::NAME_BYTES_MAX || queue.chars().any(char::is_control) {
        // No job could name it either.
        return Err(ApiError::NotFound("no queue can have this name".to_owned()));
    }
    Ok(())
}

async fn one(api: &Api, queue: String) -> Result<Json<QueueBody>, ApiError> {
    let found = read(api).await?.into_iter().find(|body| body.queue == queue);
    Ok(Json(found.unwrap_or_else(|| views::idle_queue(queue))))
}
