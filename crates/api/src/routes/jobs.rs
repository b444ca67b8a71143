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
use punctual_client::{ComparedBody, JobBody, JobsPage, PriorityBody, ScheduleType};
use punctual_core::ids::JobId;
use punctual_core::job_predicate::{ExcludedValues, JobOrder, JobPredicate, TimeRange};
use punctual_core::limits;
use punctual_core::payload_filter::{PayloadField, PayloadFilter};
use punctual_core::ports::{JobQuery, ScheduleKind, SessionRow};
use punctual_engine::{JobDetails, lane_of};
use std::str::FromStr;

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

pub async fn list(call: Call, mut query: QueryParams) -> Result<Json<JobsPage>, ApiError> {
    let (before, limit, sort) = (query.cursor("jobs"), query.limit(), query.parsed::<SortWord>("sort"));
    if sort.is_some() && before.is_some() {
        query.refuse("cursor", "cannot be combined with sort: a sorted list has one page");
    }
    let (wanted, predicate) = selection(&mut query);
    let wanted = JobQuery { before, limit, ..wanted };
    query.finish()?;
    if let Some(SortWord(order)) = sort {
        let sorted = call.cases.jobs_sorted(wanted, &predicate, order).await?;
        return Ok(Json(JobsPage {
            items: sorted.items.into_iter().map(views::job).collect(),
            next_cursor: None,
            examined_back_to: None,
            compared: Some(ComparedBody { jobs: sorted.matched, complete: sorted.is_all }),
        }));
    }
    let page = if predicate.is_everything() {
        call.cases.jobs(wanted).await?
    } else {
        call.cases.jobs_matching(wanted, &predicate).await?
    };
    Ok(Json(JobsPage {
        items: page.items.into_iter().map(views::job).collect(),
        examined_back_to: page.next.map(|next| next.made_at()),
        next_cursor: call.next_cursor("jobs", page.next).await?,
        compared: None,
    }))
}

/// The order of a list.
struct SortWord(JobOrder);

impl FromStr for SortWord {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Ok(SortWord(match word {
            "next_run" => JobOrder::NextRun,
            "name" => JobOrder::Name,
            "priority" => JobOrder::Priority,
            "last_run" => JobOrder::LastRun,
            "lateness" => JobOrder::Lateness,
            _ => return Err("must be next_run, name, priority, last_run or lateness"),
        }))
    }
}

/// The jobs that the parameters select.
pub fn selection(query: &mut QueryParams) -> (JobQuery, JobPredicate) {
    let wanted = JobQuery {
        before: None,
        limit: 0,
        status: query.word("status"),
        name: query.text("name"),
        job_type: query.text("job_type"),
        queue: query.text("queue"),
        owner: query.text("owner"),
        priority: query.parsed::<PriorityBody>("priority").map(|priority| priority.0),
        schedule: query.word("schedule_type").map(kind_of),
        tags: query.texts("tag", limits::TAGS_MAX),
        text: query.text("q").filter(|text| !text.is_empty()),
        scheduled: false,
    };
    let mut range = |after, before| TimeRange { after: query.time(after), before: query.time(before) };
    let created = range("created_after", "created_before");
    let next_run = range("next_run_after", "next_run_before");
    let last_run = range("last_run_after", "last_run_before");
    let most = limits::EXCLUDED_VALUES_MAX;
    let not = ExcludedValues {
        statuses: query.words("not_status", most),
        names: query.texts("not_name", most),
        job_types: query.texts("not_job_type", most),
        queues: query.texts("not_queue", most),
        owners: query.texts("not_owner", most),
        tags: query.texts("not_tag", most),
    };
    let predicate = JobPredicate {
        failing: query.flag("failing"),
        payload: payload_filters(query),
        payload_has: payload_fields(query),
        not,
        created,
        next_run,
        last_run,
    };
    (wanted, predicate)
}

fn payload_fields(query: &mut QueryParams) -> Vec<PayloadField> {
    let mut fields = Vec::new();
    for path in query.texts("payload_has", limits::PAYLOAD_FILTERS_MAX) {
        match PayloadField::new(path) {
            Ok(field) => fields.push(field),
            Err(problem) => query.refuse("payload_has", &problem),
        }
    }
    fields
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
