//! Submitting jobs, singly or in batches.

use crate::auth::Call;
use crate::error::ApiError;
use crate::extract::{BATCH_BODY_BYTES_MAX, BODY_BYTES_MAX, JsonBody};
use crate::idempotency::{Repeating, RequestName, Unsettled, once};
use crate::json::DocumentShape;
use crate::routes::jobs;
use crate::submission::{Basis, job_spec};
use crate::{json, reasons, views};
use axum::Json;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use punctual_client::{API_PREFIX, BatchAnswer, BatchItem, BatchRequest, SubmitJob, SubmittedBody};
use punctual_core::ids::JobId;
use punctual_core::job::{JobSpec, JobStatus};
use punctual_core::limits;
use punctual_core::time::Timestamp;
use punctual_engine::RequestTry;
use serde::Deserialize;
use serde_json::value::RawValue;

pub async fn submit(
    call: Call,
    name: RequestName,
    body: JsonBody<BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    once(&call, name, &body.bytes, Repeating::Safe, |attempt| submit_one(&call, &body.bytes, attempt)).await
}

/// 201 for a new job; 200 with the whole job if one with its `idempotency_key` exists.
async fn submit_one(call: &Call, body: &[u8], attempt: RequestTry) -> Result<Response, ApiError> {
    let job = json::parse_job(body, DocumentShape::Job)?;
    let spec = spec_of(job, Basis::new(attempt.began_at(call.cases.now()), owner_of(call)))?;
    let answer = keep(call, vec![spec], attempt).await?.pop();
    let submitted = answer.ok_or_else(|| ApiError::Internal("a submit without an answer".to_owned()))??;
    let location = [(LOCATION, location_of(submitted.job_id))];
    if submitted.existing {
        let job = jobs::read(call, submitted.job_id).await?;
        return Ok((location, jobs::answer(StatusCode::OK, job)).into_response());
    }
    Ok((StatusCode::CREATED, location, Json(submitted)).into_response())
}

pub fn location_of(job: JobId) -> String {
    format!("{API_PREFIX}/jobs/{job}")
}

/// Each job is independent: an invalid one does not affect the others. 201 if all were accepted, else 200.
pub async fn submit_batch(
    call: Call,
    name: RequestName,
    body: JsonBody<BATCH_BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    once(&call, name, &body.bytes, Repeating::Safe, |attempt| submit_many(&call, &body.bytes, attempt)).await
}

async fn submit_many(call: &Call, body: &Bytes, attempt: RequestTry) -> Result<Response, ApiError> {
    let owner = owner_of(call).to_owned();
    let specs = parse_beside(body.clone(), attempt.began_at(call.cases.now()), owner).await?;
    let Batch { items, is_settled } = submit_each(call, specs, attempt).await?;
    let all_taken = items.iter().all(|item| matches!(item, BatchItem::Submitted(_)));
    let status = if all_taken { StatusCode::CREATED } else { StatusCode::OK };
    let mut response = (status, Json(BatchAnswer { items })).into_response();
    if !is_settled {
        response.extensions_mut().insert(Unsettled);
    }
    Ok(response)
}

/// Stores these jobs and returns the state of each.
pub async fn keep(
    call: &Call,
    specs: Vec<JobSpec>,
    attempt: RequestTry,
) -> Result<Vec<Result<SubmittedBody, ApiError>>, ApiError> {
    let answers = call.cases.submit(specs, attempt).await?.into_iter();
    Ok(answers.map(|answer| Ok(while_stopping(call, views::submitted(answer?)))).collect())
}

/// Adds a notice that nothing new starts, during shutdown.
fn while_stopping(call: &Call, submitted: SubmittedBody) -> SubmittedBody {
    let is_held = call.api.is_stopping() && submitted.status == JobStatus::Active;
    SubmittedBody { status_reason: is_held.then(reasons::of_stopping), ..submitted }
}

/// The outcomes of a batch, and whether all of them are final, so that a repeat cannot change them.
struct Batch {
    items: Vec<BatchItem>,
    is_settled: bool,
}

