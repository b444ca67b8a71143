//! All errors of requests, and their problem+json responses.

use crate::rate_limit::whole_secs;
use crate::routes::refused;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use punctual_client::{API_PREFIX, Advice, ExecutionStatus, FieldError, Problem};
use punctual_core::documents::DocumentProblem;
use punctual_core::ids::{JobId, SessionId};
use punctual_core::job::InvalidField;
use punctual_core::limits;
use punctual_core::ports::{BlobError, DISK_FULL, StoreError, WorkerPortError};
use punctual_core::queue::QueueFull;
use punctual_engine::{Forbidden, Quota, SubmitError, UseCaseError, UsesFound};
use std::time::Duration;

/// Retry-After when the store is unreachable or the server is busy.
const RETRY_AFTER_SECS: u64 = 1;
/// Retry-After when a queue is full or no stream slot is free: these take longer to clear.
const LATER_RETRY_AFTER_SECS: u64 = 5;

/// The field name for errors about the whole body.
pub const BODY: &str = "body";

#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    #[error("the body is not valid JSON: {0}")]
    MalformedJson(String),
    /// Valid JSON, but not the object that the route expects.
    #[error("{title}: {detail}")]
    WrongShape { title: &'static str, detail: &'static str },
    #[error("the request has invalid fields")]
    InvalidFields(Vec<FieldError>),
    #[error("the query has invalid parameters")]
    InvalidQuery(Vec<FieldError>),
    #[error("the header {header} {detail}")]
    InvalidHeader { header: &'static str, detail: String },
    /// Another job has the same key.
    #[error("{detail}")]
    KeyTaken { detail: String, job: JobId },
    /// The queue has reached its size limit.
    #[error("the queue {queue} is full")]
    QueueFull { queue: String, full: QueueFull },
    /// The owner of the job has submitted as many jobs as it may.
    #[error("the submit quota of the owner {owner} is used up")]
    QuotaReached { owner: String, retry_after: Duration },
    /// The user or token has sent as many requests as it may.
    #[error("the rate limit is reached")]
    RateLimited { quota: Quota, retry_after: Duration },
    /// The address has sent too many requests without a valid token.
    #[error("too many requests without a valid token")]
    TooManyAuthFailures { retry_after: Duration },
    #[error("the job is now at version {version}")]
    VersionChanged { version: u32 },
    #[error("a token is needed: {0}")]
    Unauthorized(&'static str),
    #[error("the token may not do this: {0}")]
    Forbidden(String),
    /// The worker protocol needs a client certificate here.
    #[error("a client certificate is needed")]
    NoCertificate,
    /// A request with the cookie of a browser that a page of another site may have sent.
    #[error("a page of another site sent this request")]
    ForeignPage,
    /// The identity provider does not answer.
    #[error("the keys of the issuer cannot be fetched")]
    IssuerUnavailable,
    /// The request names a host that this server does not answer to.
    #[error("this server does not answer to the host {0}")]
    WrongHost(String),
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Conflict(String),
    /// A conflict with advice on how to resolve it.
    #[error("{detail}")]
    Advised { detail: String, advice: Vec<Advice> },
    #[error("the method is not allowed here")]
    MethodNotAllowed { allowed: String, described_in: &'static str },
    #[error("the body took too long to arrive")]
    BodyTimeout,
    #[error("the body could not be read: {0}")]
    BodyUnreadable(String),
    #[error("the body is larger than {limit_bytes} bytes")]
    BodyTooLarge { limit_bytes: usize },
    #[error("the body must be application/json")]
    NotJson,
    /// A page of this server sends forms to the path.
    #[error("the body must be a form")]
    NotForm,
    #[error("the body is not UTF-8")]
    NotUtf8,
    /// JSON on which parsers of the stored document would fail.
    #[error("the body {0}")]
    Document(DocumentProblem),
    #[error("the address is longer than {limit_bytes} bytes")]
    UriTooLong { limit_bytes: usize },
    /// The worker's session is lost, closed or unknown.
    #[error("the session is over")]
    SessionLost,
    /// The worker's poll sequence number was already used.
    #[error("the turn was used already")]
    StaleTurn,
    #[error("the server is stopping")]
    Stopping,
    #[error("the server is overloaded")]
    Overloaded,
    #[error("too many streams are open")]
    TooManyStreams,
    #[error("{0}")]
    Unavailable(String),
    /// The place of blobs cannot be reached or cannot write.
    #[error("blobs: {0}")]
    BlobsUnavailable(String),
    /// The store cannot write, because its disk is full.
    #[error("{}", StoreError::DiskFull)]
    DiskFull,
    /// The store failed a readiness probe; with its message.
    #[error("not ready: {0}")]
    NotReady(String),
    #[error("{0}")]
    Internal(String),
}

impl ApiError {
    /// One field of the request is invalid; `detail` follows its name: "must be …".
    pub fn field(field: impl Into<String>, detail: impl Into<String>) -> Self {
        ApiError::InvalidFields(vec![FieldError { field: field.into(), detail: detail.into() }])
    }

    pub fn invalid(mut problems: Vec<InvalidField>) -> Self {
        // A job's type defaults to its name, so the same problem in both is reported once.
        let name = problems.iter().find(|problem| problem.field == "name").map(|problem| problem.fix.clone());
        problems.retain(|problem| problem.field != "job_type" || Some(&problem.fix) != name.as_ref());
        let errors =
            problems.into_iter().map(|InvalidField { field, fix }| FieldError { field, detail: fix });
        ApiError::InvalidFields(errors.collect())
    }

    /// The same error within a part of the request: field names get the part as a prefix.
    pub fn within(mut self, part: &str) -> Self {
        if let ApiError::InvalidFields(errors) = &mut self {
            for error in errors {
                error.field =
                    if error.field == BODY { part.to_owned() } else { format!("{part}.{}", error.field) };
            }
        }
        self
    }

    /// Whether a part of a batch that failed with it may succeed later.
    pub fn may_pass(&self) -> bool {
        matches!(
            self,
            ApiError::Unavailable(_)
                | ApiError::DiskFull
                | ApiError::QueueFull { .. }
                | ApiError::QuotaReached { .. }
        )
    }

    pub fn problem(&self) -> Problem {
        let (status, title) = self.status_and_title();
        let mut problem = Problem::new(status.as_u16(), title);
        problem.retry_after_secs = self.retry_after_secs();
        match self {
            ApiError::InvalidFields(errors) | ApiError::InvalidQuery(errors) => {
                problem.detail = Some(summary(errors));
                problem.errors = errors.clone();
            }
            ApiError::InvalidHeader { header, detail } => {
                let error = FieldError { field: (*header).to_owned(), detail: detail.clone() };
                problem.detail = Some(summary(std::slice::from_ref(&error)));
                problem.errors = vec![error];
            }
            ApiError::KeyTaken { detail, job } => {
                problem.detail = Some(detail.clone());
                problem.job_id = Some(*job);
                problem.advice = vec![Advice::wait_for_job(*job), Advice::cancel_job(*job)];
            }
            ApiError::VersionChanged { version } => {
                problem.detail = Some(format!(
                    "the job is now at version {version}: read it again, and repeat the change for that \
                     version if it still applies"
                ));
                problem.version = Some(*version);
                problem.advice = vec![Advice::change_version(*version)];
            }
            ApiError::QueueFull { queue, full } => {
                problem.detail = Some(format!(
                    "the queue {queue} has depth {} (executions that have not started) and max_depth {}: \
                     submit the job again later, add workers for the queue, or raise max_depth",
                    full.depth, full.max_depth
                ));
                problem.advice = vec![Advice::set_queue(queue)];
            }
            ApiError::QuotaReached { owner, .. } => {
                problem.detail = Some(format!(
                    "the owner {owner} has submitted as many jobs as the server's submit_quota allows: submit the job \
                     again later"
                ));
            }
            ApiError::RateLimited { quota, .. } => {
                problem.detail = Some(format!(
                    "a user or token may send {} requests, and up to {} at once: the request was not processed; retry \
                     later",
                    quota.rate, quota.burst
                ));
            }
            ApiError::TooManyAuthFailures { .. } => {
                problem.detail = Some(
                    "too many requests without a valid token came from this address: the request was not processed; \
                     retry later"
                        .to_owned(),
                );
            }
            ApiError::Advised { detail, advice } => {
                problem.detail = Some(detail.clone());
                problem.advice = advice.clone();
            }
            ApiError::MalformedJson(detail)
            | ApiError::NotFound(detail)
            | ApiError::Conflict(detail)
            | ApiError::Forbidden(detail)
            | ApiError::NotReady(detail) => {
                problem.detail = Some(detail.clone());
            }
            ApiError::Unauthorized(detail) | ApiError::WrongShape { detail, .. } => {
                problem.detail = Some((*detail).to_owned());
            }
            ApiError::NoCertificate => {
                problem.detail = Some(
                    "this server demands a client certificate of workers: start the worker with --tls-client-cert \
                     and --tls-client-key"
                        .to_owned(),
                );
            }
            ApiError::ForeignPage => {
                problem.detail = Some(
                    "requests with a cookie that change something need Sec-Fetch-Site: same-origin or the Origin of \
                     this server; other programs send a token in the header Authorization"
                        .to_owned(),
                );
            }
            ApiError::IssuerUnavailable => {
                problem.detail = Some(
                    "the identity provider does not answer, and its keys are needed to verify the JWT: retry \
                     later, or use a token of this server"
                        .to_owned(),
                );
            }
            ApiError::WrongHost(host) => {
                problem.detail = Some(format!(
                    "the request names the host {host:?}, which this server does not answer to: use an IP \
                     address or a name of its certificate, or add the name to the server's allowed_hosts"
                ));
            }
            ApiError::BodyTooLarge { limit_bytes } => {
                problem.detail = Some(format!("send at most {limit_bytes} bytes in one request"));
            }
            ApiError::NotUtf8 => {
                problem.detail =
                    Some("JSON must be UTF-8; convert the body from any other encoding".to_owned());
            }
            ApiError::Document(found) => problem.detail = Some(format!("the body {}", found.requirement())),
            ApiError::UriTooLong { limit_bytes } => {
                problem.detail = Some(format!("path and query may have at most {limit_bytes} bytes"));
            }
            ApiError::Unavailable(_) => {
                problem.detail = Some(
                    "the store cannot be reached or cannot write now; whether the request took effect is \
                     unknown"
                        .to_owned(),
                );
            }
            ApiError::BlobsUnavailable(_) => {
                problem.detail =
                    Some("the place of blobs (blobs.url) cannot be read or written now".to_owned());
            }
            ApiError::DiskFull => {
                problem.detail = Some(format!(
                    "{DISK_FULL}, so that the server cannot store anything: free some space there, and retry; whether \
                     the request took effect is unknown"
                ));
            }
            ApiError::SessionLost => {
                problem.detail = Some(
                    "stop all handlers of this session and open a new one: its executions go to other \
                     workers"
                        .to_owned(),
                );
            }
            ApiError::StaleTurn => {
                problem.detail = Some(
                    "a later request of the session arrived first, or this is a duplicate of an answered \
                     request: continue with a higher turn"
                        .to_owned(),
                );
            }
            ApiError::Stopping => {
                problem.detail =
                    Some("it hands out no more work; ask again after it has restarted".to_owned())
            }
            ApiError::Overloaded => {
                problem.detail = Some("the request was not processed; retry later".to_owned())
            }
            ApiError::TooManyStreams => {
                problem.detail = Some(format!(
                    "at most {} event and log streams may be open at once: close one, or retry later",
                    limits::EVENT_LISTENERS_MAX
                ));
            }
            ApiError::Internal(_) => problem.detail = Some("see the server's log for details".to_owned()),
            ApiError::MethodNotAllowed { allowed, described_in } => {
                problem.detail = Some(format!("this path accepts {allowed}; {described_in}"));
            }
            ApiError::NotJson => {
                problem.detail = Some(
                    "send JSON with the header Content-Type: application/json; PATCH also accepts \
                     application/merge-patch+json"
                        .to_owned(),
                );
            }
            ApiError::NotForm => {
                problem.detail = Some(
                    "send it with the header Content-Type: application/x-www-form-urlencoded".to_owned(),
                );
            }
            ApiError::BodyTimeout | ApiError::BodyUnreadable(_) => {}
        }
        problem
    }

    /// After how many seconds a retry makes sense, if it does.
    fn retry_after_secs(&self) -> Option<u64> {
        match self {
            ApiError::Unavailable(_)
            | ApiError::BlobsUnavailable(_)
            | ApiError::DiskFull
            | ApiError::NotReady(_)
            | ApiError::Stopping
            | ApiError::Overloaded => Some(RETRY_AFTER_SECS),
            ApiError::QueueFull { .. } | ApiError::TooManyStreams | ApiError::IssuerUnavailable => {
                Some(LATER_RETRY_AFTER_SECS)
            }
            ApiError::QuotaReached { retry_after, .. }
            | ApiError::RateLimited { retry_after, .. }
            | ApiError::TooManyAuthFailures { retry_after } => Some(whole_secs(*retry_after).max(1)),
            _ => None,
        }
    }

    fn status_and_title(&self) -> (StatusCode, &'static str) {
        match self {
            ApiError::MalformedJson(_) => (StatusCode::BAD_REQUEST, "the body is not valid JSON"),
            ApiError::WrongShape { title, .. } => (StatusCode::UNPROCESSABLE_ENTITY, title),
            ApiError::InvalidFields(_) => {
                (StatusCode::UNPROCESSABLE_ENTITY, "the request has invalid fields")
            }
            ApiError::InvalidQuery(_) => (StatusCode::BAD_REQUEST, "the query has invalid parameters"),
            ApiError::InvalidHeader { .. } => (StatusCode::BAD_REQUEST, "the request has invalid headers"),
            ApiError::KeyTaken { .. } => (StatusCode::CONFLICT, "the unique_key is taken"),
            ApiError::QueueFull { .. } => (StatusCode::TOO_MANY_REQUESTS, "the queue is full"),
            ApiError::QuotaReached { .. } => (StatusCode::TOO_MANY_REQUESTS, "the submit quota is used up"),
            ApiError::RateLimited { .. } => (StatusCode::TOO_MANY_REQUESTS, "the rate limit is reached"),
            ApiError::TooManyAuthFailures { .. } => {
                (StatusCode::TOO_MANY_REQUESTS, "too many requests without a valid token")
            }
            ApiError::VersionChanged { .. } => {
                (StatusCode::PRECONDITION_FAILED, "the job has changed since it was read")
            }
            ApiError::Unauthorized(_) => (StatusCode::UNAUTHORIZED, "a valid token is needed"),
            ApiError::Forbidden(_) => (StatusCode::FORBIDDEN, "the token may not do this"),
            ApiError::NoCertificate => (StatusCode::FORBIDDEN, "a client certificate is needed"),
            ApiError::ForeignPage => (StatusCode::FORBIDDEN, "a page of another site sent this request"),
            ApiError::IssuerUnavailable => {
                (StatusCode::SERVICE_UNAVAILABLE, "the keys of the issuer cannot be fetched")
            }
            ApiError::WrongHost(_) => {
                (StatusCode::MISDIRECTED_REQUEST, "this server does not answer to this host")
            }
            ApiError::NotFound(_) => (StatusCode::NOT_FOUND, "not found"),
            ApiError::Conflict(_) | ApiError::Advised { .. } => {
                (StatusCode::CONFLICT, "the current state does not allow this")
            }
            ApiError::MethodNotAllowed { .. } => {
                (StatusCode::METHOD_NOT_ALLOWED, "the method is not allowed here")
            }
            ApiError::BodyTimeout => (StatusCode::REQUEST_TIMEOUT, "the body took too long to arrive"),
            ApiError::BodyUnreadable(_) => (StatusCode::BAD_REQUEST, "the body could not be read"),
            ApiError::BodyTooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "the body is too large"),
            ApiError::NotJson => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body must be application/json"),
            ApiError::NotForm => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body must be a form"),
            ApiError::NotUtf8 => (StatusCode::BAD_REQUEST, "the body is not UTF-8"),
            ApiError::Document(DocumentProblem::TooDeep) => {
                (StatusCode::BAD_REQUEST, "the body is nested too deeply")
            }
            ApiError::Document(_) => (StatusCode::BAD_REQUEST, "many JSON parsers would refuse the body"),
            ApiError::UriTooLong { .. } => (StatusCode::URI_TOO_LONG, "the address is too long"),
            ApiError::SessionLost => (StatusCode::GONE, "the session is over"),
            ApiError::StaleTurn => (StatusCode::CONFLICT, "the turn was used already"),
            ApiError::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "the server is stopping"),
            ApiError::Overloaded => (StatusCode::TOO_MANY_REQUESTS, "the server is overloaded"),
            ApiError::TooManyStreams => (StatusCode::SERVICE_UNAVAILABLE, "too many streams are open"),
            ApiError::Unavailable(_) | ApiError::BlobsUnavailable(_) | ApiError::DiskFull => {
                (StatusCode::SERVICE_UNAVAILABLE, "the store is unavailable")
            }
            ApiError::NotReady(_) => (StatusCode::SERVICE_UNAVAILABLE, "the server is not ready"),
            ApiError::Internal(_) => (StatusCode::INTERNAL_SERVER_ERROR, "the server failed"),
        }
    }
}

