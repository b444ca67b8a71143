//! Executions of all jobs, by status.

use crate::auth::Call;
use crate::error::ApiError;
use crate::query::QueryParams;
use crate::views;
use axum::Json;
use punctual_client::{ExecutionBody, ExecutionStatus, Page};
use punctual_core::ids::{OccurrenceId, SessionId};
use punctual_core::notes::Noted;
use punctual_core::ports::{ExecutionQuery, ExecutionWalk, ListedExecution, RunningPlace};
use serde::Deserialize;
use std::fmt;
use std::str::FromStr;

// Each list has its own cursors: a cursor of another list would be misread.
const RUNNING: &str = "running-executions";
const QUEUED: &str = "queued-executions";
const WAITING: &str = "waiting-executions";
const FINISHED: &str = "finished-executions";

/// Another order than the usual one of a status.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ListOrder {
    Claim,
}

pub async fn list(call: Call, mut query: QueryParams) -> Result<Json<Page<ExecutionBody>>, ApiError> {
    let status = query.word("status").unwrap_or(ExecutionStatus::Running);
    let (ended_from, ended_until) = (query.time("ended_from"), query.time("ended_until"));
    for (name, time) in [("ended_from", ended_from), ("ended_until", ended_until)] {
        if time.is_some() && status.finished().is_none() {
            query.refuse(name, "needs a status of executions that have ended, such as SUCCEEDED");
        }
    }
    let order = query.word::<ListOrder>("order");
    let wanted = ExecutionQuery {
        walk: match order {
            Some(ListOrder::Claim) => ExecutionWalk::Next,
            None => begun(status, &mut query),
        },
        limit: query.limit(),
        queue: query.text("queue"),
        job_type: query.text("job_type"),
        owner: query.text("owner"),
        worker: query.text("worker"),
        ended_from,
        ended_until,
    };
    if order.is_some() && (status != ExecutionStatus::Queued || wanted.queue.is_none()) {
        query.refuse("order", "claim needs status=QUEUED and a queue");
    }
    query.finish()?;
    let page = call.cases.executions(wanted).await?;
    let shown = |(listed, noted): (ListedExecution, Option<Noted>)| {
        let mut body = views::listed(listed);
        noted.iter().for_each(|noted| views::add_notes(&mut body, noted));
        body
    };
    let next_cursor = match page.next.and_then(place) {
        Some((list, place)) => call.next_cursor(list, Some(place)).await?,
        None => None,
    };
    Ok(Json(Page { items: page.items.into_iter().map(shown).collect(), next_cursor }))
}

/// The walk over executions of this status, from the end of the previous page.
fn begun(status: ExecutionStatus, query: &mut QueryParams) -> ExecutionWalk {
    match (status.finished(), status) {
        (Some(status), _) => ExecutionWalk::Finished { status, before: query.cursor(FINISHED) },
        (None, ExecutionStatus::Queued) => ExecutionWalk::Queued { before: query.cursor(QUEUED) },
        (None, ExecutionStatus::Waiting) => ExecutionWalk::Waiting { before: query.cursor(WAITING) },
        (None, _) => {
            ExecutionWalk::Running { after: query.cursor(RUNNING).map(|RunningCursor(place)| place) }
        }
    }
}

/// The list of a walk, and the position in it.
fn place(walk: ExecutionWalk) -> Option<(&'static str, String)> {
    match walk {
        ExecutionWalk::Running { after } => Some((RUNNING, RunningCursor(after?).to_string())),
        ExecutionWalk::Queued { before } => Some((QUEUED, before?.to_string())),
        ExecutionWalk::Waiting { before } => Some((WAITING, before?.to_string())),
        ExecutionWalk::Next => None,
        ExecutionWalk::Finished { before, .. } => Some((FINISHED, before?.to_string())),
    }
}

/// A position among running executions, as encoded in a cursor.
struct RunningCursor(RunningPlace);

impl fmt::Display for RunningCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}~{}", self.0.session, self.0.occurrence)
    }
}

/// Only the server writes cursors, so a modified one needs no detailed error.
#[derive(Debug)]
struct NoPlace;

impl FromStr for RunningCursor {
    type Err = NoPlace;

    fn from_str(text: &str) -> Result<Self, NoPlace> {
        let (session, occurrence) = text.split_once('~').ok_or(NoPlace)?;
        let session = session.parse().map(SessionId).map_err(|_| NoPlace)?;
        let occurrence: OccurrenceId = occurrence.parse().map_err(|_| NoPlace)?;
        Ok(RunningCursor(RunningPlace { session, occurrence }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::ids::JobId;
    use punctual_core::time::Timestamp;

    #[test]
    fn a_place_among_what_runs_survives_its_cursor() {
        let occurrence = JobId::new(Timestamp::EPOCH, 1).occurrence(3);
        let running = RunningPlace { session: SessionId(7), occurrence };
        let (list, text) = place(ExecutionWalk::Running { after: Some(running) }).unwrap();
        let RunningCursor(read) = text.parse().unwrap();
        assert_eq!((list, read), (RUNNING, running));
        assert!("7".parse::<RunningCursor>().is_err());
    }
}
