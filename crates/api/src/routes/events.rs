//! A stream of server-sent events about executions.
//!
//! Events about finished executions carry their position in history as their id. A client that reconnects with
//! that id misses nothing, however long it was away, as long as history is retained. Open executions have no
//! position: the stream reports them when they change, and a client that connects or falls behind gets all
//! that are running.

use crate::auth::Call;
use crate::cursors::{CursorWriter, place_in};
use crate::error::ApiError;
use crate::query::QueryParams;
use crate::stream::{self, Stream, StreamResponse};
use crate::views;
use axum::http::HeaderMap;
use axum::response::Response;
use punctual_client::{ExecutionBody, ExecutionStatus};
use punctual_core::ids::JobId;
use punctual_core::limits;
use punctual_core::ports::OpenExecution;
use punctual_engine::{EventBatch, EventReader, ExecutionEvent};
use serde::Serialize;
use std::time::Duration;

const EVENTS: &str = "events";
/// How often history is read without a signal.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a listener waits after a store error before it reads again.
const ERROR_PAUSE: Duration = Duration::from_secs(1);

pub async fn events(call: Call, headers: HeaderMap, mut query: QueryParams) -> Result<Response, ApiError> {
    let wanted = WantedEvents {
        job: query.parsed("job_id"),
        status: query.word("status"),
        queue: query.text("queue"),
    };
    let asked: Option<u64> =
        query.cursor_from(EVENTS, "must be the id of an event of this stream, such as events~17");
    query.finish()?;
    let start = resumed(&call, &headers).await?.or(asked);
    let reader = call.cases.events(start, wanted.job).await?;
    let listener = Listener { wanted, cursors: call.cursors().await? };
    StreamResponse::open(&call, move |stream| listener.follow(stream, reader))
}

/// The last position that a reconnecting client saw.
async fn resumed(call: &Call, headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let Some(seen) = stream::last_event_id(&call.api, headers).await? else { return Ok(None) };
    place_in(EVENTS, &seen).map(Some).ok_or_else(stream::foreign_event_id)
}

/// The executions that a listener wants events about.
struct WantedEvents {
    job: Option<JobId>,
    status: Option<ExecutionStatus>,
    queue: Option<String>,
}

impl WantedEvents {
    fn is_meant(&self, body: &ExecutionBody, queue: &str) -> bool {
        self.job.is_none_or(|job| job == body.job_id)
            && self.status.is_none_or(|status| status == body.status)
            && self.queue.as_deref().is_none_or(|wanted| wanted == queue)
    }
}

/// The event about missing history, and what to do about it.
#[derive(Serialize)]
struct Gap {
    detail: String,
}

/// One listener: the events that it wants, and the position at which it resumes.
struct Listener {
    wanted: WantedEvents,
    cursors: CursorWriter,
}

impl Listener {
    fn id(&self, place: u64) -> Option<String> {
        self.cursors.write(EVENTS, place).ok()
    }

    async fn follow(self, mut stream: Stream, mut reader: EventReader) -> Option<()> {
        if let Some(asked) = reader.gap() {
            let detail = format!(
                "some executions that finished after {} are no longer stored; the stream continues with those \
                 that are",
                self.id(asked)?
            );
            stream.send("gap", None, &Gap { detail }).await?;
        }
        loop {
            match reader.read().await {
                Ok(Some(batch)) => self.tell(&mut stream, batch).await?,
                Ok(None) => drop(stream.wait(reader.changed(), LOOK_INTERVAL).await?),
                Err(error) => {
                    tracing::warn!(%error, "an event stream waits for the store");
                    stream.pause(ERROR_PAUSE).await?;
                }
            }
        }
    }

    /// Sends the events that the client wants. `None` if it has disconnected.
    async fn tell(&self, stream: &mut Stream, batch: EventBatch) -> Option<()> {
        let mut told = batch.from;
        for event in batch.events {
            let (body, queue, place) = match event {
                ExecutionEvent::Finished(event) => {
                    (views::finished(event.finished), event.queue, Some(event.place))
                }
                ExecutionEvent::Open(OpenExecution { live, worker, queue, .. }) => {
                    (views::live(&live, worker), queue, None)
                }
            };
            if self.wanted.is_meant(&body, &queue) {
                let id = match place {
                    Some(place) => Some(self.id(place)?),
                    None => None,
                };
                stream.send("execution", id.as_deref(), &body).await?;
                told = place.unwrap_or(told);
            }
        }
        // A client with a narrow filter must not have to skip all filtered events again when it reconnects.
        if self.cursors.is_sealing() {
            // With every heartbeat: at other times, it would tell the caller that others have finished something.
            stream.resume_after(self.id(batch.to)?).await?;
        } else if batch.to > told + limits::PAGE_ITEMS_DEFAULT as u64 / 2 {
            stream.mark(&self.id(batch.to)?).await?;
        }
        Some(())
    }
}
