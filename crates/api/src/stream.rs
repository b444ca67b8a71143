//! Answers that go on: server-sent events, one after the other, until one side leaves.
//!
//! A stream holds at most a few events that its client has not read yet: whoever writes waits, and the
//! connection is cut when the client reads nothing for as long as the server's write timeout.

use crate::Api;
use crate::error::ApiError;
use axum::body::{Body, Bytes};
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use futures_util::stream::unfold;
use punctual_core::limits;
use punctual_core::time::Monotonic;
use serde::Serialize;
use std::convert::Infallible;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// How often a stream that has nothing to say shows that it is alive.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(15);
/// Events that wait for a client to read them; whoever writes more waits.
const EVENTS_WAITING_MAX: usize = 16;

/// Bounds how many streams one server has open.
#[derive(Clone)]
pub struct StreamPlaces(Arc<Semaphore>);

impl Default for StreamPlaces {
    fn default() -> Self {
        StreamPlaces(Arc::new(Semaphore::new(limits::EVENT_LISTENERS_MAX)))
    }
}

/// The media type of server-sent events.
const EVENT_STREAM: &str = "text/event-stream";

/// Whether the client asks for events before anything else.
pub fn is_accepted(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    accept.trim_start().to_ascii_lowercase().starts_with(EVENT_STREAM)
}

/// The id of the event that a client, which has lost its connection, saw last.
pub fn last_event_id(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let Some(seen) = headers.get(LAST_EVENT_ID) else { return Ok(None) };
    let seen = seen.to_str().map_err(|_| foreign_event_id())?;
    Ok(Some(seen).filter(|id| !id.is_empty()))
}

/// What to say of an id that another stream has made.
pub fn foreign_event_id() -> ApiError {
    let detail = "must be the id of an event of this same stream".to_owned();
    ApiError::InvalidHeader { header: LAST_EVENT_ID, detail }
}

const LAST_EVENT_ID: &str = "Last-Event-ID";

pub struct Answer;

impl Answer {
    /// An answer that `write` writes until it ends, the client leaves, or the server stops.
    pub fn open<F>(api: &Api, write: impl FnOnce(Stream) -> F) -> Result<Response, ApiError>
    where
        F: Future<Output = Option<()>> + Send + 'static,
    {
        let place = api.streams.0.clone().try_acquire_owned().map_err(|_| ApiError::TooManyStreams)?;
        let (sender, receiver) = mpsc::channel(EVENTS_WAITING_MAX);
        let goodbye = sender.clone();
        let ending = api.clone();
        let said_at = api.clock.monotonic();
        let writing = write(Stream { api: api.clone(), sender, said_at, place });
        tokio::spawn(async move {
            tokio::select! {
                biased;
                _ = writing => {}
                () = goodbye.closed() => {}
                () = ending.ending() => {
                    let end = event("stop", None, r#"{"detail":"the server stops; connect again and go on"}"#);
                    let _ = goodbye.send(end).await;
                }
            }
        });
        let body = unfold(receiver, async |mut receiver: mpsc::Receiver<Bytes>| {
            let bytes = receiver.recv().await?;
            Some((Ok::<_, Infallible>(bytes), receiver))
        });
        let mut response = Response::new(Body::from_stream(body));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        // Proxies of the nginx family would otherwise gather events before they pass them on.
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        Ok(response)
    }
}

/// The writing side of a stream. Everything answers `None` once nobody reads any more.
pub struct Stream {
    api: Api,
    sender: mpsc::Sender<Bytes>,
    /// When something was sent last.
    said_at: Monotonic,
    #[expect(dead_code, reason = "held as long as the stream is open")]
    place: OwnedSemaphorePermit,
}

impl Stream {
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Sends an event, with the id that a client comes back with if it has one.
    pub async fn send(&mut self, kind: &str, id: Option<&str>, body: &impl Serialize) -> Option<()> {
        let data = serde_json::to_string(body).ok()?;
        self.say(event(kind, id, &data)).await
    }

    /// Moves on what a client comes back with, without an event: readers keep the last id they saw.
    pub async fn mark(&mut self, id: Option<&str>) -> Option<()> {
        let mut text = String::new();
        if let Some(id) = id {
            let _ = writeln!(text, "id: {id}");
        }
        text.push('\n');
        self.say(text.into()).await
    }

    /// Waits for something, at most so long; `Some(None)` if the time was up first. Shows now and then that the
    /// stream is alive.
    pub async fn wait<T>(&mut self, what: impl Future<Output = T>, most: Duration) -> Option<Option<T>> {
        let clock = self.api.clock.clone();
        if clock.monotonic().since(self.said_at) >= HEARTBEAT_INTERVAL {
            self.say(Bytes::from_static(b": alive\n\n")).await?;
        }
        tokio::select! {
            biased;
            () = self.sender.closed() => None,
            happened = what => Some(Some(happened)),
            () = clock.sleep(most) => Some(None),
        }
    }

    /// Waits so long, unless the client leaves.
    pub async fn pause(&mut self, time: Duration) -> Option<()> {
        self.wait(std::future::pending::<()>(), time).await.map(|_| ())
    }

    async fn say(&mut self, bytes: Bytes) -> Option<()> {
        self.sender.send(bytes).await.ok()?;
        self.said_at = self.api.clock.monotonic();
        Some(())
    }
}

fn event(kind: &str, id: Option<&str>, data: &str) -> Bytes {
    let mut text = String::with_capacity(data.len() + 64);
    let _ = writeln!(text, "event: {kind}");
    if let Some(id) = id {
        let _ = writeln!(text, "id: {id}");
    }
    // JSON has no line breaks outside of its strings, and there they are escaped.
    let _ = writeln!(text, "data: {data}\n");
    text.into()
}
