//! Logs every execution that ends, for systems that collect logs. A duty of the leader, so that a cluster logs each once:
//! after a change of leader, a few may be logged twice or not at all. History has all of them.

use crate::pause::ErrorPause;
use crate::{Duties, EngineContext};
use punctual_core::ids::JobId;
use punctual_core::limits;
use punctual_core::ports::{FinishedEvent, StoreError};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

/// How often the leader reads what has ended.
const INTERVAL: Duration = Duration::from_secs(1);
/// Jobs whose names are remembered. When there are more, all are forgotten.
const JOBS_KNOWN_MAX: usize = 10_000;

/// What the log says about a job.
struct LoggedJob {
    name: String,
    job_type: String,
    owner: String,
}

type LoggedJobs = BTreeMap<JobId, Option<LoggedJob>>;

pub(crate) async fn log_executions(context: &EngineContext) {
    if context.config.duties == Duties::OwnCommits || !context.config.log_executions {
        return;
    }
    // Where to continue; nowhere while another node leads.
    let mut place = None;
    let mut jobs = LoggedJobs::new();
    let mut pause = ErrorPause::default();
    loop {
        let logged = if context.leads() {
            log_ended(context, &mut place, &mut jobs).await
        } else {
            place = None;
            Ok(())
        };
        match logged {
            Ok(()) => {
                pause.succeeded();
                context.host.clock.sleep(INTERVAL).await;
            }
            Err(error) => {
                tracing::debug!(%error, "ended executions could not be read for the log; retrying");
                context.host.clock.sleep(pause.failed()).await;
            }
        }
    }
}

/// Logs what has ended since a place in history, and moves the place.
async fn log_ended(
    context: &EngineContext,
    place: &mut Option<u64>,
    jobs: &mut LoggedJobs,
) -> Result<(), StoreError> {
    let span = context.store.history_span().await?;
    let mut read_to = place.map_or(span.ends_at, |place| place.max(span.begins_after));
    *place = Some(read_to);
    loop {
        let page = context.store.finished_after(read_to, limits::PAGE_ITEMS_DEFAULT).await?;
        // All reads come first: after an error, nothing is logged twice.
        if jobs.len() >= JOBS_KNOWN_MAX {
            jobs.clear();
        }
        for event in &page.items {
            let id = event.finished.id.occurrence.job;
            if let Entry::Vacant(unknown) = jobs.entry(id) {
                let job = context.store.job(id).await?.map(|view| LoggedJob {
                    name: view.job.spec.name,
                    job_type: view.job.spec.job_type,
                    owner: view.job.spec.owner,
                });
                unknown.insert(job);
            }
        }
        for event in &page.items {
            let id = event.finished.id.occurrence.job;
            log_one(context, event, jobs.get(&id).and_then(Option::as_ref));
        }
        read_to = page.looked_to.max(read_to);
        *place = Some(read_to);
        if !page.more {
            return Ok(());
        }
    }
}

fn log_one(context: &EngineContext, event: &FinishedEvent, job: Option<&LoggedJob>) {
    let ended = &event.finished;
    let duration = ended.started_at.map(|started| ended.completed_at.since(started).as_millis() as u64);
    // A retry is late if it starts later than its retry time.
    let due = if ended.id.attempt == 1 { ended.scheduled_time } else { ended.available_at };
    let lateness = ended.started_at.map(|started| started.since(due).as_millis() as u64);
    let error = ended.error.as_deref().filter(|_| context.config.log_output);
    tracing::info!(
        target: "punctual::executions",
        job_id = %ended.id.occurrence.job,
        execution_id = %ended.id,
        job_name = job.map(|job| job.name.as_str()),
        job_type = job.map(|job| job.job_type.as_str()),
        owner_id = job.map(|job| job.owner.as_str()),
        queue = event.queue,
        status = ended.status.word(),
        attempt = ended.id.attempt,
        scheduled_time = %ended.scheduled_time,
        duration_ms = duration,
        lateness_ms = lateness,
        worker = ended.worker.as_deref(),
        execution_error = error,
        "execution ended"
    );
}
