//! Repeatable requests: the first response to an `Idempotency-Key` is stored and returned for repeats.
//!
//! A key belongs to one token and one request. Until a response is stored, a repeat runs the request again
//! with the time and the seed of the first try: it finds what the first try created instead of creating it
//! twice.

use crate::auth::Call;
use crate::error::ApiError;
use axum::body::to_bytes;
use axum::extract::FromRequestParts;
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use punctual_client::{IDEMPOTENCY_KEY, IDEMPOTENT_REPLAYED};
use punctual_core::limits;
use punctual_core::ports::{RequestState, StoredAnswer};
use punctual_core::time::Timestamp;
use punctual_engine::{IdSource, RequestTry};
use sha2::{Digest, Sha256};

/// The identity of a request, apart from its body.
pub struct RequestName {
    key: Option<String>,
    method: Method,
    path: String,
}

impl<S: Send + Sync> FromRequestParts<S> for RequestName {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let key = key_in(&parts.headers)?;
        Ok(RequestName { key, method: parts.method.clone(), path: parts.uri.path().to_owned() })
    }
}

fn key_in(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let invalid = |detail: String| Err(ApiError::InvalidHeader { header: IDEMPOTENCY_KEY, detail });
    if values.next().is_some() {
        return invalid("is given twice".to_owned());
    }
    match value.to_str() {
        Ok("") => invalid("must not be empty".to_owned()),
        Ok(key) if key.len() > limits::REQUEST_KEY_BYTES_MAX => {
            invalid(format!("must be at most {} bytes", limits::REQUEST_KEY_BYTES_MAX))
        }
        Ok(key) if !key.contains('\t') => Ok(Some(key.to_owned())),
        _ => invalid("must be printable ASCII".to_owned()),
    }
}

/// Whether a request can run again after a try whose outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeating {
    Safe,
    Unsafe,
}

/// Marks a response of which a part may still change: it is not stored.
#[derive(Debug, Clone, Copy)]
pub struct Unsettled;

const OUTCOME_UNKNOWN: &str = "an earlier request with this Idempotency-Key has not been answered, and it \
                               is unknown whether it was carried out: check the job's executions, and use \
                               a new key to repeat it";

/// Returns the stored response if there is one; otherwise runs the request.
pub async fn once<F>(
    call: &Call,
    name: RequestName,
    body: &[u8],
    repeating: Repeating,
    run: impl FnOnce(RequestTry) -> F + Send,
) -> Result<Response, ApiError>
where
    F: Future<Output = Result<Response, ApiError>> + Send,
{
    let Some(key) = name.key.clone() else {
        return run(RequestTry { ids: None, is_repeated: false }).await;
    };
    let fingerprint = name.fingerprint(body);
    let seed = seed(&call.cases.caller().token_id, &key, &fingerprint, call.cases.now());
    match call.cases.begin_request(key.clone(), fingerprint, seed).await? {
        RequestState::Answered(answer) => Ok(replayed(answer)),
        RequestState::Mismatch => Err(ApiError::field(
            IDEMPOTENCY_KEY,
            "was already used for a different request: use a new key for a new request",
        )),
        RequestState::Begun { is_new: false, .. } if repeating == Repeating::Unsafe => {
            Err(ApiError::Conflict(OUTCOME_UNKNOWN.to_owned()))
        }
        RequestState::Begun { at, seed, is_new } => {
            let answer = run(RequestTry { ids: Some(IdSource { at, seed }), is_repeated: !is_new }).await;
            keep(call, key, answer.unwrap_or_else(IntoResponse::into_response)).await
        }
    }
}

impl RequestName {
    fn fingerprint(&self, body: &[u8]) -> [u8; 32] {
        digest([self.method.as_str().as_bytes(), self.path.as_bytes(), body])
    }
}

/// Unique per key and time, which is all that ids need.
fn seed(token_id: &str, key: &str, fingerprint: &[u8; 32], now: Timestamp) -> u64 {
    let time = now.as_micros().to_le_bytes();
    let hash = digest([token_id.as_bytes(), key.as_bytes(), fingerprint, &time]);
    hash[..8].iter().fold(0, |seed, byte| seed << 8 | u64::from(*byte))
}

