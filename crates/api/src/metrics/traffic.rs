//! HTTP traffic: connections, and requests by route. Routes are labelled by their templates, so that their
//! number is bounded by the API.

use crate::Api;
use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use punctual_core::histogram::{Histogram, HistogramSnapshot, SHORT_US};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// The route label of requests that match no template.
const UNMATCHED: &str = "(none)";
/// The classes of status codes, starting with 1xx.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// A rate limit that refuses requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitKind {
    /// Of one user or token.
    Requests,
    /// Of requests without a valid token from one address.
    AuthFailures,
}

impl LimitKind {
    const ALL: [LimitKind; 2] = [LimitKind::Requests, LimitKind::AuthFailures];

    /// Its label: the setting of the limit.
    pub(super) const fn word(self) -> &'static str {
        match self {
            LimitKind::Requests => "rate_limit",
            LimitKind::AuthFailures => "auth_failure_limit",
        }
    }
}

/// The traffic of a server and its API since they started.
#[derive(Debug, Default)]
pub struct Traffic {
    open: AtomicU64,
    accepted: AtomicU64,
    failed: AtomicU64,
    handshakes_failed: AtomicU64,
    reloads_failed: AtomicU64,
    limited: [AtomicU64; LimitKind::ALL.len()],
    routes: RwLock<BTreeMap<&'static str, BTreeMap<String, Arc<Answers>>>>,
}

/// The responses of one route.
#[derive(Debug)]
struct Answers {
    by_class: [AtomicU64; CLASSES.len()],
    time: Histogram,
}

pub(super) struct TrafficSnapshot {
    pub open: u64,
    pub accepted: u64,
    pub failed: u64,
    pub handshakes_failed: u64,
    pub reloads_failed: u64,
    /// Requests that a rate limit has refused.
    pub limited: [(LimitKind, u64); LimitKind::ALL.len()],
    pub routes: Vec<RouteSnapshot>,
}

pub(super) struct RouteSnapshot {
    pub method: &'static str,
    pub path: String,
    by_class: [u64; CLASSES.len()],
    pub time: HistogramSnapshot,
}

impl RouteSnapshot {
    /// The status classes that occurred, with their counts.
    pub fn by_class(&self) -> impl Iterator<Item = (&'static str, u64)> {
        CLASSES.into_iter().zip(self.by_class).filter(|(_, count)| *count > 0)
    }
}

impl Traffic {
    /// Counts an accepted connection as open until the returned guard is dropped.
    pub(crate) fn accepted(self: &Arc<Self>) -> OpenConnection {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
        OpenConnection(self.clone())
    }

    /// Counts a failed accept.
    pub(crate) fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a failed TLS handshake.
    pub(crate) fn handshake_failed(&self) {
        self.handshakes_failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a changed certificate that could not be used.
    pub fn reload_failed(&self) {
        self.reloads_failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that a rate limit has refused.
    pub(crate) fn limited(&self, kind: LimitKind) {
        self.limited[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn limited_so_far(&self, kind: LimitKind) -> u64 {
        self.limited[kind as usize].load(Ordering::Relaxed)
    }

    fn answers(&self, method: &'static str, path: &str) -> Arc<Answers> {
        let known = self.routes.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(answers) = known.get(method).and_then(|paths| paths.get(path)) {
            return answers.clone();
        }
        drop(known);
        let mut routes = self.routes.write().unwrap_or_else(PoisonError::into_inner);
        let paths = routes.entry(method).or_default();
        let new = || Arc::new(Answers { by_class: Default::default(), time: Histogram::new(SHORT_US) });
        paths.entry(path.to_owned()).or_insert_with(new).clone()
    }

    pub(super) fn snapshot(&self) -> TrafficSnapshot {
        let known = self.routes.read().unwrap_or_else(PoisonError::into_inner);
        let each = known.iter().flat_map(|(method, paths)| paths.iter().map(move |path| (*method, path)));
        let routes = each.map(|(method, (path, answers))| RouteSnapshot {
            method,
            path: path.clone(),
            by_class: std::array::from_fn(|class| answers.by_class[class].load(Ordering::Relaxed)),
            time: answers.time.snapshot(),
        });
        TrafficSnapshot {
            open: self.open.load(Ordering::Relaxed),
            accepted: self.accepted.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            handshakes_failed: self.handshakes_failed.load(Ordering::Relaxed),
            reloads_failed: self.reloads_failed.load(Ordering::Relaxed),
            limited: LimitKind::ALL.map(|kind| (kind, self.limited_so_far(kind))),
            routes: routes.collect(),
        }
    }
}

/// Counts a connection for as long as it is open.
#[derive(Debug)]
pub(crate) struct OpenConnection(Arc<Traffic>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts a request and its response time.
pub async fn count(State(api): State<Api>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>();
    let answers =
        api.traffic.answers(method_name(request.method()), path.map_or(UNMATCHED, MatchedPath::as_str));
    let began = api.clock.monotonic();
    let response = next.run(request).await;
    answers.time.observe_duration(api.clock.monotonic().since(began));
    let class = usize::from(response.status().as_u16() / 100).clamp(1, CLASSES.len()) - 1;
    answers.by_class[class].fetch_add(1, Ordering::Relaxed);
    response
}

/// Clients can send any method, so unknown ones share a label.
fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => "(other)",
    }
}
