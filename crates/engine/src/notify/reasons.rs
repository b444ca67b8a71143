//! Why a run did not start, in a sentence.

use super::facts::skipped;
use crate::use_cases::{EligibleWorkers, lane_of};
use crate::{EngineContext, cluster_pause};
use punctual_core::gates::Gate;
use punctual_core::job::JobStatus;
use punctual_core::occurrence::{Live, LiveState};
use punctual_core::ports::{JobView, StoreError};
use punctual_core::schedule::SkipReason;

/// Jobs and workers that a sentence names.
const NAMED_MAX: usize = 3;

/// Why an occurrence of this job did not start: it was skipped, it is open and waits, or nothing fired it.
pub(super) async fn of_missed(
    context: &EngineContext,
    view: &JobView,
    reason: Option<SkipReason>,
    open: Option<&Live>,
) -> Result<String, StoreError> {
    let is_paused = view.status() == JobStatus::Paused;
    // The skip of a schedule does not say who has paused it.
    if let Some(reason) = reason.filter(|reason| *reason != SkipReason::Paused || is_paused) {
        return Ok(skipped(reason).to_owned());
    }
    if is_paused {
        return Ok("The job is paused.".to_owned());
    }
    if let Some((_, pause)) = cluster_pause::stored(&*context.store).await? {
        return Ok(format!("The whole cluster is paused by {}: {}.", pause.paused_by, pause.reason));
    }
    match (reason, open) {
        (Some(reason), _) => Ok(skipped(reason).to_owned()),
        (None, Some(live)) => of_waiting(context, view, live).await,
        (None, None) => Ok("No scheduler fired it in time.".to_owned()),
    }
}

async fn of_waiting(context: &EngineContext, view: &JobView, live: &Live) -> Result<String, StoreError> {
    let spec = &view.job.spec;
    let queue = &spec.queue;
    let paused = context.store.paused_queues().await?;
    if paused.iter().any(|paused| paused.queue == *queue) {
        return Ok(format!("It waits: the queue {queue} is paused."));
    }
    match live.state {
        LiveState::Waiting(_) if live.is_closed_by(Gate::Paused) => Ok("The job is paused.".to_owned()),
        LiveState::Waiting(_) if live.is_closed_by(Gate::Dependency) => of_parents(context, view).await,
        LiveState::Waiting(_) if live.is_closed_by(Gate::Overlap) => Ok(of_overlap(view, live)),
        LiveState::Waiting(_) if live.is_closed_by(Gate::Concurrency) => {
            let key = spec.settings.concurrency_key.as_ref().filter(|_| live.line == live.limiter);
            let whose = key.map_or(String::new(), |key| format!(" for the key {key}"));
            Ok(format!("It waits: the queue {queue} has reached its limit{whose}."))
        }
        LiveState::Waiting(_) => Ok(format!("It waits until {}.", live.available_at)),
        LiveState::Queued | LiveState::Running(_) => of_queued(context, view).await,
    }
}

/// The jobs that it depends on and that have not succeeded.
async fn of_parents(context: &EngineContext, view: &JobView) -> Result<String, StoreError> {
    let mut names = vec![];
    for id in &view.job.spec.settings.depends_on {
        if let Some(parent) = context.store.job(*id).await?
            && parent.status() != JobStatus::Completed
        {
            names.push(parent.job.spec.name);
        }
    }
    Ok(match names.len() {
        0 => "It waits for other jobs.".to_owned(),
        1 => format!("It waits until the job {} has succeeded.", names[0]),
        _ => format!("It waits until the jobs {} have succeeded.", listed(&names)),
    })
}

fn of_overlap(view: &JobView, live: &Live) -> String {
    let earlier = view.open.iter().find(|other| other.id != live.id && !other.is_closed_by(Gate::Overlap));
    match earlier {
        Some(earlier) => format!("It waits: the earlier run {} is still open.", earlier.execution()),
        None => "It waits: an earlier run is still open.".to_owned(),
    }
}

async fn of_queued(context: &EngineContext, view: &JobView) -> Result<String, StoreError> {
    let spec = &view.job.spec;
    let sessions = context.store.sessions().await?;
    let able = EligibleWorkers::in_lane(&lane_of(spec), &sessions);
    let held: Vec<String> = able.in_the_way().iter().map(|row| row.worker.clone()).collect();
    Ok(match (able.open.len(), held.len()) {
        (0, 0) if sessions.iter().any(|row| row.has_handler(&spec.job_type)) => {
            format!(
                "It waits: no connected worker runs the job type {} in the queue {}.",
                spec.job_type, spec.queue
            )
        }
        (0, 0) => format!("It waits: no connected worker runs the job type {}.", spec.job_type),
        (0, 1) => format!("It waits: the worker {} takes no work now.", held[0]),
        (0, _) => format!("It waits: the workers {} take no work now.", listed(&held)),
        _ => "It waits: no worker had a free slot for it.".to_owned(),
    })
}

fn listed(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMED_MAX);
    let shown = names[..names.len() - more].join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}
