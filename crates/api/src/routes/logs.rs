//! Reading the logs of handlers: by page, or as a stream.

use crate::error::ApiError;
use crate::extract::IdInPath;
use crate::query::{QueryParams, next_cursor, place_in};
use crate::routes::jobs::no_such_job;
use crate::stream::{self, Answer, Stream};
use crate::{Api, views};
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use punctual_client::{LogLineBody, LogsPage};
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::job::JobStatus;
use punctual_core::limits;
use punctual_core::occurrence::LiveState;
use punctual_core::ports::{ExecutionView, JobView, LogLine, LogStream, StoreError};
use punctual_core::time::Timestamp;
use punctual_engine::LogFollower;
use serde::Serialize;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

const EXECUTION_LOGS: &str = "execution-logs";
const JOB_LOGS: &str = "job-logs";
/// Executions that one page may read: many may have written nothing.
const EXECUTIONS_PER_PAGE_MAX: usize = 100;
/// How often a follower reads without a signal.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a follower waits after a store error before it reads again.
const ERROR_PAUSE: Duration = Duration::from_secs(1);

pub async fn of_execution(
    State(api): State<Api>,
    IdInPath(id): IdInPath<ExecutionId>,
    headers: HeaderMap,
    mut query: QueryParams,
) -> Result<Response, ApiError> {
    let asked = Asked::take(&mut query, &headers);
    let after: Option<u64> = asked.after(&mut query, &headers, EXECUTION_LOGS)?;
    query.finish()?;
    if api.store().execution(id).await?.is_none() {
        return Err(ApiError::NotFound(format!("there is no execution {id}")));
    }
    let place = after.map(|number| Place { execution: id, number });
    answer(api, Writer::Execution(id), place, asked).await
}

/// Starts with the first attempt of the latest run and reads each execution to its end.
pub async fn of_job(
    State(api): State<Api>,
    IdInPath(job): IdInPath<JobId>,
    headers: HeaderMap,
    mut query: QueryParams,
) -> Result<Response, ApiError> {
    let asked = Asked::take(&mut query, &headers);
    let after: Option<Place> = asked.after(&mut query, &headers, JOB_LOGS)?;
    query.finish()?;
    if api.store().job(job).await?.is_none() {
        return Err(no_such_job(job));
    }
    let place = after.filter(|place| place.execution.occurrence.job == job);
    answer(api, Writer::Job(job), place, asked).await
}

/// The parameters of a log request, apart from its start position.
struct Asked {
    is_followed: bool,
    tail: Option<usize>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    limit: usize,
}

impl Asked {
    fn take(query: &mut QueryParams, headers: &HeaderMap) -> Self {
        let follow = query.flag("follow");
        let asked = Asked {
            is_followed: follow.unwrap_or_else(|| stream::is_accepted(headers)),
            tail: query.number("tail", 0..=limits::PAGE_ITEMS_MAX),
            since: query.time("since"),
            until: query.time("until"),
            limit: query.limit(),
        };
        if asked.is_followed && asked.until.is_some() {
            query.refuse("until", "cannot be combined with follow: a log that is followed has no end");
        }
        asked
    }

    /// Where to continue: a follower that reconnects says so in a header.
    fn after<T: FromStr>(
        &self,
        query: &mut QueryParams,
        headers: &HeaderMap,
        list: &str,
    ) -> Result<Option<T>, ApiError> {
        let made_by =
            "must be a next_cursor or follow_cursor of this same log, or the id of one of its events";
        let cursor = query.cursor_from(list, made_by);
        if cursor.is_some() && self.tail.is_some() {
            query.refuse("tail", "cannot be combined with cursor: it selects another start");
        }
        if !self.is_followed {
            return Ok(cursor);
        }
        let Some(seen) = stream::last_event_id(headers)? else { return Ok(cursor) };
        match place_in(list, seen) {
            Some(place) => Ok(Some(place)),
            None => Err(stream::foreign_event_id()),
        }
    }

    fn is_meant(&self, line: &LogLine) -> bool {
        self.since.is_none_or(|since| line.timestamp >= since)
            && self.until.is_none_or(|until| line.timestamp < until)
    }
}

async fn answer(api: Api, writer: Writer, place: Option<Place>, asked: Asked) -> Result<Response, ApiError> {
    if asked.is_followed {
        // Subscribe before reading anything, so that every later line is signalled.
        let follower = api.engine.follow_logs(writer.job());
        return Answer::open(&api, move |stream| follow(stream, follower, writer, place, asked));
    }
    let lines = match asked.tail.filter(|_| place.is_none()) {
        Some(tail) => writer.last(&api, tail).await?,
        None => writer.read(&api, place, asked.limit).await?,
    };
    let kept = lines.items.iter().filter(|line| asked.is_meant(line)).cloned();
    Ok(Json(LogsPage {
        items: kept.map(LogLineBody::from).collect(),
        next_cursor: lines.place.filter(|_| lines.more).map(|place| writer.cursor(place)),
        follow_cursor: lines.place.map(|place| writer.cursor(place)),
    })
    .into_response())
}

