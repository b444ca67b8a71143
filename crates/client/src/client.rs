//! A client of the HTTP API.

use crate::clock::{ClockBody, ClockMoved, MoveClock};
use crate::dead_letter::{
    DeadLetterBody, DeadLetterFilter, DeadLetterSelection, DiscardAnswer, RedriveAnswer,
};
use crate::execution::{ExecutionBody, TriggerRequest};
use crate::explain::ExplainBody;
use crate::guard::Guard;
use crate::job::{BatchAnswer, JobBody, SubmitJob, SubmittedBody};
use crate::page::{ExecutionsPage, Page};
use crate::problem::Problem;
use crate::queue::{QueueBody, SetQueue};
use crate::retries::Retries;
use crate::schedule::{PreviewBody, PreviewRequest};
use crate::stats::StatsBody;
use crate::tls::{ClientTls, Distrust};
use crate::{API_PREFIX, IDEMPOTENCY_KEY};
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::trace_context::TraceContext;
use reqwest::header::{HeaderMap, IF_MATCH, RETRY_AFTER};
use reqwest::{Method, Request, RequestBuilder, StatusCode};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long one request may take, from connecting to the last byte of the response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Shorter than the server's idle timeout, so that a request does not use a connection that is being closed.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// The first and the longest pause between two reads of a job while waiting for it.
const WAIT_PAUSE_MIN: Duration = Duration::from_millis(20);
const WAIT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Talks to one server. Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    /// The server's address, for people.
    server: String,
    /// What the URLs of requests begin with.
    base: String,
    token: String,
    /// Where the token came from, for the error when it is rejected.
    token_origin: Option<String>,
    /// Where the address of the server came from, for the error when it cannot be reached.
    server_origin: Option<String>,
    /// The socket of the server, for the error when it cannot be reached.
    socket: Option<String>,
    /// Checks before each request whether the server may have it.
    pub(crate) guard: Guard,
    /// The `Idempotency-Key`, if any.
    request_key: Option<String>,
    /// The trace that requests belong to.
    trace: Option<TraceContext>,
    retries: Retries,
}

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{server} is not a server address: {problem}")]
    BadAddress { server: String, problem: String },
    /// No response: if the request changes something, it is unknown whether it took effect.
    #[error("cannot reach the server at {server}")]
    Unreachable { server: String, source: reqwest::Error },
    /// The server responded with a problem.
    #[error("{0}")]
    Refused(Box<Problem>),
    /// The response is not from Punctual but from another program at this port, or from a proxy. The problem
    /// is made from the status.
    #[error("the server at {server} is not Punctual ({} {})", problem.status, problem.title)]
    NotPunctual { server: String, problem: Box<Problem> },
    #[error("cannot parse the server's response: {0}")]
    Unexpected(String),
    /// Nothing was sent, because the check of [`Client::with_guard`] failed.
    #[error("{0}")]
    Untrusted(String),
}

impl ClientError {
    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            ClientError::Unreachable { .. } => true,
            ClientError::Refused(problem) => problem.status == 429 || problem.status >= 500,
            _ => false,
        }
    }

    /// How long to wait before a retry, if the server said so.
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds = self.problem()?.retry_after_secs?;
        Some(Duration::from_secs(seconds))
    }

    /// Whether the server was not reached because one of the two does not trust the other.
    pub fn distrust(&self) -> Option<Distrust> {
        match self {
            ClientError::Unreachable { source, .. } => Distrust::of(source),
            _ => None,
        }
    }

    pub fn is_not_found(&self) -> bool {
        matches!(self, ClientError::Refused(problem) if problem.status == 404)
    }

    fn refusal(&self) -> Option<&Problem> {
        match self {
            ClientError::Refused(problem) => Some(problem),
            _ => None,
        }
    }

    /// The problem that the server reported.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            ClientError::Refused(problem) | ClientError::NotPunctual { problem, .. } => Some(problem),
            _ => None,
        }
    }
}

/// The position and size of a page.
#[derive(Serialize)]
pub(crate) struct PageQuery<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cursor: Option<&'a str>,
}

#[derive(Serialize)]
struct BatchBody<'a, T> {
    jobs: &'a [T],
}

