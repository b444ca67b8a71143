//! From what the store shows to what goes over the wire.

use punctual_client::{
    DeadLetterBody, ExecutionBody, ExecutionStatus, JobBody, LaneBody, LastExecution, OccurrencePreview,
    PreviewBody, PriorityBody, ReplayRate, RetryBody, RetryStrategy, ScheduleType, Seconds, SkipRangeBody,
    Span, SubmitJob, SubmittedBody, WorkerBody,
};
use punctual_core::gates::{Gate, Gates};
use punctual_core::job::JobStatus;
use punctual_core::lifecycle::Status;
use punctual_core::occurrence::{Finished, Live, LiveState};
use punctual_core::ports::{DeadLetter, Depth, JobView, SessionRow};
use punctual_core::recurrence::{Recurrence, Rule};
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
    let times = schedule_fields(&job.spec.settings.schedule);
    let schedule_type = times.schedule_type.unwrap_or(ScheduleType::Immediate);
    JobBody {
        job_id: job.id,
        name: job.spec.name,
        job_type: job.spec.job_type,
        payload: raw_json(job.spec.payload),
        queue: job.spec.queue,
        priority: PriorityBody(job.spec.priority),
        schedule_type,
        execute_at: times.execute_at,
        cron_expression: times.cron_expression,
        interval: times.interval,
        timezone: times.timezone,
        dst_gap: times.dst_gap,
        dst_overlap: times.dst_overlap,
        misfire_policy: times.misfire_policy,
        misfire_grace: times.misfire_grace,
        misfire_limit: times.misfire_limit,
        max_lateness: times.max_lateness,
        replay_rate: times.replay_rate,
        jitter: times.jitter,
        max_runs: times.max_runs,
        start_at: times.start_at,
        end_at: times.end_at,
        schedule_description: description(&job.spec.settings.schedule),
        overlap_policy: (schedule_type == ScheduleType::Recurring).then_some(job.spec.settings.overlap),
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
    open.or(view.schedule.as_ref().map(|schedule| schedule.due_at))
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

/// The fields that say when a job runs, as they were submitted.
fn schedule_fields(schedule: &Schedule) -> SubmitJob {
    let none = SubmitJob::default();
    let recurring = match schedule {
        Schedule::Immediate => {
            return SubmitJob { schedule_type: Some(ScheduleType::Immediate), ..none };
        }
        Schedule::OneTime { at } => {
            let schedule_type = Some(ScheduleType::OneTime);
            return SubmitJob { schedule_type, execute_at: Some(*at), ..none };
        }
        Schedule::Recurring(recurring) => recurring,
    };
    let spec = recurring.recurrence.spec();
    let (cron_expression, interval) = match &spec.rule {
        Rule::Cron { pattern, .. } => (Some(pattern.clone()), None),
        Rule::Interval { every, .. } => (None, Some(every.clone())),
    };
    let span = |ms: u64| Span::from(Duration::from_millis(ms));
    let misfire = &recurring.misfire;
    SubmitJob {
        schedule_type: Some(ScheduleType::Recurring),
        cron_expression,
        interval,
        timezone: Some(spec.zone.clone()),
        dst_gap: spec.dst_gap,
        dst_overlap: spec.dst_overlap,
        misfire_policy: Some(misfire.policy),
        misfire_grace: Some(span(misfire.grace_ms)),
        misfire_limit: misfire.limit,
        max_lateness: misfire.max_lateness_ms.map(span),
        replay_rate: misfire.replay_per_minute.map(|per_minute| ReplayRate { per_minute }),
        jitter: (recurring.jitter_ms > 0).then(|| span(recurring.jitter_ms)),
        max_runs: recurring.max_runs,
        start_at: spec.start_at,
        end_at: spec.end_at,
        ..none
    }
}

fn description(schedule: &Schedule) -> Option<String> {
    match schedule {
        Schedule::Recurring(recurring) => Some(recurring.recurrence.describe()),
        Schedule::Immediate | Schedule::OneTime { .. } => None,
    }
}

/// The next occurrences of a recurrence, and what it means.
pub fn preview(recurrence: &Recurrence, after: Timestamp, count: usize) -> PreviewBody {
    let occurrences = recurrence.preview(after, count).into_iter().map(|fire| OccurrencePreview {
        scheduled_time: fire.at,
        local_time: fire.local,
        dst: fire.dst,
    });
    PreviewBody { description: recurrence.describe(), occurrences: occurrences.collect() }
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
