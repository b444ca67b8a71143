//! Liveness and readiness, for load balancers and for people who open the address in a browser.

use crate::error::ApiError;
use crate::{Api, auth, dashboard};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use punctual_client::API_PREFIX;
use punctual_core::ports::StoreError;
use serde_json::{Value, json};
use std::time::Duration;

/// How long the store may take to answer before the server reports "not ready".
const READY_TIMEOUT: Duration = Duration::from_secs(2);

/// Sends browsers to the dashboard, and programs the links.
pub async fn root(headers: HeaderMap) -> Response {
    if dashboard::is_wanted(&headers) {
        return dashboard::to_home().await;
    }
    let links = Json(json!({
        "name": "punctual",
        "version": env!("CARGO_PKG_VERSION"),
        "api": API_PREFIX,
        "health": "/readyz",
        "metrics": "/metrics",
        "documentation": "/docs",
        "openapi": "/openapi.json",
        "dashboard": dashboard::HOME,
    }));
    links.into_response()
}

/// Links from the API's root.
pub async fn api_root() -> Json<Value> {
    Json(json!({
        "name": "punctual",
        "version": env!("CARGO_PKG_VERSION"),
        "jobs": format!("{API_PREFIX}/jobs"),
        "batch": format!("{API_PREFIX}/jobs/batch"),
        "schedules": format!("{API_PREFIX}/schedules/preview"),
        "fires": format!("{API_PREFIX}/fires"),
        "executions": format!("{API_PREFIX}/executions"),
        "dead_letters": format!("{API_PREFIX}/dead-letters"),
        "queues": format!("{API_PREFIX}/queues"),
        "workers": format!("{API_PREFIX}/workers"),
        "nodes": format!("{API_PREFIX}/nodes"),
        "me": format!("{API_PREFIX}/me"),
        "events": format!("{API_PREFIX}/events"),
        "stats": format!("{API_PREFIX}/stats"),
        "clock": format!("{API_PREFIX}/clock"),
        "worker": format!("{API_PREFIX}/worker"),
        "documentation": "/docs",
        "openapi": "/openapi.json",
    }))
}

/// Liveness: the process answers.
pub async fn live() -> Json<Value> {
    Json(json!({"status": "live"}))
}

/// Readiness: the store reads and writes, the clock is right, and no shutdown was requested.
pub async fn ready(
    State(api): State<Api>,
    headers: HeaderMap,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    if api.is_stopping() {
        return Ok((StatusCode::SERVICE_UNAVAILABLE, Json(json!({"status": "stopping"}))));
    }
    match tokio::time::timeout(READY_TIMEOUT, api.access.probe()).await {
        Ok(Ok(())) => in_time(&api),
        Ok(Err(error)) => {
            tracing::warn!(%error, "not ready");
            Err(not_ready(&error, auth::is_known(&api, &headers).await))
        }
        Err(_) => {
            Err(ApiError::NotReady(format!("the store did not answer within {} s", READY_TIMEOUT.as_secs())))
        }
    }
}

/// A node that fires nothing because its clock is off is not ready if it is a scheduler. Other nodes stay
/// ready and report it.
fn in_time(api: &Api) -> Result<(StatusCode, Json<Value>), ApiError> {
    let state = api.access.node_state();
    let mut body = json!({"status": "ready"});
    // Without a ready queue the process polls the database, so it stays ready. The error may name hosts: it is in
    // the log and in `GET /nodes`.
    if let Some(queue) = state.ready_queue {
        body["ready_queue"] = if queue.is_receiving { "connected" } else { "disconnected" }.into();
    }
    if !state.cluster.is_off {
        return Ok((StatusCode::OK, Json(body)));
    }
    let apart = Duration::from_micros(state.clock_offset_us.unsigned_abs());
    let warning = format!(
        "this machine's clock and the store's are {:.1} s apart, more than scheduler.clock_offset_max ({:.1} s): nothing is \
         fired here until they agree",
        apart.as_secs_f64(),
        state.clock_offset_max.as_secs_f64()
    );
    let fires = api.node.as_deref().is_none_or(|node| node.roles.iter().any(|role| role == "scheduler"));
    if fires {
        return Err(ApiError::NotReady(warning));
    }
    body["warnings"] = json!([warning]);
    Ok((StatusCode::OK, Json(body)))
}

/// Clients with a token get the store's error, because they may be the ones to fix it. It names hosts and
/// users, so all others learn only that the store fails. The log contains it as well.
fn not_ready(error: &StoreError, is_known: bool) -> ApiError {
    if is_known {
        return ApiError::NotReady(error.to_string());
    }
    let what = match error {
        // It names nothing.
        StoreError::DiskFull => return ApiError::NotReady(error.to_string()),
        StoreError::Unavailable(_) | StoreError::Denied(..) => "the store is unavailable",
        StoreError::Broken(_) => "the store failed",
    };
    ApiError::NotReady(format!("{what}: see the server's log for the reason"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_ready_says_why_and_speaks_of_no_request() {
        let refused = "it cannot be reached: Connection refused (os error 111)".to_owned();
        for error in [StoreError::Unavailable(refused.clone()), StoreError::Broken(refused.clone())] {
            let problem = not_ready(&error, true).problem();
            assert_eq!((problem.status, problem.retry_after_secs), (503, Some(1)));
            let detail = problem.detail.unwrap();
            assert!(detail.starts_with("the store ") && detail.ends_with(&refused), "{detail}");
            assert!(!detail.contains("took effect"), "{detail}");
            let detail = not_ready(&error, false).problem().detail.unwrap();
            assert!(detail.starts_with("the store ") && !detail.contains("refused"), "{detail}");
        }
    }
}
