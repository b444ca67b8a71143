//! `/api/job`: a job with its attempts. `maxRetries` is the number of all attempts, the first one included, and
//! the name of a job is also its type.

use super::fields::{BoundedCount, FieldNames};
use super::pages::latest_attempts;
use super::phase::JobPhase;
use super::submit;
use crate::auth::Call;
use crate::error::ApiError;
use crate::extract::{BODY_BYTES_MAX, IdInPath, JsonBody};
use crate::idempotency::{Repeating, RequestName, once};
use crate::json::{self, DocumentShape};
use crate::views;
use axum::Json;
use axum::response::Response;
use punctual_client::{ExecutionBody, ExecutionStatus, SubmitJob};
use punctual_core::ids::JobId;
use punctual_core::limits;
use punctual_core::time::Timestamp;
use punctual_engine::RequestTry;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

const PATH: &str = "/api/job";
const NAMES: FieldNames = FieldNames(&[("job_type", "name"), ("max_retries", "maxRetries")]);
/// Attempts of a job that does not say how many.
const ATTEMPTS_DEFAULT: u32 = 3;
const ATTEMPTS_MAX: u32 = limits::MAX_RETRIES_MAX + 1;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct SingleJobRequest {
    name: String,
    payload: Option<Box<RawValue>>,
    max_retries: Option<BoundedCount<1, ATTEMPTS_MAX>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SingleJobAccepted {
    job_id: JobId,
    status: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SingleJobBody {
    job_id: JobId,
    name: String,
    status: &'static str,
    /// Attempts that have failed.
    retry_count: usize,
    max_retries: u32,
    executions: Vec<AttemptBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Box<RawValue>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AttemptBody {
    attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<Timestamp>,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

pub const fn job_word(phase: JobPhase) -> &'static str {
    match phase {
        JobPhase::Scheduled | JobPhase::Retrying | JobPhase::Paused => "PENDING",
        JobPhase::Queued => "QUEUED",
        JobPhase::Running => "RUNNING",
        JobPhase::Completed => "SUCCESS",
        JobPhase::Failed | JobPhase::Cancelled => "FAILED",
    }
}

/// `None` for attempts that are not listed yet, because they have not started.
pub const fn execution_word(status: ExecutionStatus) -> Option<&'static str> {
    Some(match status {
        ExecutionStatus::Waiting | ExecutionStatus::Queued => return None,
        ExecutionStatus::Running => "RUNNING",
        ExecutionStatus::Succeeded => "SUCCESS",
        ExecutionStatus::Failed
        | ExecutionStatus::TimedOut
        | ExecutionStatus::Cancelled
        | ExecutionStatus::Lost
        | ExecutionStatus::Skipped
        | ExecutionStatus::Snoozed
        | ExecutionStatus::Expired => "FAILED",
    })
}

pub async fn submit(
    call: Call,
    name: RequestName,
    body: JsonBody<BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    once(&call, name, &body.bytes, Repeating::Safe, |attempt| submit_one(&call, &body.bytes, attempt)).await
}

async fn submit_one(call: &Call, body: &[u8], attempt: RequestTry) -> Result<Response, ApiError> {
    let submitted = submit::store(call, attempt, &NAMES, |_| translated(body)).await?;
    let accepted = SingleJobAccepted { job_id: submitted.job, status: job_word(JobPhase::Scheduled) };
    Ok(submit::answer(PATH, &submitted, accepted))
}

fn translated(body: &[u8]) -> Result<SubmitJob, ApiError> {
    let SingleJobRequest { name, payload, max_retries } = json::parse(body, DocumentShape::Object)?;
    let attempts = max_retries.map_or(ATTEMPTS_DEFAULT, |BoundedCount(attempts)| attempts);
    Ok(SubmitJob { payload, max_retries: Some(attempts - 1), ..SubmitJob::named(name) })
}

pub async fn show(call: Call, IdInPath(id): IdInPath<JobId>) -> Result<Json<SingleJobBody>, ApiError> {
    let view = call.cases.job(id).await?;
    let attempts = latest_attempts(&call, id).await?;
    let status = job_word(JobPhase::of(&view));
    let job = views::job(view);
    let executions: Vec<AttemptBody> = attempts.into_iter().filter_map(attempt).collect();
    Ok(Json(SingleJobBody {
        job_id: id,
        name: job.name,
        status,
        retry_count: executions.iter().filter(|attempt| attempt.status == "FAILED").count(),
        max_retries: job.max_retries + 1,
        executions,
        result: job.result,
    }))
}

fn attempt(execution: ExecutionBody) -> Option<AttemptBody> {
    Some(AttemptBody {
        attempt: execution.attempt_number,
        started_at: execution.started_at,
        ended_at: execution.completed_at,
        status: execution_word(execution.status)?,
        error: execution.error_message,
    })
}
