//! Extractors: request bodies within their limits, ids from the path.

use crate::Api;
use crate::body_check::{self, DocumentCheck};
use crate::error::ApiError;
use crate::json::{self, DocumentShape};
use axum::body::{BodyDataStream, Bytes, HttpBody};
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};
use futures_util::StreamExt;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Bytes of a request body, unless a route sets another limit.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of the body of a batch.
pub const BATCH_BODY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Bytes of all large bodies that have arrived and are being read or processed. Further ones wait for their
/// share.
const BODIES_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Bytes of a body that need no share: senders of large bodies must not block small ones.
const SMALL_BODY_BYTES_MAX: usize = 16 * 1024;
/// How long a large body waits for its share before the sender is asked to retry.
const SHARE_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of a body up to which it is checked on the current thread; larger ones are checked on a blocking
/// thread.
const LOOK_AT_ONCE_BYTES_MAX: usize = 64 * 1024;

/// Bytes of a rejected body that are still read, and for how long, so that the sender receives the response.
const DISCARDED_BYTES_MAX: usize = 32 * 1024 * 1024;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a body may take to arrive, so that a slow sender cannot hold its connection forever. The server
/// attaches it to each request.
#[derive(Debug, Clone, Copy)]
pub struct BodyTimeout(pub Duration);

/// Bounds the memory that request bodies take together.
pub struct BodyShares(Arc<Semaphore>);

impl Default for BodyShares {
    fn default() -> Self {
        BodyShares(Arc::new(Semaphore::new(BODIES_BYTES_MAX)))
    }
}

impl BodyShares {
    /// Raises a share to this many bytes, or fails because there is no room now. Only bytes that have arrived
    /// count: a client that announces megabytes and sends them slowly takes nothing from others.
    async fn raise(&self, share: &mut Option<OwnedSemaphorePermit>, bytes: usize) -> Result<(), ApiError> {
        let held = share.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let wanted = bytes.saturating_sub(SMALL_BODY_BYTES_MAX).saturating_sub(held);
        if wanted == 0 {
            return Ok(());
        }
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        let Ok(Ok(more)) = timeout(SHARE_TIMEOUT, self.0.clone().acquire_many_owned(wanted)).await else {
            return Err(ApiError::Overloaded);
        };
        match share {
            Some(share) => share.merge(more),
            None => *share = Some(more),
        }
        Ok(())
    }
}

/// A body with a JSON content type, of at most `LIMIT` bytes, and its share of the memory for bodies.
pub struct JsonBody<const LIMIT: usize> {
    pub bytes: Bytes,
    _share: Option<OwnedSemaphorePermit>,
}

impl<const LIMIT: usize> FromRequest<Api> for JsonBody<LIMIT> {
    type Rejection = ApiError;

    async fn from_request(request: Request, api: &Api) -> Result<Self, ApiError> {
        check_content_type(&request)?;
        read(request, api, DocumentCheck::WholeBody).await
    }
}

/// Like [`JsonBody`], but documents in it may be nested too deeply: the route decides about each of them. Its
/// fields must have types that are parsed without recursion, such as `RawValue`.
pub struct DocumentsBody<const LIMIT: usize>(pub JsonBody<LIMIT>);

impl<const LIMIT: usize> FromRequest<Api> for DocumentsBody<LIMIT> {
    type Rejection = ApiError;

    async fn from_request(request: Request, api: &Api) -> Result<Self, ApiError> {
        check_content_type(&request)?;
        read(request, api, DocumentCheck::EachByRoute).await.map(DocumentsBody)
    }
}

/// Like [`JsonBody`], or empty, in which case the content type does not matter.
pub struct OptionalBody<const LIMIT: usize>(pub JsonBody<LIMIT>);

impl<const LIMIT: usize> FromRequest<Api> for OptionalBody<LIMIT> {
    type Rejection = ApiError;

    async fn from_request(request: Request, api: &Api) -> Result<Self, ApiError> {
        let is_json = check_content_type(&request);
        let body = read(request, api, DocumentCheck::WholeBody).await?;
        if !body.bytes.is_empty() {
            is_json?;
        }
        Ok(OptionalBody(body))
    }
}

