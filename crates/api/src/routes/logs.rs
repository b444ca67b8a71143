//! Reading the logs of handlers: by page, or as a stream.

use crate::auth::Call;
use crate::cursors::{CursorWriter, place_in};
use crate::error::ApiError;
use crate::extract::IdInPath;
use crate::query::QueryParams;
use crate::stream::{self, Stream, StreamResponse};
use axum::Json;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use punctual_client::{ExecutionStatus, LogLineBody, LogsPage};
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::limits;
use punctual_core::ports::{LogLine, StoreError};
use punctual_core::time::Timestamp;
use punctual_engine::{LogEnd, LogFollower, LogPlace, LogReader, LogSegment, LogSource};
use serde::Serialize;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

const EXECUTION_LOGS: &str = "execution-logs";
const JOB_LOGS: &str = "job-logs";
/// How often a follower reads without a signal.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a follower waits after a store error before it reads again.
const ERROR_PAUSE: Duration = Duration::from_secs(1);

pub async fn of_execution(
    call: Call,
    IdInPath(id): IdInPath<ExecutionId>,
    headers: HeaderMap,
    mut query: QueryParams,
) -> Result<Response, ApiError> {
    let asked = LogParams::take(&mut query, &headers);
    let after: Option<u64> = asked.after(&call, &mut query, &headers, EXECUTION_LOGS).await?;
    let before = asked.before(&mut query, EXECUTION_LOGS);
    query.finish()?;
    let place = |number| LogPlace { execution: id, number };
    answer(call, LogSource::Execution(id), after.map(place), before.map(place), asked).await
}

/// Starts with the first attempt of the latest run and reads each execution to its end.
pub async fn of_job(
    call: Call,
    IdInPath(job): IdInPath<JobId>,
    headers: HeaderMap,
    mut query: QueryParams,
) -> Result<Response, ApiError> {
    let asked = LogParams::take(&mut query, &headers);
    let after: Option<JobPlace> = asked.after(&call, &mut query, &headers, JOB_LOGS).await?;
    let before = asked.before(&mut query, JOB_LOGS);
    query.finish()?;
    let own = |JobPlace(place)| Some(place).filter(|place| place.execution.occurrence.job == job);
    answer(call, LogSource::Job(job), after.and_then(own), before.and_then(own), asked).await
}

/// The parameters of a log request, apart from its start position.
struct LogParams {
    is_followed: bool,
    tail: Option<usize>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    limit: usize,
}