impl Client {
    /// A client for the server at this address (`127.0.0.1:7070`, `http://…` or `https://…`) that sends this
    /// token. It trusts certificates of well-known authorities.
    pub fn new(server: &str, token: impl Into<String>) -> Result<Self, ClientError> {
        Client::with_tls(server, token, &ClientTls::default())
    }

    /// The same, with its own certificate or authorities.
    pub fn with_tls(server: &str, token: impl Into<String>, tls: &ClientTls) -> Result<Self, ClientError> {
        let server = server.trim_end_matches('/');
        let bad = |problem: String| ClientError::BadAddress { server: server.to_owned(), problem };
        let address = match server.split_once("://") {
            None => format!("http://{server}"),
            Some(("http" | "https", _)) => server.to_owned(),
            Some((scheme, _)) => return Err(bad(format!("{scheme} is not supported, use http or https"))),
        };
        let url = reqwest::Url::parse(&address).map_err(|error| bad(error.to_string()))?;
        let mut builder = tls.http();
        if is_this_machine(&url) {
            builder = builder.no_proxy();
        }
        Client::built(builder, address.clone(), address, token.into())
    }

    /// A client for a server on this machine that listens on a Unix socket. `shown` is the name of the server for
    /// people.
    pub fn on_socket(
        socket: &Path,
        shown: impl Into<String>,
        token: impl Into<String>,
    ) -> Result<Self, ClientError> {
        let builder = ClientTls::default().http().unix_socket(socket);
        let client = Client::built(builder, shown.into(), "http://localhost".to_owned(), token.into())?;
        Ok(client.with_socket_name(socket.display().to_string()))
    }

    fn built(
        builder: reqwest::ClientBuilder,
        server: String,
        base: String,
        token: String,
    ) -> Result<Self, ClientError> {
        let http = builder
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(REQUEST_TIMEOUT)
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .user_agent(concat!("punctual/", env!("CARGO_PKG_VERSION")))
            .build();
        let http = http.map_err(|error| ClientError::BadAddress {
            server: server.clone(),
            problem: error.to_string(),
        })?;
        Ok(Client {
            http,
            server,
            base,
            token,
            token_origin: None,
            server_origin: None,
            socket: None,
            guard: Guard::default(),
            request_key: None,
            trace: None,
            retries: Retries::default(),
        })
    }

    /// The same client, with the origin of its token for the error when the server rejects it.
    pub fn with_token_origin(&self, origin: impl Into<String>) -> Client {
        Client { token_origin: Some(origin.into()), ..self.clone() }
    }

    /// The same for the address of the server.
    pub fn with_server_origin(&self, origin: impl Into<String>) -> Client {
        Client { server_origin: Some(origin.into()), ..self.clone() }
    }

    /// The same client, with another name for its socket in errors.
    pub fn with_socket_name(&self, name: impl Into<String>) -> Client {
        Client { socket: Some(name.into()), ..self.clone() }
    }

    pub fn server(&self) -> &str {
        &self.server
    }

    /// The same client, but its submits and triggers carry this `Idempotency-Key`: for 24 hours, repeating
    /// one changes nothing and returns the same response. Use a new key for every new operation.
    pub fn with_request_key(&self, key: impl Into<String>) -> Client {
        Client { request_key: Some(key.into()), ..self.clone() }
    }

    /// The same client, but it repeats a request for this long when the server asks for it. By default it does
    /// so for 30 seconds: after 429, because nothing was done, and after 503, if a repeat changes nothing
    /// (`GET`, `PUT` and `DELETE` without an expected version, and requests with a key). It waits for as long as
    /// the server asks, and at least for a growing pause.
    pub fn with_retry_time(&self, time_max: Duration) -> Client {
        Client { retries: Retries { time_max, ..self.retries.clone() }, ..self.clone() }
    }

    /// The same client, but its requests belong to a trace: these are the headers `traceparent` and `tracestate` of the
    /// W3C standard "Trace Context". An invalid `traceparent` is ignored.
    pub fn in_trace(&self, traceparent: &str, tracestate: &str) -> Client {
        Client { trace: TraceContext::of_headers(traceparent, tracestate), ..self.clone() }
    }

    /// The same client, but it passes on every answer.
    pub fn without_retries(&self) -> Client {
        self.with_retry_time(Duration::ZERO)
    }

