//! Headers for browsers: what every response forbids them, and which other origins may read responses.

use crate::Api;
use crate::hosts;
use crate::tls::Secured;
use axum::extract::{Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, CACHE_CONTROL,
    CONTENT_SECURITY_POLICY, HeaderName, ORIGIN, REFERRER_POLICY, STRICT_TRANSPORT_SECURITY, VARY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// Set where a response does not set its own value, as the page of the documentation does.
const DEFAULTS: [(HeaderName, &str); 5] = [
    (CACHE_CONTROL, "no-store"),
    (CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    (REFERRER_POLICY, "no-referrer"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
];

/// A year, for this host alone: other names of its domain may have no TLS.
const STRICT: &str = "max-age=31536000";

/// What a preflight permits, and for how long browsers remember it.
const METHODS: &str = "GET, POST, PUT, PATCH, DELETE";
const REQUEST_HEADERS: &str =
    "authorization, content-type, idempotency-key, if-match, last-event-id, traceparent, tracestate";
const PREFLIGHT_AGE_SECS: &str = "600";
/// Response headers that scripts of other origins may read.
const RESPONSE_HEADERS: &str =
    "etag, location, retry-after, idempotent-replayed, ratelimit-limit, ratelimit-remaining, ratelimit-reset";

/// The security headers for one request.
pub struct SecurityHeaders {
    is_strict: bool,
}

impl SecurityHeaders {
    /// Browsers apply `Strict-Transport-SecurityHeaders` to all ports of a host, so `localhost` never gets it: it
    /// would break every other local server.
    pub fn of<B>(request: &axum::http::Request<B>, secured: Option<&Secured>) -> Self {
        let is_named = || hosts::named(request).is_ok_and(|host| host != hosts::LOCALHOST);
        SecurityHeaders { is_strict: secured.is_some() && is_named() }
    }

    pub fn add_to(&self, headers: &mut HeaderMap) {
        for (name, value) in DEFAULTS {
            headers.entry(name).or_insert(HeaderValue::from_static(value));
        }
        if self.is_strict {
            headers.insert(STRICT_TRANSPORT_SECURITY, HeaderValue::from_static(STRICT));
        }
    }
}

/// Lets scripts of the configured origins use the API. Without any, nothing is added, and browsers refuse.
pub async fn cors(State(api): State<Api>, request: Request, next: Next) -> Response {
    let origins = &api.web.cors_origins;
    if origins.is_empty() {
        return next.run(request).await;
    }
    let origin = request.headers().get(ORIGIN).cloned();
    let origin = origin.filter(|sent| origins.iter().any(|origin| sent == origin.as_str()));
    let is_preflight =
        request.method() == Method::OPTIONS && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = match &origin {
        Some(_) if is_preflight => StatusCode::NO_CONTENT.into_response(),
        _ => next.run(request).await,
    };
    let headers = response.headers_mut();
    headers.append(VARY, HeaderValue::from_static("origin"));
    if let Some(origin) = origin {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        let more: &[(HeaderName, &'static str)] = if is_preflight {
            &[
                (ACCESS_CONTROL_ALLOW_METHODS, METHODS),
                (ACCESS_CONTROL_ALLOW_HEADERS, REQUEST_HEADERS),
                (ACCESS_CONTROL_MAX_AGE, PREFLIGHT_AGE_SECS),
            ]
        } else {
            &[(ACCESS_CONTROL_EXPOSE_HEADERS, RESPONSE_HEADERS)]
        };
        for (name, value) in more {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
    response
}