/// The SHA-256 of parts, each prefixed with its length, so that different splits give different digests.
fn digest<const N: usize>(parts: [&[u8]; N]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// Stores the response for repeats. A response that asks the client to retry is not stored, so that a retry
/// can succeed.
async fn keep(call: &Call, key: String, answer: Response) -> Result<Response, ApiError> {
    let is_passing = answer.status().is_server_error() || answer.status() == StatusCode::TOO_MANY_REQUESTS;
    if is_passing || answer.extensions().get::<Unsettled>().is_some() {
        return Ok(answer);
    }
    let (parts, body) = answer.into_parts();
    let body = to_bytes(body, usize::MAX).await.map_err(|error| ApiError::Internal(error.to_string()))?;
    let location = parts.headers.get(LOCATION).and_then(|location| location.to_str().ok());
    let stored = StoredAnswer {
        status: parts.status.as_u16(),
        location: location.map(str::to_owned),
        body: String::from_utf8_lossy(&body).into_owned(),
    };
    if let Err(error) = call.cases.answer_request(key, stored).await {
        // A repeat runs the request again, which creates nothing twice.
        tracing::warn!(%error, "the response to a request with an Idempotency-Key was not stored");
    }
    Ok(Response::from_parts(parts, body.into()))
}

fn replayed(answer: StoredAnswer) -> Response {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind = if status.is_success() { "application/json" } else { "application/problem+json" };
    let mut response = (status, answer.body).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if let Some(location) = answer.location.and_then(|location| HeaderValue::try_from(location).ok()) {
        headers.insert(LOCATION, location);
    }
    if let Ok(name) = HeaderName::try_from(IDEMPOTENT_REPLAYED) {
        headers.insert(name, HeaderValue::from_static("true"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(value: &[u8]) -> HeaderMap {
        let name = HeaderName::try_from(IDEMPOTENCY_KEY).unwrap();
        HeaderMap::from_iter([(name, HeaderValue::from_bytes(value).unwrap())])
    }

    fn name(path: &str) -> RequestName {
        RequestName { key: None, method: Method::POST, path: path.to_owned() }
    }

    #[test]
    fn keys_are_short_printable_ascii() {
        assert_eq!(key_in(&HeaderMap::new()).unwrap(), None);
        assert_eq!(key_in(&header(b"order-17")).unwrap().as_deref(), Some("order-17"));
        assert!(key_in(&header(&[b'x'; limits::REQUEST_KEY_BYTES_MAX])).is_ok());
        for bad in
            [&b""[..], b"a\tb", "schl\u{fc}ssel".as_bytes(), &[b'x'; limits::REQUEST_KEY_BYTES_MAX + 1]]
        {
            let Err(ApiError::InvalidHeader { header, .. }) = key_in(&header(bad)) else {
                panic!("{bad:?} is a key");
            };
            assert_eq!(header, IDEMPOTENCY_KEY);
        }
    }

    #[test]
    fn requests_differ_by_path_and_body() {
        let base = name("/jobs").fingerprint(b"{}");
        assert_eq!(base, name("/jobs").fingerprint(b"{}"));
        assert_ne!(base, name("/jobs/batch").fingerprint(b"{}"));
        assert_ne!(base, name("/jobs").fingerprint(b"{ }"));
        assert_ne!(name("/jobs").fingerprint(b"x"), name("/jobsx").fingerprint(b""));
    }

    #[test]
    fn seeds_differ_by_token_key_and_time() {
        let seed = |token, key, micros| seed(token, key, &[0; 32], Timestamp::from_micros(micros));
        let base = seed("a", "b", 1);
        assert_eq!(base, seed("a", "b", 1));
        assert_ne!(base, seed("a", "c", 1));
        assert_ne!(base, seed("ab", "", 1));
        assert_ne!(base, seed("a", "b", 2));
    }

    #[test]
    fn a_replayed_answer_says_so_and_has_its_location_and_type() {
        let answer = |status, location: Option<&str>| StoredAnswer {
            status,
            location: location.map(str::to_owned),
            body: "{}".to_owned(),
        };
        let created = replayed(answer(201, Some("/api/v1/jobs/x")));
        assert_eq!(created.status(), StatusCode::CREATED);
        assert_eq!(created.headers()[LOCATION], "/api/v1/jobs/x");
        assert_eq!(created.headers()[CONTENT_TYPE], "application/json");
        assert_eq!(created.headers()[IDEMPOTENT_REPLAYED], "true");
        assert_eq!(replayed(answer(422, None)).headers()[CONTENT_TYPE], "application/problem+json");
    }
}