    /// The same client, but it calls `notice` before each pause with the server's answer and the pause.
    pub fn when_waiting(&self, notice: impl Fn(&Problem, Duration) + Send + Sync + 'static) -> Client {
        let retries = Retries { notice: Some(Arc::new(notice)), ..self.retries.clone() };
        Client { retries, ..self.clone() }
    }

    /// Submits a job. If one with its `idempotency_key` exists, the response describes that one and says so.
    pub async fn submit(&self, job: &SubmitJob) -> Result<SubmittedBody, ClientError> {
        self.submit_body(job).await
    }

    /// Submits many jobs at once, with an outcome per job, in order.
    pub async fn submit_batch(&self, jobs: &[SubmitJob]) -> Result<BatchAnswer, ClientError> {
        self.send(self.once("/jobs/batch").json(&BatchBody { jobs })).await
    }

    /// Submits a job as JSON text; only the server validates it.
    pub async fn submit_json(&self, job: &RawValue) -> Result<SubmittedBody, ClientError> {
        self.submit_body(job).await
    }

    /// Submits many jobs as JSON text, with an outcome per job, in order.
    pub async fn submit_batch_json(&self, jobs: &[Box<RawValue>]) -> Result<BatchAnswer, ClientError> {
        self.send(self.once("/jobs/batch").json(&BatchBody { jobs })).await
    }

    /// Replaces a job's description. Pass an expected version to detect concurrent changes.
    pub async fn replace(
        &self,
        id: JobId,
        job: &impl Serialize,
        expected_version: Option<u32>,
    ) -> Result<JobBody, ClientError> {
        self.change(Method::PUT, id, job, expected_version).await
    }

    /// Changes only the fields that the patch names (RFC 7396; null resets a field to its default).
    pub async fn update(
        &self,
        id: JobId,
        patch: &impl Serialize,
        expected_version: Option<u32>,
    ) -> Result<JobBody, ClientError> {
        self.change(Method::PATCH, id, patch, expected_version).await
    }

    pub async fn delete(&self, id: JobId) -> Result<(), ClientError> {
        self.exchange(self.request(Method::DELETE, &format!("/jobs/{id}"))).await.map(|_| ())
    }

    /// Removes the thing at a path, with `force` also if something uses it.
    pub(crate) async fn remove(&self, path: String, force: bool) -> Result<(), ClientError> {
        let request = self.request(Method::DELETE, &path);
        let request = if force { request.query(&[("force", true)]) } else { request };
        self.exchange(request).await.map(drop)
    }

    /// Lets running executions finish and holds the rest.
    pub async fn pause(&self, id: JobId) -> Result<JobBody, ClientError> {
        self.send(self.request(Method::POST, &format!("/jobs/{id}/pause"))).await
    }

    pub async fn resume(&self, id: JobId) -> Result<JobBody, ClientError> {
        self.send(self.request(Method::POST, &format!("/jobs/{id}/resume"))).await
    }

    /// Stops firing, drops waiting executions and asks running ones to stop.
    pub async fn cancel(&self, id: JobId) -> Result<JobBody, ClientError> {
        self.send(self.request(Method::POST, &format!("/jobs/{id}/cancel"))).await
    }

    /// Runs the latest dead occurrence again; the `execution_id` in the response is the added attempt.
    pub async fn retry(&self, id: JobId) -> Result<JobBody, ClientError> {
        self.send(self.request(Method::POST, &format!("/jobs/{id}/retry"))).await
    }

    /// Adds an occurrence now; the schedule does not change.
    pub async fn trigger(&self, id: JobId, how: TriggerRequest) -> Result<ExecutionBody, ClientError> {
        self.send(self.once(&format!("/jobs/{id}/trigger")).json(&how)).await
    }

    /// Explains the job's state.
    pub async fn explain(&self, id: JobId) -> Result<ExplainBody, ClientError> {
        self.send(self.request(Method::GET, &format!("/jobs/{id}/explain"))).await
    }

    pub async fn job(&self, id: JobId) -> Result<JobBody, ClientError> {
        self.send(self.request(Method::GET, &format!("/jobs/{id}"))).await
    }

    pub async fn executions(
        &self,
        job: JobId,
        limit: Option<usize>,
        cursor: Option<&str>,
    ) -> Result<ExecutionsPage, ClientError> {
        let query = PageQuery { limit, cursor };
        self.send(self.request(Method::GET, &format!("/jobs/{job}/executions")).query(&query)).await
    }