/// The status of the execution or job at the end of its log.
#[derive(Serialize)]
struct Ended {
    status: String,
}

/// Sends lines as they arrive until the writer has finished.
async fn follow(
    mut stream: Stream,
    mut follower: LogFollower,
    writer: Writer,
    mut place: Option<Place>,
    asked: Asked,
) -> Option<()> {
    let mut tail = asked.tail.filter(|_| place.is_none());
    loop {
        match look(&stream, writer, place, &mut tail).await {
            Ok((lines, ended)) => {
                place = lines.place;
                for line in lines.items.into_iter().filter(|line| asked.is_meant(line)) {
                    let id = writer.cursor(Place { execution: line.execution, number: line.number });
                    stream.send("line", Some(&id), &LogLineBody::from(line)).await?;
                }
                if lines.more {
                    continue;
                }
                if let Some(status) = ended {
                    return stream.send("end", None, &Ended { status }).await;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "a log stream waits for the store");
                stream.pause(ERROR_PAUSE).await?;
                continue;
            }
        }
        stream.wait(follower.next(), LOOK_INTERVAL).await?;
    }
}

/// The next lines, and how their writer ended, if it did. The status is read before the lines: a writer that
/// was finished by then has written all of them.
async fn look(
    stream: &Stream,
    writer: Writer,
    place: Option<Place>,
    tail: &mut Option<usize>,
) -> Result<(Lines, Option<String>), StoreError> {
    let api = stream.api();
    let ended = writer.ended(api).await?;
    let lines = match *tail {
        Some(wanted) => writer.last(api, wanted).await?,
        None => writer.read(api, place, limits::PAGE_ITEMS_DEFAULT).await?,
    };
    // Until something has run there is no position to continue from, and the tail is still to be found.
    if lines.place.is_some() {
        *tail = None;
    }
    Ok((lines, ended))
}

/// The execution or job whose lines are requested.
#[derive(Debug, Clone, Copy)]
enum Writer {
    Execution(ExecutionId),
    Job(JobId),
}

/// Log lines in order.
struct Lines {
    items: Vec<LogLine>,
    /// Where to continue; `None` until something has run.
    place: Option<Place>,
    /// Whether there are more lines now.
    more: bool,
}

impl Writer {
    fn job(self) -> JobId {
        match self {
            Writer::Execution(execution) => execution.occurrence.job,
            Writer::Job(job) => job,
        }
    }

    fn cursor(self, place: Place) -> String {
        let cursor = match self {
            Writer::Execution(_) => next_cursor(EXECUTION_LOGS, Some(place.number)),
            Writer::Job(_) => next_cursor(JOB_LOGS, Some(place)),
        };
        cursor.unwrap_or_default()
    }

    /// How the writer ended, if no more lines can follow.
    async fn ended(self, api: &Api) -> Result<Option<String>, StoreError> {
        match self {
            Writer::Execution(execution) => Ok(match api.store().execution(execution).await? {
                Some(ExecutionView::Live { .. }) => None,
                Some(ExecutionView::Finished(finished)) => Some(views::finished(finished).status.to_string()),
                None => Some("DELETED".to_owned()),
            }),
            Writer::Job(job) => Ok(match api.store().job(job).await? {
                Some(view) => {
                    let status = view.status();
                    let is_over = !matches!(status, JobStatus::Active | JobStatus::Paused);
                    (is_over && view.open.is_empty()).then(|| views::status_word(status).to_owned())
                }
                None => Some("DELETED".to_owned()),
            }),
        }
    }

    /// The lines after a position; from the beginning if there is none.
    async fn read(self, api: &Api, place: Option<Place>, limit: usize) -> Result<Lines, StoreError> {
        match self {
            Writer::Execution(execution) => {
                let place = place.unwrap_or(Place { execution, number: 0 });
                let page = api.store().logs(execution, Some(place.number), limit).await?;
                let number = page.items.last().map_or(place.number, |line| line.number);
                let mut items: Vec<LogLine> = removed_before(api, place).await?.into_iter().collect();
                items.extend(page.items);
                let place = Some(Place { execution, number });
                Ok(Lines { items, place, more: page.next.is_some() })
            }
            Writer::Job(job) => {
                let latest = latest_of(api, job).await?;
                let start = latest.map(|latest| Place { execution: latest.occurrence.attempt(1), number: 0 });
                match (latest, place.or(start)) {
                    (Some(latest), Some(place)) => read_on(api, place, latest, limit).await,
                    _ => Ok(Lines { items: vec![], place, more: false }),
                }
            }
        }
    }

