//! Sends spans to an OpenTelemetry collector: OTLP over HTTP with protobuf ([`otlp`]).
//!
//! Spans wait in a bounded queue, and one task sends them in batches. If the collector is slow or gone, the queue fills
//! and further spans are dropped and counted: nothing else waits. The operator has chosen the collector, so calls are
//! not guarded.

mod otlp;

use otlp::{ExportTraceServiceResponse, SpanSource};
use prost::Message;
use punctual_api::NodeInfo;
use punctual_client::ClientTls;
use punctual_config::exit::CliError;
use punctual_config::{TracingSettings, exposure};
use punctual_core::causes::in_full;
use punctual_core::limits;
use punctual_core::ports::{FinishedSpan, SpanFigures, SpanSink};
use punctual_engine::TracingConfig;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, StatusCode};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// Sends the spans of this process, as long as it exists.
#[derive(Debug, Default)]
pub struct SpanExporter {
    /// `None` if no collector is configured.
    running: Option<RunningExporter>,
}

#[derive(Debug)]
struct RunningExporter {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// The queue of spans, and what became of them.
#[derive(Debug)]
struct SpanQueue {
    spans: mpsc::Sender<FinishedSpan>,
    counts: Arc<SpanTotals>,
}

#[derive(Debug, Default)]
struct SpanTotals {
    exported: AtomicU64,
    dropped: AtomicU64,
}

impl SpanSink for SpanQueue {
    fn record(&self, span: FinishedSpan) {
        if self.spans.try_send(span).is_err() {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn figures(&self) -> SpanFigures {
        SpanFigures {
            exported: self.counts.exported.load(Ordering::Relaxed),
            dropped: self.counts.dropped.load(Ordering::Relaxed),
        }
    }
}

/// Starts to send spans, if a collector is configured. `origin` returns where a setting was found, for errors.
pub fn start(
    settings: &TracingSettings,
    origin: impl Fn(&str) -> String,
    info: &NodeInfo,
) -> Result<(Option<TracingConfig>, SpanExporter), CliError> {
    let Some(endpoint) = &settings.endpoint else { return Ok((None, SpanExporter::default())) };
    let client = client(settings, origin)?;
    let counts = Arc::new(SpanTotals::default());
    let (spans, waiting) = mpsc::channel(limits::SPANS_WAITING_MAX);
    let (stop, stopped) = oneshot::channel();
    let sender = SpanSender {
        client,
        url: endpoint.traces(),
        source: SpanSource {
            service: settings.service.0.clone(),
            instance: format!("{}-{}", info.host, info.pid),
            host: info.host.clone(),
        },
        counts: counts.clone(),
        pause: limits::SPANS_RETRY_MIN,
    };
    let task = tokio::spawn(sender.run(waiting, stopped));
    tracing::info!(endpoint = endpoint.traces(), sample = settings.sample.0.get(), "spans are sent");
    let config = TracingConfig { sink: Arc::new(SpanQueue { spans, counts }), sample: settings.sample.0 };
    Ok((Some(config), SpanExporter { running: Some(RunningExporter { stop, task }) }))
}

/// Checks the files that the settings name, as a start does.
pub fn check(settings: &TracingSettings, origin: impl Fn(&str) -> String) -> Result<(), CliError> {
    client(settings, origin).map(|_| ())
}

fn client(settings: &TracingSettings, origin: impl Fn(&str) -> String) -> Result<Client, CliError> {
    let wrong = |key: &str, path: &Path, problem: &dyn std::fmt::Display| {
        CliError::cannot_start(format!("{} {}: {problem}", origin(key), path.display()))
    };
    let tls = match &settings.ca_file {
        None => ClientTls::default(),
        Some(path) => {
            let pem = std::fs::read(path).map_err(|error| wrong("tracing.ca_file", path, &error))?;
            ClientTls::new(Some(&pem), None).map_err(|error| wrong("tracing.ca_file", path, &error))?
        }
    };
    let headers = match &settings.headers_file {
        None => HeaderMap::new(),
        Some(path) => {
            let key = "tracing.headers_file";
            let text = std::fs::read_to_string(path).map_err(|error| wrong(key, path, &error))?;
            if let Ok(Some(exposed)) = exposure(path) {
                tracing::warn!("{exposed}");
            }
            headers(&text).map_err(|problem| wrong(key, path, &problem))?
        }
    };
    tls.http()
        .default_headers(headers)
        .timeout(limits::SPANS_SEND_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("punctual/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| CliError::cannot_start(format!("tracing.endpoint cannot be used: {error}")))
}

impl SpanExporter {
    /// Sends what is waiting, for a bounded time.
    pub async fn flush(self) {
        let Some(RunningExporter { stop, task }) = self.running else { return };
        let _ = stop.send(());
        if tokio::time::timeout(limits::SPANS_FLUSH_MAX, task).await.is_err() {
            tracing::debug!("the last spans could not be sent in time");
        }
    }
}

/// The headers in a file.
fn headers(text: &str) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    let lines =
        text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    for (number, line) in lines {
        // The value may be a secret, so errors do not repeat it.
        let wrong = || format!("line {} must be a header as \"Name: value\"", number + 1);
        let (name, value) = line.split_once(':').ok_or_else(wrong)?;
        let name = HeaderName::try_from(name.trim()).map_err(|_| wrong())?;
        let mut value = HeaderValue::try_from(value.trim()).map_err(|_| wrong())?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Ok(headers)
}

struct SpanSender {
    client: Client,
    url: String,
    source: SpanSource,
    counts: Arc<SpanTotals>,
    /// The pause after the next failure.
    pause: Duration,
}

/// Why a batch was not accepted.
enum SendFailure {
    /// The same batch may be accepted later.
    Later(String),
    Never(String),
}

impl SpanSender {
    async fn run(mut self, mut waiting: mpsc::Receiver<FinishedSpan>, mut stopped: oneshot::Receiver<()>) {
        let mut batch = Vec::with_capacity(limits::SPANS_BATCH_MAX);
        loop {
            tokio::select! {
                biased;
                _ = &mut stopped => break,
                count = waiting.recv_many(&mut batch, limits::SPANS_BATCH_MAX) => if count == 0 { return },
            }
            let full = fill(&mut batch, &mut waiting);
            tokio::select! {
                biased;
                _ = &mut stopped => break,
                _ = tokio::time::timeout(limits::SPANS_BATCH_DELAY, full) => {}
            }
            tokio::select! {
                biased;
                _ = &mut stopped => break,
                () = self.send(&batch) => {}
            }
            batch.clear();
        }
        // What a request had already sent is sent once more: collectors ignore a span that they know.
        waiting.close();
        while !batch.is_empty() || waiting.recv_many(&mut batch, limits::SPANS_BATCH_MAX).await > 0 {
            if self.post(&batch).await.is_err() {
                return;
            }
            batch.clear();
        }
    }

    /// Sends a batch. If the collector does not accept it after several tries, its spans are lost.
    async fn send(&mut self, batch: &[FinishedSpan]) {
        for attempt in 1..=limits::SPANS_TRIES_MAX {
            let (problem, is_last) = match self.post(batch).await {
                Ok(()) => {
                    self.pause = limits::SPANS_RETRY_MIN;
                    return;
                }
                Err(SendFailure::Later(problem)) => (problem, attempt == limits::SPANS_TRIES_MAX),
                Err(SendFailure::Never(problem)) => (problem, true),
            };
            if is_last {
                self.dropped(batch.len() as u64);
                tracing::warn!(url = self.url, "spans were lost: {problem}");
            }
            // Further spans wait in the queue meanwhile, as long as there is room.
            tokio::time::sleep(self.pause).await;
            self.pause = (self.pause * 2).min(limits::SPANS_RETRY_MAX);
            if is_last {
                return;
            }
        }
    }

    async fn post(&self, batch: &[FinishedSpan]) -> Result<(), SendFailure> {
        let body = self.source.request(batch).encode_to_vec();
        let request = self.client.post(&self.url).header(CONTENT_TYPE, "application/x-protobuf").body(body);
        let response = request.send().await.map_err(|error| SendFailure::Later(in_full(&error)))?;
        let status = response.status();
        if !status.is_success() {
            let problem = format!("the collector answered {status}");
            return Err(if is_temporary(status) {
                SendFailure::Later(problem)
            } else {
                SendFailure::Never(problem)
            });
        }
        let answer = response.bytes().await.unwrap_or_default();
        let rejected = ExportTraceServiceResponse::decode(answer).map_or(0, |answer| answer.rejected());
        let rejected = rejected.min(batch.len() as u64);
        if rejected > 0 {
            tracing::warn!(url = self.url, count = rejected, "the collector rejected spans");
            self.dropped(rejected);
        }
        self.counts.exported.fetch_add(batch.len() as u64 - rejected, Ordering::Relaxed);
        Ok(())
    }

    fn dropped(&self, spans: u64) {
        self.counts.dropped.fetch_add(spans, Ordering::Relaxed);
    }
}

/// Collects until the batch is full.
async fn fill(batch: &mut Vec<FinishedSpan>, waiting: &mut mpsc::Receiver<FinishedSpan>) {
    while batch.len() < limits::SPANS_BATCH_MAX {
        let room = limits::SPANS_BATCH_MAX - batch.len();
        if waiting.recv_many(batch, room).await == 0 {
            return;
        }
    }
}

/// The status codes after which OTLP allows another try.
fn is_temporary(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_line_by_line_and_not_repeated_in_errors() {
        let read = headers("# for the collector\nAuthorization: Bearer a:b\n\nx-team:  jobs \n").unwrap();
        assert_eq!(read.get("authorization").unwrap(), "Bearer a:b");
        assert_eq!(read.get("x-team").unwrap(), "jobs");
        for wrong in ["secret", "bad name: secret", "a: secret\u{7f}"] {
            let problem = headers(&format!("a: b\n{wrong}")).unwrap_err();
            assert_eq!(problem, "line 2 must be a header as \"Name: value\"", "{wrong}");
        }
    }
}
