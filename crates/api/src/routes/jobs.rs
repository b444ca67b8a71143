//! Submitting and reading jobs.

use crate::error::ApiError;
use crate::extract::{BATCH_BODY_BYTES_MAX, BODY_BYTES_MAX, IdInPath, JsonBody};
use crate::json::Shape;
use crate::query::{QueryParams, next_cursor};
use crate::submission::job_spec;
use crate::{Api, json, views};
use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use punctual_client::{
    API_PREFIX, BatchAnswer, BatchItem, BatchRequest, JobBody, Page, PriorityBody, SubmitJob,
};
use punctual_core::ids::JobId;
use punctual_core::job::JobSpec;
use punctual_core::limits;
use punctual_core::occurrence::LiveState;
use punctual_core::ports::{JobQuery, JobView, StoreError};
use punctual_core::time::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

pub async fn submit(State(api): State<Api>, body: JsonBody<BODY_BYTES_MAX>) -> Result<Response, ApiError> {
    let job: SubmitJob = json::parse(&body.bytes, Shape::Job)?;
    let spec = job_spec(job, api.engine.now()).map_err(ApiError::invalid)?;
    let answer = api.engine.submit(vec![spec]).await.into_iter().next();
    let submitted = answer.ok_or_else(|| ApiError::Internal("a submit without an answer".to_owned()))??;
    let location = format!("{API_PREFIX}/jobs/{}", submitted.job);
    Ok((StatusCode::CREATED, [(LOCATION, location)], Json(views::submitted(submitted))).into_response())
}

/// Each job for itself: an invalid one does not keep the others out. 201 if all were taken, else 200.
pub async fn submit_batch(
    State(api): State<Api>,
    body: JsonBody<BATCH_BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let specs = parse_beside(body.bytes.clone(), api.engine.now()).await?;
    let items = submit_each(&api, specs).await?;
    let all_taken = items.iter().all(|item| matches!(item, BatchItem::Submitted(_)));
    let status = if all_taken { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(BatchAnswer { items })).into_response())
}

/// A batch whose jobs are still text, to find out which of them are wrong.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LooseBatch<'a> {
    #[serde(borrow)]
    jobs: Vec<&'a RawValue>,
}

/// Bytes of a batch up to which it is parsed right away.
const PARSE_AT_ONCE_BYTES_MAX: usize = 64 * 1024;

/// Parses a batch, a large one on a thread of its own: there are few threads for everything else that must
/// happen on time, and parsing megabytes would hold one of them.
async fn parse_beside(body: Bytes, now: Timestamp) -> Result<Vec<Result<JobSpec, ApiError>>, ApiError> {
    if body.len() <= PARSE_AT_ONCE_BYTES_MAX {
        return parse_batch(&body, now);
    }
    let parsed = tokio::task::spawn_blocking(move || parse_batch(&body, now)).await;
    parsed.unwrap_or_else(|broken| Err(ApiError::Internal(format!("parsing a batch broke off: {broken}"))))
}

fn parse_batch(body: &[u8], now: Timestamp) -> Result<Vec<Result<JobSpec, ApiError>>, ApiError> {
    if let Ok(batch) = serde_json::from_slice::<BatchRequest>(body) {
        check_batch_size(batch.jobs.len())?;
        return Ok(batch.jobs.into_iter().map(|job| spec_of(job, now)).collect());
    }
    let batch: LooseBatch = json::parse(body, Shape::Batch)?;
    check_batch_size(batch.jobs.len())?;
    let parsed = batch.jobs.into_iter().map(|text| json::parse(text.get().as_bytes(), Shape::JobOfBatch));
    Ok(parsed.map(|job| spec_of(job?, now)).collect())
}

fn spec_of(job: SubmitJob, now: Timestamp) -> Result<JobSpec, ApiError> {
    job_spec(job, now).map_err(ApiError::invalid)
}

fn check_batch_size(jobs: usize) -> Result<(), ApiError> {
    if jobs == 0 || jobs > limits::SUBMIT_BATCH_MAX {
        let detail = format!("must hold 1 to {} jobs, not {jobs}", limits::SUBMIT_BATCH_MAX);
        return Err(ApiError::field("jobs", detail));
    }
    Ok(())
}

/// Submits what is valid and puts the outcomes where their jobs were.
async fn submit_each(api: &Api, parsed: Vec<Result<JobSpec, ApiError>>) -> Result<Vec<BatchItem>, ApiError> {
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
    let asked = specs.len();
    let mut answers = if asked == 0 { vec![] } else { api.engine.submit(specs).await }.into_iter();
    let mut unavailable = None;
    let mut items = Vec::with_capacity(refused.len());
    for (place, refusal) in refused.into_iter().enumerate() {
        let outcome = match refusal {
            Some(error) => Err(error),
            None => match answers.next() {
                Some(answer) => answer.map_err(ApiError::from),
                None => {
                    return Err(ApiError::Internal(format!("fewer answers than the {asked} jobs submitted")));
                }
            },
        };
        items.push(match outcome {
            Ok(submitted) => BatchItem::Submitted(views::submitted(submitted)),
            Err(error) => {
                let error = error.within(&format!("jobs[{place}]"));
                let item = BatchItem::Refused { error: error.problem() };
                if matches!(error, ApiError::Unavailable(_)) {
                    unavailable = Some(error);
                }
                item
            }
        });
    }
    match unavailable {
        // Nothing was taken: the whole request is to be tried again.
        Some(error) if !items.iter().any(|item| matches!(item, BatchItem::Submitted(_))) => Err(error),
        _ => Ok(items),
    }
}

pub async fn show(State(api): State<Api>, IdInPath(id): IdInPath<JobId>) -> Result<Json<JobBody>, ApiError> {
    let view = api.store().job(id).await?;
    let view = view.ok_or_else(|| no_such_job(id))?;
    let lacks_worker = lacks_worker(&api, &view).await?;
    let mut job = views::job(view);
    if lacks_worker && job.status_reason.is_none() {
        job.status_reason = Some(views::reason_of_queueing(&job.job_type));
    }
    Ok(Json(job))
}

/// Whether the job could run now if only a worker had a handler for it.
async fn lacks_worker(api: &Api, view: &JobView) -> Result<bool, StoreError> {
    if !view.open.iter().any(|live| matches!(live.state, LiveState::Queued)) {
        return Ok(false);
    }
    let sessions = api.store().sessions().await?;
    Ok(!sessions.iter().any(|session| session.job_types.contains(&view.job.spec.job_type)))
}

pub fn no_such_job(id: JobId) -> ApiError {
    ApiError::NotFound(format!("there is no job {id}"))
}

pub async fn list(State(api): State<Api>, mut query: QueryParams) -> Result<Json<Page<JobBody>>, ApiError> {
    let wanted = JobQuery {
        before: query.cursor("jobs"),
        limit: query.limit(),
        status: query.word("status"),
        name: query.text("name"),
        job_type: query.text("job_type"),
        queue: query.text("queue"),
        owner: query.text("owner"),
        priority: query.parsed::<PriorityBody>("priority").map(|priority| priority.0),
    };
    query.finish()?;
    let page = api.store().jobs(wanted).await?;
    Ok(Json(Page {
        items: page.items.into_iter().map(views::job).collect(),
        next_cursor: next_cursor("jobs", page.next),
    }))
}
