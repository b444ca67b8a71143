//! Limits on the pace of requests: of each user or token, and of requests without a valid token from each
//! address, so that tokens cannot be tried at full speed.
//!
//! The limits hold for one process and are kept in its memory.

use crate::auth::Peer;
use crate::connections::origin;
use crate::dashboard;
use crate::error::ApiError;
use crate::metrics::{LimitKind, Traffic};
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, COOKIE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use punctual_client::API_PREFIX;
use punctual_core::access::Permission;
use punctual_core::limits;
use punctual_core::ports::Clock;
use punctual_engine::{Caller, Quota, QuotaLeft, RetryAfter, TokenBuckets};
use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Paths that are never limited by user or token: health checks and metrics must work when it matters.
const UNLIMITED_PATHS: [&str; 3] = ["/livez", "/metrics", "/readyz"];
/// The worker protocol below the API's prefix. Workers are limited by their slots, and a refused heartbeat
/// would cost the work of its session.
const WORKER_PATH: &str = "/worker/";
/// Paths that answer everyone alike, so that no token can be tried there.
const OPEN_PATHS: [&str; 5] = ["/", "/docs", "/livez", "/openapi.json", "/readyz"];

/// The size of a user's or token's burst, what is left of it, and the seconds until all of it is available
/// again. The form with three headers, which the IETF's drafts used until the sixth, is the one that most
/// clients read.
pub const RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
pub const RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
pub const RATELIMIT_RESET: HeaderName = HeaderName::from_static("ratelimit-reset");

/// Marks a response with another status than 401 to a request whose credential was not valid.
#[derive(Debug, Clone, Copy)]
pub struct CredentialRejected;

impl CredentialRejected {
    pub fn mark(self, mut response: Response) -> Response {
        response.extensions_mut().insert(self);
        response
    }
}

/// The limits of one server; `None` for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimits {
    /// Requests of one user or token.
    pub requests: Option<Quota>,
    /// Requests without a valid token from one address.
    pub failures: Option<Quota>,
}

impl Default for RateLimits {
    fn default() -> Self {
        let failures =
            Quota::per_second(limits::AUTH_FAILURE_LIMIT_DEFAULT, limits::AUTH_FAILURE_BURST_DEFAULT);
        RateLimits {
            requests: Some(Quota::per_second(limits::RATE_LIMIT_DEFAULT, limits::RATE_BURST_DEFAULT)),
            failures: Some(failures),
        }
    }
}

/// Counts requests against the limits.
pub struct RateLimiter {
    requests: Option<TokenBuckets>,
    failures: Option<TokenBuckets>,
    proven: ProvenCredentials,
    clock: Arc<dyn Clock>,
    traffic: Arc<Traffic>,
}

impl RateLimiter {
    pub fn new(limits: RateLimits, clock: Arc<dyn Clock>, traffic: Arc<Traffic>) -> Arc<Self> {
        Arc::new(RateLimiter {
            requests: limits.requests.map(TokenBuckets::new),
            failures: limits.failures.map(TokenBuckets::new),
            proven: ProvenCredentials::default(),
            clock,
            traffic,
        })
    }

    fn too_many_failures(&self, RetryAfter(retry_after): RetryAfter) -> Response {
        self.traffic.limited(LimitKind::AuthFailures);
        ApiError::TooManyAuthFailures { retry_after }.into_response()
    }
}