impl<const LIMIT: usize> OptionalBody<LIMIT> {
    /// The parsed body, or the default if there is none.
    pub fn parse<T: DeserializeOwned + Default>(&self) -> Result<T, ApiError> {
        if self.0.bytes.is_empty() {
            Ok(T::default())
        } else {
            json::parse(&self.0.bytes, DocumentShape::Verb)
        }
    }
}

/// The body of a verb without arguments: empty, or an empty object.
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

async fn read<const LIMIT: usize>(
    request: Request,
    api: &Api,
    documents: DocumentCheck,
) -> Result<JsonBody<LIMIT>, ApiError> {
    let announced = content_length(request.headers()).unwrap_or(0);
    // A client that sent `Expect` sends no body when it is rejected.
    let asks_first = request.headers().contains_key(EXPECT);
    let longest = request.extensions().get().map_or(Duration::MAX, |BodyTimeout(longest)| *longest);
    let mut parts = request.into_body().into_data_stream();
    let received = if announced > LIMIT {
        Err(ApiError::BodyTooLarge { limit_bytes: LIMIT })
    } else {
        timeout(longest, receive(&mut parts, &api.bodies)).await.unwrap_or(Err(ApiError::BodyTimeout))
    };
    if matches!(received, Err(ApiError::BodyTooLarge { .. } | ApiError::Overloaded)) && !asks_first {
        discard(&mut parts).await;
    }
    let body = received?;
    look_through(body.bytes.clone(), documents).await?;
    Ok(body)
}

async fn receive<const LIMIT: usize>(
    parts: &mut BodyDataStream,
    shares: &BodyShares,
) -> Result<JsonBody<LIMIT>, ApiError> {
    let (mut received, mut share) = (Vec::new(), None);
    while let Some(part) = parts.next().await {
        let part = part.map_err(|error| ApiError::BodyUnreadable(error.to_string()))?;
        if received.len() + part.len() > LIMIT {
            return Err(ApiError::BodyTooLarge { limit_bytes: LIMIT });
        }
        shares.raise(&mut share, received.len() + part.len()).await?;
        received.extend_from_slice(&part);
    }
    Ok(JsonBody { bytes: received.into(), _share: share })
}

/// Reads the rest of a rejected body and discards it. Most clients read the response only after they have
/// sent everything; if the connection is closed earlier, they see no response at all.
pub async fn discard(parts: &mut BodyDataStream) {
    discard_up_to(parts, DISCARDED_BYTES_MAX, DISCARD_TIMEOUT).await;
}

/// The same for at most so many bytes and this time.
pub async fn discard_up_to(parts: &mut BodyDataStream, bytes_max: usize, time_max: Duration) {
    let to_end = async {
        let mut left = bytes_max;
        while let Some(Ok(part)) = parts.next().await {
            left = left.saturating_sub(part.len());
            if left == 0 {
                break;
            }
        }
    };
    let _ = timeout(time_max, to_end).await;
}

/// Rejects text that no JSON parser should get, whichever route it is for: payloads and results are passed on
/// unparsed, and other programs parse them later.
async fn look_through(bytes: Bytes, documents: DocumentCheck) -> Result<(), ApiError> {
    if bytes.len() <= LOOK_AT_ONCE_BYTES_MAX {
        return body_check::check(&bytes, documents);
    }
    let looked = tokio::task::spawn_blocking(move || body_check::check(&bytes, documents)).await;
    looked
        .unwrap_or_else(|broken| Err(ApiError::Internal(format!("reading a body was interrupted: {broken}"))))
}

/// A body must have a content type: browsers send requests without one to other sites unasked.
pub(crate) fn check_content_type(request: &Request) -> Result<(), ApiError> {
    let mut kinds = request.headers().get_all(CONTENT_TYPE).iter();
    let Some(kind) = kinds.next() else {
        return if request.body().is_end_stream() { Ok(()) } else { Err(ApiError::NotJson) };
    };
    if kinds.next().is_some() {
        let detail = "must be sent once".to_owned();
        return Err(ApiError::InvalidHeader { header: "Content-Type", detail });
    }
    let essence = kind.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let is = |kind: &str| essence.eq_ignore_ascii_case(kind);
    let is_patch = *request.method() == Method::PATCH && is("application/merge-patch+json");
    if is("application/json") || is_patch { Ok(()) } else { Err(ApiError::NotJson) }
}

fn content_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The id in the path. Malformed ids are answered like unknown ones.
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
