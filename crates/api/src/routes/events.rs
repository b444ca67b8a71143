//! What happens, as it happens: a stream of server-sent events.
//!
//! What has finished is read from history in the order of its commits, and each of these events carries its
//! place as its id: whoever comes back with that id misses nothing, however long it was away, as long as history
//! is kept. What is still open has no place: it is told as it moves, and whoever connects or falls behind is
//! shown all that runs. The engine says when to look; a look once a second finds what it did not say.

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
/// How often is looked although nobody said that there is something.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a listener waits after its store failed before it looks again.
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
    // Before anything is read: what is committed from here on is told.
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

/// The place that a client which lost its connection saw last.
fn resumed(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let Some(seen) = stream::last_event_id(headers)? else { return Ok(None) };
    place_in(EVENTS, seen).map(Some).ok_or_else(stream::foreign_event_id)
}

/// Which executions a listener wants to hear of.
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

/// Where a listener stands.
struct Following {
    wanted: Wanted,
    /// All that finished up to here was told.
    place: u64,
    asked: u64,
    /// What lies between the place asked for and this one is not kept any more.
    has_gap: bool,
}

/// What is missing, and what to do about it.
#[derive(Serialize)]
struct Gap {
    detail: String,
}

async fn follow(mut stream: Stream, mut listener: Listener, mut following: Following) -> Option<()> {
    if following.has_gap {
        let detail = format!(
            "what finished after {} is not all kept any more; this goes on from what is",
            next_cursor(EVENTS, Some(following.asked)).unwrap_or_default()
        );
        stream.send("gap", None, &Gap { detail }).await?;
    }
    let mut touched = Touched::Anything;
    loop {
        match tell(&mut stream, &mut following, &touched).await {
            Ok(sent) => sent?,
            Err(error) => {
                tracing::warn!(%error, "a listener to events waits for the store");
                stream.pause(ERROR_PAUSE).await?;
                // What moved meanwhile is not known any more.
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

/// Tells what has finished since the last time, and how what was touched stands. `None`: nobody listens any more.
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
        // One who hears little must not have to go through all that was not meant again.
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
