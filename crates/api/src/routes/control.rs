//! Control verbs: pause, resume, cancel, retry, trigger, delete.

use crate::auth::Call;
use crate::error::ApiError;
use crate::extract::{BODY_BYTES_MAX, IdInPath, NoBody, OptionalBody};
use crate::idempotency::{Repeating, RequestName, once};
use crate::routes::{executions, jobs};
use crate::views;
use axum::Json;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use punctual_client::{API_PREFIX, Advice, TriggerRequest};
use punctual_core::control::{Refusal, Verb};
use punctual_core::gates::Gate;
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::job::JobStatus;
use punctual_core::ports::{Controlled, JobView};
use punctual_engine::{RunRequest, UseCaseError};

pub async fn pause(call: Call, IdInPath(id): IdInPath<JobId>, _: NoBody) -> Result<Response, ApiError> {
    control(&call, id, Verb::Pause).await
}

pub async fn resume(call: Call, IdInPath(id): IdInPath<JobId>, _: NoBody) -> Result<Response, ApiError> {
    control(&call, id, Verb::Resume).await
}

pub async fn cancel(call: Call, IdInPath(id): IdInPath<JobId>, _: NoBody) -> Result<Response, ApiError> {
    control(&call, id, Verb::Cancel).await
}

/// Responds with the job and the added execution.
pub async fn retry(call: Call, IdInPath(id): IdInPath<JobId>, _: NoBody) -> Result<Response, ApiError> {
    match call.cases.control(id, Verb::Retry).await {
        Ok(controlled) => shown(&call, id, controlled).await,
        Err(UseCaseError::Refused { refusal: Refusal::NothingDead, .. }) => {
            Err(nothing_dead(&call.cases.job(id).await?))
        }
        Err(error) => Err(error.into()),
    }
}

async fn control(call: &Call, id: JobId, verb: Verb) -> Result<Response, ApiError> {
    let controlled = changed(call, id, verb).await?;
    shown(call, id, controlled).await
}

/// Applies a verb to a job.
pub async fn changed(call: &Call, id: JobId, verb: Verb) -> Result<Controlled, ApiError> {
    match call.cases.control(id, verb.clone()).await {
        Ok(controlled) => Ok(controlled),
        Err(UseCaseError::Refused { refusal: Refusal::Finished(status), .. }) => {
            Err(finished(id, status, &verb))
        }
        Err(error) => Err(error.into()),
    }
}

/// The error for a verb that comes too late. A trigger is no substitute for a verb that stops a job.
fn finished(id: JobId, status: JobStatus, verb: &Verb) -> ApiError {
    let nothing_to = match verb {
        Verb::Cancel => "cancel",
        Verb::Pause => "pause",
        _ => return refused(id, Refusal::Finished(status)),
    };
    ApiError::Conflict(format!(
        "the job is {} and nothing of it is open: there is nothing to {nothing_to}",
        status.as_str()
    ))
}

async fn shown(call: &Call, id: JobId, controlled: Controlled) -> Result<Response, ApiError> {
    let mut job = jobs::read(call, id).await?;
    job.execution_id = controlled.added;
    Ok(jobs::answer(StatusCode::OK, job))
}

