//! Large results of workers: streamed into a blob, so that none is in memory as a whole.

use crate::auth::Call;
use crate::error::ApiError;
use crate::extract::{BodyTimeout, check_content_type, discard_up_to};
use crate::query::QueryParams;
use async_trait::async_trait;
use axum::Json;
use axum::body::BodyDataStream;
use axum::extract::Request;
use axum::http::StatusCode;
use futures_util::StreamExt;
use punctual_core::blobs::BlobReference;
use punctual_core::ids::{ExecutionId, SessionId};
use punctual_core::limits;
use punctual_core::ports::{BlobError, BlobParts};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// How long the rest of a refused result is read.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(60);

pub async fn store(
    call: Call,
    mut query: QueryParams,
    request: Request,
) -> Result<(StatusCode, Json<BlobReference>), ApiError> {
    call.cases.worker_port()?;
    check_content_type(&request)?;
    let session = needed::<i64>(&mut query, "session");
    let execution = needed::<ExecutionId>(&mut query, "execution_id");
    query.finish()?;
    let (Some(session), Some(execution)) = (session, execution) else {
        return Err(ApiError::Internal("parameters were not checked".to_owned()));
    };
    let part_timeout = request.extensions().get().map_or(Duration::MAX, |BodyTimeout(longest)| *longest);
    let body = Arc::new(Mutex::new(request.into_body().into_data_stream()));
    let parts = Box::new(ReceivedParts { body: body.clone(), part_timeout });
    let stored = tokio::select! {
        biased;
        () = call.api.stopping() => return Err(ApiError::Stopping),
        stored = call.cases.store_result(SessionId(session), execution, parts) => stored,
    };
    match stored {
        Ok(reference) => Ok((StatusCode::CREATED, Json(reference))),
        Err(error) => {
            // A worker that could not read the answer would send the result again.
            let most = usize::try_from(limits::BLOB_BYTES_MAX).unwrap_or(usize::MAX);
            discard_up_to(&mut *body.lock().await, most, DISCARD_TIMEOUT).await;
            Err(error.into())
        }
    }
}

fn needed<T: FromStr>(query: &mut QueryParams, name: &'static str) -> Option<T> {
    let text = query.text(name);
    let parsed = text.as_deref().and_then(|text| text.parse().ok());
    if parsed.is_none() {
        query.refuse(
            name,
            if text.is_none() { "is needed" } else { "must be an id as the server returned it" },
        );
    }
    parsed
}

/// The body as it arrives. Each part may take as long as the body of another request.
struct ReceivedParts {
    body: Arc<Mutex<BodyDataStream>>,
    part_timeout: Duration,
}

#[async_trait]
impl BlobParts for ReceivedParts {
    async fn next(&mut self) -> Result<Option<Vec<u8>>, BlobError> {
        let mut body = self.body.lock().await;
        loop {
            let part = timeout(self.part_timeout, body.next()).await;
            let part =
                part.map_err(|_| BlobError::Unavailable("the body took too long to arrive".to_owned()))?;
            match part {
                None => return Ok(None),
                Some(Ok(part)) if part.is_empty() => {}
                Some(Ok(part)) => return Ok(Some(part.to_vec())),
                Some(Err(error)) => {
                    return Err(BlobError::Unavailable(format!("the body could not be read: {error}")));
                }
            }
        }
    }
}
