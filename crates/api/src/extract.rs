//! What handlers take from a request: bodies within their limit, ids from the path.

use crate::error::ApiError;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use std::str::FromStr;
use std::time::Duration;

/// Bytes of a request's body, except where a route says otherwise.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of the body of a batch.
pub const BATCH_BODY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// How long a body may take to arrive, so that a slow sender cannot hold its place for ever.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// A body that says it is JSON, at most `LIMIT` bytes of it.
pub struct JsonBytes<const LIMIT: usize>(pub Bytes);

impl<S: Send + Sync, const LIMIT: usize> FromRequest<S> for JsonBytes<LIMIT> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        if let Some(kind) = request.headers().get(CONTENT_TYPE) {
            let kind = kind.to_str().unwrap_or_default();
            let essence = kind.split(';').next().unwrap_or_default().trim();
            if !essence.eq_ignore_ascii_case("application/json") {
                return Err(ApiError::NotJson);
            }
        }
        match tokio::time::timeout(BODY_TIMEOUT, Bytes::from_request(request, state)).await {
            Err(_) => Err(ApiError::BodyTimeout),
            Ok(Ok(bytes)) => Ok(JsonBytes(bytes)),
            Ok(Err(rejection)) => Err(body_error(rejection, LIMIT)),
        }
    }
}

fn body_error(rejection: BytesRejection, limit_bytes: usize) -> ApiError {
    match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => ApiError::BodyTooLarge { limit_bytes },
        _ => ApiError::BodyUnreadable(rejection.body_text()),
    }
}

/// The id in the path. What is not an id names nothing that could be found.
pub struct IdInPath<T>(pub T);

impl<S, T> FromRequestParts<S> for IdInPath<T>
where
    S: Send + Sync,
    T: FromStr<Err: std::fmt::Display>,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(text): Path<String> = Path::from_request_parts(parts, state)
            .await
            .map_err(|rejection: PathRejection| ApiError::NotFound(rejection.body_text()))?;
        text.parse().map(IdInPath).map_err(|error: T::Err| ApiError::NotFound(error.to_string()))
    }
}
