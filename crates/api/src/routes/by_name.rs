//! Creating or replacing the job that its name identifies.

use crate::auth::Call;
use crate::conditional::ExpectedVersion;
use crate::error::ApiError;
use crate::extract::{BODY_BYTES_MAX, IdInPath, JsonBody};
use crate::json::{self, DocumentShape};
use crate::query::QueryParams;
use crate::routes::{jobs, submit};
use crate::submission::{Basis, as_submitted, job_spec};
use crate::views::{self, interval_anchor};
use axum::Json;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use punctual_client::{PlannedPut, PutAction, SubmitJob};
use punctual_core::control::Refusal;
use punctual_core::ids::JobId;
use punctual_core::job::JobSpec;
use punctual_core::recurrence::Rule;
use punctual_core::schedule::Schedule;
use punctual_core::time::Timestamp;
use punctual_engine::{RequestTry, UseCaseError};
use serde_json::value::{RawValue, to_raw_value};
use std::collections::BTreeMap;
use std::time::Duration;

/// The job that was put by this name.
pub async fn show(
    call: Call,
    IdInPath(name): IdInPath<String>,
    mut query: QueryParams,
) -> Result<Response, ApiError> {
    let owner = query.text("owner");
    query.finish()?;
    let owner = owner.unwrap_or_else(|| submit::owner_of(&call).to_owned());
    match call.cases.job_put_by_name(&owner, &name).await? {
        Some(id) => Ok(jobs::answer(StatusCode::OK, jobs::read(&call, id).await?)),
        None => Err(ApiError::NotFound(format!("no job of {owner} was put by the name {name}"))),
    }
}

pub async fn put_job(
    call: Call,
    IdInPath(name): IdInPath<String>,
    ExpectedVersion(expected): ExpectedVersion,
    body: JsonBody<BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let put = JobPut::of(&call, name, &body.bytes)?;
    match call.cases.job_by_name(&put.owner, &put.job.name).await? {
        Some(view) => {
            let job = &view.job;
            let is_same = expected.is_none() && put.replacing(&job.spec, job.created_at)? == job.spec;
            if is_same {
                return Ok(jobs::answer(StatusCode::OK, jobs::read(&call, job.id).await?));
            }
            replace(&call, (job.id, job.created_at), expected, &put).await
        }
        None if expected.is_some() => {
            Err(ApiError::NotFound(format!("there is no job named {} to replace", put.job.name)))
        }
        None => create(&call, &put).await,
    }
}

/// What a put would do.
pub async fn plan(
    call: Call,
    IdInPath(name): IdInPath<String>,
    body: JsonBody<BODY_BYTES_MAX>,
) -> Result<Json<PlannedPut>, ApiError> {
    let put = JobPut::of(&call, name, &body.bytes)?;
    let Some(view) = call.cases.job_by_name(&put.owner, &put.job.name).await? else {
        let spec = put.new_spec()?;
        call.cases.check_submit(&spec).await?;
        let after = comparable(&spec);
        let (job_id, status, before) = (None, None, None);
        return Ok(Json(PlannedPut { action: PutAction::Create, job_id, status, before, after }));
    };
    let spec = put.replacing(&view.job.spec, view.job.created_at)?;
    let action = if spec == view.job.spec { PutAction::None } else { PutAction::Update };
    if action == PutAction::Update {
        call.cases.check_update(&view, &spec).await.map_err(told)?;
    }
    let (job_id, status) = (Some(view.job.id), Some(view.status()));
    let before = Some(comparable(&call.cases.shown(view).job.spec));
    Ok(Json(PlannedPut { action, job_id, status, before, after: comparable(&spec) }))
}

/// The error for a put. A cancelled job keeps its name.
fn told(error: UseCaseError) -> ApiError {
    match error {
        UseCaseError::Refused { job, refusal: Refusal::Cancelled } => ApiError::Conflict(format!(
            "job {job} has this name and is cancelled, which is permanent: delete it, so that its name is free for a new one"
        )),
        other => other.into(),
    }
}

/// How much later than its time a job with a delay may seem to be due, counted from its creation.
const DELAY_TOLERANCE: Duration = Duration::from_secs(5);

/// The job in the body. Its name is that of the path, and may be left out.
fn named_job(name: String, body: &[u8]) -> Result<SubmitJob, ApiError> {
    let mut fields: BTreeMap<String, Box<RawValue>> = json::parse(body, DocumentShape::Job)?;
    if !fields.contains_key("name") {
        let named = to_raw_value(&name).map_err(|error| ApiError::Internal(error.to_string()))?;
        fields.insert("name".to_owned(), named);
    }
    let text = serde_json::to_vec(&fields).map_err(|error| ApiError::Internal(error.to_string()))?;
    let job = json::parse_job(&text, DocumentShape::Job)?;
    if job.name != name {
        let fix = format!("must be {name}, as in the path, or left out");
        return Err(ApiError::field("name", fix));
    }
    Ok(job)
}

