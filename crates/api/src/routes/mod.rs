//! Which path leads where.

mod executions;
mod health;
mod jobs;
mod schedules;
mod stats;

use crate::Api;
use crate::auth;
use crate::error::ApiError;
use crate::extract::{BATCH_BODY_BYTES_MAX, BODY_BYTES_MAX};
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use punctual_client::API_PREFIX;

pub fn router(api: Api) -> Router {
    let v1 = Router::new()
        .route("/jobs", get(jobs::list).post(jobs::submit))
        .route("/jobs/batch", post(jobs::submit_batch).layer(DefaultBodyLimit::max(BATCH_BODY_BYTES_MAX)))
        .route("/jobs/{id}", get(jobs::show))
        .route("/jobs/{id}/executions", get(executions::of_job))
        .route("/jobs/{id}/next", get(schedules::next))
        .route("/schedules/preview", post(schedules::preview))
        .route("/executions/{id}", get(executions::show))
        .route("/dead-letters", get(executions::dead_letters))
        .route("/stats", get(stats::stats));
    Router::new()
        .nest(API_PREFIX, v1)
        .route("/", get(health::root))
        .route(API_PREFIX, get(health::api_root))
        .route(&format!("{API_PREFIX}/"), get(health::api_root))
        .route("/livez", get(health::live))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(stats::metrics))
        .fallback(not_found)
        .method_not_allowed_fallback(async || ApiError::MethodNotAllowed)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn_with_state(api.clone(), auth::guard))
        .with_state(api)
}

async fn not_found(request: Request) -> ApiError {
    ApiError::NotFound(format!("nothing is at {}; the API is under {API_PREFIX}", request.uri().path()))
}