/// Why a thing was not removed.
fn in_use(what: &str, name: &str, found: &UsesFound) -> String {
    let UsesFound { named, count, jobs_read, has_unread_jobs } = found;
    let others = match count - named.len() {
        0 => String::new(),
        others => format!(" and {others} more"),
    };
    let unread = format!("only {jobs_read} unfinished jobs were read");
    let reason = match (count, has_unread_jobs) {
        (0, _) => format!("it is not known whether jobs use the {what} {name} ({unread})"),
        (_, true) => format!("the {what} {name} is in use by {}{others} ({unread})", named.join(", ")),
        (_, false) => format!("the {what} {name} is in use by {}{others}", named.join(", ")),
    };
    format!("{reason}: take it out of them first, or pass force=true (`--force`) to remove it nevertheless")
}

fn summary(errors: &[FieldError]) -> String {
    let parts: Vec<String> = errors.iter().map(|error| format!("{} {}", error.field, error.detail)).collect();
    parts.join("; ")
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::DiskFull => ApiError::DiskFull,
            StoreError::Unavailable(_) | StoreError::Denied(..) => ApiError::Unavailable(error.to_string()),
            StoreError::Broken(_) => ApiError::Internal(error.to_string()),
        }
    }
}

impl From<WorkerPortError> for ApiError {
    fn from(error: WorkerPortError) -> Self {
        match error {
            // Workers get the reason as a text.
            WorkerPortError::Unavailable(reason) if reason == StoreError::DiskFull.to_string() => {
                ApiError::DiskFull
            }
            WorkerPortError::Unavailable(reason) => ApiError::Unavailable(reason),
            WorkerPortError::SessionLost => ApiError::SessionLost,
            WorkerPortError::StaleTurn => ApiError::StaleTurn,
        }
    }
}