/// A job to put.
struct JobPut {
    job: SubmitJob,
    owner: String,
    now: Timestamp,
}

impl JobPut {
    fn of(call: &Call, name: String, body: &[u8]) -> Result<Self, ApiError> {
        let job = named_job(name, body)?;
        let owner = job.owner_id.clone().unwrap_or_else(|| submit::owner_of(call).to_owned());
        Ok(JobPut { job, owner, now: call.cases.now() })
    }

    fn new_spec(&self) -> Result<JobSpec, ApiError> {
        self.spec(self.job.clone(), Basis::new(self.now, &self.owner))
    }

    /// The new description of a stored job. A delay counts from the time when the job was created, and an
    /// interval may name the time from which it counts anyway.
    fn replacing(&self, stored: &JobSpec, created_at: Timestamp) -> Result<JobSpec, ApiError> {
        let schedule = &stored.settings.schedule;
        let mut job = self.job.clone();
        if let Some(delay) = job.delay.take() {
            let asked = created_at.plus(delay.get());
            // The delay was added to the time of the request, which is a little before the creation.
            let is_same = |at: &Timestamp| asked >= *at && asked <= at.plus(DELAY_TOLERANCE);
            job.execute_at = Some(match schedule {
                Schedule::OneTime { at } if is_same(at) => *at,
                _ => asked,
            });
        }
        if job.start_at.is_some()
            && job.start_at == interval_anchor(schedule)
            && is_same_interval(&job, schedule)
        {
            job.start_at = None;
        }
        let mut spec =
            self.spec(job, Basis { stored: Some(schedule), ..Basis::new(self.now, &stored.owner) })?;
        // No part of the definition: another trace is no change.
        spec.settings.trace = stored.settings.trace.clone();
        Ok(spec)
    }

    fn spec(&self, job: SubmitJob, basis: Basis<'_>) -> Result<JobSpec, ApiError> {
        let mut spec = job_spec(job, basis).map_err(ApiError::invalid)?;
        spec.settings.by_name = true;
        Ok(spec)
    }
}

fn is_same_interval(job: &SubmitJob, stored: &Schedule) -> bool {
    let Schedule::Recurring(recurring) = stored else { return false };
    match &recurring.recurrence.spec().rule {
        Rule::Interval { every, .. } => job.interval.as_ref() == Some(every),
        Rule::Rrule { rule, .. } => {
            job.rrule.as_ref().is_some_and(|text| rule.eq_ignore_ascii_case(text.trim()))
        }
        Rule::Cron { .. } | Rule::Union { .. } => false,
    }
}

async fn create(call: &Call, put: &JobPut) -> Result<Response, ApiError> {
    let attempt = RequestTry { ids: None, is_repeated: false };
    let submitted = submit::keep(call, vec![put.new_spec()?], attempt).await?.pop();
    let submitted = submitted.ok_or_else(|| ApiError::Internal("a put without an answer".to_owned()))??;
    if submitted.existing {
        // Another request has created it meanwhile.
        return replace(call, (submitted.job_id, put.now), None, put).await;
    }
    let job = jobs::read(call, submitted.job_id).await?;
    let location = [(LOCATION, submit::location_of(submitted.job_id))];
    Ok((location, jobs::answer(StatusCode::CREATED, job)).into_response())
}

async fn replace(
    call: &Call,
    (mut id, created_at): (JobId, Timestamp),
    expected: Option<u32>,
    put: &JobPut,
) -> Result<Response, ApiError> {
    let make = |stored: &JobSpec| put.replacing(stored, created_at).map_err(PutFailure::Invalid);
    match call.cases.update(id, expected, make).await {
        // Another request has put a job by this name meanwhile.
        Err(PutFailure::UseCase(UseCaseError::Refused { refusal: Refusal::NameTaken(namesake), .. })) => {
            id = namesake;
            call.cases.update(id, expected, make).await?;
        }
        done => done?,
    }
    Ok(jobs::answer(StatusCode::OK, jobs::read(call, id).await?))
}

/// Why a job was not replaced.
enum PutFailure {
    UseCase(UseCaseError),
    Invalid(ApiError),
}

impl From<UseCaseError> for PutFailure {
    fn from(error: UseCaseError) -> Self {
        PutFailure::UseCase(error)
    }
}

impl From<PutFailure> for ApiError {
    fn from(failure: PutFailure) -> Self {
        match failure {
            PutFailure::UseCase(error) => told(error),
            PutFailure::Invalid(error) => error,
        }
    }
}

/// The whole description of a job in one form, with the time from which an interval counts.
fn comparable(spec: &JobSpec) -> SubmitJob {
    let described = as_submitted(spec);
    let start_at = described.start_at.or_else(|| interval_anchor(&spec.settings.schedule));
    SubmitJob { payload: views::payload(spec.payload.clone()), start_at, ..described }
}
