//! `/users/{user_id}/jobs`: the jobs of one user, with intervals in ISO 8601. A user is named by the owner of its
//! jobs, and the caller's own user also by its id or email address.

use super::fields::{BoundedCount, FieldNames, TimeField};
use super::pages::{NumberedPage, latest_occurrences};
use super::submit;
use crate::auth::Call;
use crate::conditional::ExpectedVersion;
use crate::error::ApiError;
use crate::extract::{BODY_BYTES_MAX, IdInPath, JsonBody, NoBody};
use crate::idempotency::{Repeating, RequestName, once};
use crate::json::{self, DocumentShape};
use crate::patch::patched;
use crate::query::QueryParams;
use axum::Json;
use axum::extract::{FromRequestParts, Path};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use punctual_client::{API_PREFIX, ExecutionBody, ExecutionStatus, Span, SubmitJob};
use punctual_core::control::Verb;
use punctual_core::ids::JobId;
use punctual_core::job::JobSpec;
use punctual_core::limits;
use punctual_core::ports::{JobQuery, JobView};
use punctual_core::recurrence::{Recurrence, RecurrenceSpec, Rule};
use punctual_core::schedule::Schedule;
use punctual_core::time::Timestamp;
use punctual_engine::{RequestTry, UseCase, next_run_time};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

const NAMES: FieldNames = FieldNames(&[
    ("interval", "executionInterval"),
    ("max_retries", "maxRetryCount"),
    ("start_at", "next_execution_time"),
    ("execute_at", "next_execution_time"),
    ("owner_id", "user_id"),
]);
/// The type of a job that does not say what to run.
const JOB_TYPE_DEFAULT: &str = "noop";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UserJobRequest {
    #[serde(rename = "executionInterval")]
    interval: Option<String>,
    #[serde(rename = "maxRetryCount")]
    max_retry_count: Option<BoundedCount<0, { limits::MAX_RETRIES_MAX }>>,
    #[serde(rename = "is_reccuring", alias = "is_recurring")]
    is_recurring: Option<bool>,
    name: Option<String>,
    job_type: Option<String>,
    payload: Option<Box<RawValue>>,
}

#[derive(Serialize)]
struct UserJobAccepted {
    job_id: JobId,
}

/// The states of a task: it is scheduled until it has ended.
pub const fn execution_word(status: ExecutionStatus) -> &'static str {
    match status {
        ExecutionStatus::Waiting | ExecutionStatus::Queued | ExecutionStatus::Running => "SCHEDULED",
        ExecutionStatus::Succeeded => "COMPLETED",
        ExecutionStatus::Failed
        | ExecutionStatus::TimedOut
        | ExecutionStatus::Cancelled
        | ExecutionStatus::Lost
        | ExecutionStatus::Skipped
        | ExecutionStatus::Snoozed
        | ExecutionStatus::Expired => "FAILED",
    }
}

/// The same call, limited to the jobs of the user that the path names.
async fn on_jobs_of(call: Call, case: UseCase, user: &str) -> Result<Call, ApiError> {
    on_object_of(call, case, user, &format!("jobs of {user}")).await
}

/// The same for one job.
async fn on_job_of(call: Call, case: UseCase, path: &UserJobPath) -> Result<Call, ApiError> {
    on_object_of(call, case, &path.user, &format!("job {}", path.job)).await
}

async fn on_object_of(call: Call, case: UseCase, user: &str, object: &str) -> Result<Call, ApiError> {
    let cases = call.cases.limited_to_owner(case, user, object).await?;
    Ok(Call { cases, ..call })
}

pub async fn submit(
    call: Call,
    IdInPath(user): IdInPath<String>,
    name: RequestName,
    body: JsonBody<BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let call = on_jobs_of(call, UseCase::Submit, &user).await?;
    once(&call, name, &body.bytes, Repeating::Safe, |attempt| submit_one(&call, &body.bytes, attempt)).await
}

