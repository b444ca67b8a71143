//! What comes in over HTTP: connections, and requests by the route that answered them. Routes are named by their
//! templates, so that there are as many as the API has.

use crate::Api;
use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use punctual_core::histogram::{Histogram, HistogramSnapshot, SHORT_US};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// The route of requests that no template matches.
const UNMATCHED: &str = "(none)";
/// The classes of status codes, from those that begin with 1 on.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// What a server and its API have seen since they started.
#[derive(Debug, Default)]
pub struct Traffic {
    open: AtomicU64,
    accepted: AtomicU64,
    failed: AtomicU64,
    routes: RwLock<BTreeMap<&'static str, BTreeMap<String, Arc<Answers>>>>,
}

/// What was answered on one route.
#[derive(Debug)]
struct Answers {
    by_class: [AtomicU64; CLASSES.len()],
    time: Histogram,
}

pub(super) struct TrafficSnapshot {
    pub open: u64,
    pub accepted: u64,
    pub failed: u64,
    pub routes: Vec<RouteSnapshot>,
}

pub(super) struct RouteSnapshot {
    pub method: &'static str,
    pub path: String,
    by_class: [u64; CLASSES.len()],
    pub time: HistogramSnapshot,
}

impl RouteSnapshot {
    /// The classes of status that occurred, with how often they did.
    pub fn by_class(&self) -> impl Iterator<Item = (&'static str, u64)> {
        CLASSES.into_iter().zip(self.by_class).filter(|(_, count)| *count > 0)
    }
}

impl Traffic {
    /// A connection has been accepted; it is open for as long as what is returned is kept.
    pub(crate) fn accepted(self: &Arc<Self>) -> OpenConnection {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
        OpenConnection(self.clone())
    }

    /// A connection could not be accepted.
    pub(crate) fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
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

/// Counts a request and how long its answer took.
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

/// Anybody may make up a method.
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
