//! Executions: open, finished and skipped; and cancelling one.

use crate::auth::Call;
use crate::error::ApiError;
use crate::extract::{IdInPath, NoBody};
use crate::query::QueryParams;
use crate::views;
use axum::Json;
use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream, StreamExt};
use punctual_client::{ExecutionBody, ExecutionsPage};
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::ports::{BlobError, BlobParts};
use punctual_engine::{ExecutionDetails, ExecutionsOfJob, ResultData, UseCaseError};

/// Open and finished executions in one order, page by page; the skipped ranges on the first page.
pub async fn of_job(
    call: Call,
    IdInPath(job): IdInPath<JobId>,
    mut query: QueryParams,
) -> Result<Json<ExecutionsPage>, ApiError> {
    let before: Option<ExecutionId> = query.cursor("executions");
    let limit = query.limit();
    query.finish()?;
    let ExecutionsOfJob { page, notes, skipped } = call.cases.executions_of_job(job, before, limit).await?;
    let mut items: Vec<ExecutionBody> = page.items.into_iter().map(views::execution).collect();
    for item in &mut items {
        notes.iter().for_each(|noted| views::add_notes(item, noted));
    }
    let skipped = skipped.into_iter().map(views::skip_range).collect();
    let next_cursor = call.next_cursor("executions", page.next).await?;
    Ok(Json(ExecutionsPage { items, skipped, next_cursor }))
}

pub async fn show(call: Call, IdInPath(id): IdInPath<ExecutionId>) -> Result<Json<ExecutionBody>, ApiError> {
    Ok(Json(read(&call, id).await?))
}

pub async fn read(call: &Call, id: ExecutionId) -> Result<ExecutionBody, ApiError> {
    let ExecutionDetails { view, noted, checkpoint } = call.cases.execution(id).await?;
    let mut execution = views::execution(view);
    noted.iter().for_each(|noted| views::add_notes(&mut execution, noted));
    execution.checkpoint = checkpoint.and_then(|checkpoint| views::raw_json(checkpoint.into_json()));
    Ok(execution)
}

/// The result as JSON text, however large it is. A blob that turns out to be damaged breaks the answer off.
pub async fn result(call: Call, IdInPath(id): IdInPath<ExecutionId>) -> Result<Response, ApiError> {
    let (bytes, body) = match call.cases.result(id).await? {
        ResultData::Stored(json) => (json.len() as u64, Body::from(json)),
        ResultData::Blob { bytes, mut parts } => {
            // So that a blob that cannot be read at all is an error, and not an answer that breaks off.
            let first = parts.next().await.map_err(UseCaseError::from)?;
            (bytes, Body::from_stream(stream::iter(first.map(Ok)).chain(streamed(parts))))
        }
    };
    let json = HeaderValue::from_static("application/json");
    Ok(([(CONTENT_TYPE, json), (CONTENT_LENGTH, HeaderValue::from(bytes))], body).into_response())
}

fn streamed(parts: Box<dyn BlobParts>) -> impl Stream<Item = Result<Vec<u8>, BlobError>> {
    stream::unfold(Some(parts), |parts| async {
        let mut parts = parts?;
        match parts.next().await {
            Ok(Some(part)) => Some((Ok(part), Some(parts))),
            Ok(None) => None,
            Err(error) => {
                tracing::warn!(%error, "a result broke off while it was sent");
                Some((Err(error), None))
            }
        }
    })
}

/// Ends executions that have not started and asks running ones to stop.
pub async fn cancel(
    call: Call,
    IdInPath(id): IdInPath<ExecutionId>,
    _: NoBody,
) -> Result<Json<ExecutionBody>, ApiError> {
    call.cases.cancel_execution(id).await?;
    Ok(Json(read(&call, id).await?))
}