    /// The last existing lines.
    async fn last(self, api: &Api, count: usize) -> Result<Lines, StoreError> {
        let latest = match self {
            Writer::Execution(execution) => Some(execution),
            Writer::Job(job) => latest_of(api, job).await?,
        };
        let Some(latest) = latest else { return Ok(Lines { items: vec![], place: None, more: false }) };
        let first = if matches!(self, Writer::Job(_)) { 1 } else { latest.attempt };
        let mut items: Vec<LogLine> = Vec::new();
        // Reads at least one line, to know where the log continues.
        let end = api.store().last_logs(latest, count.max(1)).await?;
        let number = end.last().map_or(0, |line| line.number);
        let is_whole = end.len() < count;
        items.extend(end.into_iter().rev().take(count));
        if is_whole {
            items.extend(removed_before(api, Place { execution: latest, number: 0 }).await?);
        }
        for attempt in (first..latest.attempt).rev().take(EXECUTIONS_PER_PAGE_MAX) {
            // Beyond this, an attempt's lines may have been cut to a page, and those before them are missing.
            if items.len() >= count || is_full(&items) {
                break;
            }
            let execution = latest.occurrence.attempt(attempt);
            items.extend(api.store().last_logs(execution, count - items.len()).await?.into_iter().rev());
        }
        items.reverse();
        Ok(Lines { items, place: Some(Place { execution: latest, number }), more: false })
    }
}

/// A position in the log of a job: after this line of this execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    execution: ExecutionId,
    number: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.execution, self.number)
    }
}

impl FromStr for Place {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (execution, number) = text.split_once(':').ok_or(())?;
        Ok(Place { execution: execution.parse().map_err(|_| ())?, number: number.parse().map_err(|_| ())? })
    }
}

async fn read_on(api: &Api, from: Place, latest: ExecutionId, limit: usize) -> Result<Lines, StoreError> {
    let mut place = from;
    let mut items = Vec::new();
    let mut is_end = false;
    for _ in 0..EXECUTIONS_PER_PAGE_MAX {
        // Read before the lines: an execution that has ended by now has written all of them.
        let successor = successor(api, place.execution, latest).await?;
        let page = api.store().logs(place.execution, Some(place.number), limit - items.len()).await?;
        items.extend(removed_before(api, place).await?);
        place.number = page.items.last().map_or(place.number, |line| line.number);
        items.extend(page.items);
        if page.next.is_none() {
            match successor {
                Some(execution) => place = Place { execution, number: 0 },
                None => is_end = true,
            }
        }
        if is_end || items.len() >= limit || is_full(&items) {
            break;
        }
    }
    Ok(Lines { items, place: Some(place), more: !is_end })
}

/// The line at the beginning of a log whose first lines were removed by the log quota.
async fn removed_before(api: &Api, place: Place) -> Result<Option<LogLine>, StoreError> {
    if place.number > 0 {
        return Ok(None);
    }
    let Some(until) = api.store().logs_removed_until().await? else { return Ok(None) };
    let started_at = match api.store().execution(place.execution).await? {
        Some(ExecutionView::Live { live, .. }) => match live.state {
            LiveState::Running(lease) => Some(lease.claimed_at),
            LiveState::Waiting(_) | LiveState::Queued => None,
        },
        Some(ExecutionView::Finished(finished)) => finished.started_at,
        None => None,
    };
    Ok(started_at.filter(|started_at| *started_at <= until).map(|started_at| LogLine {
        number: 0,
        execution: place.execution,
        timestamp: started_at,
        stream: LogStream::Log,
        message: format!(
            "lines written before {until} may be missing: they were removed because all logs together had reached \
             logs.total_size_max"
        ),
    }))
}

/// Whether these lines fill a page, so that one more might not fit.
fn is_full(lines: &[LogLine]) -> bool {
    let bytes: usize = lines.iter().map(|line| line.message.len()).sum();
    bytes + 2 * limits::LOG_LINE_BYTES_MAX > limits::PAGE_BYTES_MAX
}

/// The execution after this one, once this one has ended.
async fn successor(
    api: &Api,
    execution: ExecutionId,
    latest: ExecutionId,
) -> Result<Option<ExecutionId>, StoreError> {
    if execution >= latest {
        return Ok(None);
    }
    let occurrence = execution.occurrence;
    let retry = occurrence.attempt(execution.attempt + 1);
    if occurrence == latest.occurrence {
        return Ok(Some(retry));
    }
    if let Some(ExecutionView::Live { .. }) = api.store().execution(execution).await? {
        return Ok(None);
    }
    match api.store().execution(retry).await? {
        Some(_) => Ok(Some(retry)),
        None => Ok(Some(occurrence.job.occurrence(occurrence.number + 1).attempt(1))),
    }
}

async fn latest_of(api: &Api, job: JobId) -> Result<Option<ExecutionId>, StoreError> {
    Ok(api.store().job(job).await?.as_ref().and_then(latest_started))
}

/// The latest execution that may have written lines.
fn latest_started(view: &JobView) -> Option<ExecutionId> {
    let open = view.open.iter().filter_map(|live| match live.state {
        LiveState::Running(_) => Some(live.id.attempt(live.attempt)),
        LiveState::Waiting(_) | LiveState::Queued => {
            (live.attempt > 1).then(|| live.id.attempt(live.attempt - 1))
        }
    });
    open.chain(view.last_finished.as_ref().map(|finished| finished.id)).max()
}