    pub async fn execution(&self, id: ExecutionId) -> Result<ExecutionBody, ClientError> {
        self.send(self.request(Method::GET, &format!("/executions/{id}"))).await
    }

    /// Ends an execution that has not started, or asks a running one to stop.
    pub async fn cancel_execution(&self, id: ExecutionId) -> Result<ExecutionBody, ClientError> {
        self.send(self.request(Method::POST, &format!("/executions/{id}/cancel"))).await
    }

    pub async fn dead_letters(
        &self,
        filter: &DeadLetterFilter,
        limit: Option<usize>,
        cursor: Option<&str>,
    ) -> Result<Page<DeadLetterBody>, ClientError> {
        let query = PageQuery { limit, cursor };
        self.send(self.request(Method::GET, "/dead-letters").query(filter).query(&query)).await
    }

    /// Redrives dead letters, one bounded step of them.
    pub async fn redrive(&self, which: &DeadLetterSelection) -> Result<RedriveAnswer, ClientError> {
        self.send(self.request(Method::POST, "/dead-letters/redrive").json(which)).await
    }

    /// Deletes dead letters, one bounded step of them.
    pub async fn discard(&self, which: &DeadLetterSelection) -> Result<DiscardAnswer, ClientError> {
        self.send(self.request(Method::POST, "/dead-letters/discard").json(which)).await
    }

    /// Every queue that has live work, is paused or has settings. Reads all pages.
    pub async fn queues(&self) -> Result<Page<QueueBody>, ClientError> {
        self.all_pages("/queues").await
    }

    /// All pages of a list as one.
    pub(crate) async fn all_pages<T: DeserializeOwned>(&self, path: &str) -> Result<Page<T>, ClientError> {
        let mut all = Page { items: Vec::new(), next_cursor: None };
        loop {
            let query = PageQuery { limit: None, cursor: all.next_cursor.as_deref() };
            let page: Page<T> = self.send(self.request(Method::GET, path).query(&query)).await?;
            all.items.extend(page.items);
            all.next_cursor = page.next_cursor;
            if all.next_cursor.is_none() {
                return Ok(all);
            }
        }
    }

    pub async fn queue(&self, queue: &str) -> Result<QueueBody, ClientError> {
        self.send(self.request(Method::GET, &format!("/queues/{}", segment(queue)))).await
    }

    /// Replaces all settings of a queue.
    pub async fn set_queue(&self, queue: &str, settings: &SetQueue) -> Result<QueueBody, ClientError> {
        self.send(self.request(Method::PUT, &format!("/queues/{}", segment(queue))).json(settings)).await
    }

    /// Holds everything in this queue; running executions continue.
    pub async fn pause_queue(&self, queue: &str) -> Result<QueueBody, ClientError> {
        self.send(self.request(Method::POST, &format!("/queues/{}/pause", segment(queue)))).await
    }

    pub async fn resume_queue(&self, queue: &str) -> Result<QueueBody, ClientError> {
        self.send(self.request(Method::POST, &format!("/queues/{}/resume", segment(queue)))).await
    }

    /// A schedule in words, and when it would fire.
    pub async fn preview(&self, schedule: &PreviewRequest) -> Result<PreviewBody, ClientError> {
        self.send(self.request(Method::POST, "/schedules/preview").json(schedule)).await
    }

    /// The version of the server.
    pub async fn version(&self) -> Result<String, ClientError> {
        #[derive(Deserialize)]
        struct VersionBody {
            version: String,
        }
        Ok(self.send::<VersionBody>(self.request(Method::GET, "")).await?.version)
    }

