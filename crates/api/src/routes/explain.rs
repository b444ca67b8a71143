//! The explanation of a job.

use crate::auth::Call;
use crate::error::ApiError;
use crate::explain;
use crate::extract::IdInPath;
use crate::query::QueryParams;
use axum::Json;
use punctual_client::ExplainBody;
use punctual_core::ids::JobId;
use punctual_engine::ExplainedFacts;

pub async fn explain(
    call: Call,
    IdInPath(id): IdInPath<JobId>,
    query: QueryParams,
) -> Result<Json<ExplainBody>, ApiError> {
    query.finish()?;
    let facts = call.cases.explain(id).await?;
    Ok(Json(explain::explain(ExplainedFacts { is_stopping: call.api.is_stopping(), ..facts })))
}