/// Counts an authenticated request against the limit of its user or token. Belongs behind the authentication.
pub async fn limit(State(limiter): State<Arc<RateLimiter>>, request: Request, next: Next) -> Response {
    let Some(caller) = request.extensions().get::<Caller>() else { return next.run(request).await };
    if limiter.failures.is_some() {
        limiter.proven.insert(request.headers());
    }
    let Some(buckets) = limiter.requests.as_ref().filter(|_| !is_unlimited(request.uri().path(), caller))
    else {
        return next.run(request).await;
    };
    let quota = buckets.quota();
    let taken = buckets.take(&principal(caller), 1, limiter.clock.monotonic());
    let (mut response, left) = match taken {
        Ok(left) => (next.run(request).await, left),
        Err(RetryAfter(retry_after)) => {
            limiter.traffic.limited(LimitKind::Requests);
            let error = ApiError::RateLimited { quota, retry_after };
            let full_after = retry_after.saturating_add(time_of_rest(quota));
            (error.into_response(), QuotaLeft { remaining: 0, full_after })
        }
    };
    let headers = response.headers_mut();
    headers.insert(RATELIMIT_LIMIT, HeaderValue::from(quota.burst));
    headers.insert(RATELIMIT_REMAINING, HeaderValue::from(left.remaining));
    headers.insert(RATELIMIT_RESET, HeaderValue::from(whole_secs(left.full_after)));
    response
}

/// Counts requests that are answered 401 against the limit of their address. An address that has reached it
/// is refused before its token is looked at: otherwise the right guess would still be recognised. Tokens that
/// were valid before are exempt, so that other clients behind the same address can go on. Belongs before the
/// authentication.
pub async fn limit_failures(
    State(limiter): State<Arc<RateLimiter>>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    let is_open = OPEN_PATHS.contains(&path) || dashboard::is_at(path);
    let Some(failures) = limiter.failures.as_ref().filter(|_| !is_open) else {
        return next.run(request).await;
    };
    let peer = request.extensions().get::<Peer>().map(|Peer(address)| address.ip());
    let address = origin(peer.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED))).to_string();
    if let Err(retry_after) = failures.check(&address, limiter.clock.monotonic())
        && !limiter.proven.has(request.headers())
    {
        return limiter.too_many_failures(retry_after);
    }
    let credentials = limiter.proven.fingerprint(request.headers());
    let response = next.run(request).await;
    let is_rejected = response.extensions().get::<CredentialRejected>().is_some();
    if response.status() != StatusCode::UNAUTHORIZED && !is_rejected {
        return response;
    }
    limiter.proven.remove(credentials);
    match failures.take(&address, 1, limiter.clock.monotonic()) {
        Ok(_) => response,
        Err(retry_after) => limiter.too_many_failures(retry_after),
    }
}

/// The name under which a caller's requests are counted: all tokens of a user count together, and so do a token
/// and the sessions of browsers that have logged in with it.
fn principal(caller: &Caller) -> Cow<'_, str> {
    match (&caller.user, &caller.session_of) {
        (Some(user), _) => Cow::Owned(format!("user {user}")),
        (None, Some(parent)) => Cow::Borrowed(parent),
        (None, None) => Cow::Borrowed(&caller.token_id),
    }
}

fn is_unlimited(path: &str, caller: &Caller) -> bool {
    let is_worker_path = || path.strip_prefix(API_PREFIX).is_some_and(|below| below.starts_with(WORKER_PATH));
    UNLIMITED_PATHS.contains(&path) || caller.has(Permission::Work) && is_worker_path()
}

/// How long it takes from the moment when one request is available until the whole burst is.
fn time_of_rest(quota: Quota) -> Duration {
    let request = Duration::from_millis(quota.rate.per_ms) / quota.rate.count.max(1);
    request.saturating_mul(quota.burst.saturating_sub(1))
}

