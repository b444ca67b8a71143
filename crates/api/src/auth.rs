//! Authentication: bearer tokens of the form `pt_<id>_<secret>`.
//!
//! A token is looked up by its id and verified by the SHA-256 of its secret, compared in constant time.
//! Verified tokens are cached for a short while: a busy client does not cost a read per request, and a
//! revoked token still stops working soon.

use crate::error::ApiError;
use crate::tls::Secured;
use crate::{Api, secret_sha256};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use punctual_core::ports::Token;
use punctual_core::time::Monotonic;
use punctual_engine::{Caller, UseCases};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use subtle::ConstantTimeEq;

/// The only paths that need no token. They reveal nothing about jobs.
pub const PUBLIC_PATHS: [&str; 5] = ["/", "/docs", "/livez", "/openapi.json", "/readyz"];

/// How long a revoked token may keep working.
const CACHE_TTL: Duration = Duration::from_secs(5);
/// Tokens in the cache. When there are more, the cache is cleared.
const CACHE_TOKENS_MAX: usize = 1_000;
/// Bytes of a token; longer ones are rejected without being parsed.
const TOKEN_BYTES_MAX: usize = 256;

#[derive(Default)]
pub struct TokenCache {
    seen: Mutex<HashMap<String, (Token, Monotonic)>>,
}

impl TokenCache {
    fn get(&self, id: &str, now: Monotonic) -> Option<Token> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (token, since) = seen.get(id)?;
        (now.since(*since) < CACHE_TTL).then(|| token.clone())
    }

    fn put(&self, token: Token, now: Monotonic) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= CACHE_TOKENS_MAX {
            seen.clear();
        }
        seen.insert(token.id.clone(), (token, now));
    }
}

/// An authenticated request: the server's state, and the use cases on behalf of its caller.
pub struct Call {
    pub api: Api,
    pub cases: UseCases,
}

impl FromRequestParts<Api> for Call {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let caller = parts.extensions.get::<Caller>().cloned();
        let caller = caller.ok_or_else(|| ApiError::Internal("a request came past the guard".to_owned()))?;
        Ok(Call { api: api.clone(), cases: api.access.on_behalf_of(caller) })
    }
}

/// Lets a request through if its path is public or it has a valid token. The use cases check what that token
/// may do.
pub async fn guard(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    if PUBLIC_PATHS.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    match authenticate(&api, request.headers()).await {
        Ok(token) => {
            request.extensions_mut().insert(Caller::from(&token));
            next.run(request).await
        }
        Err(error) => error.into_response(),
    }
}

/// Lets a request of the worker protocol through if its connection has the client certificate that the server
/// may demand of workers.
pub fn needs_certificate(request: &Request) -> Result<(), ApiError> {
    let is_missing =
        |secured: &Secured| secured.tls.workers_need_certificate && !secured.has_client_certificate;
    if request.extensions().get::<Secured>().is_some_and(is_missing) {
        return Err(ApiError::NoCertificate);
    }
    Ok(())
}

/// Whether the request carries a valid token. While the store does not answer, only cached tokens are valid.
pub async fn is_known(api: &Api, headers: &HeaderMap) -> bool {
    headers.contains_key(AUTHORIZATION) && authenticate(api, headers).await.is_ok()
}

async fn authenticate(api: &Api, headers: &HeaderMap) -> Result<Token, ApiError> {
    let (id, secret) = bearer(headers)?;
    let now = api.clock.monotonic();
    let presented = secret_sha256(secret);
    if let Some(token) = api.tokens.get(id, now).filter(|token| is_proven(Some(token), &presented)) {
        return Ok(token);
    }
    // A cached token may have been replaced meanwhile, by this process or another one.
    let kept = api.access.token(id).await?;
    // An unknown id takes the same comparison as a wrong secret, so timing does not reveal it.
    match (is_proven(kept.as_ref(), &presented), kept) {
        (true, Some(token)) => {
            api.tokens.put(token.clone(), now);
            Ok(token)
        }
        _ => Err(ApiError::Unauthorized("the token is unknown")),
    }
}

fn is_proven(token: Option<&Token>, presented: &[u8; 32]) -> bool {
    let kept = token.map_or([0; 32], |token| token.secret_sha256);
    bool::from(kept.ct_eq(presented)) && token.is_some()
}

/// The id and secret of the token in the `Authorization` header.
fn bearer(headers: &HeaderMap) -> Result<(&str, &str), ApiError> {
    let missing = ApiError::Unauthorized("send the header `Authorization: Bearer <token>`");
    let malformed = || ApiError::Unauthorized("the token must look like pt_<id>_<secret>");
    let Some(value) = headers.get(AUTHORIZATION) else { return Err(missing) };
    let value = value.to_str().map_err(|_| malformed())?;
    let Some((scheme, token)) = value.split_once(' ') else { return Err(missing) };
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(missing);
    }
    let token = token.trim();
    if token.len() > TOKEN_BYTES_MAX {
        return Err(malformed());
    }
    let (id, secret) =
        token.strip_prefix("pt_").and_then(|rest| rest.split_once('_')).ok_or_else(malformed)?;
    let plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if plain(id) && plain(secret) { Ok((id, secret)) } else { Err(malformed()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::ports::Role;
    use punctual_core::time::Timestamp;

    fn header(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())])
    }

    #[test]
    fn a_token_is_taken_apart_into_id_and_secret() {
        assert_eq!(bearer(&header("Bearer pt_admin_0a1b")).unwrap(), ("admin", "0a1b"));
        assert_eq!(bearer(&header("bearer  pt_admin_0a1b")).unwrap(), ("admin", "0a1b"));
        for bad in ["", "Bearer", "Basic abc", "Bearer x", "Bearer pt_", "Bearer pt_a_", "Bearer pt_a_b c"] {
            assert!(bearer(&header(bad)).is_err(), "{bad:?}");
        }
        assert!(bearer(&header(&format!("Bearer pt_a_{}", "x".repeat(300)))).is_err());
    }

    #[test]
    fn the_cache_forgets_with_time_and_never_grows_beyond_its_limit() {
        let cache = TokenCache::default();
        let token = |n: usize| Token {
            id: n.to_string(),
            secret_sha256: [0; 32],
            role: Role::Admin,
            created_at: Timestamp::EPOCH,
        };
        let start = Monotonic::from_micros(0);
        for n in 0..=CACHE_TOKENS_MAX * 2 {
            cache.put(token(n), start);
        }
        assert!(cache.seen.lock().unwrap().len() <= CACHE_TOKENS_MAX);
        cache.put(token(1), start);
        assert!(cache.get("1", start).is_some());
        assert!(cache.get("1", start.plus(CACHE_TTL)).is_none());
    }
}
