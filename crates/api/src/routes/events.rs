//! A stream of server-sent events about executions.
//!
//! Finished executions are read from history in commit order, and each of these events carries its position
//! as its id. A client that reconnects with that id misses nothing, however long it was away, as long as
//! history is retained. Open executions have no position: the stream reports them when they change, and a
//! client that connects or falls behind gets all that are running. The engine signals when to read; a read
//! once a second finds whatever was not signalled.

use crate::error::ApiError;
use crate::query::{QueryParams, next_cursor, place_in};
use crate::stream::{self, Answer, Stream};
use crate::{Api, views};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use punctual_client::{ExecutionBody, ExecutionStatus};
use punctual_core::ids::{JobId, OccurrenceId};
use punctual_core::limits;
use punctual_core::ports::{OpenExecution, StoreError};
use punctual_engine::{Listener, Touched};
use serde::Serialize;
use std::collections::BTreeSet;
use std::time::Duration;

const EVENTS: &str = "events";
/// How often history is read without a signal.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a listener waits after a store error before it reads again.
const ERROR_PAUSE: Duration = Duration::from_secs(1);

pub async fn events(
    State(api): State<Api>,
    headers: HeaderMap,
    mut query: QueryParams,
) -> Result<Response, ApiError> {
    let wanted =
        Wanted { job: query.parsed("job_id"), status: query.word("status"), queue: query.text("queue") };
    let asked: Option<u64> =
        query.cursor_from(EVENTS, "must be the id of an event of this stream, such as events~17");
    query.finish()?;
    let resumed = resumed(&headers)?;
    // Subscribe before reading anything, so that every later commit is signalled.
    let listener = api.engine.listen();
    let span = api.store().history_span().await?;
    let start = resumed.or(asked);
    let place = start.filter(|place| *place <= span.ends_at);
    let has_gap = start.is_some_and(|place| place < span.begins_after || place > span.ends_at);
    let following = Following {
        place: place.map_or(span.ends_at, |place| place.max(span.begins_after)),
        has_gap,
        asked: start.unwrap_or(span.ends_at),
        wanted,
    };
    Answer::open(&api, move |stream| follow(stream, listener, following))
}

/// The last position that a reconnecting client saw.
fn resumed(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let Some(seen) = stream::last_event_id(headers)? else { return Ok(None) };
    place_in(EVENTS, seen).map(Some).ok_or_else(stream::foreign_event_id)
}

/// The executions that a listener wants events about.
struct Wanted {
    job: Option<JobId>,
    status: Option<ExecutionStatus>,
    queue: Option<String>,
}

impl Wanted {
    fn is_meant(&self, body: &ExecutionBody, queue: &str) -> bool {
        self.job.is_none_or(|job| job == body.job_id)
            && self.status.is_none_or(|status| status == body.status)
            && self.queue.as_deref().is_none_or(|wanted| wanted == queue)
    }
}

/// The state of a listener.
struct Following {
    wanted: Wanted,
    /// All executions that finished up to this position were sent.
    place: u64,
    asked: u64,
    /// History between the requested position and this one is no longer retained.
    has_gap: bool,
}

/// The event about missing history, and what to do about it.
#[derive(Serialize)]
struct Gap {
    detail: String,
}

async fn follow(mut stream: Stream, mut listener: Listener, mut following: Following) -> Option<()> {
    if following.has_gap {
        let detail = format!(
            "some executions that finished after {} are no longer stored; the stream continues with those \
             that are",
            next_cursor(EVENTS, Some(following.asked)).unwrap_or_default()
        );
        stream.send("gap", None, &Gap { detail }).await?;
    }
    let mut touched = Touched::Anything;
    loop {
        match tell(&mut stream, &mut following, &touched).await {
            Ok(sent) => sent?,
            Err(error) => {
                tracing::warn!(%error, "an event stream waits for the store");
                stream.pause(ERROR_PAUSE).await?;
                // What changed meanwhile is no longer known.
                touched = Touched::Anything;
                continue;
            }
        }
        touched = match stream.wait(listener.next(), LOOK_INTERVAL).await? {
            Some(touched) => touched,
            None => Touched::These(BTreeSet::new()),
        };
    }
}

/// Sends what has finished since the last time, and the state of executions that changed. `None` if the
/// client has disconnected.
async fn tell(
    stream: &mut Stream,
    following: &mut Following,
    touched: &Touched,
) -> Result<Option<()>, StoreError> {
    loop {
        let page = stream.api().store().finished_after(following.place, limits::PAGE_ITEMS_DEFAULT).await?;
        let mut told = following.place;
        for event in page.items {
            let body = views::finished(event.finished);
            if following.wanted.is_meant(&body, &event.queue) {
                let id = next_cursor(EVENTS, Some(event.place));
                if stream.send("execution", id.as_deref(), &body).await.is_none() {
                    return Ok(None);
                }
                told = event.place;
            }
            following.place = event.place;
        }
        following.place = page.looked_to;
        // A client with a narrow filter must not have to skip all filtered events again when it reconnects.
        if following.place > told + limits::PAGE_ITEMS_DEFAULT as u64 / 2 {
            let id = next_cursor(EVENTS, Some(following.place));
            if stream.mark(id.as_deref()).await.is_none() {
                return Ok(None);
            }
        }
        if !page.more {
            break;
        }
    }
    match touched {
        Touched::Anything => tell_all_that_runs(stream, &following.wanted).await,
        Touched::These(ids) => {
            let meant = |id: &&OccurrenceId| following.wanted.job.is_none_or(|job| job == id.job);
            let ids: Vec<OccurrenceId> = ids.iter().filter(meant).copied().collect();
            for some in ids.chunks(limits::PAGE_ITEMS_MAX) {
                let open = stream.api().store().open_executions(some.to_vec()).await?;
                if tell_open(stream, &following.wanted, open).await.is_none() {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        }
    }
}

async fn tell_all_that_runs(stream: &mut Stream, wanted: &Wanted) -> Result<Option<()>, StoreError> {
    let mut after = None;
    loop {
        let page = stream.api().store().running(after, limits::PAGE_ITEMS_DEFAULT).await?;
        if tell_open(stream, wanted, page.items).await.is_none() {
            return Ok(None);
        }
        after = page.next;
        if after.is_none() {
            return Ok(Some(()));
        }
    }
}

async fn tell_open(stream: &mut Stream, wanted: &Wanted, open: Vec<OpenExecution>) -> Option<()> {
    for OpenExecution { live, worker, queue, .. } in open {
        let body = views::live(&live, worker);
        if wanted.is_meant(&body, &queue) {
            stream.send("execution", None, &body).await?;
        }
    }
    Some(())
}
