//! The routing table.

mod acknowledge;
mod adjust;
mod audit;
mod autoscaling;
mod bulk;
mod by_name;
mod calendars;
mod clock;
mod control;
mod dead_letters;
mod events;
mod executions;
mod executions_listed;
mod explain;
mod fires;
mod health;
mod job_types;
mod jobs;
mod listed;
mod log_search;
mod login;
mod logs;
mod named;
mod nodes;
mod notifications;
mod pause;
mod queues;
mod schedules;
mod secrets;
mod series;
mod stats;
mod submit;
mod tokens;
mod update;
mod users;
mod views;
mod worker;
mod workers;

use crate::Api;
use crate::auth;
use crate::compat;
use crate::dashboard;
use crate::error::ApiError;
use crate::extract::{BATCH_BODY_BYTES_MAX, BODY_BYTES_MAX};
use crate::metrics::count_traffic;
use crate::{headers, hosts, openapi, rate_limit};
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::StatusCode;
use axum::http::header::{ALLOW, CONTENT_LENGTH};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
pub use bulk::MergePatches;
pub use control::{changed, refused};
use listed::Listed;
use punctual_client::API_PREFIX;

pub fn router(api: Api) -> Router {
    let routes = all()
        .into_router()
        .merge(login::router())
        .merge(acknowledge::router())
        .merge(dashboard::router())
        .merge(compat::routes().into_router());
    guarded(routes.fallback(not_found), api)
}

/// The routes of a process that serves no requests about jobs.
pub fn health_router(api: Api) -> Router {
    guarded(health().into_router().fallback(health_only), api)
}

fn guarded(routes: Router<Api>, api: Api) -> Router {
    routes
        .method_not_allowed_fallback(async || StatusCode::METHOD_NOT_ALLOWED)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn_with_state(api.limiter.clone(), rate_limit::limit))
        .layer(from_fn_with_state(api.clone(), auth::guard))
        .layer(from_fn_with_state(api.limiter.clone(), rate_limit::limit_failures))
        .layer(from_fn_with_state(api.clone(), hosts::check))
        .layer(from_fn_with_state(api.clone(), headers::cors))
        .layer(from_fn_with_state(api.clone(), count_traffic))
        .with_state(api)
}

/// Every routed path, to compare with the OpenAPI document.
#[cfg(test)]
pub fn paths() -> Vec<String> {
    all().into_paths()
}

