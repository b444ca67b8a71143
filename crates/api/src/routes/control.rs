//! What people do to a job: pause, resume, cancel, retry, trigger, delete.

use crate::error::ApiError;
use crate::extract::{BODY_BYTES_MAX, IdInPath, NoBody, OptionalBody};
use crate::idempotency::{Repeating, RequestName, once};
use crate::routes::{executions, jobs};
use crate::{Api, views};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use punctual_client::{API_PREFIX, TriggerRequest};
use punctual_core::control::{Refusal, Verb};
use punctual_core::ids::JobId;
use punctual_core::ports::Controlled;
use punctual_engine::ControlError;

pub async fn pause(
    State(api): State<Api>,
    IdInPath(id): IdInPath<JobId>,
    _: NoBody,
) -> Result<Response, ApiError> {
    control(&api, id, Verb::Pause).await
}

pub async fn resume(
    State(api): State<Api>,
    IdInPath(id): IdInPath<JobId>,
    _: NoBody,
) -> Result<Response, ApiError> {
    control(&api, id, Verb::Resume).await
}

pub async fn cancel(
    State(api): State<Api>,
    IdInPath(id): IdInPath<JobId>,
    _: NoBody,
) -> Result<Response, ApiError> {
    control(&api, id, Verb::Cancel).await
}

/// Answers with the job and the execution that was added.
pub async fn retry(
    State(api): State<Api>,
    IdInPath(id): IdInPath<JobId>,
    _: NoBody,
) -> Result<Response, ApiError> {
    control(&api, id, Verb::Retry).await
}

async fn control(api: &Api, id: JobId, verb: Verb) -> Result<Response, ApiError> {
    let controlled = apply(api, id, verb).await?;
    let mut job = jobs::read(api, id).await?;
    job.execution_id = controlled.added;
    Ok(jobs::answer(StatusCode::OK, job))
}

pub async fn delete(
    State(api): State<Api>,
    IdInPath(id): IdInPath<JobId>,
    _: NoBody,
) -> Result<StatusCode, ApiError> {
    apply(&api, id, Verb::Delete).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Answers with the execution that was added.
pub async fn trigger(
    State(api): State<Api>,
    IdInPath(id): IdInPath<JobId>,
    name: RequestName,
    body: OptionalBody<BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let run = |_| async {
        let TriggerRequest { despite_overlap } = body.parse()?;
        triggered(&api, id, Verb::Trigger { despite_overlap }).await
    };
    once(&api, name, &body.0.bytes, Repeating::Unsafe, run).await
}

async fn triggered(api: &Api, id: JobId, trigger: Verb) -> Result<Response, ApiError> {
    let added = apply(api, id, trigger).await?.added;
    let added = added.ok_or_else(|| ApiError::Internal("a trigger that added nothing".to_owned()))?;
    let location = [(LOCATION, format!("{API_PREFIX}/executions/{added}"))];
    Ok((StatusCode::CREATED, location, Json(executions::read(api, added).await?)).into_response())
}

async fn apply(api: &Api, id: JobId, verb: Verb) -> Result<Controlled, ApiError> {
    api.engine.control(id, verb).await.map_err(|error| control_error(id, error))
}

pub fn control_error(id: JobId, error: ControlError) -> ApiError {
    match error {
        ControlError::NotThere => jobs::no_such_job(id),
        ControlError::Refused(refusal) => refused(refusal),
        ControlError::Invalid(problems) => ApiError::invalid(problems),
        ControlError::Unavailable(reason) => ApiError::Unavailable(reason),
    }
}

fn refused(refusal: Refusal) -> ApiError {
    let detail = reason_of(&refusal);
    match refusal {
        Refusal::Stale { version } => ApiError::VersionChanged { version },
        Refusal::Fixed(field) => ApiError::field(field, "cannot be changed after the job was submitted"),
        Refusal::KeyTaken(job) => ApiError::KeyTaken { detail, job },
        _ => ApiError::Conflict(detail),
    }
}

/// Why nothing was done, and what to do instead.
pub fn reason_of(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Finished(status) => {
            format!(
                "the job is {}: nothing of it is left to act on; to run it again, trigger it",
                views::status_word(*status)
            )
        }
        Refusal::Cancelled => {
            "the job is cancelled, which is for good: submit it again as a new job".to_owned()
        }
        Refusal::Overlap => {
            "an occurrence of the job is open, and its overlap_policy is SKIP: wait until it has \
                             ended, cancel it, or trigger with {\"override\": true} to run beside it"
                .to_owned()
        }
        Refusal::QueueFull => {
            "as many occurrences of the job wait as its overlap_limit allows: wait until one \
                               has ended, raise overlap_limit, or trigger with {\"override\": true}"
                .to_owned()
        }
        Refusal::Backlog => {
            "as many occurrences of the job are open as its max_open allows: wait until one has \
                             ended, or raise max_open"
                .to_owned()
        }
        Refusal::Awaited => {
            "other jobs depend on it and wait for its one run: it cannot become recurring".to_owned()
        }
        Refusal::NothingDead => {
            "no occurrence of the job has failed for good: to run it once more, trigger it".to_owned()
        }
        Refusal::KeyTaken(job) => {
            format!("job {job} has the unique_key by now: wait until that one is finished, or cancel it")
        }
        Refusal::Stale { .. } | Refusal::Fixed(_) => refusal.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::job::JobStatus;
    use punctual_core::time::Timestamp;

    #[test]
    fn every_refusal_says_what_to_do() {
        let other = JobId::new(Timestamp::EPOCH, 1);
        for (refusal, status, said) in [
            (Refusal::Finished(JobStatus::Completed), 409, "the job is COMPLETED"),
            (Refusal::Cancelled, 409, "submit it again"),
            (Refusal::Overlap, 409, "{\"override\": true}"),
            (Refusal::QueueFull, 409, "overlap_limit"),
            (Refusal::Backlog, 409, "max_open"),
            (Refusal::NothingDead, 409, "trigger it"),
            (Refusal::KeyTaken(other), 409, "unique_key"),
            (Refusal::Stale { version: 4 }, 412, "version 4"),
            (Refusal::Fixed("owner_id"), 422, "owner_id cannot be changed"),
        ] {
            let problem = refused(refusal.clone()).problem();
            assert_eq!(problem.status, status, "{refusal:?}");
            assert!(problem.detail.as_ref().is_some_and(|detail| detail.contains(said)), "{problem:?}");
        }
        assert_eq!(refused(Refusal::KeyTaken(other)).problem().job_id, Some(other));
        assert_eq!(refused(Refusal::Stale { version: 4 }).problem().version, Some(4));
    }
}
