//! The `http` job type: calls a URL and interprets the response.
//!
//! It owns the form of a call ([`payload`]), its permitted targets ([`punctual_outbound`]), its signature
//! ([`sign`]), the meaning of a response ([`answer`]) and the checkpoint for the next attempt
//! ([`checkpoint`]). It must not know slots or sessions: the worker enforces the attempt's timeout by
//! dropping the call and its connection. This is the only HTTP code in the worker, and the simulation does
//! not include it.

mod answer;
mod checkpoint;
mod payload;
mod sign;

pub use punctual_outbound::{Allow, OutboundError as HttpConfigError, ParseAllowError};
pub use sign::{EmptyKeyError, SigningKey};

use http_body_util::Full;
use hyper::Request;
use hyper::header::{self, HeaderName, HeaderValue};
use payload::HttpCall;
use punctual_core::ports::{Clock, ExecutionContext, Executor, Host, LogStream, Outcome, Task};
use punctual_core::trace_context::TraceContext;
use punctual_outbound::{AddressGuard, HttpClient};
use std::sync::Arc;

const USER_AGENT: &str = concat!("punctual/", env!("CARGO_PKG_VERSION"));
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
const SIGNATURE: HeaderName = HeaderName::from_static("punctual-signature");
const MICROS_PER_SECOND: i64 = 1_000_000;

/// The operator's settings for web calls.
#[derive(Debug, Clone, Default)]
pub struct HttpConfig {
    /// Permitted targets beyond the public internet.
    pub allow: Vec<Allow>,
    /// Signs the calls of jobs without their own key.
    pub signing_key: Option<SigningKey>,
    /// PEM certificates that are trusted in addition to the well-known ones.
    pub root_certificates_pem: Vec<u8>,
}

/// Runs `http` jobs.
pub struct HttpExecutor(Arc<HttpCaller>);

struct HttpCaller {
    client: HttpClient,
    signing_key: Option<SigningKey>,
    clock: Arc<dyn Clock>,
}

impl HttpExecutor {
    pub fn new(config: HttpConfig, host: &Host) -> Result<Self, HttpConfigError> {
        let tls = punctual_outbound::tls_config(&config.root_certificates_pem)?;
        Ok(HttpExecutor(Arc::new(HttpCaller {
            client: punctual_outbound::client(Arc::new(AddressGuard::new(config.allow)), tls, host),
            signing_key: config.signing_key,
            clock: host.clock.clone(),
        })))
    }
}

impl Executor for HttpExecutor {
    fn job_types(&self) -> Vec<String> {
        vec!["http".to_owned()]
    }

    fn execute(&self, context: ExecutionContext) -> Task<Outcome> {
        let caller = self.0.clone();
        Box::pin(async move { caller.run(&context).await })
    }
}

impl HttpCaller {
    async fn run(&self, context: &ExecutionContext) -> Outcome {
        let mut call = match HttpCall::from_payload(&context.assignment.payload) {
            Ok(call) => call,
            Err(error) => return Outcome::failed_for_good(error.to_string()),
        };
        tell_facts(&mut call, context);
        if let Err(left_out) = checkpoint::tell(&mut call, context.assignment.checkpoint.as_ref()) {
            context.logs.append(LogStream::Log, left_out).await;
        }
        if let Some(key) = call.key.as_ref().or(self.signing_key.as_ref()) {
            // Receivers compare it with their own clocks, so it is the system time, not a driven one.
            let unix_seconds = self.clock.wall().as_micros().div_euclid(MICROS_PER_SECOND);
            let signature = key.signature(unix_seconds, &call.body);
            call.headers.insert(SIGNATURE, plain_value(signature));
        }
        match self.client.request(request(&mut call)).await {
            Ok(response) => {
                let left = checkpoint::left(response.headers());
                let outcome = answer::judge(&call, response, &*self.clock).await;
                if let (Outcome::Failed { .. }, Some(left)) = (&outcome, left) {
                    checkpoint::save(left, context).await;
                }
                outcome
            }
            Err(error) => answer::not_answered(&call, &error),
        }
    }
}

