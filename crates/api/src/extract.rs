//! What handlers take from a request: bodies within their limits, ids from the path.

use crate::Api;
use crate::error::ApiError;
use crate::json::{self, Shape};
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Bytes of a request's body, except where a route says otherwise.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of the body of a batch.
pub const BATCH_BODY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Bytes of all large bodies that are being read or worked on. Further ones wait for their share.
const BODIES_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Bodies up to this size need no share: a stalled sender of large ones must not keep small ones out.
const SMALL_BODY_BYTES_MAX: usize = 16 * 1024;
/// How long a large body waits for its share before its sender is told to come back.
const SHARE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a body may take to arrive, so that a slow sender cannot hold its place for ever.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Bounds the memory that request bodies take together.
pub struct BodyShares(Arc<Semaphore>);

impl Default for BodyShares {
    fn default() -> Self {
        BodyShares(Arc::new(Semaphore::new(BODIES_BYTES_MAX)))
    }
}

impl BodyShares {
    /// A share for a body of this size, or an answer that there is none now.
    async fn take(&self, bytes: usize) -> Result<Option<OwnedSemaphorePermit>, ApiError> {
        if bytes <= SMALL_BODY_BYTES_MAX {
            return Ok(None);
        }
        let wanted = u32::try_from(bytes).unwrap_or(u32::MAX);
        match timeout(SHARE_TIMEOUT, self.0.clone().acquire_many_owned(wanted)).await {
            Ok(Ok(share)) => Ok(Some(share)),
            _ => Err(ApiError::Overloaded),
        }
    }
}

/// A body that says it is JSON, at most `LIMIT` bytes of it, and its share of the memory for bodies.
pub struct JsonBody<const LIMIT: usize> {
    pub bytes: Bytes,
    _share: Option<OwnedSemaphorePermit>,
}

impl<const LIMIT: usize> FromRequest<Api> for JsonBody<LIMIT> {
    type Rejection = ApiError;

    async fn from_request(request: Request, api: &Api) -> Result<Self, ApiError> {
        check_content_type(request.method(), request.headers())?;
        read(request, api).await
    }
}

/// As [`JsonBody`], or nothing at all: then its type does not matter.
pub struct OptionalBody<const LIMIT: usize>(pub JsonBody<LIMIT>);

impl<const LIMIT: usize> FromRequest<Api> for OptionalBody<LIMIT> {
    type Rejection = ApiError;

    async fn from_request(request: Request, api: &Api) -> Result<Self, ApiError> {
        let is_json = check_content_type(request.method(), request.headers());
        let body = read(request, api).await?;
        if !body.bytes.is_empty() {
            is_json?;
        }
        Ok(OptionalBody(body))
    }
}

impl<const LIMIT: usize> OptionalBody<LIMIT> {
    /// What the body says, or the default if there is none.
    pub fn parse<T: DeserializeOwned + Default>(&self) -> Result<T, ApiError> {
        if self.0.bytes.is_empty() { Ok(T::default()) } else { json::parse(&self.0.bytes, Shape::Verb) }
    }
}

/// The body of a verb that takes none: nothing, or an empty object.
pub struct NoBody;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

impl FromRequest<Api> for NoBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, api: &Api) -> Result<Self, ApiError> {
        let body: OptionalBody<BODY_BYTES_MAX> = OptionalBody::from_request(request, api).await?;
        body.parse::<Nothing>().map(|_| NoBody)
    }
}

async fn read<const LIMIT: usize>(request: Request, api: &Api) -> Result<JsonBody<LIMIT>, ApiError> {
    // A body of unknown length may become as large as the limit.
    let announced = content_length(request.headers()).unwrap_or(LIMIT);
    if announced > LIMIT {
        return Err(ApiError::BodyTooLarge { limit_bytes: LIMIT });
    }
    let share = api.bodies.take(announced).await?;
    match timeout(BODY_TIMEOUT, Bytes::from_request(request, api)).await {
        Err(_) => Err(ApiError::BodyTimeout),
        Ok(Ok(bytes)) => Ok(JsonBody { bytes, _share: share }),
        Ok(Err(rejection)) => Err(body_error(rejection, LIMIT)),
    }
}

fn check_content_type(method: &Method, headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(kind) = headers.get(CONTENT_TYPE) else { return Ok(()) };
    let essence = kind.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let is = |kind: &str| essence.eq_ignore_ascii_case(kind);
    let is_patch = *method == Method::PATCH && is("application/merge-patch+json");
    if is("application/json") || is_patch { Ok(()) } else { Err(ApiError::NotJson) }
}

fn content_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
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
