//! Previews: when a schedule would fire, and when a job will.

use crate::auth::Call;
use crate::error::ApiError;
use crate::extract::{BODY_BYTES_MAX, IdInPath, JsonBody};
use crate::json::DocumentShape;
use crate::query::QueryParams;
use crate::submission::Basis;
use crate::{json, submission, views};
use axum::Json;
use punctual_client::{PreviewBody, PreviewRequest};
use punctual_core::ids::JobId;
use punctual_core::limits;
use punctual_core::schedule::Schedule;

const COUNT_DEFAULT: usize = 10;

pub async fn preview(call: Call, body: JsonBody<BODY_BYTES_MAX>) -> Result<Json<PreviewBody>, ApiError> {
    let request: PreviewRequest = json::parse(&body.bytes, DocumentShape::Schedule)?;
    call.cases.check_preview()?;
    let (now, count) = (call.cases.now(), request.count.unwrap_or(COUNT_DEFAULT));
    check_count(count)?;
    let after = request.after.unwrap_or(now);
    let job = request.into_job();
    match submission::schedule(&job, Basis::new(now, &call.cases.caller().grant.owner))
        .map_err(ApiError::invalid)?
    {
        Schedule::Recurring(recurring) => Ok(Json(views::preview(&recurring.recurrence, after, count))),
        Schedule::Immediate | Schedule::OneTime { .. } => {
            Err(ApiError::field("cron_expression", "is needed (or give interval)".to_owned()))
        }
    }
}

/// The next nominal times of a job; empty if it has nothing left to fire or runs only once.
pub async fn next(
    call: Call,
    IdInPath(id): IdInPath<JobId>,
    mut query: QueryParams,
) -> Result<Json<PreviewBody>, ApiError> {
    let count = query.parsed("count").unwrap_or(COUNT_DEFAULT);
    query.finish()?;
    check_count(count)?;
    let view = call.cases.job(id).await?;
    let next = view.schedule.as_ref().and_then(|schedule| schedule.nominal);
    Ok(Json(match (&view.job.spec.settings.schedule, next) {
        (Schedule::Recurring(recurring), Some(next)) => {
            views::preview(&recurring.recurrence, next.shifted(-1), count)
        }
        (Schedule::Recurring(recurring), None) => views::preview(&recurring.recurrence, call.cases.now(), 0),
        (Schedule::Immediate | Schedule::OneTime { .. }, _) => {
            PreviewBody { description: "Once".to_owned(), occurrences: vec![] }
        }
    }))
}

fn check_count(count: usize) -> Result<(), ApiError> {
    if (1..=limits::PREVIEW_MAX).contains(&count) {
        return Ok(());
    }
    Err(ApiError::field("count", format!("must be a number from 1 to {}", limits::PREVIEW_MAX)))
}
