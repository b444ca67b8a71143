//! `/jobs`: a job by its type, with a time or a schedule, and retries after one minute, five minutes, half an hour
//! and two hours.

use super::fields::{BoundedCount, FieldNames, repeated};
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
use punctual_client::{ExecutionBody, ExecutionStatus, RetryBody, Span, SubmitJob, time_fix};
use punctual_core::ids::JobId;
use punctual_core::limits;
use punctual_core::time::Timestamp;
use punctual_engine::RequestTry;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::time::Duration;

const PATH: &str = "/jobs";
const NAMES: FieldNames = FieldNames(&[
    ("name", "type"),
    ("job_type", "type"),
    ("execute_at", "runAt"),
    ("interval", "schedule"),
    ("cron_expression", "schedule"),
    ("idempotency_key", "idempotencyKey"),
    ("max_retries", "maxRetries"),
]);
/// The delays before the retries of a job.
const RETRY_STEPS: [Duration; 4] = [
    Duration::from_secs(60),
    Duration::from_secs(5 * 60),
    Duration::from_secs(30 * 60),
    Duration::from_secs(2 * 3_600),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct TypedJobRequest {
    r#type: String,
    run_at: Option<String>,
    schedule: Option<String>,
    payload: Option<Box<RawValue>>,
    max_retries: Option<BoundedCount<0, { limits::MAX_RETRIES_MAX }>>,
    idempotency_key: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TypedJobAccepted {
    job_id: JobId,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TypedJobBody {
    id: JobId,
    job_id: JobId,
    r#type: String,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    schedule: Option<String>,
    next_run_at: Option<Timestamp>,
    last_run_at: Option<Timestamp>,
    max_retries: u32,
    /// The number of the attempt that started last; 0 before the first.
    current_attempt: u32,
    last_error: Option<String>,
    next_retry_at: Option<Timestamp>,
    retry_history: Vec<FailedAttemptBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Box<RawValue>>,
}

#[derive(Serialize)]
struct FailedAttemptBody {
    attempt: u32,
    error: Option<String>,
    at: Timestamp,
}

pub const fn job_word(phase: JobPhase) -> &'static str {
    match phase {
        JobPhase::Scheduled | JobPhase::Paused => "SCHEDULED",
        JobPhase::Retrying => "FAILED",
        JobPhase::Queued => "QUEUED",
        JobPhase::Running => "RUNNING",
        JobPhase::Completed => "COMPLETED",
        JobPhase::Failed | JobPhase::Cancelled => "DEAD",
    }
}

pub async fn submit(
    call: Call,
    name: RequestName,
    body: JsonBody<BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    once(&call, name, &body.bytes, Repeating::Safe, |attempt| submit_one(&call, &body.bytes, attempt)).await
}

/// The job that already has the key is returned as it is now, with its result.
async fn submit_one(call: &Call, body: &[u8], attempt: RequestTry) -> Result<Response, ApiError> {
    let submitted = submit::store(call, attempt, &NAMES, |now| translated(body, now)).await?;
    if submitted.is_existing {
        return Ok(submit::answer(PATH, &submitted, read(call, submitted.job).await?));
    }
    Ok(submit::answer(PATH, &submitted, TypedJobAccepted { job_id: submitted.job }))
}

fn translated(body: &[u8], now: Timestamp) -> Result<SubmitJob, ApiError> {
    let job: TypedJobRequest = json::parse(body, DocumentShape::Object)?;
    let steps = RETRY_STEPS.into_iter().map(Span::from).collect();
    let new = SubmitJob {
        payload: job.payload,
        max_retries: Some(job.max_retries.map_or(RETRY_STEPS.len() as u32, |BoundedCount(retries)| retries)),
        retry: Some(RetryBody { steps: Some(steps), ..RetryBody::default() }),
        idempotency_key: job.idempotency_key,
        ..SubmitJob::named(job.r#type)
    };
    match (job.run_at, job.schedule) {
        (Some(_), Some(_)) => {
            Err(ApiError::field("schedule", "cannot be combined with runAt: give one of the two"))
        }
        (Some(run_at), None) => Ok(SubmitJob { execute_at: Some(moment(&run_at, now)?), ..new }),
        (None, Some(schedule)) => Ok(repeated(new, schedule)),
        (None, None) => Ok(new),
    }
}

/// A time, or the next time that clocks in UTC show this time of day.
fn moment(text: &str, now: Timestamp) -> Result<Timestamp, ApiError> {
    if let Some(minutes) = minutes_of_day(text) {
        const DAY_US: i64 = 24 * 3_600_000_000;
        let today = now.shifted(-now.as_micros().rem_euclid(DAY_US));
        let at = today.shifted(minutes * 60_000_000);
        return Ok(if at > now { at } else { at.shifted(DAY_US) });
    }
    text.parse().map_err(|_| {
        ApiError::field("runAt", format!("{}, or a time of day in UTC such as 5pm or 17:00", time_fix(text)))
    })
}

/// `5pm`, `5:30 am` or `17:00` in minutes since midnight.
fn minutes_of_day(text: &str) -> Option<i64> {
    let text = text.trim().to_ascii_lowercase();
    let (clock, half_day) = match text.strip_suffix("am") {
        Some(clock) => (clock.trim_end(), Some(0)),
        None => match text.strip_suffix("pm") {
            Some(clock) => (clock.trim_end(), Some(12)),
            None => (text.as_str(), None),
        },
    };
    let (hour, minute) = match clock.split_once(':') {
        Some((hour, minute)) if minute.len() == 2 => (number(hour)?, number(minute)?),
        None if half_day.is_some() => (number(clock)?, 0),
        _ => return None,
    };
    let hour = match half_day {
        Some(half_day) => (1..=12).contains(&hour).then_some(hour % 12 + half_day)?,
        None => (hour < 24).then_some(hour)?,
    };
    (minute < 60).then_some(hour * 60 + minute)
}

fn number(digits: &str) -> Option<i64> {
    let is_short = (1..=2).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_short { digits.parse().ok() } else { None }
}

pub async fn show(call: Call, IdInPath(id): IdInPath<JobId>) -> Result<Json<TypedJobBody>, ApiError> {
    read(&call, id).await.map(Json)
}

async fn read(call: &Call, id: JobId) -> Result<TypedJobBody, ApiError> {
    let view = call.cases.job(id).await?;
    let attempts = latest_attempts(call, id).await?;
    let status = job_word(JobPhase::of(&view));
    let job = views::job(view);
    let current_attempt = attempts.iter().rfind(|attempt| has_started(attempt));
    Ok(TypedJobBody {
        id,
        job_id: id,
        r#type: job.job_type,
        status,
        schedule: job.cron_expression.or(job.interval),
        next_run_at: job.next_run_time,
        last_run_at: job.last_run_time,
        max_retries: job.max_retries,
        current_attempt: current_attempt.map_or(0, |attempt| attempt.attempt_number),
        last_error: job.last_error,
        next_retry_at: job.next_retry_time,
        retry_history: attempts.into_iter().filter_map(failed).collect(),
        idempotency_key: job.idempotency_key,
        result: job.result,
    })
}

fn has_started(attempt: &ExecutionBody) -> bool {
    attempt.started_at.is_some() || attempt.completed_at.is_some()
}

fn failed(attempt: ExecutionBody) -> Option<FailedAttemptBody> {
    let at = attempt.completed_at.filter(|_| attempt.status != ExecutionStatus::Succeeded)?;
    Some(FailedAttemptBody { attempt: attempt.attempt_number, error: attempt.error_message, at })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_day_is_the_next_one_in_utc() {
        let now: Timestamp = "2026-11-15T08:30:00Z".parse().unwrap();
        for (text, at) in [
            ("5pm", "2026-11-15T17:00:00Z"),
            ("5:30 PM", "2026-11-15T17:30:00Z"),
            ("17:00", "2026-11-15T17:00:00Z"),
            ("8:30am", "2026-11-16T08:30:00Z"),
            ("12am", "2026-11-16T00:00:00Z"),
            ("12pm", "2026-11-15T12:00:00Z"),
            ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ] {
            assert_eq!(moment(text, now).unwrap(), at.parse().unwrap(), "{text}");
        }
        for text in ["", "5", "13pm", "0am", "24:00", "1:60pm", "17:0", "+5pm", "tomorrow", "17:00:00"] {
            let problem = moment(text, now).unwrap_err().problem();
            assert_eq!(problem.errors[0].field, "runAt", "{text}");
        }
    }
}
