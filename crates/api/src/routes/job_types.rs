//! Schemas of job types.

use super::named::{NameInCursor, stored};
use super::tokens::{NoRequestKey, to_the_end};
use crate::auth::Call;
use crate::error::ApiError;
use crate::extract::{BODY_BYTES_MAX, IdInPath, JsonBody, NoBody};
use crate::json::{self, DocumentShape};
use crate::query::QueryParams;
use axum::Json;
use axum::http::StatusCode;
use axum::response::Response;
use punctual_client::{JobTypeBody, Page, SetJobType};
use punctual_core::names::line_problem;
use punctual_engine::JobTypeView;
use serde_json::value::RawValue;

/// The prefix of this list's cursors.
const LIST: &str = "job_types";

pub async fn list(call: Call, mut query: QueryParams) -> Result<Json<Page<JobTypeBody>>, ApiError> {
    let (after, limit) = (query.cursor::<NameInCursor>(LIST), query.limit_or_most());
    query.finish()?;
    let page = call.cases.job_types(NameInCursor::text(after.as_ref()), limit).await?;
    let items = page.items.into_iter().map(view).collect();
    Ok(Json(Page { items, next_cursor: call.next_cursor(LIST, page.next).await? }))
}

pub async fn show(
    call: Call,
    IdInPath(name): IdInPath<String>,
    query: QueryParams,
) -> Result<Json<JobTypeBody>, ApiError> {
    query.finish()?;
    Ok(Json(view(call.cases.job_type(&name).await?)))
}

pub async fn set(
    call: Call,
    IdInPath(name): IdInPath<String>,
    _: NoRequestKey,
    body: JsonBody<BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let SetJobType { schema, description } = json::parse(&body.bytes, DocumentShape::Object)?;
    if let Some(problem) = description.as_deref().and_then(line_problem) {
        return Err(ApiError::field("description", problem));
    }
    to_the_end(async move {
        let (job_type, is_new) = call.cases.set_job_type(&name, schema.get(), description).await?;
        Ok(stored(is_new, view(job_type)))
    })
    .await
}

pub async fn remove(call: Call, IdInPath(name): IdInPath<String>, _: NoBody) -> Result<StatusCode, ApiError> {
    to_the_end(async move {
        call.cases.remove_job_type(&name).await?;
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

fn view(job_type: JobTypeView) -> JobTypeBody {
    let JobTypeView { name, version, schema, description, set_at, set_by, by_worker, problem } = job_type;
    let schema = RawValue::from_string(schema).unwrap_or_else(|_| RawValue::NULL.to_owned());
    let not_enforced = problem.map(|problem| format!("{} {}", problem.field, problem.fix));
    JobTypeBody { name, schema, description, version, set_at, set_by, by_worker, not_enforced }
}