impl From<Forbidden> for ApiError {
    fn from(Forbidden(refusal): Forbidden) -> Self {
        ApiError::Forbidden(refusal)
    }
}

impl From<UseCaseError> for ApiError {
    fn from(error: UseCaseError) -> Self {
        match error {
            UseCaseError::Forbidden(error) => error.into(),
            UseCaseError::NoSuchJob(_)
            | UseCaseError::NoSuchOperation(_)
            | UseCaseError::NoSuchExecution(_)
            | UseCaseError::NoSuchWorker(_)
            | UseCaseError::NoSuchToken(_)
            | UseCaseError::NoSuchUser(_)
            | UseCaseError::NoSuchCalendar(_)
            | UseCaseError::NoSuchSecret(_)
            | UseCaseError::NoSuchDocument { .. }
            | UseCaseError::NoSuchJobType(_)
            | UseCaseError::NoResult(_)
            | UseCaseError::Blob(BlobError::NotFound) => ApiError::NotFound(error.to_string()),
            UseCaseError::Cipher(_) | UseCaseError::Undecryptable(_) => ApiError::Conflict(error.to_string()),
            UseCaseError::EmailTaken(_)
            | UseCaseError::DirectoryFull { .. }
            | UseCaseError::DocumentExists { .. } => ApiError::Conflict(error.to_string()),
            UseCaseError::LastAdmin(_) => ApiError::Conflict(format!(
                "{error}: create another one with the role admin first; `punctual serve --new-admin-token` replaces the \
                 token admin"
            )),
            UseCaseError::AmbiguousWorker { ref sessions, .. } => {
                let ids: Vec<String> = sessions.iter().map(SessionId::to_string).collect();
                ApiError::Conflict(format!("{error}: pass one of the session ids {}", ids.join(", ")))
            }
            UseCaseError::AmbiguousName { ref jobs, .. } => {
                let ids: Vec<String> = jobs.iter().map(JobId::to_string).collect();
                ApiError::Conflict(format!(
                    "{error}, and none of them was put by its name: keep one and rename or delete the others; they \
                     are {}",
                    ids.join(", ")
                ))
            }
            UseCaseError::NameNotSearched { .. } => ApiError::Conflict(format!(
                "{error}, and a new job could double its schedule: if there is none, submit the job with POST /jobs"
            )),
            UseCaseError::WorkerDraining { .. } => {
                ApiError::Conflict(format!("{error} and will close: start the worker again to give it work"))
            }
            UseCaseError::Refused { job, refusal } => refused(job, refusal),
            UseCaseError::ExecutionEnded(status) => ApiError::Conflict(format!(
                "the execution has already ended {}: it cannot be cancelled",
                ExecutionStatus::from(status)
            )),
            UseCaseError::InUse { what, name, found } => ApiError::Conflict(in_use(what, &name, &found)),
            UseCaseError::OccurrenceOpen(_) => ApiError::Conflict(format!(
                "{error}: wait until it has ended, or trigger its job to run it in addition"
            )),
            UseCaseError::NotHeld { .. } | UseCaseError::OperationEnded { .. } => {
                ApiError::Conflict(error.to_string())
            }
            UseCaseError::Invalid(problems) => ApiError::invalid(problems),
            // The path contains no name.
            UseCaseError::InvalidQueueName { queue, .. } if queue.is_empty() => {
                ApiError::NotFound("no queue is named".to_owned())
            }
            UseCaseError::InvalidQueueName { problem, .. } => ApiError::field("queue", problem),
            UseCaseError::QueueUnreadable { ref queue, .. } => {
                ApiError::Conflict(format!("{error}: set them again with PUT {API_PREFIX}/queues/{queue}"))
            }
            UseCaseError::Blob(BlobError::TooLarge { bytes_max }) => {
                ApiError::BodyTooLarge { limit_bytes: usize::try_from(bytes_max).unwrap_or(usize::MAX) }
            }
            UseCaseError::Blob(BlobError::Refused(reason)) => ApiError::Conflict(reason),
            UseCaseError::Blob(error @ BlobError::Damaged(_)) => ApiError::Internal(error.to_string()),
            UseCaseError::Blob(BlobError::Unavailable(reason)) => ApiError::BlobsUnavailable(reason),
            UseCaseError::Busy => ApiError::Conflict(format!("{error}: nothing was changed; try again")),
            UseCaseError::Worker(error) => error.into(),
            UseCaseError::StoreFailed(error) => error.into(),
        }
    }
}

