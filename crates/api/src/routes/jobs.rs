//! Reading jobs.

use crate::conditional::etag;
use crate::error::ApiError;
use crate::extract::IdInPath;
use crate::query::{QueryParams, next_cursor};
use crate::{Api, able, reasons, views};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::ETAG;
use axum::response::{IntoResponse, Response};
use punctual_client::{JobBody, Page, PriorityBody, ProgressBody, ScheduleType};
use punctual_core::ids::JobId;
use punctual_core::job::JobStatus;
use punctual_core::limits;
use punctual_core::notes::Noted;
use punctual_core::occurrence::LiveState;
use punctual_core::ports::{JobQuery, JobView, OPEN_IN_VIEW_MAX, ScheduleKind, StoreError};

/// One job, with its version as an ETag.
pub async fn show(State(api): State<Api>, IdInPath(id): IdInPath<JobId>) -> Result<Response, ApiError> {
    Ok(answer(StatusCode::OK, read(&api, id).await?))
}

/// The response that contains a whole job.
pub fn answer(status: StatusCode, job: JobBody) -> Response {
    (status, [(ETAG, etag(job.version))], Json(job)).into_response()
}

pub async fn read(api: &Api, id: JobId) -> Result<JobBody, ApiError> {
    let view = view(api, id).await?;
    let blamed = blamed(api, &view).await?;
    let reason = match reasons::of_status(&view, blamed.as_ref().map(|(name, _)| name.as_str())) {
        Some(reason) => Some(reason),
        None => why_queued(api, &view).await?,
    };
    let progress = progress(api, &view).await?;
    let mut job = views::job(view);
    job.progress = progress;
    job.status_reason = reason;
    Ok(job)
}

/// The progress of a job's running execution; of several, the latest.
async fn progress(api: &Api, view: &JobView) -> Result<Option<ProgressBody>, StoreError> {
    if !view.open.iter().any(|live| live.is_running() && live.ties.noted) {
        return Ok(None);
    }
    let notes = api.store().notes(view.job.id, u32::MAX, OPEN_IN_VIEW_MAX).await?;
    let runs = |noted: &&Noted| {
        let execution = noted.occurrence.attempt(noted.attempt);
        view.open.iter().any(|live| live.is_running() && live.execution() == execution)
    };
    Ok(notes.iter().filter(runs).find_map(views::progress))
}

pub async fn view(api: &Api, id: JobId) -> Result<JobView, ApiError> {
    api.store().job(id).await?.ok_or_else(|| no_such_job(id))
}

/// The name and current status of the job that caused the latest run of this one to be skipped.
pub async fn blamed(api: &Api, view: &JobView) -> Result<Option<(String, JobStatus)>, StoreError> {
    let last = view.last_finished.as_ref();
    let Some(parent) = last.and_then(|last| reasons::to_blame(last, &view.job.spec)) else { return Ok(None) };
    Ok(api.store().job(parent).await?.map(|parent| (parent.job.spec.name.clone(), parent.status())))
}

/// Why no worker claims a runnable execution, if that is so.
async fn why_queued(api: &Api, view: &JobView) -> Result<Option<String>, StoreError> {
    if !view.open.iter().any(|live| matches!(live.state, LiveState::Queued)) {
        return Ok(None);
    }
    if api.is_stopping() {
        return Ok(Some(reasons::of_stopping()));
    }
    Ok(reasons::of_queueing(&able::lane(&view.job.spec), &api.store().sessions().await?))
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
        schedule: query.word("schedule_type").map(kind_of),
        tags: query.texts("tag", limits::TAGS_MAX),
        text: query.text("q").filter(|text| !text.is_empty()),
    };
    query.finish()?;
    let page = api.store().jobs(wanted).await?;
    Ok(Json(Page {
        items: page.items.into_iter().map(views::job).collect(),
        next_cursor: next_cursor("jobs", page.next),
    }))
}

fn kind_of(schedule: ScheduleType) -> ScheduleKind {
    match schedule {
        ScheduleType::Immediate => ScheduleKind::Immediate,
        ScheduleType::OneTime => ScheduleKind::OneTime,
        ScheduleType::Recurring => ScheduleKind::Recurring,
    }
}
