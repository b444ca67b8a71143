//! Workers: which are connected, and the control verbs on them.

use crate::auth::Caller;
use crate::error::ApiError;
use crate::extract::{IdInPath, NoBody};
use crate::query::{QueryParams, next_cursor};
use crate::{Api, views};
use axum::Json;
use axum::extract::State;
use punctual_client::{Page, WorkerSessionBody};
use punctual_core::ids::SessionId;
use punctual_core::ports::StoreError;
use punctual_core::session::{SessionDraining, SessionOrder};
use std::collections::BTreeMap;

/// The prefix of this list's cursors.
const LIST: &str = "workers";

pub async fn list(
    State(api): State<Api>,
    mut query: QueryParams,
) -> Result<Json<Page<WorkerSessionBody>>, ApiError> {
    let (after, limit) = (query.cursor::<i64>(LIST), query.limit_or_most());
    query.finish()?;
    let mut items = read(&api).await?;
    items.retain(|session| after.is_none_or(|after| session.session_id.0 > after));
    let is_more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().map(|session| session.session_id.0).filter(|_| is_more);
    Ok(Json(Page { items, next_cursor: next_cursor(LIST, next) }))
}

pub async fn show(
    State(api): State<Api>,
    IdInPath(id): IdInPath<String>,
    query: QueryParams,
) -> Result<Json<WorkerSessionBody>, ApiError> {
    query.finish()?;
    Ok(Json(find(&api, &id).await?))
}

pub async fn pause(
    State(api): State<Api>,
    caller: Caller,
    IdInPath(id): IdInPath<String>,
    _: NoBody,
) -> Result<Json<WorkerSessionBody>, ApiError> {
    order(&api, &caller, &id, SessionOrder::Pause).await
}

pub async fn resume(
    State(api): State<Api>,
    caller: Caller,
    IdInPath(id): IdInPath<String>,
    _: NoBody,
) -> Result<Json<WorkerSessionBody>, ApiError> {
    order(&api, &caller, &id, SessionOrder::Resume).await
}

pub async fn drain(
    State(api): State<Api>,
    caller: Caller,
    IdInPath(id): IdInPath<String>,
    _: NoBody,
) -> Result<Json<WorkerSessionBody>, ApiError> {
    order(&api, &caller, &id, SessionOrder::Drain).await
}

async fn order(
    api: &Api,
    caller: &Caller,
    id: &str,
    order: SessionOrder,
) -> Result<Json<WorkerSessionBody>, ApiError> {
    caller.check_operator()?;
    let found = find(api, id).await?;
    match api.engine.order_session(found.session_id, order).await? {
        Some(Ok(mode)) => Ok(Json(views::in_mode(found, mode))),
        Some(Err(SessionDraining)) => Err(ApiError::Conflict(format!(
            "session {} of worker {} is draining and will close: start the worker again to give it work",
            found.session_id, found.worker_id
        ))),
        None => Err(no_such_worker(id)),
    }
}

async fn read(api: &Api) -> Result<Vec<WorkerSessionBody>, StoreError> {
    let held: BTreeMap<SessionId, u64> = api.store().holdings().await?.into_iter().collect();
    let sessions = api.store().sessions().await?;
    Ok(sessions
        .into_iter()
        .map(|row| {
            let running = held.get(&row.pulse.session).copied().unwrap_or(0);
            views::worker_session(row, running)
        })
        .collect())
}

/// A session by its id, or by its worker's name if that is unique.
async fn find(api: &Api, id: &str) -> Result<WorkerSessionBody, ApiError> {
    let mut sessions = read(api).await?;
    sessions.retain(|session| session.session_id.to_string() == id || session.worker_id == id);
    if sessions.len() > 1 {
        let ids: Vec<String> = sessions.iter().map(|session| session.session_id.to_string()).collect();
        return Err(ApiError::Conflict(format!(
            "{id} matches {} sessions: pass one of the session ids {}",
            ids.len(),
            ids.join(", ")
        )));
    }
    sessions.pop().ok_or_else(|| no_such_worker(id))
}

fn no_such_worker(id: &str) -> ApiError {
    ApiError::NotFound(format!("no worker is connected with the name or session id {id}"))
}