    /// All metrics, in the Prometheus text format.
    pub async fn metrics(&self) -> Result<String, ClientError> {
        let request = self.anonymous("/metrics").bearer_auth(&self.token);
        let (_, body) = self.exchange(request).await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    pub async fn stats(&self) -> Result<StatsBody, ClientError> {
        self.send(self.request(Method::GET, "/stats")).await
    }

    pub async fn clock(&self) -> Result<ClockBody, ClientError> {
        self.send(self.request(Method::GET, "/clock")).await
    }

    /// Advances a manual server clock: everything on the way fires at its own time.
    pub async fn advance_clock(&self, way: &MoveClock) -> Result<ClockMoved, ClientError> {
        self.send(self.request(Method::POST, "/clock/advance").json(way)).await
    }

    /// Jumps a manual server clock: times in between count as missed.
    pub async fn jump_clock(&self, way: &MoveClock) -> Result<ClockMoved, ClientError> {
        self.send(self.request(Method::POST, "/clock/jump").json(way)).await
    }

    /// Waits until a job is finished. A recurring job without an end never is: apply a timeout outside.
    pub async fn wait(&self, id: JobId) -> Result<JobBody, ClientError> {
        self.wait_watching(id, |_| {}).await
    }

    /// Like [`Client::wait`], and passes the job to `seen` after every read, so that the caller can show
    /// what it waits for.
    pub async fn wait_watching(
        &self,
        id: JobId,
        mut seen: impl FnMut(&JobBody),
    ) -> Result<JobBody, ClientError> {
        let mut pause = WAIT_PAUSE_MIN;
        loop {
            let job = self.job(id).await?;
            seen(&job);
            if job.is_finished() {
                return Ok(job);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(WAIT_PAUSE_MAX);
        }
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("{}{API_PREFIX}{path}", self.base);
        let request = self.http.request(method, url).bearer_auth(&self.token);
        let Some(trace) = &self.trace else { return request };
        let request = request.header("traceparent", trace.traceparent());
        match trace.tracestate() {
            Some(state) => request.header("tracestate", state),
            None => request,
        }
    }

    /// A `GET` of any path of the server, without the token.
    pub fn anonymous(&self, path: &str) -> RequestBuilder {
        self.http.get(format!("{}{path}", self.base))
    }

    /// A request whose response the server stores, if it has a key.
    pub(crate) fn once(&self, path: &str) -> RequestBuilder {
        let request = self.request(Method::POST, path);
        match &self.request_key {
            Some(key) => request.header(IDEMPOTENCY_KEY, key),
            None => request,
        }
    }

    async fn submit_body(&self, job: &(impl Serialize + ?Sized)) -> Result<SubmittedBody, ClientError> {
        let (status, body) = self.exchange(self.once("/jobs").json(job)).await?;
        let submitted: SubmittedBody = self.parsed(status, &body)?;
        Ok(SubmittedBody { existing: status == StatusCode::OK, ..submitted })
    }

    async fn change(
        &self,
        method: Method,
        id: JobId,
        body: &impl Serialize,
        expected_version: Option<u32>,
    ) -> Result<JobBody, ClientError> {
        let mut request = self.request(method, &format!("/jobs/{id}")).json(body);
        if let Some(version) = expected_version {
            request = request.header(IF_MATCH, format!("\"{version}\""));
        }
        self.send(request).await
    }

    pub(crate) async fn send<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ClientError> {
        let (status, body) = self.exchange(request).await?;
        self.parsed(status, &body)
    }

    /// The status and body of a successful response.
    pub(crate) async fn exchange(
        &self,
        request: RequestBuilder,
    ) -> Result<(StatusCode, Vec<u8>), ClientError> {
        let response = self.answered(request).await?;
        let status = response.status();
        let body = response.bytes().await.map_err(|source| self.unreachable(source))?;
        Ok((status, body.into()))
    }

    /// A successful response whose body is still to be read.
    pub(crate) async fn answered(&self, request: RequestBuilder) -> Result<reqwest::Response, ClientError> {
        let mut request = request.build().map_err(|source| self.unreachable(source))?;
        let (began, mut sent) = (Instant::now(), 0);
        loop {
            let copy = self.retries.copy(&request);
            let refused = match self.answered_once(request).await {
                Ok(response) => return Ok(response),
                Err(refused) => refused,
            };
            sent += 1;
            let (Some(again), Some(problem)) = (copy, refused.refusal()) else { return Err(refused) };
            let Some(pause) = self.retries.pause(&again, problem, sent, began.elapsed()) else {
                return Err(refused);
            };
            self.retries.tell(problem, pause);
            tokio::time::sleep(pause).await;
            request = again;
        }
    }

    async fn answered_once(&self, request: Request) -> Result<reqwest::Response, ClientError> {
        self.guard.check().map_err(ClientError::Untrusted)?;
        let response = self.http.execute(request).await.map_err(|source| self.unreachable(source))?;
        let (status, retry_after) = (response.status(), retry_after(response.headers()));
        if status.is_success() {
            return Ok(response);
        }
        let body = response.bytes().await.map_err(|source| self.unreachable(source))?;
        let Some(mut problem) = problem_of(status, &body) else {
            return Err(self.not_punctual(status));
        };
        problem.retry_after_secs = problem.retry_after_secs.or(retry_after);
        if let (StatusCode::UNAUTHORIZED, Some(origin)) = (status, &self.token_origin) {
            let (detail, server) = (problem.detail.unwrap_or_default(), &self.server);
            // A context may name both.
            let named = self.server_origin.as_ref().filter(|named| *named != origin);
            let named = named
                .map(|named| format!(", and the address of the server from {named}"))
                .unwrap_or_default();
            let told = format!("{detail} at {server} (the token came from {origin}{named})");
            problem.detail = Some(told.trim_start().to_owned());
        }
        Err(ClientError::Refused(Box::new(problem)))
    }

    pub(crate) fn parsed<T: DeserializeOwned>(
        &self,
        status: StatusCode,
        body: &[u8],
    ) -> Result<T, ClientError> {
        serde_json::from_slice(body).map_err(|error| match serde_json::from_slice::<IgnoredAny>(body) {
            Ok(_) => ClientError::Unexpected(error.to_string()),
            Err(_) => self.not_punctual(status),
        })
    }

    fn not_punctual(&self, status: StatusCode) -> ClientError {
        ClientError::NotPunctual { server: self.told_server(), problem: Box::new(made_from(status)) }
    }

    /// The socket of the server, or its address and where it came from.
    fn told_server(&self) -> String {
        match (&self.socket, &self.server_origin) {
            (Some(socket), _) => socket.clone(),
            (None, Some(origin)) => format!("{} (from {origin})", self.server),
            (None, None) => self.server.clone(),
        }
    }

    pub(crate) fn unreachable(&self, source: reqwest::Error) -> ClientError {
        ClientError::Unreachable { server: self.told_server(), source }
    }
}

/// A name as one path segment.
pub(crate) fn segment(name: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_~".contains(byte);
    let mut text = String::with_capacity(name.len());
    for byte in name.as_bytes() {
        if plain(byte) {
            text.push(char::from(*byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// A proxy from the environment would look for a local server on its own machine.
fn is_this_machine(url: &reqwest::Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The seconds in the `Retry-After` header; a date, which only proxies send, is ignored.
fn retry_after(headers: &HeaderMap) -> Option<u64> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()
}

/// Statuses that a proxy, or an overloaded server, returns in place of Punctual.
const IN_ITS_PLACE: [StatusCode; 5] = [
    StatusCode::TOO_MANY_REQUESTS,
    StatusCode::INTERNAL_SERVER_ERROR,
    StatusCode::BAD_GATEWAY,
    StatusCode::SERVICE_UNAVAILABLE,
    StatusCode::GATEWAY_TIMEOUT,
];

/// The problem in the body, or one made from the status where that suffices; `None` if the response cannot
/// come from Punctual.
fn problem_of(status: StatusCode, body: &[u8]) -> Option<Problem> {
    let problem = serde_json::from_slice(body).ok();
    problem.or_else(|| IN_ITS_PLACE.contains(&status).then(|| made_from(status)))
}

fn made_from(status: StatusCode) -> Problem {
    Problem::new(status.as_u16(), status.canonical_reason().unwrap_or("the server rejected the request"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_punctual_is_told_from_what_stands_in_its_place() {
        let problem = br#"{"title": "no", "status": 404}"#;
        assert_eq!(problem_of(StatusCode::NOT_FOUND, problem).unwrap().title, "no");
        assert_eq!(problem_of(StatusCode::BAD_GATEWAY, b"<html>").unwrap().title, "Bad Gateway");
        assert_eq!(problem_of(StatusCode::NOT_FOUND, b"<html>"), None);
        assert_eq!(problem_of(StatusCode::NOT_IMPLEMENTED, b""), None);
    }

    #[test]
    fn a_name_stays_one_segment_of_a_path() {
        assert_eq!(segment("mail-eu_1"), "mail-eu_1");
        assert_eq!(segment("a/b c.ü"), "a%2Fb%20c%2E%C3%BC");
    }
}