/// A batch whose jobs are still text, to find out which of them are invalid.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LooseBatch<'a> {
    #[serde(borrow)]
    jobs: Vec<&'a RawValue>,
}

/// Bytes of a batch up to which it is parsed on the current thread.
const PARSE_AT_ONCE_BYTES_MAX: usize = 64 * 1024;

/// Parses a batch; a large one on a blocking thread. The few async threads run everything else that must
/// happen on time, and parsing megabytes would block one of them.
async fn parse_beside(
    body: Bytes,
    now: Timestamp,
    owner: String,
) -> Result<Vec<Result<JobSpec, ApiError>>, ApiError> {
    if body.len() <= PARSE_AT_ONCE_BYTES_MAX {
        return parse_batch(&body, Basis::new(now, &owner));
    }
    let parsed = tokio::task::spawn_blocking(move || parse_batch(&body, Basis::new(now, &owner))).await;
    parsed.unwrap_or_else(|broken| {
        Err(ApiError::Internal(format!("parsing a batch was interrupted: {broken}")))
    })
}

fn parse_batch(body: &[u8], basis: Basis<'_>) -> Result<Vec<Result<JobSpec, ApiError>>, ApiError> {
    if let Ok(batch) = serde_json::from_slice::<BatchRequest>(body) {
        check_batch_size(batch.jobs.len())?;
        return Ok(batch.jobs.into_iter().map(|job| spec_of(job, basis)).collect());
    }
    let batch: LooseBatch = json::parse(body, DocumentShape::Batch)?;
    check_batch_size(batch.jobs.len())?;
    let parsed =
        batch.jobs.into_iter().map(|text| json::parse_job(text.get().as_bytes(), DocumentShape::JobOfBatch));
    Ok(parsed.map(|job| spec_of(job?, basis)).collect())
}

fn spec_of(job: SubmitJob, basis: Basis<'_>) -> Result<JobSpec, ApiError> {
    job_spec(job, basis).map_err(ApiError::invalid)
}

/// The owner of jobs that name none.
pub fn owner_of(call: &Call) -> &str {
    &call.cases.caller().grant.owner
}

fn check_batch_size(jobs: usize) -> Result<(), ApiError> {
    if jobs == 0 || jobs > limits::SUBMIT_BATCH_MAX {
        let detail = format!("must contain 1 to {} jobs, not {jobs}", limits::SUBMIT_BATCH_MAX);
        return Err(ApiError::field("jobs", detail));
    }
    Ok(())
}

/// Submits the valid jobs and puts the outcomes at the positions of their jobs.
async fn submit_each(
    call: &Call,
    parsed: Vec<Result<JobSpec, ApiError>>,
    attempt: RequestTry,
) -> Result<Batch, ApiError> {
    let mut specs = Vec::with_capacity(parsed.len());
    let refused: Vec<Option<ApiError>> = parsed
        .into_iter()
        .map(|item| match item {
            Ok(spec) => {
                specs.push(spec);
                None
            }
            Err(error) => Some(error),
        })
        .collect();
    let mut answers = if specs.is_empty() { vec![] } else { keep(call, specs, attempt).await? }.into_iter();
    let mut passing = None;
    let mut items = Vec::with_capacity(refused.len());
    for (place, refusal) in refused.into_iter().enumerate() {
        let outcome = match refusal {
            Some(error) => Err(error),
            None => match answers.next() {
                Some(answer) => answer,
                None => return Err(ApiError::Internal("fewer answers than jobs submitted".to_owned())),
            },
        };
        items.push(match outcome {
            Ok(submitted) => BatchItem::Submitted(submitted),
            Err(error) => {
                let error = error.within(&format!("jobs[{place}]"));
                let item = BatchItem::Refused { error: error.problem() };
                if error.may_pass() {
                    passing = Some(error);
                }
                item
            }
        });
    }
    match passing {
        // No job was accepted: the whole request should be retried.
        Some(error) if !items.iter().any(|item| matches!(item, BatchItem::Submitted(_))) => Err(error),
        passing => Ok(Batch { items, is_settled: passing.is_none() }),
    }
}
