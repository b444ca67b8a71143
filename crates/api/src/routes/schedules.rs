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
    let asked_after = request.after.unwrap_or(now);
    let job = request.into_job();
    let schedule = submission::schedule(&job, Basis::new(now, &call.cases.caller().grant.owner))
        .map_err(ApiError::invalid)?;
    let problems = schedule.problems();
    if !problems.is_empty() {
        return Err(ApiError::invalid(problems));
    }
    let Schedule::Recurring(recurring) = schedule else {
        return Err(ApiError::field("cron_expression", "is needed (or give interval)".to_owned()));
    };
    let begins_now = job.interval.is_some() && job.start_at.is_none();
    let after = if begins_now { asked_after.max(now) } else { asked_after };
    let fired = recurring.recurrence.count_between(now, after);
    Ok(Json(views::preview(&recurring, recurring.preview(after, count, fired), None)))
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
    let Schedule::Recurring(recurring) = &view.job.spec.settings.schedule else {
        let description = "Once".to_owned();
        return Ok(Json(PreviewBody { description, dst_gap: None, dst_overlap: None, occurrences: vec![] }));
    };
    let next = view.schedule.as_ref().and_then(|state| Some((state.nominal?, state.fired)));
    let fires = match next {
        Some((next, fired)) => recurring.preview(next.shifted(-1), count, fired.into()),
        None => vec![],
    };
    Ok(Json(views::preview(recurring, fires, Some(id))))
}

fn check_count(count: usize) -> Result<(), ApiError> {
    if (1..=limits::PREVIEW_MAX).contains(&count) {
        return Ok(());
    }
    Err(ApiError::field("count", format!("must be a number from 1 to {}", limits::PREVIEW_MAX)))
}