/// This form has no request for a single job, so its location is that of `/api/v1`.
async fn submit_one(call: &Call, body: &[u8], attempt: RequestTry) -> Result<Response, ApiError> {
    let submitted = submit::store(call, attempt, &NAMES, |_| translated(body)).await?;
    let accepted = UserJobAccepted { job_id: submitted.job };
    Ok(submit::answer(&format!("{API_PREFIX}/jobs"), &submitted, accepted))
}

/// A job that is not recurring runs once, after its interval.
fn translated(body: &[u8]) -> Result<SubmitJob, ApiError> {
    let job: UserJobRequest = json::parse(body, DocumentShape::Object)?;
    let job_type = job.job_type.unwrap_or_else(|| JOB_TYPE_DEFAULT.to_owned());
    let new = SubmitJob {
        payload: job.payload,
        max_retries: job.max_retry_count.map(|BoundedCount(retries)| retries),
        ..SubmitJob::named(job.name.unwrap_or_else(|| job_type.clone())).with_type(job_type)
    };
    match (job.is_recurring, job.interval) {
        (Some(true), None) => {
            Err(ApiError::field("executionInterval", "is needed for a recurring job, such as PT3H"))
        }
        (Some(false), Some(interval)) => {
            let delay: Span = interval.parse().map_err(|error| {
                ApiError::field("executionInterval", format!("{error}, not {interval:?}"))
            })?;
            Ok(SubmitJob { delay: Some(delay), ..new })
        }
        (_, interval) => Ok(SubmitJob { interval, ..new }),
    }
}

#[derive(Serialize)]
pub struct UserJobsBody {
    jobs: Vec<UserJobBody>,
}

#[derive(Serialize)]
struct UserJobBody {
    user_id: String,
    job_id: JobId,
    is_recurring: bool,
    interval: Option<String>,
    max_retry_count: u32,
    created_time: Timestamp,
    next_execution_time: Option<Timestamp>,
}

/// An interval as this API writes it. One that came in that form stays as it is.
fn in_iso_8601(every: &str) -> String {
    match every.parse::<Span>() {
        Ok(span) if !every.starts_with('P') => span.iso8601(),
        _ => every.to_owned(),
    }
}

impl From<JobView> for UserJobBody {
    fn from(view: JobView) -> Self {
        let next_execution_time = next_run_time(&view);
        let spec = view.job.spec;
        let interval = match &spec.settings.schedule {
            Schedule::Recurring(recurring) => Some(match &recurring.recurrence.spec().rule {
                Rule::Interval { every, .. } => in_iso_8601(every),
                Rule::Cron { pattern, .. } => pattern.clone(),
                Rule::Rrule { rule, .. } => rule.clone(),
                Rule::Union { .. } => recurring.recurrence.describe(),
            }),
            Schedule::Immediate | Schedule::OneTime { .. } => None,
        };
        UserJobBody {
            user_id: spec.owner,
            job_id: view.job.id,
            is_recurring: interval.is_some(),
            interval,
            max_retry_count: spec.settings.max_retries,
            created_time: view.job.created_at,
            next_execution_time,
        }
    }
}

pub async fn list(
    call: Call,
    IdInPath(user): IdInPath<String>,
    mut query: QueryParams,
) -> Result<Json<UserJobsBody>, ApiError> {
    let call = on_jobs_of(call, UseCase::ReadJobs, &user).await?;
    let page = NumberedPage::take(&mut query);
    query.finish()?;
    let views = page.read(&call, JobQuery::default(), None).await?;
    Ok(Json(UserJobsBody { jobs: views.into_iter().map(UserJobBody::from).collect() }))
}

/// The user and the job in a path.
pub struct UserJobPath {
    user: String,
    job: JobId,
}

impl<S: Send + Sync> FromRequestParts<S> for UserJobPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path((user, job)): Path<(String, String)> = Path::from_request_parts(parts, state)
            .await
            .map_err(|rejection| ApiError::NotFound(rejection.body_text()))?;
        let job: Result<JobId, _> = job.parse();
        Ok(UserJobPath { user, job: job.map_err(|error| ApiError::NotFound(error.to_string()))? })
    }
}

