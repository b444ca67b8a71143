//! Changing a job: replacing its whole description, or some fields of it.

use crate::conditional::ExpectedVersion;
use crate::error::ApiError;
use crate::extract::{BODY_BYTES_MAX, IdInPath, JsonBody};
use crate::json::{self, Shape};
use crate::routes::control::control_error;
use crate::routes::jobs;
use crate::submission::{Basis, job_spec};
use crate::{Api, patch as merge};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use punctual_client::SubmitJob;
use punctual_core::control::Refusal;
use punctual_core::ids::JobId;
use punctual_core::job::JobSpec;
use punctual_engine::ControlError;

/// How often a change is recomputed because the job was changed concurrently.
const TRIES_MAX: usize = 100;

/// Replaces the description, parsed as if it were submitted.
pub async fn replace(
    State(api): State<Api>,
    IdInPath(id): IdInPath<JobId>,
    expected: ExpectedVersion,
    body: JsonBody<BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let job: SubmitJob = json::parse(&body.bytes, Shape::Job)?;
    let now = api.engine.now();
    let replaced = |stored: &JobSpec| {
        let basis = Basis { now, stored: Some(&stored.settings.schedule) };
        job_spec(job.clone(), basis).map_err(ApiError::invalid)
    };
    change(&api, id, expected, replaced).await
}

/// Changes only the fields that the body names.
pub async fn patch(
    State(api): State<Api>,
    IdInPath(id): IdInPath<JobId>,
    expected: ExpectedVersion,
    body: JsonBody<BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let now = api.engine.now();
    change(&api, id, expected, |stored| merge::patched(stored, &body.bytes, now)).await
}

/// Computes the new description from the stored one and applies it to that version. If the job has changed
/// meanwhile, it computes it again, unless the caller has named a version.
async fn change(
    api: &Api,
    id: JobId,
    ExpectedVersion(expected): ExpectedVersion,
    make: impl Fn(&JobSpec) -> Result<JobSpec, ApiError>,
) -> Result<Response, ApiError> {
    for _ in 0..TRIES_MAX {
        let stored = jobs::view(api, id).await?.job;
        let version = stored.version;
        if expected.is_some_and(|expected| expected != version) {
            return Err(ApiError::VersionChanged { version });
        }
        match api.engine.update(&stored, make(&stored.spec)?).await {
            Ok(_) => return Ok(jobs::answer(StatusCode::OK, jobs::read(api, id).await?)),
            Err(ControlError::Refused(Refusal::Stale { .. })) if expected.is_none() => {}
            Err(error) => return Err(control_error(id, error)),
        }
    }
    let reason = "other requests keep changing the job at the same time: nothing was changed; try again";
    Err(ApiError::Conflict(reason.to_owned()))
}
