//! From what the store shows to what goes over the wire.

use punctual_client::{
    DeadLetterBody, ExecutionBody, ExecutionStatus, JobBody, LaneBody, LastExecution, PriorityBody,
    RetryBody, RetryStrategy, ScheduleType, Seconds, SkipRangeBody, Span, SubmittedBody, WorkerBody,
};
use punctual_core::gates::{Gate, Gates};
use punctual_core::job::{JobStatus, Settings};
use punctual_core::lifecycle::Status;
use punctual_core::occurrence::{Finished, Live, LiveState};
use punctual_core::ports::{DeadLetter, Depth, JobView, SessionRow};
use punctual_core::retry::RetryPolicy;
use punctual_core::schedule::{Schedule, SkipRange};
use punctual_core::time::Timestamp;
use punctual_engine::Submitted;
use serde_json::value::RawValue;
use std::time::Duration;

pub fn submitted(submitted: Submitted) -> SubmittedBody {
    SubmittedBody { job_id: submitted.job, status: submitted.status, next_run_time: submitted.next_run_time }
}

pub fn job(view: JobView) -> JobBody {
    let status = view.status();
    let last = view.last_finished.as_ref();
    let next_run_time = next_run_time(&view);
    let next_retry_time = view.open.iter().find(|live| waits_for_retry(live)).map(|live| live.available_at);
    let last_run_time = view.open.iter().find_map(claimed_at).or(last.and_then(|last| last.started_at));
    let job = view.job;
    let times = ScheduleFields::of(&job.spec.settings);
    JobBody {
        job_id: job.id,
        name: job.spec.name,
        job_type: job.spec.job_type,
        payload: raw_json(job.spec.payload),
        queue: job.spec.queue,
        priority: PriorityBody(job.spec.priority),
        schedule_type: times.schedule_type,
        execute_at: times.execute_at,
        interval: times.interval,
        max_runs: times.max_runs,
        start_at: times.start_at,
        end_at: times.end_at,
        overlap_policy: (times.schedule_type == ScheduleType::Recurring).then_some(job.spec.settings.overlap),
        max_retries: job.spec.settings.max_retries,
        retry: retry(&job.spec.settings.retry),
        timeout_secs: Seconds::from_millis(job.spec.settings.timeout_ms),
        owner_id: job.spec.owner,
        tags: job.spec.settings.tags,
        status,
        status_reason: last
            .filter(|_| status == JobStatus::Failed)
            .map(|last| reason_of_failure(last, job.spec.settings.max_retries)),
        next_run_time,
        next_retry_time,
        last_run_time,
        last_error: last.and_then(|last| last.error.clone()),
        last_execution: last.map(|last| LastExecution {
            execution_id: last.id,
            status: last.status.into(),
            completed_at: last.completed_at,
        }),
        version: job.version,
        created_at: job.created_at,
        updated_at: job.updated_at,
    }
}

fn next_run_time(view: &JobView) -> Option<Timestamp> {
    let unstarted = view.open.iter().filter(|live| live.attempt == 1 && claimed_at(live).is_none());
    let open = unstarted.map(|live| live.available_at).min();
    open.or(view.schedule.as_ref().map(|schedule| schedule.nominal))
}

fn claimed_at(live: &Live) -> Option<Timestamp> {
    match live.state {
        LiveState::Running(lease) => Some(lease.claimed_at),
        LiveState::Waiting(_) | LiveState::Queued => None,
    }
}

fn waits_for_retry(live: &Live) -> bool {
    let waits_for_time = matches!(live.state, LiveState::Waiting(gates) if gates.contains(Gate::Time));
    waits_for_time && live.attempt > 1
}

/// Why a job stays queued although nothing else is in its way.
pub fn reason_of_queueing(job_type: &str) -> String {
    format!("waits for a worker that has a handler for {job_type}; none is connected")
}

fn reason_of_failure(last: &Finished, max_retries: u32) -> String {
    let attempt = last.id.attempt;
    let how = match last.status {
        Status::TimedOut => "ran out of time",
        Status::Lost => "was lost with its worker",
        Status::Skipped => "was skipped",
        Status::Expired => "expired",
        Status::Succeeded | Status::Failed | Status::Cancelled => "failed",
    };
    // Retries were left and none followed: the handler has said that another try would not help.
    let why = if attempt <= max_retries { "cannot be retried" } else { "no retry is left" };
    format!("attempt {attempt} {how} and {why}")
}

/// The fields that say when a job runs.
struct ScheduleFields {
    schedule_type: ScheduleType,
    execute_at: Option<Timestamp>,
    interval: Option<Span>,
    max_runs: Option<u32>,
    start_at: Option<Timestamp>,
    end_at: Option<Timestamp>,
}