impl LogParams {
    fn take(query: &mut QueryParams, headers: &HeaderMap) -> Self {
        let follow = query.flag("follow");
        let asked = LogParams {
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
    async fn after<T: FromStr>(
        &self,
        call: &Call,
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
        let Some(seen) = stream::last_event_id(&call.api, headers).await? else { return Ok(cursor) };
        match place_in(list, &seen) {
            Some(place) => Ok(Some(place)),
            None => Err(stream::foreign_event_id()),
        }
    }

    /// The line before which the page ends.
    fn before<T: FromStr>(&self, query: &mut QueryParams, list: &str) -> Option<T> {
        let before = query.cursor_in("before", list, "must be a previous_cursor of this same log")?;
        if self.is_followed {
            query.refuse("before", "cannot be combined with follow: older lines do not change");
        }
        if self.tail.is_some() {
            query.refuse("tail", "cannot be combined with before: use limit");
        }
        Some(before)
    }

    fn is_meant(&self, line: &LogLine) -> bool {
        self.since.is_none_or(|since| line.timestamp >= since)
            && self.until.is_none_or(|until| line.timestamp < until)
    }
}

async fn answer(
    call: Call,
    source: LogSource,
    place: Option<LogPlace>,
    before: Option<LogPlace>,
    asked: LogParams,
) -> Result<Response, ApiError> {
    let reader = call.cases.logs(source).await?;
    if asked.is_followed {
        // Subscribe before reading anything, so that every later line is signalled.
        let log = Log { follower: reader.follow(), reader, source, cursors: call.cursors().await? };
        return StreamResponse::open(&call, move |stream| follow(stream, log, place, asked));
    }
    let lines = match (before, asked.tail.filter(|_| place.is_none())) {
        (Some(_), _) => reader.last(before, asked.limit).await?,
        (None, Some(tail)) => reader.last(None, tail).await?,
        (None, None) => reader.read(place, asked.limit).await?,
    };
    let kept = lines.items.iter().filter(|line| asked.is_meant(line)).cloned();
    let cursors = call.cursors().await?;
    let cursor_of = |place: Option<LogPlace>| place.map(|place| cursor(&cursors, source, place)).transpose();
    let (follow_cursor, previous_cursor) = (cursor_of(lines.place)?, cursor_of(lines.older_before)?);
    Ok(Json(LogsPage {
        items: kept.map(LogLineBody::from).collect(),
        next_cursor: follow_cursor.clone().filter(|_| lines.more),
        follow_cursor,
        previous_cursor,
    })
    .into_response())
}

/// A log that is followed.
struct Log {
    reader: LogReader,
    follower: LogFollower,
    source: LogSource,
    cursors: CursorWriter,
}

/// The status of the execution or job at the end of its log.
#[derive(Serialize)]
struct LogEnded {
    status: String,
}

/// Sends lines as they arrive until their source has ended.
async fn follow(
    mut stream: Stream,
    mut log: Log,
    mut place: Option<LogPlace>,
    asked: LogParams,
) -> Option<()> {
    let mut tail = asked.tail.filter(|_| place.is_none());
    loop {
        match look(&log.reader, place, &mut tail).await {
            Ok((lines, ended)) => {
                place = lines.place;
                for line in lines.items.into_iter().filter(|line| asked.is_meant(line)) {
                    let place = LogPlace { execution: line.execution, number: line.number };
                    let id = cursor(&log.cursors, log.source, place).ok()?;
                    stream.send("line", Some(&id), &LogLineBody::from(line)).await?;
                }
                if lines.more {
                    continue;
                }
                if let Some(end) = ended {
                    return stream.send("end", None, &LogEnded { status: status_of(end) }).await;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "a log stream waits for the store");
                stream.pause(ERROR_PAUSE).await?;
                continue;
            }
        }
        stream.wait(log.follower.next(), LOOK_INTERVAL).await?;
    }
}

/// The next lines, and how their source ended, if it did. The status is read before the lines: a source that
/// had ended by then has written all of them.
async fn look(
    reader: &LogReader,
    place: Option<LogPlace>,
    tail: &mut Option<usize>,
) -> Result<(LogSegment, Option<LogEnd>), StoreError> {
    let ended = reader.ended().await?;
    let lines = match *tail {
        Some(wanted) => reader.last(None, wanted).await?,
        None => reader.read(place, limits::PAGE_ITEMS_DEFAULT).await?,
    };
    // Until something has run there is no position to continue from, and the tail is still to be found.
    if lines.place.is_some() {
        *tail = None;
    }
    Ok((lines, ended))
}

fn status_of(end: LogEnd) -> String {
    match end {
        LogEnd::Execution(status) => ExecutionStatus::from(status).to_string(),
        LogEnd::Job(status) => status.as_str().to_owned(),
        LogEnd::Deleted => "DELETED".to_owned(),
    }
}

fn cursor(cursors: &CursorWriter, source: LogSource, place: LogPlace) -> Result<String, ApiError> {
    match source {
        LogSource::Execution(_) => cursors.write(EXECUTION_LOGS, place.number),
        LogSource::Job(_) => cursors.write(JOB_LOGS, JobPlace(place)),
    }
}

/// A position in the log of a job, as encoded in a cursor.
struct JobPlace(LogPlace);

impl fmt::Display for JobPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0.execution, self.0.number)
    }
}

impl FromStr for JobPlace {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (execution, number) = text.split_once(':').ok_or(())?;
        let (execution, number) = (execution.parse().map_err(|_| ())?, number.parse().map_err(|_| ())?);
        Ok(JobPlace(LogPlace { execution, number }))
    }
}
