//! Reading what handlers have written.

use crate::Api;
use crate::error::ApiError;
use crate::extract::IdInPath;
use crate::query::{QueryParams, next_cursor};
use crate::routes::jobs::no_such_job;
use axum::Json;
use axum::extract::State;
use punctual_client::{LogLineBody, LogsPage};
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::occurrence::LiveState;
use punctual_core::ports::{ExecutionView, JobView, StoreError};
use std::fmt;
use std::str::FromStr;

const EXECUTION_LOGS: &str = "execution-logs";
const JOB_LOGS: &str = "job-logs";
/// Executions that one page may look at: many may have written nothing.
const EXECUTIONS_PER_PAGE_MAX: usize = 100;

pub async fn of_execution(
    State(api): State<Api>,
    IdInPath(id): IdInPath<ExecutionId>,
    mut query: QueryParams,
) -> Result<Json<LogsPage>, ApiError> {
    let after: Option<u64> = query.cursor(EXECUTION_LOGS);
    let limit = query.limit();
    query.finish()?;
    if api.store().execution(id).await?.is_none() {
        return Err(ApiError::NotFound(format!("there is no execution {id}")));
    }
    let page = api.store().logs(id, after, limit).await?;
    let end = page.items.last().map(|line| line.number).or(after).unwrap_or(0);
    Ok(Json(LogsPage {
        items: page.items.into_iter().map(LogLineBody::from).collect(),
        next_cursor: next_cursor(EXECUTION_LOGS, page.next),
        follow_cursor: next_cursor(EXECUTION_LOGS, Some(end)),
    }))
}

/// A place in the log of a job: after this line of this execution.
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

/// From the first attempt of the latest run on, execution by execution, each to its end.
pub async fn of_job(
    State(api): State<Api>,
    IdInPath(job): IdInPath<JobId>,
    mut query: QueryParams,
) -> Result<Json<LogsPage>, ApiError> {
    let after: Option<Place> = query.cursor(JOB_LOGS);
    let limit = query.limit();
    query.finish()?;
    let view = api.store().job(job).await?.ok_or_else(|| no_such_job(job))?;
    let latest = latest_started(&view);
    let after = after.filter(|place| place.execution.occurrence.job == job);
    let start = latest.map(|latest| Place { execution: latest.occurrence.attempt(1), number: 0 });
    let (Some(latest), Some(place)) = (latest, after.or(start)) else {
        return Ok(Json(LogsPage { items: vec![], next_cursor: None, follow_cursor: None }));
    };
    Ok(Json(read(&api, place, latest, limit).await?))
}

async fn read(api: &Api, from: Place, latest: ExecutionId, limit: usize) -> Result<LogsPage, StoreError> {
    let mut place = from;
    let mut items = Vec::new();
    let mut is_end = false;
    for _ in 0..EXECUTIONS_PER_PAGE_MAX {
        // Asked before the lines are read: what has ended by now has written all of them.
        let successor = successor(api, place.execution, latest).await?;
        let page = api.store().logs(place.execution, Some(place.number), limit - items.len()).await?;
        place.number = page.items.last().map_or(place.number, |line| line.number);
        items.extend(page.items.into_iter().map(LogLineBody::from));
        if page.next.is_none() {
            match successor {
                Some(execution) => place = Place { execution, number: 0 },
                None => is_end = true,
            }
        }
        if is_end || items.len() >= limit {
            break;
        }
    }
    Ok(LogsPage {
        items,
        next_cursor: next_cursor(JOB_LOGS, (!is_end).then_some(place)),
        follow_cursor: next_cursor(JOB_LOGS, Some(place)),
    })
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

/// The latest execution that may have written anything.
fn latest_started(view: &JobView) -> Option<ExecutionId> {
    let open = view.open.iter().filter_map(|live| match live.state {
        LiveState::Running(_) => Some(live.id.attempt(live.attempt)),
        LiveState::Waiting(_) | LiveState::Queued => {
            (live.attempt > 1).then(|| live.id.attempt(live.attempt - 1))
        }
    });
    open.chain(view.last_finished.as_ref().map(|finished| finished.id)).max()
}
