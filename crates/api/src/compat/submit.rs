//! Submitting one job: all forms of the API share this path to the use case.

use super::fields::FieldNames;
use crate::auth::Call;
use crate::error::ApiError;
use crate::submission::{Basis, job_spec};
use axum::Json;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use punctual_client::SubmitJob;
use punctual_core::time::Timestamp;
use punctual_engine::{RequestTry, Submitted};
use serde::Serialize;

/// Stores the job that `translate` makes of a request at a time. Errors have the names of the caller's fields.
pub async fn store(
    call: &Call,
    attempt: RequestTry,
    names: &FieldNames,
    translate: impl FnOnce(Timestamp) -> Result<SubmitJob, ApiError>,
) -> Result<Submitted, ApiError> {
    let now = attempt.began_at(call.cases.now());
    let basis = Basis::new(now, &call.cases.caller().grant.owner);
    let invalid = |problems| names.in_error(ApiError::invalid(problems));
    let spec = job_spec(translate(now)?, basis).map_err(invalid)?;
    let answer = call.cases.submit(vec![spec], attempt).await?.pop();
    let answer = answer.ok_or_else(|| ApiError::Internal("a submit without an answer".to_owned()))?;
    answer.map_err(|error| names.in_error(error.into()))
}

/// 201 for a new job; 200 if a job with its idempotency key exists. The job can be read below `path`.
pub fn answer(path: &str, submitted: &Submitted, body: impl Serialize) -> Response {
    let status = if submitted.is_existing { StatusCode::OK } else { StatusCode::CREATED };
    (status, [(LOCATION, format!("{path}/{}", submitted.job))], Json(body)).into_response()
}