fn all() -> Listed {
    let v1 = Listed::new()
        .route("/jobs", get(jobs::list).post(submit::submit))
        .route("/jobs/batch", post(submit::submit_batch).layer(DefaultBodyLimit::max(BATCH_BODY_BYTES_MAX)))
        .route(
            "/jobs/{id}",
            get(jobs::show).put(update::replace).patch(update::patch).delete(control::delete),
        )
        .route("/jobs/by-name/{name}", get(by_name::show).put(by_name::put_job))
        .route("/jobs/by-name/{name}/plan", post(by_name::plan))
        .route("/jobs/{id}/pause", post(control::pause))
        .route("/jobs/{id}/resume", post(control::resume))
        .route("/jobs/{id}/cancel", post(control::cancel))
        .route("/jobs/{id}/retry", post(control::retry))
        .route("/jobs/{id}/trigger", post(control::trigger))
        .route("/jobs/{id}/skip-next", post(adjust::skip_next))
        .route("/jobs/{id}/run-next-at", post(adjust::run_next_at))
        .route("/jobs/{id}/backfill", post(adjust::backfill))
        .route("/calendars", get(calendars::list))
        .route("/calendars/{name}", get(calendars::show).put(calendars::set).delete(calendars::remove))
        .route("/jobs/{id}/explain", get(explain::explain))
        .route("/jobs/{id}/executions", get(executions::of_job))
        .route("/jobs/{id}/logs", get(logs::of_job))
        .route("/jobs/{id}/next", get(schedules::next))
        .route("/schedules/preview", post(schedules::preview))
        .route("/fires", get(fires::list))
        .route("/executions", get(executions_listed::list))
        .route("/executions/{id}", get(executions::show))
        .route("/executions/{id}/result", get(executions::result))
        .route("/executions/{id}/logs", get(logs::of_execution))
        .route("/executions/{id}/cancel", post(executions::cancel))
        .route("/executions/{id}/rerun", post(control::rerun))
        .route("/dead-letters", get(dead_letters::list))
        .route("/dead-letters/redrive", post(dead_letters::redrive))
        .route("/dead-letters/discard", post(dead_letters::discard))
        .route("/bulk", get(bulk::list).post(bulk::start))
        .route("/bulk/{operation_id}", get(bulk::show))
        .route("/bulk/{operation_id}/cancel", post(bulk::cancel))
        .route("/queues", get(queues::list))
        .route("/queues/{queue}", get(queues::show).put(queues::set).patch(queues::patch))
        .route("/queues/{queue}/pause", post(queues::pause))
        .route("/queues/{queue}/resume", post(queues::resume))
        .route("/pause", get(pause::show).put(pause::set).delete(pause::end))
        .route("/workers", get(workers::list))
        .route("/workers/{id}", get(workers::show))
        .route("/workers/{id}/pause", post(workers::pause))
        .route("/workers/{id}/resume", post(workers::resume))
        .route("/workers/{id}/drain", post(workers::drain))
        .route("/autoscaling", get(autoscaling::list))
        .route("/autoscaling/{queue}", get(autoscaling::show))
        .route("/nodes", get(nodes::list))
        .route("/me", get(nodes::me))
        .route("/views", get(views::list))
        .route("/views/{name}", put(views::set).delete(views::remove))
        .route("/settings", get(views::settings))
        .route("/tokens", get(tokens::list).post(tokens::create))
        .route("/tokens/{token_id}", get(tokens::show).patch(tokens::patch).delete(tokens::revoke))
        .route("/tokens/{token_id}/rotate", post(tokens::rotate))
        .route("/users", get(users::list).post(users::add))
        .route("/users/{user_id}", get(users::show).patch(users::patch).delete(users::remove))
        .route("/secrets", get(secrets::list))
        .route("/secrets/{name}", get(secrets::show).put(secrets::set).delete(secrets::remove))
        .route("/secret-keys/rotate", post(secrets::rotate))
        .route("/channels", get(notifications::list_channels).post(notifications::add_channel))
        .route(
            "/channels/{name}",
            get(notifications::show_channel)
                .put(notifications::set_channel)
                .delete(notifications::remove_channel),
        )
        .route("/channels/{name}/test", post(notifications::test_channel))
        .route("/notifications", get(notifications::show))
        .route("/notifications/resume", post(notifications::resume))
        .route("/notifications/rules", get(notifications::list_rules).post(notifications::add_rule))
        .route(
            "/notifications/rules/{name}",
            get(notifications::show_rule).put(notifications::set_rule).delete(notifications::remove_rule),
        )
        .route("/notifications/silences", get(notifications::list_silences).post(notifications::add_silence))
        .route("/notifications/silences/{silence_id}", delete(notifications::remove_silence))
        .route("/notifications/alerts", get(notifications::list_alerts))
        .route("/notifications/alerts/{alert_id}/ack", post(notifications::acknowledge))
        .route("/notifications/deliveries", get(notifications::list_deliveries))
        .route("/notifications/deliveries/{delivery_id}", get(notifications::show_delivery))
        .route("/notifications/deliveries/{delivery_id}/replay", post(notifications::replay))
        .route("/job-types", get(job_types::list))
        .route("/job-types/{name}", get(job_types::show).put(job_types::set).delete(job_types::remove))
        .route("/audit", get(audit::list))
        .route("/audit/verify", get(audit::verify))
        .route("/events", get(events::events))
        .route("/logs", get(log_search::search))
        .route("/stats", get(stats::stats))
        .route("/series", get(series::series))
        .route("/clock", get(clock::show))
        .route("/clock/advance", post(clock::advance))
        .route("/clock/jump", post(clock::jump))
        .nest("/worker", worker::router().guarded(auth::needs_certificate));
    Listed::new()
        .nest(API_PREFIX, v1)
        .route("/", get(health::root))
        .route(API_PREFIX, get(health::api_root))
        .route(&format!("{API_PREFIX}/"), get(health::api_root))
        .join(health())
        .route("/openapi.json", get(openapi::serve))
        .route("/docs", get(openapi::page))
}

fn health() -> Listed {
    Listed::new()
        .route("/livez", get(health::live))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(stats::metrics))
}

async fn health_only(request: Request) -> ApiError {
    ApiError::NotFound(format!(
        "there is nothing at {}: this process only serves /livez, /readyz and /metrics; the API is where \
         `punctual serve` or `punctual api` listens",
        request.uri().path()
    ))
}

async fn not_found(request: Request) -> ApiError {
    ApiError::NotFound(format!(
        "there is nothing at {}; the API is under {API_PREFIX}, and /openapi.json and /docs describe it",
        request.uri().path()
    ))
}

/// Names the allowed methods in the body of a 405. The router adds them as a header, after all its layers.
pub fn with_allowed_methods(response: Response) -> Response {
    if response.status() != StatusCode::METHOD_NOT_ALLOWED {
        return response;
    }
    let Some(allow) = response.headers().get(ALLOW).cloned() else { return response };
    let allowed = allow.to_str().unwrap_or_default().replace(',', ", ");
    let described_in = match response.extensions().get::<compat::CompatPath>() {
        Some(_) => "the page Compatible job APIs of the documentation lists the requests of this form",
        None => "/openapi.json lists all requests",
    };
    let mut answer = ApiError::MethodNotAllowed { allowed, described_in }.into_response();
    // Scripts of other origins may read it, too.
    let kept = response.headers().iter().filter(|(name, _)| *name != CONTENT_LENGTH);
    answer.headers_mut().extend(kept.map(|(name, value)| (name.clone(), value.clone())));
    answer
}