pub async fn delete(call: Call, path: UserJobPath, _: NoBody) -> Result<StatusCode, ApiError> {
    let call = on_job_of(call, UseCase::DeleteJob, &path).await?;
    call.cases.control(path.job, Verb::Delete).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Serialize)]
pub struct UserHistoryBody {
    job_id: JobId,
    history: Vec<UserHistoryEntry>,
}

#[derive(Serialize)]
struct UserHistoryEntry {
    job_id: JobId,
    execution_time: Timestamp,
    status: &'static str,
    retry_count: u32,
    last_update_time: Timestamp,
}

impl From<ExecutionBody> for UserHistoryEntry {
    fn from(execution: ExecutionBody) -> Self {
        UserHistoryEntry {
            job_id: execution.job_id,
            execution_time: execution.scheduled_time,
            status: execution_word(execution.status),
            retry_count: execution.attempt_number - 1,
            last_update_time: execution
                .completed_at
                .or(execution.started_at)
                .unwrap_or(execution.available_at),
        }
    }
}

/// One entry per occurrence, latest first.
pub async fn history(
    call: Call,
    path: UserJobPath,
    mut query: QueryParams,
) -> Result<Json<UserHistoryBody>, ApiError> {
    let call = on_job_of(call, UseCase::ReadExecutions, &path).await?;
    let limit = query.limit();
    query.finish()?;
    let occurrences = latest_occurrences(&call, path.job, limit).await?;
    Ok(Json(UserHistoryBody {
        job_id: path.job,
        history: occurrences.into_iter().map(UserHistoryEntry::from).collect(),
    }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NextTimeRequest {
    next_execution_time: TimeField,
}

#[derive(Serialize)]
pub struct NextTimeBody {
    job_id: JobId,
    next_execution_time: Option<Timestamp>,
}

/// Changes when the job runs next. An interval counts on from there; a cron expression keeps its times.
pub async fn reschedule(
    call: Call,
    path: UserJobPath,
    ExpectedVersion(expected): ExpectedVersion,
    body: JsonBody<BODY_BYTES_MAX>,
) -> Result<Json<NextTimeBody>, ApiError> {
    let call = on_job_of(call, UseCase::UpdateJob, &path).await?;
    let NextTimeRequest { next_execution_time: TimeField(time) } =
        json::parse(&body.bytes, DocumentShape::Object)?;
    let now = call.cases.now();
    let updated = call.cases.update(path.job, expected, |stored: &JobSpec| next_at(stored, time, now)).await;
    updated.map_err(|error: ApiError| NAMES.in_error(error))?;
    let next_execution_time = next_run_time(&call.cases.job(path.job).await?);
    Ok(Json(NextTimeBody { job_id: path.job, next_execution_time }))
}

fn next_at(stored: &JobSpec, time: Timestamp, now: Timestamp) -> Result<JobSpec, ApiError> {
    let refused = |detail: String| Err(ApiError::field("next_execution_time", detail));
    if time <= now {
        return refused(format!("must be in the future, not {time}: to run the job now, trigger it"));
    }
    let field = match &stored.settings.schedule {
        Schedule::Immediate | Schedule::OneTime { .. } => "execute_at",
        Schedule::Recurring(recurring) => {
            let spec = recurring.recurrence.spec();
            if let Rule::Cron { pattern, .. } = &spec.rule {
                let from_then = RecurrenceSpec { start_at: Some(time), ..spec.clone() };
                let next =
                    Recurrence::new(from_then).ok().and_then(|from| from.next_time_after(time.shifted(-1)));
                if next != Some(time) {
                    let next = next.map_or_else(String::new, |next| format!(", such as {next}"));
                    return refused(format!(
                        "must be a time of the cron expression {pattern}{next}, not {time}"
                    ));
                }
            }
            "start_at"
        }
    };
    patched(stored, json!({ field: time }).to_string().as_bytes(), now)
}
