//! Previews: when a schedule would fire, and when a job will.

use crate::auth::Call;
use crate::error::ApiError;
use crate::extract::{BODY_BYTES_MAX, IdInPath, JsonBody};
use crate::json::DocumentShape;
use crate::query::QueryParams;
use crate::submission::Basis;
use crate::{json, submission, views};
use axum::Json;
use punctual_client::{PreviewBody, PreviewRequest, RecurrenceBody};
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
        return Err(ApiError::field(
            "cron_expression",
            "is needed (or give interval, rrule or schedules)".to_owned(),
        ));
    };
    let counts_from_now = |part: &RecurrenceBody| part.cron_expression.is_none() && part.start_at.is_none();
    let has_anchor = job.interval.is_some()
        || job.rrule.is_some()
        || job.schedules.as_ref().is_some_and(|parts| parts.iter().any(counts_from_now));
    let begins_now = has_anchor && job.start_at.is_none();
    let after = if begins_now { asked_after.max(now) } else { asked_after };
    let fired = recurring.recurrence.count_between(now, after);
    let calendars = call.cases.calendars_of(&recurring.calendars).await?;
    if let Some(unknown) =
        recurring.calendars.iter().find(|name| !calendars.iter().any(|(known, _)| known == *name))
    {
        let fix = format!("must name calendars that exist: there is none called {unknown:?}");
        return Err(ApiError::field("calendars", fix));
    }
    Ok(Json(views::preview(&recurring, recurring.preview(after, count, fired), None, &calendars)))
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
    let calendars = call.cases.calendars_of(&recurring.calendars).await?;
    Ok(Json(views::preview(recurring, fires, Some(id), &calendars)))
}

fn check_count(count: usize) -> Result<(), ApiError> {
    if (1..=limits::PREVIEW_MAX).contains(&count) {
        return Ok(());
    }
    Err(ApiError::field("count", format!("must be a number from 1 to {}", limits::PREVIEW_MAX)))
}
