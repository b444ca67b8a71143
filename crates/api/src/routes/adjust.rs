//! Single occurrences of recurring jobs: skip the next one, run it at another time, run past ones again.

use crate::auth::Call;
use crate::error::ApiError;
use crate::extract::{BODY_BYTES_MAX, IdInPath, JsonBody, NoBody};
use crate::json::{self, DocumentShape};
use crate::routes::{control, jobs};
use crate::views;
use axum::Json;
use axum::http::StatusCode;
use axum::response::Response;
use punctual_client::{BackfillBody, BackfillRequest, RunNextAt};
use punctual_core::control::Backfill;
use punctual_core::ids::JobId;
use punctual_core::limits;

/// Responds with the job.
pub async fn skip_next(call: Call, IdInPath(id): IdInPath<JobId>, _: NoBody) -> Result<Response, ApiError> {
    call.cases.skip_next(id).await?;
    Ok(jobs::answer(StatusCode::OK, jobs::read(&call, id).await?))
}

/// Responds with the execution that waits for its time.
pub async fn run_next_at(
    call: Call,
    IdInPath(id): IdInPath<JobId>,
    body: JsonBody<BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let RunNextAt { at } = json::parse(&body.bytes, DocumentShape::Object)?;
    control::added(&call, call.cases.run_next_at(id, at).await?).await
}

/// Starts a backfill, or says what it would run.
pub async fn backfill(
    call: Call,
    IdInPath(id): IdInPath<JobId>,
    body: JsonBody<BODY_BYTES_MAX>,
) -> Result<Json<BackfillBody>, ApiError> {
    let request: BackfillRequest = json::parse(&body.bytes, DocumentShape::Object)?;
    let backfill = Backfill {
        from: request.from,
        to: request.to,
        limit: request.limit.unwrap_or(limits::BACKFILL_DEFAULT),
        per_minute: request.rate.map(|rate| rate.per_minute),
    };
    let plan = match request.dry_run {
        true => call.cases.plan_backfill(id, backfill).await?,
        false => call.cases.backfill(id, backfill).await?,
    };
    Ok(Json(BackfillBody {
        count: plan.count,
        excluded: plan.excluded,
        first: plan.first,
        last: plan.last,
        dry_run: request.dry_run,
        occurrences: views::occurrences(&plan.recurring, plan.fires, None, &plan.calendars),
    }))
}
