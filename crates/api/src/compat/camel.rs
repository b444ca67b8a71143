//! `/api/jobs` in camelCase: jobs that run once or with a frequency, with lists by page, logs and updates. The name
//! of a job is also its type.

use super::fields::{FieldNames, TimeField, given, repeat_field, repeated};
use super::pages::NumberedPage;
use super::phase::{JobPhase, execution_time, last_updated};
use super::shared_paths::{JobIdSpellings, PATH, VerbDone};
use super::submit;
use crate::auth::Call;
use crate::conditional::ExpectedVersion;
use crate::error::ApiError;
use crate::extract::{BODY_BYTES_MAX, IdInPath, JsonBody};
use crate::json::{self, DocumentShape};
use crate::patch::patched;
use crate::query::QueryParams;
use axum::Json;
use axum::response::Response;
use punctual_client::{PriorityBody, SubmitJob};
use punctual_core::ids::JobId;
use punctual_core::job::{JobSpec, Priority};
use punctual_core::limits;
use punctual_core::ports::{JobQuery, JobView, LogLine, ScheduleKind};
use punctual_core::schedule::Schedule;
use punctual_core::time::Timestamp;
use punctual_engine::{LogSource, RequestTry};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

/// The fields that the snake_case form does not have, with those that it has in their place.
pub const OWN_FIELDS: [(&str, &str); 4] = [
    ("jobName", "name"),
    ("jobType", "schedule_type"),
    ("executionTime", "execute_at or start_at"),
    ("frequency", "interval or cron_expression"),
];
/// The fields that both forms have.
pub const COMMON_FIELDS: [&str; 2] = ["priority", "payload"];

const NAMES: FieldNames = FieldNames(&[
    ("name", "jobName"),
    ("job_type", "jobName"),
    ("execute_at", "executionTime"),
    ("start_at", "executionTime"),
    ("interval", "frequency"),
    ("cron_expression", "frequency"),
]);

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct CamelJobRequest {
    job_name: String,
    job_type: Option<CamelJobType>,
    execution_time: Option<TimeField>,
    frequency: Option<String>,
    priority: Option<PriorityBody>,
    payload: Option<Box<RawValue>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum CamelJobType {
    OneTime,
    Recurring,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CamelJobAccepted {
    job_id: JobId,
    status: &'static str,
}

pub const fn job_word(phase: JobPhase) -> &'static str {
    match phase {
        JobPhase::Scheduled | JobPhase::Retrying | JobPhase::Queued => "pending",
        JobPhase::Running => "running",
        JobPhase::Paused => "paused",
        JobPhase::Completed => "completed",
        JobPhase::Failed => "failed",
        JobPhase::Cancelled => "cancelled",
    }
}

const fn priority_word(priority: Priority) -> &'static str {
    match priority.get() {
        ..=3 => "low",
        4..=7 => "medium",
        _ => "high",
    }
}

pub async fn submit(call: &Call, body: &[u8], attempt: RequestTry) -> Result<Response, ApiError> {
    let submitted = submit::store(call, attempt, &NAMES, |_| translated(body)).await?;
    let accepted = CamelJobAccepted { job_id: submitted.job, status: "submitted" };
    Ok(submit::answer(PATH, &submitted, accepted))
}

/// Without a `jobType`, a job with a `frequency` is recurring. A recurring job first runs at its `executionTime`.
fn translated(body: &[u8]) -> Result<SubmitJob, ApiError> {
    let job: CamelJobRequest = json::parse(body, DocumentShape::Object)?;
    let new = SubmitJob { priority: job.priority, payload: job.payload, ..SubmitJob::named(job.job_name) };
    let time = job.execution_time.map(|TimeField(time)| time);
    match (job.job_type, job.frequency) {
        (Some(CamelJobType::OneTime), Some(_)) => Err(ApiError::field(
            "frequency",
            "belongs to jobType recurring, not one-time: leave out one of the two",
        )),
        (Some(CamelJobType::Recurring), None) => Err(ApiError::field(
            "frequency",
            "is needed for jobType recurring, such as daily, weekly or PT3H",
        )),
        (_, Some(frequency)) => Ok(repeated(SubmitJob { start_at: time, ..new }, frequency)),
        (_, None) => Ok(SubmitJob { execute_at: time, ..new }),
    }
}

