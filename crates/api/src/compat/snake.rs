//! `/api/jobs` in snake_case: its fields are those of `/api/v1/jobs`, with fewer status words.

use super::fields::FieldNames;
use super::phase::JobPhase;
use super::shared_paths::{JobIdSpellings, PATH};
use super::submit;
use crate::auth::Call;
use crate::error::ApiError;
use crate::extract::{IdInPath, NoBody};
use crate::idempotency::{Repeating, RequestName, once};
use crate::json::{self, DocumentShape};
use crate::query::QueryParams;
use crate::routes::changed;
use crate::views;
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use punctual_client::{ExecutionBody, ExecutionStatus};
use punctual_core::control::Verb;
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::job::JobStatus;
use punctual_core::time::Timestamp;
use punctual_engine::RequestTry;
use serde::Serialize;
use serde_json::value::RawValue;

#[derive(Serialize)]
struct SnakeJobAccepted {
    job_id: JobId,
    status: &'static str,
}

pub const fn job_word(phase: JobPhase) -> &'static str {
    match phase {
        JobPhase::Scheduled | JobPhase::Retrying | JobPhase::Queued | JobPhase::Running => "ACTIVE",
        JobPhase::Paused => "PAUSED",
        JobPhase::Completed | JobPhase::Failed | JobPhase::Cancelled => "DONE",
    }
}

pub const fn execution_word(status: ExecutionStatus) -> &'static str {
    match status {
        ExecutionStatus::Waiting | ExecutionStatus::Queued => "PENDING",
        ExecutionStatus::Running => "RUNNING",
        ExecutionStatus::Succeeded => "SUCCESS",
        ExecutionStatus::Failed
        | ExecutionStatus::TimedOut
        | ExecutionStatus::Cancelled
        | ExecutionStatus::Lost
        | ExecutionStatus::Skipped
        | ExecutionStatus::Snoozed
        | ExecutionStatus::Expired => "FAILED",
    }
}

pub async fn submit(call: &Call, body: &[u8], attempt: RequestTry) -> Result<Response, ApiError> {
    let translate = |_| json::parse_job(body, DocumentShape::Object);
    let submitted = submit::store(call, attempt, &FieldNames(&[]), translate).await?;
    let status = match submitted.status {
        JobStatus::Active => "ACTIVE",
        JobStatus::Paused => "PAUSED",
        JobStatus::Completed | JobStatus::Failed | JobStatus::Cancelled => "DONE",
    };
    let accepted = SnakeJobAccepted { job_id: submitted.job, status };
    Ok(submit::answer(PATH, &submitted, accepted))
}

#[derive(Serialize)]
pub struct SnakeJobBody {
    #[serde(flatten)]
    ids: JobIdSpellings,
    name: String,
    status: &'static str,
    next_run_time: Option<Timestamp>,
    last_execution: Option<SnakeLastExecution>,
}

#[derive(Serialize)]
struct SnakeLastExecution {
    execution_id: ExecutionId,
    status: &'static str,
    completed_at: Timestamp,
}

pub async fn show(call: Call, IdInPath(id): IdInPath<JobId>) -> Result<Json<SnakeJobBody>, ApiError> {
    let view = call.cases.job(id).await?;
    let status = job_word(JobPhase::of(&view));
    let job = views::job(view);
    let last_execution = job.last_execution.map(|last| SnakeLastExecution {
        execution_id: last.execution_id,
        status: execution_word(last.status),
        completed_at: last.completed_at,
    });
    let next_run_time = job.next_run_time;
    Ok(Json(SnakeJobBody { ids: id.into(), name: job.name, status, next_run_time, last_execution }))
}

#[derive(Serialize)]
pub struct SnakeExecutionsBody {
    #[serde(flatten)]
    ids: JobIdSpellings,
    executions: Vec<SnakeExecutionBody>,
}

#[derive(Serialize)]
pub struct SnakeExecutionBody {
    execution_id: ExecutionId,
    #[serde(flatten)]
    ids: JobIdSpellings,
    status: &'static str,
    scheduled_time: Timestamp,
    started_at: Option<Timestamp>,
    completed_at: Option<Timestamp>,
    worker_id: Option<String>,
    attempt_number: u32,
    error_message: Option<String>,
    result: Option<Box<RawValue>>,
}

impl From<ExecutionBody> for SnakeExecutionBody {
    fn from(execution: ExecutionBody) -> Self {
        SnakeExecutionBody {
            execution_id: execution.execution_id,
            ids: execution.job_id.into(),
            status: execution_word(execution.status),
            scheduled_time: execution.scheduled_time,
            started_at: execution.started_at,
            completed_at: execution.completed_at,
            worker_id: execution.worker_id,
            attempt_number: execution.attempt_number,
            error_message: execution.error_message,
            result: execution.result,
        }
    }
}

/// The latest executions of the job, latest first.
pub async fn executions(
    call: Call,
    IdInPath(id): IdInPath<JobId>,
    mut query: QueryParams,
) -> Result<Json<SnakeExecutionsBody>, ApiError> {
    let limit = query.limit();
    query.finish()?;
    let page = call.cases.executions_of_job(id, None, limit).await?.page;
    let executions = page.items.into_iter().map(|view| views::execution(view).into()).collect();
    Ok(Json(SnakeExecutionsBody { ids: id.into(), executions }))
}

/// Responds with the added execution.
pub async fn trigger(
    call: Call,
    IdInPath(id): IdInPath<JobId>,
    name: RequestName,
    _: NoBody,
) -> Result<Response, ApiError> {
    let run = async |_| {
        let added = changed(&call, id, Verb::trigger(false)).await?.added;
        let added = added.ok_or_else(|| ApiError::Internal("a trigger that added nothing".to_owned()))?;
        let execution = SnakeExecutionBody::from(views::execution(call.cases.execution(added).await?.view));
        Ok((StatusCode::CREATED, Json(execution)).into_response())
    };
    once(&call, name, b"", Repeating::Unsafe, run).await
}
