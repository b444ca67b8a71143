//! A client of the HTTP API.

use crate::execution::{DeadLetterBody, ExecutionBody};
use crate::job::{BatchAnswer, JobBody, SubmitJob, SubmittedBody};
use crate::page::{ExecutionsPage, Page};
use crate::problem::Problem;
use crate::schedule::{PreviewBody, PreviewRequest};
use crate::stats::StatsBody;
use crate::{API_PREFIX, PriorityBody};
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::job::JobStatus;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::time::Duration;

/// How long one request may take, from connecting to the last byte of the answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Shorter than the server keeps an idle connection, so that a request does not meet a closing one.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// The first and the longest pause between two looks at a job that is waited for.
const WAIT_PAUSE_MIN: Duration = Duration::from_millis(20);
const WAIT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Speaks to one server. Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    server: String,
    token: String,
}

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{server} is not the address of a server: {problem}")]
    BadAddress { server: String, problem: String },
    /// No answer came: for anything that changes something, whether it happened is unknown.
    #[error("cannot reach the server at {server}")]
    Unreachable { server: String, source: reqwest::Error },
    /// The server answered with a problem.
    #[error("{0}")]
    Refused(Box<Problem>),
    #[error("the server's answer cannot be understood: {0}")]
    Unexpected(String),
}

impl ClientError {
    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            ClientError::Unreachable { .. } => true,
            ClientError::Refused(problem) => problem.status == 429 || problem.status >= 500,
            ClientError::BadAddress { .. } | ClientError::Unexpected(_) => false,
        }
    }

    pub fn is_not_found(&self) -> bool {
        matches!(self, ClientError::Refused(problem) if problem.status == 404)
    }
}

/// Which jobs to list. Everything left out matches all.
#[derive(Debug, Clone, Default, Serialize)]
pub struct JobFilter {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<JobStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<PriorityBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Where to read on in a list.
#[derive(Serialize)]
struct PageQuery<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<&'a str>,
}

#[derive(Serialize)]
struct BatchBody<'a, T> {
    jobs: &'a [T],
}

impl Client {
    /// A client for the server at this address (`127.0.0.1:7070` or `http://…`) that shows this token.
    pub fn new(server: &str, token: impl Into<String>) -> Result<Self, ClientError> {
        let server = server.trim_end_matches('/');
        let bad = |problem: String| ClientError::BadAddress { server: server.to_owned(), problem };
        let address = match server.split_once("://") {
            None => format!("http://{server}"),
            Some(("http", _)) => server.to_owned(),
            Some((scheme, _)) => return Err(bad(format!("{scheme} is not supported, use http"))),
        };
        let url = reqwest::Url::parse(&address).map_err(|error| bad(error.to_string()))?;
        let mut builder = reqwest::Client::builder();
        if is_this_machine(&url) {
            builder = builder.no_proxy();
        }
        let http = builder
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(REQUEST_TIMEOUT)
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .user_agent(concat!("punctual/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| bad(error.to_string()))?;
        Ok(Client { http, server: address, token: token.into() })
    }

    pub fn server(&self) -> &str {
        &self.server
    }

    pub async fn submit(&self, job: &SubmitJob) -> Result<SubmittedBody, ClientError> {
        self.send(self.request(Method::POST, "/jobs").json(job)).await
    }

    /// Submits many jobs at once, with an outcome per job, in their order.
    pub async fn submit_batch(&self, jobs: &[SubmitJob]) -> Result<BatchAnswer, ClientError> {
        self.send(self.request(Method::POST, "/jobs/batch").json(&BatchBody { jobs })).await
    }

    /// Submits a job as it was written: whether it is one, the server says.
    pub async fn submit_json(&self, job: &RawValue) -> Result<SubmittedBody, ClientError> {
        self.send(self.request(Method::POST, "/jobs").json(job)).await
    }

    /// Submits many jobs as they were written, with an outcome per job, in their order.
    pub async fn submit_batch_json(&self, jobs: &[Box<RawValue>]) -> Result<BatchAnswer, ClientError> {
        self.send(self.request(Method::POST, "/jobs/batch").json(&BatchBody { jobs })).await
    }

    pub async fn job(&self, id: JobId) -> Result<JobBody, ClientError> {
        self.send(self.request(Method::GET, &format!("/jobs/{id}"))).await
    }

    pub async fn jobs(&self, filter: &JobFilter) -> Result<Page<JobBody>, ClientError> {
        self.send(self.request(Method::GET, "/jobs").query(filter)).await
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

    pub async fn dead_letters(
        &self,
        limit: Option<usize>,
        cursor: Option<&str>,
    ) -> Result<Page<DeadLetterBody>, ClientError> {
        let query = PageQuery { limit, cursor };
        self.send(self.request(Method::GET, "/dead-letters").query(&query)).await
    }

    /// What a schedule means, and when it would fire.
    pub async fn preview(&self, schedule: &PreviewRequest) -> Result<PreviewBody, ClientError> {
        self.send(self.request(Method::POST, "/schedules/preview").json(schedule)).await
    }

    pub async fn stats(&self) -> Result<StatsBody, ClientError> {
        self.send(self.request(Method::GET, "/stats")).await
    }

    /// Looks at a job until it is finished. A recurring job without an end never is: bound the wait outside.
    pub async fn wait(&self, id: JobId) -> Result<JobBody, ClientError> {
        self.wait_watching(id, |_| {}).await
    }

    /// As [`Client::wait`], and shows the job after every look at it: whoever waits wants to hear what for.
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

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{API_PREFIX}{path}", self.server)).bearer_auth(&self.token)
    }

    async fn send<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ClientError> {
        let unreachable = |source| ClientError::Unreachable { server: self.server.clone(), source };
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let body = response.bytes().await.map_err(unreachable)?;
        if !status.is_success() {
            return Err(ClientError::Refused(Box::new(problem_of(status, &body))));
        }
        serde_json::from_slice(&body).map_err(|error| ClientError::Unexpected(error.to_string()))
    }
}

/// A proxy of the environment would look for this machine's server on its own.
fn is_this_machine(url: &reqwest::Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The problem in the body, or one made from the status when something else answered, such as a proxy.
fn problem_of(status: StatusCode, body: &[u8]) -> Problem {
    serde_json::from_slice(body).unwrap_or_else(|_| {
        Problem::new(status.as_u16(), status.canonical_reason().unwrap_or("the server refused"))
    })
}