impl From<SubmitError> for ApiError {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::Invalid(problems) => ApiError::invalid(problems),
            SubmitError::Forbidden(forbidden) => forbidden.into(),
            SubmitError::KeyTaken(job) => ApiError::KeyTaken {
                detail: format!(
                    "job {job} has this unique_key and is not finished: wait for that one, cancel it, or use \
                     another key"
                ),
                job,
            },
            SubmitError::QueueFull { queue, full } => ApiError::QueueFull { queue, full },
            SubmitError::QuotaReached { owner, retry_after } => ApiError::QuotaReached { owner, retry_after },
            SubmitError::Unreadable(_) => ApiError::Conflict(error.to_string()),
            SubmitError::Unavailable(StoreError::DiskFull) => ApiError::DiskFull,
            SubmitError::Unavailable(error) => ApiError::Unavailable(error.to_string()),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        match &self {
            ApiError::Internal(_) => tracing::error!(error = %self, "a request failed"),
            ApiError::Unavailable(_)
            | ApiError::BlobsUnavailable(_)
            | ApiError::DiskFull
            | ApiError::NotReady(_) => {
                tracing::warn!(error = %self, "a request failed");
            }
            _ => {}
        }
        let problem = self.problem();
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_string(&problem).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let ApiError::Unauthorized(_) = self {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = problem.retry_after_secs {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
