//! The requests on `/api/jobs` that both of its forms have. A submitted body with a camelCase field is read in
//! camelCase, every other one in snake_case, and none may mix the two. Answers to requests without a body have the id in both spellings.

use super::{camel, snake};
use crate::auth::Call;
use crate::error::ApiError;
use crate::extract::{BODY_BYTES_MAX, IdInPath, JsonBody, NoBody};
use crate::idempotency::{Repeating, RequestName, once};
use crate::routes::changed;
use axum::Json;
use axum::response::Response;
use punctual_core::control::{Refusal, Verb};
use punctual_core::ids::JobId;
use punctual_core::job::JobStatus;
use punctual_engine::UseCaseError;
use serde::Serialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;

pub const PATH: &str = "/api/jobs";

/// The id of a job in both spellings.
#[derive(Serialize)]
pub struct JobIdSpellings {
    #[serde(rename = "jobId")]
    camel: JobId,
    job_id: JobId,
}

impl From<JobId> for JobIdSpellings {
    fn from(id: JobId) -> Self {
        JobIdSpellings { camel: id, job_id: id }
    }
}

/// What a verb has done.
#[derive(Serialize)]
pub struct VerbDone {
    #[serde(flatten)]
    ids: JobIdSpellings,
    status: &'static str,
}

impl VerbDone {
    pub fn to(id: JobId, status: &'static str) -> Json<Self> {
        Json(VerbDone { ids: id.into(), status })
    }
}

pub async fn submit(
    call: Call,
    name: RequestName,
    body: JsonBody<BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let run = async |attempt| match JobsForm::of(&body.bytes)? {
        JobsForm::Camel => camel::submit(&call, &body.bytes, attempt).await,
        JobsForm::Snake => snake::submit(&call, &body.bytes, attempt).await,
    };
    once(&call, name, &body.bytes, Repeating::Safe, run).await
}

/// The form of a submitted body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JobsForm {
    Camel,
    Snake,
}

impl JobsForm {
    /// A field that only the camelCase form has decides, and fields of the other form beside it are errors.
    fn of(body: &[u8]) -> Result<Self, ApiError> {
        let fields: BTreeMap<String, IgnoredAny> = serde_json::from_slice(body).unwrap_or_default();
        let own = camel::OWN_FIELDS;
        let Some((decisive, in_snake)) = own.iter().find(|(field, _)| fields.contains_key(*field)) else {
            return Ok(JobsForm::Snake);
        };
        let known: Vec<&str> = own.iter().map(|(field, _)| *field).chain(camel::COMMON_FIELDS).collect();
        match fields.keys().find(|field| !known.contains(&field.as_str())) {
            None => Ok(JobsForm::Camel),
            Some(other) => Err(ApiError::field(
                other,
                format!(
                    "is not a field of a camelCase request, and {decisive} makes this one: use only {}; or, for \
                     a snake_case request, {in_snake} in place of {decisive}",
                    known.join(", ")
                ),
            )),
        }
    }
}

pub async fn pause(call: Call, IdInPath(id): IdInPath<JobId>, _: NoBody) -> Result<Json<VerbDone>, ApiError> {
    changed(&call, id, Verb::Pause).await?;
    Ok(VerbDone::to(id, "paused"))
}

pub async fn resume(
    call: Call,
    IdInPath(id): IdInPath<JobId>,
    _: NoBody,
) -> Result<Json<VerbDone>, ApiError> {
    changed(&call, id, Verb::Resume).await?;
    Ok(VerbDone::to(id, "resumed"))
}

/// Cancels an unfinished job, whose record stays. A job that has ended by itself is deleted. One that was
/// cancelled stays, so that a repeated request changes nothing.
pub async fn delete(
    call: Call,
    IdInPath(id): IdInPath<JobId>,
    _: NoBody,
) -> Result<Json<VerbDone>, ApiError> {
    match call.cases.control(id, Verb::Cancel).await {
        Ok(_) => Ok(VerbDone::to(id, "cancelled")),
        Err(UseCaseError::Refused {
            refusal: Refusal::Finished(JobStatus::Completed | JobStatus::Failed),
            ..
        }) => {
            call.cases.control(id, Verb::Delete).await?;
            Ok(VerbDone::to(id, "deleted"))
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_camel_case_field_decides_the_form() {
        let form = |body: &str| JobsForm::of(body.as_bytes()).unwrap();
        assert_eq!(form(r#"{"jobName": "x", "priority": "low"}"#), JobsForm::Camel);
        assert_eq!(form(r#"{"frequency": "daily", "payload": {"name": 1}}"#), JobsForm::Camel);
        assert_eq!(form(r#"{"name": "x", "job_type": "y", "payload": {"jobName": 1}}"#), JobsForm::Snake);
        for body in ["{}", "[]", "{", "\"jobName\""] {
            assert_eq!(form(body), JobsForm::Snake, "{body}");
        }
    }

    #[test]
    fn a_body_that_mixes_the_forms_is_told_which_field_decided() {
        let refused = |body: &str| match JobsForm::of(body.as_bytes()) {
            Err(ApiError::InvalidFields(errors)) => format!("{} {}", errors[0].field, errors[0].detail),
            other => panic!("{body} gave {other:?}"),
        };
        assert_eq!(
            refused(r#"{"name": "a", "executionTime": "2026-12-01T00:00:00Z"}"#),
            "name is not a field of a camelCase request, and executionTime makes this one: use only jobName, \
             jobType, executionTime, frequency, priority, payload; or, for a snake_case request, execute_at or \
             start_at in place of executionTime"
        );
        let said = refused(r#"{"jobName": "a", "job_type": "noop"}"#);
        assert!(said.starts_with("job_type is not") && said.ends_with("name in place of jobName"), "{said}");
    }
}
