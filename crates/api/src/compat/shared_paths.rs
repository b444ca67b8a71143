//! The requests on `/api/jobs` that both of its forms have. A submitted body with a camelCase field is read in
//! camelCase, every other one in snake_case. Answers to requests without a body have the id in both spellings.

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
    let run = async |attempt| {
        if is_camel(&body.bytes) {
            camel::submit(&call, &body.bytes, attempt).await
        } else {
            snake::submit(&call, &body.bytes, attempt).await
        }
    };
    once(&call, name, &body.bytes, Repeating::Safe, run).await
}

/// Whether the body has a field that only the camelCase form has.
fn is_camel(body: &[u8]) -> bool {
    let fields: BTreeMap<String, IgnoredAny> = serde_json::from_slice(body).unwrap_or_default();
    camel::OWN_FIELDS.iter().any(|field| fields.contains_key(*field))
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
        assert!(is_camel(br#"{"jobName": "x", "priority": "low"}"#));
        assert!(is_camel(br#"{"name": "x", "frequency": "daily"}"#));
        assert!(!is_camel(br#"{"name": "x", "job_type": "y", "payload": {"jobName": 1}}"#));
        for body in ["{}", "[]", "{", "\"jobName\""] {
            assert!(!is_camel(body.as_bytes()), "{body}");
        }
    }
}
