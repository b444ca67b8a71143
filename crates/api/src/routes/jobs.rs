//! Reading jobs.

use crate::auth::Call;
use crate::conditional::etag;
use crate::error::ApiError;
use crate::extract::IdInPath;
use crate::query::QueryParams;
use crate::{reasons, views};
use axum::Json;
use axum::http::StatusCode;
use axum::http::header::ETAG;
use axum::response::{IntoResponse, Response};
use punctual_client::{JobBody, Page, PriorityBody, ScheduleType};
use punctual_core::ids::JobId;
use punctual_core::limits;
use punctual_core::payload_filter::PayloadFilter;
use punctual_core::ports::{JobQuery, ScheduleKind, SessionRow};
use punctual_engine::{JobDetails, JobPredicate, lane_of};

/// One job, with its version as an ETag.
pub async fn show(call: Call, IdInPath(id): IdInPath<JobId>) -> Result<Response, ApiError> {
    let details = call.cases.job_details(id).await?;
    if let Some(error) = &details.unreadable {
        return Err(error.clone().into());
    }
    Ok(answer(StatusCode::OK, body(&call, details)))
}

/// The response that contains a whole job.
pub fn answer(status: StatusCode, job: JobBody) -> Response {
    (status, [(ETAG, etag(job.version))], Json(job)).into_response()
}

pub async fn read(call: &Call, id: JobId) -> Result<JobBody, ApiError> {
    Ok(body(call, call.cases.job_details(id).await?))
}

fn body(call: &Call, details: JobDetails) -> JobBody {
    let JobDetails { view, blamed, sessions, progress, .. } = details;
    let reason = reasons::of_status(&view, blamed.as_ref().map(|(name, _)| name.as_str()));
    let why_queued = |sessions: Vec<SessionRow>| {
        if call.api.is_stopping() {
            return Some(reasons::of_stopping());
        }
        reasons::of_queueing(&lane_of(&view.job.spec), &sessions)
    };
    let reason = reason.or_else(|| sessions.and_then(why_queued));
    let mut job = views::job(view);
    job.progress = progress.as_ref().and_then(views::progress);
    job.status_reason = reason;
    job
}

pub async fn list(call: Call, mut query: QueryParams) -> Result<Json<Page<JobBody>>, ApiError> {
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
    let predicate = JobPredicate { failing: query.flag("failing"), payload: payload_filters(&mut query) };
    query.finish()?;
    let page = if predicate.is_everything() {
        call.cases.jobs(wanted).await?
    } else {
        call.cases.jobs_matching(wanted, &predicate).await?
    };
    Ok(Json(Page {
        items: page.items.into_iter().map(views::job).collect(),
        next_cursor: call.next_cursor("jobs", page.next).await?,
    }))
}

fn payload_filters(query: &mut QueryParams) -> Vec<PayloadFilter> {
    let mut filters = Vec::new();
    for (field, value) in query.fields("payload.FIELD", limits::PAYLOAD_FILTERS_MAX) {
        let parameter = format!("payload.{field}");
        match PayloadFilter::new(field, value) {
            Ok(filter) => filters.push(filter),
            Err(problem) => query.refuse(&parameter, &problem),
        }
    }
    filters
}

fn kind_of(schedule: ScheduleType) -> ScheduleKind {
    match schedule {
        ScheduleType::Immediate => ScheduleKind::Immediate,
        ScheduleType::OneTime => ScheduleKind::OneTime,
        ScheduleType::Recurring => ScheduleKind::Recurring,
    }
}
