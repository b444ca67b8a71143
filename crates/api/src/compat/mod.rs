//! Routes in the forms of other job APIs, so that programs written for those need no change:
//!
//! - `/api/job` ([`single`]), a job with its attempts;
//! - `/api/jobs` in camelCase ([`camel`]) and in snake_case ([`snake`]), on the same paths ([`shared_paths`]);
//! - `/jobs` ([`typed`]), a job by its type;
//! - `/users/{user_id}/jobs` ([`of_user`]), the jobs of one user.
//!
//! Each form translates its fields and status words and calls the use cases that `/api/v1` calls, so the rules
//! about jobs and the permissions of callers are the same. No other module knows of these forms.
//! `docs/reference/compatibility.md` describes them; tests compare it with the code.

mod camel;
mod fields;
mod of_user;
mod pages;
mod phase;
mod shared_paths;
mod single;
mod snake;
mod submit;
#[cfg(test)]
mod tests;
mod typed;

use crate::Api;
use axum::handler::Handler;
use axum::http::StatusCode;
use axum::routing::{MethodFilter, on};
use axum::{Extension, Router};
use punctual_engine::UseCase;

/// All routes of these forms.
pub fn routes() -> CompatRoutes {
    CompatRoutes { router: Router::new(), rules: vec![] }
        .with("POST /api/job", UseCase::Submit, single::submit)
        .with("GET /api/job/{id}", UseCase::ReadJobs, single::show)
        .with("POST /api/jobs", UseCase::Submit, shared_paths::submit)
        .with("GET /api/jobs", UseCase::ReadJobs, camel::list)
        .with("GET /api/jobs/{id}", UseCase::ReadJobs, snake::show)
        .with("PUT /api/jobs/{id}", UseCase::UpdateJob, camel::update)
        .with("DELETE /api/jobs/{id}", UseCase::CancelJob, shared_paths::delete)
        .with("GET /api/jobs/{id}/status", UseCase::ReadJobs, camel::status)
        .with("GET /api/jobs/{id}/logs", UseCase::ReadLogs, camel::logs)
        .with("GET /api/jobs/{id}/executions", UseCase::ReadExecutions, snake::executions)
        .with("POST /api/jobs/{id}/pause", UseCase::PauseJob, shared_paths::pause)
        .with("POST /api/jobs/{id}/resume", UseCase::ResumeJob, shared_paths::resume)
        .with("POST /api/jobs/{id}/trigger", UseCase::TriggerJob, snake::trigger)
        .with("POST /jobs", UseCase::Submit, typed::submit)
        .with("GET /jobs/{id}", UseCase::ReadJobs, typed::show)
        .with("POST /users/{user_id}/jobs", UseCase::Submit, of_user::submit)
        .with("GET /users/{user_id}/jobs", UseCase::ReadJobs, of_user::list)
        .with("PATCH /users/{user_id}/jobs/{job_id}", UseCase::UpdateJob, of_user::reschedule)
        .with("DELETE /users/{user_id}/jobs/{job_id}", UseCase::DeleteJob, of_user::delete)
        .with("GET /users/{user_id}/jobs/{job_id}/history", UseCase::ReadExecutions, of_user::history)
}

/// Marks the 405 of a path that only these forms have.
#[derive(Debug, Clone, Copy)]
pub struct CompatPath;

/// A router that records the use case of each of its requests, so that none is without a permission.
pub struct CompatRoutes {
    router: Router<Api>,
    rules: Vec<(&'static str, UseCase)>,
}

impl CompatRoutes {
    /// Adds a request, such as `GET /api/jobs`.
    fn with<H, T>(mut self, request: &'static str, case: UseCase, handler: H) -> Self
    where
        H: Handler<T, Api>,
        T: 'static,
    {
        let Some((method, path)) = request.split_once(' ') else {
            unreachable!("{request} has no method");
        };
        let method = match method {
            "GET" => MethodFilter::GET,
            "POST" => MethodFilter::POST,
            "PUT" => MethodFilter::PUT,
            "PATCH" => MethodFilter::PATCH,
            "DELETE" => MethodFilter::DELETE,
            other => unreachable!("no route has the method {other}"),
        };
        self.rules.push((request, case));
        CompatRoutes { router: self.router.route(path, on(method, handler)), ..self }
    }

    pub fn into_router(self) -> Router<Api> {
        let marked = async || (StatusCode::METHOD_NOT_ALLOWED, Extension(CompatPath));
        self.router.method_not_allowed_fallback(marked)
    }
}