impl ScheduleFields {
    fn of(settings: &Settings) -> Self {
        let none = ScheduleFields {
            schedule_type: ScheduleType::Immediate,
            execute_at: None,
            interval: None,
            max_runs: None,
            start_at: None,
            end_at: None,
        };
        match settings.schedule {
            Schedule::Immediate => none,
            Schedule::OneTime { at } => {
                ScheduleFields { schedule_type: ScheduleType::OneTime, execute_at: Some(at), ..none }
            }
            Schedule::Interval { every_us, anchor, max_runs, end_at } => ScheduleFields {
                schedule_type: ScheduleType::Recurring,
                execute_at: None,
                interval: Some(Duration::from_micros(u64::try_from(every_us).unwrap_or(0)).into()),
                max_runs,
                start_at: Some(anchor),
                end_at,
            },
        }
    }
}

fn retry(policy: &RetryPolicy) -> RetryBody {
    let span = |ms: &u64| Span::from(Duration::from_millis(*ms));
    match policy {
        RetryPolicy::Exponential { delay_ms, max_delay_ms } => RetryBody {
            strategy: Some(RetryStrategy::Exponential),
            delay: Some(span(delay_ms)),
            max_delay: Some(span(max_delay_ms)),
            steps: None,
        },
        RetryPolicy::Fixed { delay_ms } => RetryBody {
            strategy: Some(RetryStrategy::Fixed),
            delay: Some(span(delay_ms)),
            ..RetryBody::default()
        },
        RetryPolicy::Ladder { steps_ms } => RetryBody {
            strategy: Some(RetryStrategy::Ladder),
            steps: Some(steps_ms.iter().map(span).collect()),
            ..RetryBody::default()
        },
    }
}

pub fn live(live: &Live, worker: Option<String>) -> ExecutionBody {
    let gates = match live.state {
        LiveState::Waiting(gates) => gates,
        LiveState::Queued | LiveState::Running(_) => Gates::NONE,
    };
    ExecutionBody {
        execution_id: live.execution(),
        job_id: live.id.job,
        job_version: live.job_version,
        scheduled_time: live.scheduled_time,
        origin: live.origin,
        attempt_number: live.attempt,
        status: live.state().into(),
        reason: None,
        gates: gates.iter().collect(),
        worker_id: worker,
        available_at: live.available_at,
        started_at: claimed_at(live),
        completed_at: None,
        error_message: None,
        result: None,
        progress: None,
    }
}

pub fn finished(finished: Finished) -> ExecutionBody {
    ExecutionBody {
        execution_id: finished.id,
        job_id: finished.id.occurrence.job,
        job_version: finished.job_version,
        scheduled_time: finished.scheduled_time,
        origin: finished.origin,
        attempt_number: finished.id.attempt,
        status: ExecutionStatus::from(finished.status),
        reason: None,
        gates: vec![],
        worker_id: finished.worker,
        available_at: finished.available_at,
        started_at: finished.started_at,
        completed_at: Some(finished.completed_at),
        error_message: finished.error,
        result: finished.result.and_then(raw_json),
        progress: None,
    }
}

pub fn skip_range(range: SkipRange) -> SkipRangeBody {
    SkipRangeBody { first: range.first, last: range.last, count: range.count, reason: range.reason }
}

pub fn dead_letter(letter: DeadLetter) -> DeadLetterBody {
    DeadLetterBody {
        occurrence_id: letter.occurrence,
        job_id: letter.occurrence.job,
        name: letter.job_name,
        job_type: letter.job_type,
        queue: letter.queue,
        attempts: letter.attempts,
        died_at: letter.died_at,
        error_message: letter.error,
    }
}

pub fn lane(depth: Depth) -> LaneBody {
    LaneBody {
        queue: depth.lane.queue().to_owned(),
        job_type: depth.lane.job_type().to_owned(),
        waiting: depth.waiting,
        queued: depth.queued,
        running: depth.running,
        oldest_queued_at: depth.oldest_queued,
    }
}

pub fn worker(session: SessionRow) -> WorkerBody {
    WorkerBody {
        worker_id: session.worker,
        slots: session.slots,
        job_types: session.job_types,
        started_at: session.opened_at,
        last_heartbeat_at: session.beaten_at,
    }
}

/// JSON text as it is; `None` if it is not JSON, which only a damaged store could bring about.
fn raw_json(text: String) -> Option<Box<RawValue>> {
    RawValue::from_string(text).ok()
}
