//! Changing a job: replacing its whole description, or some fields of it.

use crate::auth::Call;
use crate::conditional::ExpectedVersion;
use crate::error::ApiError;
use crate::extract::{BODY_BYTES_MAX, IdInPath, JsonBody};
use crate::json::{self, DocumentShape};
use crate::patch as merge;
use crate::routes::jobs;
use crate::submission::{Basis, job_spec};
use axum::http::StatusCode;
use axum::response::Response;
use punctual_core::ids::JobId;
use punctual_core::job::JobSpec;

/// Replaces the description, parsed as if it were submitted.
pub async fn replace(
    call: Call,
    IdInPath(id): IdInPath<JobId>,
    expected: ExpectedVersion,
    body: JsonBody<BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let job = json::parse_job(&body.bytes, DocumentShape::Job)?;
    let now = call.cases.now();
    let replaced = |stored: &JobSpec| {
        let basis = Basis { stored: Some(&stored.settings.schedule), ..Basis::new(now, &stored.owner) };
        job_spec(job.clone(), basis).map_err(ApiError::invalid)
    };
    change(&call, id, expected, replaced).await
}

/// Changes only the fields that the body names.
pub async fn patch(
    call: Call,
    IdInPath(id): IdInPath<JobId>,
    expected: ExpectedVersion,
    body: JsonBody<BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let now = call.cases.now();
    change(&call, id, expected, |stored| merge::patched(stored, &body.bytes, now)).await
}

async fn change(
    call: &Call,
    id: JobId,
    ExpectedVersion(expected): ExpectedVersion,
    make: impl Fn(&JobSpec) -> Result<JobSpec, ApiError>,
) -> Result<Response, ApiError> {
    call.cases.update(id, expected, make).await?;
    Ok(jobs::answer(StatusCode::OK, jobs::read(call, id).await?))
}