/// Adds the facts that every handler gets, as headers.
fn tell_facts(call: &mut HttpCall, context: &ExecutionContext) {
    let assignment = &context.assignment;
    let execution = assignment.execution;
    let facts = [
        ("punctual-job-id", execution.occurrence.job.to_string()),
        ("punctual-execution-id", execution.to_string()),
        ("punctual-attempt", execution.attempt.to_string()),
        ("punctual-scheduled-time", assignment.scheduled_time.to_string()),
        ("punctual-deadline", context.deadline.to_string()),
    ];
    for (name, value) in facts {
        call.headers.insert(HeaderName::from_static(name), plain_value(value));
    }
    if let Some(context) = assignment.trace_context() {
        tell_trace(call, context);
    }
    call.default_header(IDEMPOTENCY_KEY, plain_value(assignment.idempotency_key().to_string()));
    call.default_header(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
}

/// A job that sets its own trace keeps it.
fn tell_trace(call: &mut HttpCall, context: &TraceContext) {
    if call.headers.contains_key(TRACEPARENT) {
        return;
    }
    call.headers.insert(TRACEPARENT, plain_value(context.traceparent()));
    if let Some(state) = context.tracestate() {
        call.headers.insert(TRACESTATE, plain_value(state.to_owned()));
    }
}

fn plain_value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("ids, numbers and times are printable")
}

/// Takes headers and body out of the call to build the request.
fn request(call: &mut HttpCall) -> Request<Full<hyper::body::Bytes>> {
    let mut request = Request::new(Full::new(std::mem::take(&mut call.body)));
    *request.method_mut() = call.method.clone();
    *request.uri_mut() = call.uri.clone();
    *request.headers_mut() = std::mem::take(&mut call.headers);
    request
}

#[cfg(test)]
mod tests {
    use super::*;
    use async_trait::async_trait;
    use punctual_core::ids::{Epoch, JobId};
    use punctual_core::notes::{Checkpoint, Progress};
    use punctual_core::ports::{Assignment, Random, Spawn};
    use punctual_core::ports::{
        BlobError, BlobSource, LogSink, NoteError, NoteSink, ResultSink, Stop, StopSignal,
    };
    use punctual_core::time::{Monotonic, Timestamp};
    use std::time::Duration;

    /// Tokio's time, which a test can pause.
    struct Tokio;

    impl Clock for Tokio {
        fn wall(&self) -> Timestamp {
            Timestamp::EPOCH
        }

        fn monotonic(&self) -> Monotonic {
            Monotonic::from_micros(0)
        }

        fn sleep(&self, duration: Duration) -> Task {
            Box::pin(tokio::time::sleep(duration))
        }
    }

    impl Random for Tokio {
        fn next_u64(&self) -> u64 {
            0
        }
    }

    impl Spawn for Tokio {
        fn spawn(&self, task: Task) {
            tokio::spawn(task);
        }
    }

    fn executor(allow: &[&str]) -> HttpExecutor {
        let host = Host {
            clock: Arc::new(Tokio),
            calendar: Arc::new(Tokio),
            random: Arc::new(Tokio),
            spawn: Arc::new(Tokio),
        };
        let allow = allow.iter().map(|text| text.parse().unwrap()).collect();
        HttpExecutor::new(HttpConfig { allow, ..HttpConfig::default() }, &host).unwrap()
    }

    fn context(payload: String) -> ExecutionContext {
        let assignment = Assignment {
            execution: JobId::new(Timestamp::EPOCH, 1).occurrence(1).attempt(1),
            epoch: Epoch::default(),
            job_version: 1,
            name: "call".to_owned(),
            job_type: "http".to_owned(),
            queue: "default".to_owned(),
            payload,
            timeout: Duration::from_secs(3_600),
            scheduled_time: Timestamp::EPOCH,
            available_at: Timestamp::EPOCH,
            rank: 0,
            checkpoint: None,
            result_overflow: Default::default(),
            trace: None,
        };
        ExecutionContext {
            assignment,
            deadline: Timestamp::EPOCH,
            logs: Arc::new(Alone),
            notes: Arc::new(Alone),
            results: Arc::new(Alone),
            stop: Arc::new(Alone),
        }
    }

    /// A context that discards logs and notes and never stops the handler.
    struct Alone;

    #[async_trait]
    impl NoteSink for Alone {
        fn progress(&self, _: Progress) {}

        async fn checkpoint(&self, _: Checkpoint) -> Result<(), NoteError> {
            Ok(())
        }
    }

    #[async_trait]
    impl ResultSink for Alone {
        async fn store(&self, _: Arc<dyn BlobSource>) -> Result<String, BlobError> {
            Err(BlobError::NotFound)
        }
    }

    #[async_trait]
    impl LogSink for Alone {
        async fn append(&self, _: LogStream, _: String) {}
    }

    #[async_trait]
    impl StopSignal for Alone {
        async fn requested(&self, _: Stop) {
            std::future::pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_greets_is_given_up_and_tried_again() {
        // The system accepts the connection, but no TLS handshake is answered.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let payload = format!("{{\"url\": \"https://{address}/\"}}");
        let outcome = executor(&["127.0.0.1"]).execute(context(payload)).await;
        let error = format!("GET {address}: cannot connect: no connection within 10 seconds");
        assert_eq!(outcome, Outcome::failed(error));
    }
}
