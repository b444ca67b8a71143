//! Streaming responses: server-sent events until one side closes.
//!
//! A stream ends when its caller may do something else than at its start. It checks that before every event, so
//! that it sends nothing which its caller no longer sees, and from time to time while there are no events.
//! A stream buffers at most a few events that its client has not read: then the writer waits, and the
//! connection is cut when the client reads nothing for the server's write timeout.

use crate::Api;
use crate::auth::{Call, Credential};
use crate::cursors;
use crate::error::ApiError;
use axum::body::{Body, Bytes};
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use futures_util::stream::unfold;
use punctual_core::access::Grant;
use punctual_core::limits;
use punctual_core::time::Monotonic;
use serde::Serialize;
use std::convert::Infallible;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// How often an idle stream sends a heartbeat.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(15);
/// How often a stream without events verifies that its caller may still do the same as before, with the store and not
/// from a cache. A revoked token must have no stream after 15 seconds.
const RECHECK_INTERVAL: Duration = Duration::from_secs(10);
/// How long an event waits after the store could not say whether the caller may see it.
const ERROR_PAUSE: Duration = Duration::from_secs(1);
/// Events that wait for a client to read them; beyond that the writer waits.
const EVENTS_WAITING_MAX: usize = 16;

/// Bounds the number of open streams of one server.
#[derive(Clone)]
pub struct StreamPlaces(Arc<Semaphore>);

impl Default for StreamPlaces {
    fn default() -> Self {
        StreamPlaces(Arc::new(Semaphore::new(limits::EVENT_LISTENERS_MAX)))
    }
}

/// The media type of server-sent events.
const EVENT_STREAM: &str = "text/event-stream";

/// The last event of a stream whose caller has changed.
const NO_LONGER_ALLOWED: &str = r#"{"detail":"the token is no longer valid, or may do something else now"}"#;

/// Whether the client prefers server-sent events.
pub fn is_accepted(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    accept.trim_start().to_ascii_lowercase().starts_with(EVENT_STREAM)
}

/// The id of the last event that a reconnecting client saw, as a readable cursor.
pub async fn last_event_id(api: &Api, headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(seen) = headers.get(LAST_EVENT_ID) else { return Ok(None) };
    match seen.to_str().map_err(|_| foreign_event_id())? {
        "" => Ok(None),
        seen => cursors::opened(api, seen.to_owned()).await.map(Some),
    }
}

/// The error for an id of another stream.
pub fn foreign_event_id() -> ApiError {
    let detail = "must be the id of an event of this same stream".to_owned();
    ApiError::InvalidHeader { header: LAST_EVENT_ID, detail }
}

const LAST_EVENT_ID: &str = "Last-Event-ID";

pub struct StreamResponse;

