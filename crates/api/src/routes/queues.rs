//! Queues: their depth, their limits, and whether they are paused.

use crate::auth::Caller;
use crate::error::ApiError;
use crate::extract::{BODY_BYTES_MAX, IdInPath, JsonBody, NoBody};
use crate::json::Shape;
use crate::query::{QueryParams, next_cursor, page_after};
use crate::{Api, json, views};
use axum::Json;
use axum::extract::State;
use punctual_client::{API_PREFIX, Page, QueueBody, SetQueue};
use punctual_core::limiter::{Line, QueueLimits};
use punctual_core::names::path_name_problem;
use punctual_core::ports::{Depth, Pausing, QueueRow, StoreError};
use punctual_core::queue::QueueSettings;
use punctual_engine::ControlError;
use std::collections::BTreeSet;

/// The prefix of this list's cursors.
const LIST: &str = "queues";

pub async fn list(State(api): State<Api>, mut query: QueryParams) -> Result<Json<Page<QueueBody>>, ApiError> {
    let (after, limit) = (query.cursor::<String>(LIST), query.limit_or_most());
    query.finish()?;
    let overview = api.overview().await?;
    let rows = api.store().queues().await?;
    let used = overview.depths.iter().map(|depth| depth.lane.queue());
    let names: BTreeSet<&str> = used.chain(rows.iter().map(|row| row.queue.as_str())).collect();
    let (names, next) = page_after(names, after.as_deref(), limit);
    let next_cursor = next_cursor(LIST, next);
    let names: BTreeSet<String> = names.into_iter().map(str::to_owned).collect();
    Ok(Json(Page { items: read(&api, &overview.depths, rows, &names).await?, next_cursor }))
}

/// These queues, by name.
async fn read(
    api: &Api,
    depths: &[Depth],
    mut rows: Vec<QueueRow>,
    names: &BTreeSet<String>,
) -> Result<Vec<QueueBody>, StoreError> {
    rows.retain(|row| names.contains(&row.queue));
    let depths = depths.iter().filter(|depth| names.contains(depth.lane.queue()));
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

/// Any valid queue name: an unused queue is empty and not paused.
pub async fn show(
    State(api): State<Api>,
    IdInPath(queue): IdInPath<String>,
    query: QueryParams,
) -> Result<Json<QueueBody>, ApiError> {
    query.finish()?;
    match name_problem(&api, &queue).await? {
        Some(problem) => Err(ApiError::NotFound(format!("no queue has this name: it {problem}"))),
        None => one(&api, queue).await,
    }
}

/// Sets all settings of a queue: fields that the body leaves out get their defaults.
pub async fn set(
    State(api): State<Api>,
    caller: Caller,
    IdInPath(queue): IdInPath<String>,
    body: JsonBody<BODY_BYTES_MAX>,
) -> Result<Json<QueueBody>, ApiError> {
    caller.check_operator()?;
    check_name(&api, &queue).await?;
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
    check_name(api, &queue).await?;
    let found = api.store().queues().await?.into_iter().find(|row| row.queue == queue);
    if let Some(reason) = found.and_then(|row| row.unreadable) {
        return Err(ApiError::Conflict(format!(
            "the settings of the queue {queue} cannot be read ({reason}): set them again with PUT {API_PREFIX}/queues/{queue}"
        )));
    }
    api.engine.pause_queue(queue.clone(), pausing).await?;
    one(api, queue).await
}

async fn check_name(api: &Api, queue: &str) -> Result<(), ApiError> {
    match name_problem(api, queue).await? {
        // The path contains no name.
        Some(_) if queue.is_empty() => Err(ApiError::NotFound("no queue is named".to_owned())),
        Some(problem) => Err(ApiError::field("queue", problem)),
        None => Ok(()),
    }
}

/// What is wrong with the name of a queue. A queue that existed before a rule was added stays usable.
async fn name_problem(api: &Api, queue: &str) -> Result<Option<String>, StoreError> {
    let Some(problem) = path_name_problem(queue) else { return Ok(None) };
    let is_set = api.store().queues().await?.iter().any(|row| row.queue == queue);
    let is_there = is_set || api.overview().await?.depths.iter().any(|depth| depth.lane.queue() == queue);
    Ok((!is_there).then_some(problem))
}

async fn one(api: &Api, queue: String) -> Result<Json<QueueBody>, ApiError> {
    let overview = api.overview().await?;
    // The settings may have been stored a moment ago.
    let rows = api.store().queues().await?;
    let found = read(api, &overview.depths, rows, &[queue.clone()].into()).await?.pop();
    Ok(Json(found.unwrap_or_else(|| views::idle_queue(queue))))
}