/// Rounded up, so that the time has passed after that many seconds.
pub fn whole_secs(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

/// Credentials that were valid when they were last used, as keyed hashes. They are not trusted for anything:
/// they only may be checked again.
#[derive(Default)]
struct ProvenCredentials {
    keys: RandomState,
    hashes: Mutex<HashSet<u64>>,
}

impl ProvenCredentials {
    /// A hash of all headers by which a client may identify itself.
    fn fingerprint(&self, headers: &HeaderMap) -> u64 {
        let mut hasher = self.keys.build_hasher();
        for name in [AUTHORIZATION, COOKIE] {
            for value in headers.get_all(&name) {
                value.as_bytes().hash(&mut hasher);
            }
            name.as_str().hash(&mut hasher);
        }
        hasher.finish()
    }

    fn has(&self, headers: &HeaderMap) -> bool {
        let hash = self.fingerprint(headers);
        self.hashes().contains(&hash)
    }

    fn insert(&self, headers: &HeaderMap) {
        let hash = self.fingerprint(headers);
        let mut hashes = self.hashes();
        if hashes.contains(&hash) {
            return;
        }
        if hashes.len() >= limits::PROVEN_CREDENTIALS_MAX {
            hashes.clear();
        }
        hashes.insert(hash);
    }

    fn remove(&self, hash: u64) {
        self.hashes().remove(&hash);
    }

    fn hashes(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.hashes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::body::{Body, to_bytes};
    use axum::http::header::RETRY_AFTER;
    use axum::middleware::from_fn_with_state;
    use punctual_core::access::{GrantTerms, Role};
    use punctual_core::ports::Task;
    use punctual_core::time::{Monotonic, Timestamp};
    use serde_json::Value;
    use std::sync::atomic::{AtomicU64, Ordering};
    use tower::Service;

    /// A clock that a test moves.
    #[derive(Default)]
    struct Driven(AtomicU64);

    impl Driven {
        fn pass(&self, time: Duration) {
            self.0.fetch_add(u64::try_from(time.as_micros()).unwrap(), Ordering::Relaxed);
        }
    }

    impl Clock for Driven {
        fn wall(&self) -> Timestamp {
            Timestamp::EPOCH
        }

        fn monotonic(&self) -> Monotonic {
            Monotonic::from_micros(self.0.load(Ordering::Relaxed))
        }

        fn sleep(&self, _: Duration) -> Task {
            Box::pin(async {})
        }
    }

    /// The layers around routes that answer 200, with an authentication that knows tokens that begin with `t-`
    /// and users that begin with `u-`.
    struct Limited {
        clock: Arc<Driven>,
        traffic: Arc<Traffic>,
        router: Router,
    }

    fn limited(requests: Option<Quota>, failures: Option<Quota>) -> Limited {
        let (clock, traffic) = (Arc::new(Driven::default()), Arc::<Traffic>::default());
        let limits = RateLimits { requests, failures };
        let limiter = RateLimiter::new(limits, clock.clone(), traffic.clone());
        let router = Router::new()
            .fallback(async || "done")
            .layer(from_fn_with_state(limiter.clone(), limit))
            .layer(axum::middleware::from_fn(stub_guard))
            .layer(from_fn_with_state(limiter, limit_failures));
        Limited { clock, traffic, router }
    }

    async fn stub_guard(mut request: Request, next: Next) -> Response {
        let sent = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let name = sent.unwrap_or_default().to_owned();
        let is_open = OPEN_PATHS.contains(&request.uri().path());
        if !is_open && !name.starts_with("t-") && !name.starts_with("u-") {
            return ApiError::Unauthorized("the token is unknown").into_response();
        }
        if !is_open {
            let grant = GrantTerms::default().grant(Role::Admin);
            // The second part of the name of a user is the number of its token.
            let user = name.starts_with("u-").then(|| name.split('/').next().unwrap().to_owned());
            let (token_id, is_stored, source) = (name.clone(), true, None);
            let session_of = None;
            let caller = Caller { token_id, name, user, session_of, is_stored, grant, source };
            request.extensions_mut().insert(caller);
        }
        next.run(request).await
    }

    impl Limited {
        async fn ask(&self, path: &str, token: &str, from: [u8; 4]) -> Response {
            let mut request = axum::http::Request::get(path).body(Body::empty()).unwrap();
            if !token.is_empty() {
                request.headers_mut().insert(AUTHORIZATION, token.parse().unwrap());
            }
            request.extensions_mut().insert(Peer((IpAddr::from(from), 1_234).into()));
            self.router.clone().call(request).await.unwrap()
        }

        async fn status(&self, token: &str, from: [u8; 4]) -> u16 {
            self.ask("/api/v1/jobs", token, from).await.status().as_u16()
        }
    }

    const HERE: [u8; 4] = [10, 0, 0, 1];
    const ELSEWHERE: [u8; 4] = [10, 0, 0, 2];

    fn number(response: &Response, name: HeaderName) -> Option<u64> {
        response.headers().get(name)?.to_str().unwrap().parse().ok()
    }

    fn rate_headers(response: &Response) -> [Option<u64>; 3] {
        [RATELIMIT_LIMIT, RATELIMIT_REMAINING, RATELIMIT_RESET].map(|name| number(response, name))
    }

    #[tokio::test]
    async fn a_token_beyond_its_limit_is_told_when_to_retry() {
        let server = limited(Some(Quota::per_second(2, 3)), None);
        for (remaining, reset) in [(2, 1), (1, 1), (0, 2)] {
            let response = server.ask("/api/v1/jobs", "t-1", HERE).await;
            assert_eq!(response.status(), 200);
            assert_eq!(rate_headers(&response), [Some(3), Some(remaining), Some(reset)]);
        }
        let refused = server.ask("/api/v1/jobs", "t-1", HERE).await;
        assert_eq!(refused.status(), 429);
        assert_eq!(rate_headers(&refused), [Some(3), Some(0), Some(2)]);
        assert_eq!(number(&refused, RETRY_AFTER), Some(1));
        assert_eq!(refused.headers()["content-type"], "application/problem+json");
        let body = to_bytes(refused.into_body(), usize::MAX).await.unwrap();
        let problem: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&problem["status"], &problem["retry_after_secs"]), (&429.into(), &1.into()));
        assert!(problem["detail"].as_str().unwrap().contains("2/1s"), "{problem}");
        assert_eq!(server.traffic.limited_so_far(LimitKind::Requests), 1);
        server.clock.pass(Duration::from_millis(499));
        assert_eq!(server.status("t-1", HERE).await, 429);
        server.clock.pass(Duration::from_millis(1));
        assert_eq!(server.status("t-1", HERE).await, 200);
        assert_eq!(server.status("t-1", HERE).await, 429);
        assert_eq!(server.status("t-2", HERE).await, 200, "another token has its own limit");
    }

    #[tokio::test]
    async fn all_tokens_of_a_user_count_together() {
        let server = limited(Some(Quota::per_second(1, 2)), None);
        assert_eq!(server.status("u-ann/1", HERE).await, 200);
        assert_eq!(server.status("u-ann/2", ELSEWHERE).await, 200);
        assert_eq!(server.status("u-ann/3", HERE).await, 429);
        assert_eq!(server.status("u-ben/1", HERE).await, 200);
    }

    #[tokio::test]
    async fn workers_health_checks_and_metrics_are_not_limited() {
        let server = limited(Some(Quota::per_second(1, 1)), None);
        assert_eq!(server.status("t-1", HERE).await, 200);
        assert_eq!(server.status("t-1", HERE).await, 429);
        for path in ["/api/v1/worker/poll", "/api/v1/worker/heartbeat", "/metrics", "/livez", "/readyz"] {
            for _ in 0..5 {
                let response = server.ask(path, "t-1", HERE).await;
                assert_eq!(response.status(), 200, "{path}");
                assert_eq!(rate_headers(&response), [None; 3], "{path}");
            }
        }
        for path in ["/api/v1/workers", "/api/v1/worker", "/metrics/", "/api/v1/jobs/worker/"] {
            assert_eq!(server.ask(path, "t-1", HERE).await.status(), 429, "{path}");
        }
    }

    #[tokio::test]
    async fn without_limits_nothing_is_counted() {
        let server = limited(None, None);
        for _ in 0..50 {
            let response = server.ask("/api/v1/jobs", "t-1", HERE).await;
            assert_eq!((response.status().as_u16(), rate_headers(&response)), (200, [None; 3]));
            assert_eq!(server.status("guess", HERE).await, 401);
        }
    }

    #[tokio::test]
    async fn guessing_is_refused_even_when_the_guess_is_right() {
        let server = limited(None, Some(Quota::per_second(1, 3)));
        for guess in ["", "a", "b"] {
            assert_eq!(server.status(guess, HERE).await, 401, "{guess}");
        }
        assert_eq!(server.status("c", HERE).await, 429);
        assert_eq!(server.status("", HERE).await, 429);
        let right = server.ask("/api/v1/jobs", "t-1", HERE).await;
        assert_eq!((right.status().as_u16(), number(&right, RETRY_AFTER)), (429, Some(1)));
        assert_eq!(server.traffic.limited_so_far(LimitKind::AuthFailures), 3);
        assert_eq!(server.status("t-1", ELSEWHERE).await, 200, "other addresses are not affected");
        server.clock.pass(Duration::from_secs(1));
        assert_eq!(server.status("t-1", HERE).await, 200, "refused requests did not count");
    }

    #[tokio::test]
    async fn tokens_that_were_valid_work_from_an_address_that_guesses() {
        let server = limited(None, Some(Quota::per_second(1, 3)));
        assert_eq!(server.status("t-1", HERE).await, 200);
        for guess in ["a", "b", "c"] {
            assert_eq!(server.status(guess, HERE).await, 401);
        }
        assert_eq!(server.status("t-2", HERE).await, 429);
        for _ in 0..5 {
            assert_eq!(server.status("t-1", HERE).await, 200);
        }
        // A token does not become known by a path that needs none.
        assert_eq!(server.ask("/livez", "t-2", HERE).await.status(), 200);
        assert_eq!(server.status("t-2", HERE).await, 429);
    }

    #[tokio::test]
    async fn a_rejected_credential_counts_whatever_the_status() {
        let quota = Quota::per_second(1, 1);
        let limits = RateLimits { requests: None, failures: Some(quota) };
        let limiter = RateLimiter::new(limits, Arc::new(Driven::default()), Arc::default());
        let router = Router::new()
            .fallback(async || CredentialRejected.mark("log in".into_response()))
            .layer(from_fn_with_state(limiter, limit_failures));
        let ask = async || {
            let request = axum::http::Request::get("/login").body(Body::empty()).unwrap();
            router.clone().call(request).await.unwrap().status().as_u16()
        };
        assert_eq!((ask().await, ask().await), (200, 429));
    }

    #[tokio::test]
    async fn addresses_of_one_ipv6_network_count_together() {
        let server = limited(None, Some(Quota::per_second(1, 2)));
        let ask = async |address: &str| {
            let mut request = axum::http::Request::get("/api/v1/jobs").body(Body::empty()).unwrap();
            request.extensions_mut().insert(Peer((address.parse::<IpAddr>().unwrap(), 1_234).into()));
            server.router.clone().call(request).await.unwrap().status().as_u16()
        };
        assert_eq!((ask("2001:db8::1").await, ask("2001:db8::2").await), (401, 401));
        assert_eq!((ask("2001:db8::3").await, ask("2001:db8:0:1::3").await), (429, 401));
        assert_eq!(
            (ask("::ffff:10.0.0.1").await, ask("10.0.0.1").await, ask("10.0.0.1").await),
            (401, 401, 429)
        );
    }

    #[test]
    fn known_credentials_are_bounded() {
        let proven = ProvenCredentials::default();
        let headers = |number: usize| {
            HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::try_from(number.to_string()).unwrap())])
        };
        for number in 0..=limits::PROVEN_CREDENTIALS_MAX {
            proven.insert(&headers(number));
        }
        assert!(proven.hashes().len() <= limits::PROVEN_CREDENTIALS_MAX);
        assert!(proven.has(&headers(limits::PROVEN_CREDENTIALS_MAX)));
        assert!(!proven.has(&headers(limits::PROVEN_CREDENTIALS_MAX + 1)));
    }

    #[test]
    fn seconds_are_rounded_up() {
        let secs = |ms| whole_secs(Duration::from_millis(ms));
        assert_eq!((secs(0), secs(1), secs(1_000), secs(1_001)), (0, 1, 1, 2));
    }
}