impl StreamResponse {
    /// A response that `write` produces until it ends, the client disconnects, the server stops, or the caller
    /// may no longer see it.
    pub fn open<F>(call: &Call, write: impl FnOnce(Stream) -> F) -> Result<Response, ApiError>
    where
        F: Future<Output = Option<()>> + Send + 'static,
    {
        let api = &call.api;
        let place = api.streams.0.clone().try_acquire_owned().map_err(|_| ApiError::TooManyStreams)?;
        let (sender, receiver) = mpsc::channel(EVENTS_WAITING_MAX);
        let goodbye = sender.clone();
        let ending = api.clone();
        let said_at = api.clock.monotonic();
        let viewer = Viewer { grant: call.cases.caller().grant.clone(), credential: call.credential.clone() };
        let stream =
            Stream { api: api.clone(), viewer: viewer.clone(), sender, said_at, resume_after: None, place };
        let writing = write(stream);
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = viewer.has_changed(&ending) => {
                    // A client that does not read gets none.
                    let _ = goodbye.try_send(event("stop", None, NO_LONGER_ALLOWED));
                }
                _ = writing => {}
                () = goodbye.closed() => {}
                () = ending.ending() => {
                    let end = event("stop", None, r#"{"detail":"the server is stopping; reconnect to continue"}"#);
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
        // nginx would otherwise buffer events before it passes them on.
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        Ok(response)
    }
}

/// The caller of a stream, as it was when the stream began.
#[derive(Clone)]
struct Viewer {
    grant: Grant,
    credential: Credential,
}

impl Viewer {
    /// Waits until the caller is gone, or may do something else than before. While the store does not answer,
    /// nothing can be said about it, and the stream has nothing to send either.
    async fn has_changed(&self, api: &Api) {
        loop {
            api.clock.sleep(RECHECK_INTERVAL).await;
            match self.credential.fresh(api).await {
                Ok(Some(now)) if now.grant == self.grant => {}
                Ok(_) => return,
                Err(error) => tracing::debug!(%error, "cannot verify the caller of a stream"),
            }
        }
    }

    /// Whether the caller may do the same as before: after a change on this node exactly, and elsewhere as of a few
    /// seconds ago. Waits while the store does not answer.
    async fn is_unchanged(&self, api: &Api) -> bool {
        loop {
            match self.credential.caller(api).await {
                Ok(now) => return now.grant == self.grant,
                Err(ApiError::Unauthorized(_) | ApiError::IssuerUnavailable) => return false,
                Err(error) => tracing::debug!(%error, "cannot verify the caller of a stream"),
            }
            api.clock.sleep(ERROR_PAUSE).await;
        }
    }
}

/// The writing side of a stream. All methods return `None` once the client has disconnected or may no longer see it.
pub struct Stream {
    api: Api,
    viewer: Viewer,
    sender: mpsc::Sender<Bytes>,
    /// When the last bytes were sent.
    said_at: Monotonic,
    /// The id that heartbeats carry.
    resume_after: Option<String>,
    #[expect(dead_code, reason = "held as long as the stream is open")]
    place: OwnedSemaphorePermit,
}

impl Stream {
    /// Sends an event, with its id if it has one; a client reconnects with that id.
    pub async fn send(&mut self, kind: &str, id: Option<&str>, body: &impl Serialize) -> Option<()> {
        let data = serde_json::to_string(body).ok()?;
        self.say(event(kind, id, &data)).await
    }

    /// Advances the id that a client reconnects with, without an event: readers keep the last id they saw.
    pub async fn mark(&mut self, id: &str) -> Option<()> {
        self.say(format!("id: {id}\n\n").into()).await
    }

    /// Sets the id that a client reconnects with after the next heartbeat.
    pub async fn resume_after(&mut self, id: String) -> Option<()> {
        self.resume_after = Some(id);
        self.beat().await
    }

    /// Sends a heartbeat if nothing was sent for a while: an event, because scripts in browsers see no comments.
    async fn beat(&mut self) -> Option<()> {
        if self.api.clock.monotonic().since(self.said_at) < HEARTBEAT_INTERVAL {
            return Some(());
        }
        let heartbeat = event("heartbeat", self.resume_after.as_deref(), "{}");
        self.say(heartbeat).await
    }

    /// Waits for a future, at most this long; `Some(None)` on timeout. Sends heartbeats meanwhile.
    pub async fn wait<T>(&mut self, what: impl Future<Output = T>, most: Duration) -> Option<Option<T>> {
        self.beat().await?;
        let clock = self.api.clock.clone();
        tokio::select! {
            biased;
            () = self.sender.closed() => None,
            happened = what => Some(Some(happened)),
            () = clock.sleep(most) => Some(None),
        }
    }

    /// Waits this long, unless the client disconnects.
    pub async fn pause(&mut self, time: Duration) -> Option<()> {
        self.wait(std::future::pending::<()>(), time).await.map(|_| ())
    }

    /// A slow client waits for room first, so that the check is made when its event is sent.
    async fn say(&mut self, bytes: Bytes) -> Option<()> {
        let room = self.sender.reserve().await.ok()?;
        if !self.viewer.is_unchanged(&self.api).await {
            room.send(event("stop", None, NO_LONGER_ALLOWED));
            return None;
        }
        room.send(bytes);
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
    // JSON has no line breaks outside strings, and inside they are escaped.
    let _ = writeln!(text, "data: {data}\n");
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The guide on users and access promises it.
    const ENDS_WITHIN: Duration = Duration::from_secs(15);

    #[test]
    fn a_stream_without_events_is_checked_more_often_than_it_must_end() {
        assert!(RECHECK_INTERVAL < ENDS_WITHIN);
    }
}