pub async fn delete(call: Call, IdInPath(id): IdInPath<JobId>, _: NoBody) -> Result<StatusCode, ApiError> {
    call.cases.control(id, Verb::Delete).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Responds with the added execution.
pub async fn trigger(
    call: Call,
    IdInPath(id): IdInPath<JobId>,
    name: RequestName,
    body: OptionalBody<BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let run = |_| async { added(&call, call.cases.trigger(id, requested(body.parse()?)).await?).await };
    once(&call, name, &body.0.bytes, Repeating::Unsafe, run).await
}

/// Runs a finished occurrence once more. Responds with the added execution.
pub async fn rerun(
    call: Call,
    IdInPath(id): IdInPath<ExecutionId>,
    name: RequestName,
    body: OptionalBody<BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let run = |_| async { added(&call, call.cases.rerun(id, requested(body.parse()?)).await?).await };
    once(&call, name, &body.0.bytes, Repeating::Unsafe, run).await
}

fn requested(TriggerRequest { despite_overlap, payload }: TriggerRequest) -> RunRequest {
    RunRequest { despite_overlap, payload: payload.map(|payload| Box::<str>::from(payload).into()) }
}

pub async fn added(call: &Call, added: ExecutionId) -> Result<Response, ApiError> {
    let location = [(LOCATION, format!("{API_PREFIX}/executions/{added}"))];
    Ok((StatusCode::CREATED, location, Json(executions::read(call, added).await?)).into_response())
}

/// The error for a verb that the state of the job does not allow.
pub fn refused(id: JobId, refusal: Refusal) -> ApiError {
    let detail = reason_of(&refusal);
    match refusal {
        Refusal::Stale { version } => ApiError::VersionChanged { version },
        Refusal::Fixed(field) => ApiError::field(field, "cannot be changed after the job was submitted"),
        Refusal::KeyTaken(job) => ApiError::KeyTaken { detail, job },
        Refusal::NameTaken(_) => ApiError::Conflict(detail),
        refusal => ApiError::Advised { detail, advice: advice_on(id, &refusal) },
    }
}

/// Advice on a refusal, where an action helps at once.
fn advice_on(id: JobId, refusal: &Refusal) -> Vec<Advice> {
    match refusal {
        Refusal::Overlap | Refusal::QueueFull => vec![Advice::trigger_job_despite_overlap(id)],
        Refusal::Finished(status) if *status != JobStatus::Cancelled => vec![Advice::trigger_job(id)],
        Refusal::NothingDead => vec![Advice::trigger_job(id)],
        _ => vec![],
    }
}

/// Why the verb was refused, and what to do instead.
pub fn reason_of(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Cancelled | Refusal::Finished(JobStatus::Cancelled) => {
            "the job is cancelled, which is permanent: submit it again as a new job".to_owned()
        }
        Refusal::Finished(status) => {
            format!(
                "the job is {}: it has no executions left to act on; to run it again, trigger it",
                status.as_str()
            )
        }
        Refusal::NothingNext => {
            "the job has no further occurrences of a schedule: only recurring jobs that are not finished have them"
                .to_owned()
        }
        Refusal::NotNext => "the job has fired in the meantime: read its next run again".to_owned(),
        Refusal::BeyondNext(after) => {
            format!("the occurrence after the next one is due at {after}: choose an earlier time, or skip the next one")
        }
        Refusal::NothingToBackfill => {
            "the schedule has no past occurrence in that range: occurrences from its start up to the last one that was \
             due can be filled in"
                .to_owned()
        }
        Refusal::ReplayUnderWay => {
            "missed occurrences of the job, or those of a backfill, are still to run: wait until they have been started"
                .to_owned()
        }
        Refusal::Overlap => {
            "an occurrence of the job is open, and its overlap_policy is SKIP: wait until it has \
                             ended, cancel it, or override the policy to run beside it"
                .to_owned()
        }
        Refusal::QueueFull => {
            "the number of waiting occurrences of the job has reached its overlap_limit: wait until one \
             has ended, raise overlap_limit, or override the policy to run beside them"
                .to_owned()
        }
        Refusal::Backlog => {
            "the number of open occurrences of the job has reached its max_open: wait until one has ended, \
             or raise max_open"
                .to_owned()
        }
        Refusal::Awaited => {
            "other jobs depend on it and wait for its one run: it cannot become recurring".to_owned()
        }
        Refusal::NothingDead => "the job has no dead letter: to run it once more, trigger it".to_owned(),
        Refusal::KeyTaken(job) => {
            format!("job {job} now has the unique_key: wait until that one is finished, or cancel it")
        }
        Refusal::NameTaken(job) => format!("the name identifies job {job}: change that one, or delete it"),
        Refusal::Stale { .. } | Refusal::Fixed(_) | Refusal::Numbered(_) => refusal.to_string(),
    }
}