/// The fields of a job to change; the others stay.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct CamelJobChange {
    #[serde(default, deserialize_with = "given")]
    job_name: Option<String>,
    #[serde(default, deserialize_with = "given")]
    execution_time: Option<TimeField>,
    #[serde(default, deserialize_with = "given")]
    frequency: Option<String>,
    #[serde(default, deserialize_with = "given")]
    priority: Option<PriorityBody>,
    #[serde(default, deserialize_with = "given")]
    payload: Option<Box<RawValue>>,
}

impl CamelJobChange {
    fn parse(body: &[u8]) -> Result<Self, ApiError> {
        match json::parse(body, DocumentShape::Object)? {
            CamelJobChange {
                job_name: None,
                execution_time: None,
                frequency: None,
                priority: None,
                payload: None,
            } => Err(ApiError::WrongShape {
                title: "the body changes nothing",
                detail: "give at least one of jobName, executionTime, frequency, priority and payload",
            }),
            change => Ok(change),
        }
    }
}

pub async fn update(
    call: Call,
    IdInPath(id): IdInPath<JobId>,
    ExpectedVersion(expected): ExpectedVersion,
    body: JsonBody<BODY_BYTES_MAX>,
) -> Result<Json<VerbDone>, ApiError> {
    let change = CamelJobChange::parse(&body.bytes)?;
    let now = call.cases.now();
    let updated = call.cases.update(id, expected, |stored: &JobSpec| changed(stored, &change, now)).await;
    updated.map_err(|error| NAMES.in_error(error))?;
    Ok(VerbDone::to(id, "updated"))
}

/// The payload is replaced as a whole. Everything else is a change of some fields, as with `PATCH`. A one-time
/// job that becomes recurring keeps its time, as its start.
fn changed(stored: &JobSpec, change: &CamelJobChange, now: Timestamp) -> Result<JobSpec, ApiError> {
    let mut fields = serde_json::Map::new();
    if let Some(name) = &change.job_name {
        fields.insert("name".to_owned(), json!(name));
    }
    if let Some(priority) = change.priority {
        fields.insert("priority".to_owned(), json!(priority));
    }
    if let Some(frequency) = &change.frequency {
        fields.insert(repeat_field(frequency).to_owned(), json!(frequency));
    }
    let given_time = change.execution_time.map(|TimeField(time)| time);
    let (time_field, time) = match (&stored.settings.schedule, &change.frequency) {
        (Schedule::Recurring(_), _) | (Schedule::Immediate, Some(_)) => ("start_at", given_time),
        (Schedule::OneTime { at }, Some(_)) => ("start_at", given_time.or(Some(*at))),
        (Schedule::Immediate | Schedule::OneTime { .. }, None) => ("execute_at", given_time),
    };
    if let Some(time) = time {
        fields.insert(time_field.to_owned(), json!(time));
    }
    let patch = serde_json::to_vec(&fields).map_err(|error| ApiError::Internal(error.to_string()))?;
    let spec = patched(stored, &patch, now)?;
    Ok(match &change.payload {
        Some(payload) => JobSpec { payload: payload.get().to_owned(), ..spec },
        None => spec,
    })
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CamelStatusBody {
    #[serde(flatten)]
    ids: JobIdSpellings,
    status: &'static str,
    last_updated: Timestamp,
}

pub async fn status(call: Call, IdInPath(id): IdInPath<JobId>) -> Result<Json<CamelStatusBody>, ApiError> {
    let view = call.cases.job(id).await?;
    let status = job_word(JobPhase::of(&view));
    Ok(Json(CamelStatusBody { ids: id.into(), status, last_updated: last_updated(&view) }))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CamelListedJob {
    #[serde(flatten)]
    ids: JobIdSpellings,
    job_name: String,
    status: &'static str,
    execution_time: Option<Timestamp>,
}

pub async fn list(call: Call, mut query: QueryParams) -> Result<Json<Vec<CamelListedJob>>, ApiError> {
    let status = word_of(&mut query, "status", &JobPhase::ALL.map(job_word));
    let kind = word_of(&mut query, "type", &["one-time", "recurring"]);
    let priority = word_of(&mut query, "priority", &["low", "medium", "high"]);
    let page = NumberedPage::take(&mut query);
    query.finish()?;
    let phases =
        || JobPhase::ALL.into_iter().filter(|phase| status.is_none_or(|word| word == job_word(*phase)));
    let wanted = JobQuery {
        status: status.and_then(|_| phases().next()).map(JobPhase::job_status),
        schedule: kind.filter(|word| *word == "recurring").map(|_| ScheduleKind::Recurring),
        ..JobQuery::default()
    };
    let keep = |view: &JobView| {
        let spec = &view.job.spec;
        phases().any(|phase| phase == JobPhase::of(view))
            && kind.is_none_or(|word| (word == "one-time") == spec.settings.schedule.is_one_shot())
            && priority.is_none_or(|word| word == priority_word(spec.priority))
    };
    let is_filtered = status.or(kind).or(priority).is_some();
    let views = page.read(&call, wanted, if is_filtered { Some(&keep) } else { None }).await?;
    Ok(Json(views.iter().map(listed).collect()))
}

fn listed(view: &JobView) -> CamelListedJob {
    CamelListedJob {
        ids: view.job.id.into(),
        job_name: view.job.spec.name.clone(),
        status: job_word(JobPhase::of(view)),
        execution_time: execution_time(view),
    }
}

/// One of these words, in any case.
fn word_of(query: &mut QueryParams, name: &'static str, words: &[&'static str]) -> Option<&'static str> {
    let text = query.text(name)?;
    let word = words.iter().find(|word| word.eq_ignore_ascii_case(&text)).copied();
    if word.is_none() {
        let mut known: Vec<&str> = words.to_vec();
        known.dedup();
        query.refuse(name, &format!("must be one of {}, not {text:?}", known.join(", ")));
    }
    word
}