/// Why nothing can be retried, depending on the job's open executions, because of which a trigger might be
/// refused.
fn nothing_dead(view: &JobView) -> ApiError {
    let retry = view.open.iter().find(|live| live.attempt > 1 && !live.is_running());
    let mut advice = vec![];
    let what = match (retry, view.open.first()) {
        (Some(live), _) if views::waits_for_retry(live) => {
            format!("{} runs by itself at {}", live.execution(), live.available_at)
        }
        (Some(live), _) if live.is_closed_by(Gate::Paused) => {
            advice.push(Advice::resume_job(view.job.id));
            format!("{} runs by itself once the job is resumed", live.execution())
        }
        (_, Some(live)) if live.is_running() => format!("{} still runs", live.execution()),
        (_, Some(live)) => format!("{} has yet to run", live.execution()),
        (_, None) => return refused(view.job.id, Refusal::NothingDead),
    };
    ApiError::Advised { detail: format!("the job has no dead letter: {what}"), advice }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::gates::Gates;
    use punctual_core::job::{Job, JobSpec, Priority, StoredStatus};
    use punctual_core::occurrence::{Live, LiveState, Origin};
    use punctual_core::time::Timestamp;
    use std::time::Duration;

    #[test]
    fn every_refusal_says_what_to_do() {
        let (id, other) = (JobId::new(Timestamp::EPOCH, 2), JobId::new(Timestamp::EPOCH, 1));
        for (refusal, status, said) in [
            (Refusal::Finished(JobStatus::Completed), 409, "the job is COMPLETED"),
            (Refusal::Cancelled, 409, "submit it again"),
            (Refusal::Finished(JobStatus::Cancelled), 409, "submit it again"),
            (Refusal::Overlap, 409, "override the policy"),
            (Refusal::QueueFull, 409, "overlap_limit"),
            (Refusal::Backlog, 409, "max_open"),
            (Refusal::NothingDead, 409, "trigger it"),
            (Refusal::KeyTaken(other), 409, "unique_key"),
            (Refusal::Stale { version: 4 }, 412, "version 4"),
            (Refusal::Fixed("owner_id"), 422, "owner_id cannot be changed"),
        ] {
            let problem = refused(id, refusal.clone()).problem();
            assert_eq!(problem.status, status, "{refusal:?}");
            assert!(problem.detail.as_ref().is_some_and(|detail| detail.contains(said)), "{problem:?}");
        }
        let taken = refused(id, Refusal::KeyTaken(other)).problem();
        assert_eq!((taken.job_id, &taken.advice[1]), (Some(other), &Advice::cancel_job(other)));
        let stale = refused(id, Refusal::Stale { version: 4 }).problem();
        assert_eq!((stale.version, stale.advice), (Some(4), vec![Advice::change_version(4)]));
        let overlap = refused(id, Refusal::Overlap).problem();
        assert_eq!(overlap.advice, [Advice::trigger_job_despite_overlap(id)]);
        assert_eq!(refused(id, Refusal::Cancelled).problem().advice, []);
    }

    #[test]
    fn a_finished_job_is_not_to_be_triggered_in_order_to_stop_it() {
        let id = JobId::new(Timestamp::EPOCH, 1);
        let advice = |verb| finished(id, JobStatus::Completed, &verb).problem().advice;
        assert_eq!((advice(Verb::Cancel), advice(Verb::Pause)), (vec![], vec![]));
        assert_eq!(advice(Verb::Resume), [Advice::trigger_job(id)]);
    }

    #[test]
    fn a_retry_without_a_dead_letter_says_what_comes_by_itself() {
        let (id, epoch) = (JobId::new(Timestamp::EPOCH, 1), Timestamp::EPOCH);
        let job = Job {
            id,
            version: 1,
            mark: StoredStatus::Active,
            numbered: None,
            fired: 0,
            created_at: epoch,
            updated_at: epoch,
            spec: JobSpec::named("report"),
        };
        let said = |open: Option<(u32, LiveState)>| {
            let origin = Origin::Schedule;
            let live =
                Live::fired(id.occurrence(1), epoch, origin, 1, Priority::DEFAULT, epoch, Duration::ZERO);
            let open = open.map(|(attempt, state)| Live { attempt, state, ..live });
            let job = job.clone();
            let view = JobView { job, schedule: None, open: open.into_iter().collect(), last_finished: None };
            nothing_dead(&view).to_string()
        };
        let none = "the job has no dead letter: ";
        let waits = Gates::only(Gate::Time);
        assert_eq!(said(None), format!("{none}to run it once more, trigger it"));
        assert_eq!(
            said(Some((2, LiveState::Waiting(waits)))),
            format!("{none}{id}.1.2 runs by itself at 1970-01-01T00:00:00Z")
        );
        assert_eq!(
            said(Some((2, LiveState::Waiting(waits.with(Gate::Paused))))),
            format!("{none}{id}.1.2 runs by itself once the job is resumed")
        );
        assert_eq!(said(Some((1, LiveState::Queued))), format!("{none}{id}.1.1 has yet to run"));
    }
}