#[derive(Serialize)]
pub struct CamelLogsBody {
    #[serde(flatten)]
    ids: JobIdSpellings,
    logs: Vec<CamelLogLine>,
}

#[derive(Serialize)]
struct CamelLogLine {
    timestamp: Timestamp,
    message: String,
}

/// The last lines of the job's latest run.
pub async fn logs(call: Call, IdInPath(id): IdInPath<JobId>) -> Result<Json<CamelLogsBody>, ApiError> {
    let segment = call.cases.logs(LogSource::Job(id)).await?.last(None, limits::PAGE_ITEMS_MAX).await?;
    let line = |line: LogLine| CamelLogLine { timestamp: line.timestamp, message: line.message };
    Ok(Json(CamelLogsBody { ids: id.into(), logs: segment.items.into_iter().map(line).collect() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::submission::{Basis, job_spec};
    use punctual_core::job::DEFAULT_OWNER;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// The job that a body submits, after a change of it.
    fn after(job: &str, change: &str) -> JobSpec {
        let now = at("2026-11-15T08:30:00Z");
        let stored = job_spec(translated(job.as_bytes()).unwrap(), Basis::new(now, DEFAULT_OWNER)).unwrap();
        changed(&stored, &CamelJobChange::parse(change.as_bytes()).unwrap(), now).unwrap()
    }

    #[test]
    fn a_one_time_job_that_becomes_recurring_starts_at_its_time() {
        let start = |job: &str, change: &str| match after(job, change).settings.schedule {
            Schedule::Recurring(recurring) => recurring.recurrence.spec().start_at,
            other => panic!("not recurring: {other:?}"),
        };
        let once = r#"{"jobName": "x", "executionTime": "2026-12-01T09:00:00Z"}"#;
        for frequency in ["daily", "0 9 * * *"] {
            let change = json!({"frequency": frequency}).to_string();
            assert_eq!(start(once, &change), Some(at("2026-12-01T09:00:00Z")), "{frequency}");
        }
        let both = r#"{"frequency": "daily", "executionTime": "2026-12-24T18:00:00Z"}"#;
        assert_eq!(start(once, both), Some(at("2026-12-24T18:00:00Z")));
        assert_eq!(start(r#"{"jobName": "x"}"#, r#"{"frequency": "daily"}"#), None);
    }

    #[test]
    fn a_change_names_what_it_changes() {
        let refused = |change: &str| CamelJobChange::parse(change.as_bytes()).err().unwrap().problem();
        let nothing = refused("{}");
        assert_eq!(nothing.status, 422);
        let detail = nothing.detail.unwrap();
        for field in ["jobName", "executionTime", "frequency", "priority", "payload"] {
            assert!(detail.contains(field), "{detail}");
        }
        for field in ["jobName", "executionTime", "frequency", "priority"] {
            let problem = refused(&format!("{{\"{field}\": null, \"payload\": 1}}"));
            assert_eq!((problem.status, problem.errors[0].field.as_str()), (422, field), "{problem:?}");
        }
        // Null is a payload like any other.
        let job = r#"{"jobName": "x", "payload": {"a": 1}}"#;
        assert_eq!(after(job, r#"{"payload": null}"#).payload, "null");
        assert_eq!(after(job, r#"{"priority": "high"}"#).payload, r#"{"a": 1}"#);
    }
}
