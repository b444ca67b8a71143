//! Converts the core's description of a job back to the fields of a submission, for reading a job and for
//! changing only some of its fields.

use punctual_client::{
    Growth, PriorityBody, ReplayRate, RetryBody, RetryStrategy, ScheduleType, Seconds, Span, SubmitJob,
};
use punctual_core::job::{Expiry, JobSpec, Settings};
use punctual_core::recurrence::Rule;
use punctual_core::retry::RetryPolicy;
use punctual_core::schedule::{OverlapPolicy, Schedule};
use std::time::Duration;

/// The job as its user could have submitted it, with defaults filled in, without its payload.
pub fn as_submitted(spec: &JobSpec) -> SubmitJob {
    let settings = &spec.settings;
    let is_recurring = matches!(settings.schedule, Schedule::Recurring(_));
    let overlap = settings.overlap;
    let (expires_at, expires_after) = match settings.expiry {
        Some(Expiry::At(at)) => (Some(at), None),
        Some(Expiry::AfterMs(ms)) => (None, Some(span(ms))),
        None => (None, None),
    };
    SubmitJob {
        name: spec.name.clone(),
        job_type: Some(spec.job_type.clone()),
        queue: Some(spec.queue.clone()),
        priority: Some(PriorityBody(spec.priority)),
        overlap_policy: (is_recurring || overlap != OverlapPolicy::default()).then_some(overlap),
        overlap_limit: (is_recurring && overlap == OverlapPolicy::Queue).then_some(settings.overlap_limit),
        max_open: is_recurring.then_some(settings.max_open),
        max_retries: Some(settings.max_retries),
        retry: Some(retry(settings)),
        timeout_secs: Some(Seconds::from_millis(settings.timeout_ms)),
        expires_at,
        expires_after,
        owner_id: Some(spec.owner.clone()),
        idempotency_key: settings.idempotency_key.clone(),
        unique_key: settings.unique_key.clone(),
        concurrency_key: settings.concurrency_key.clone(),
        depends_on: Some(settings.depends_on.clone()),
        tags: Some(settings.tags.clone()),
        ..schedule_fields(&settings.schedule)
    }
}

/// A recurring schedule in plain English.
pub fn in_words(schedule: &Schedule) -> Option<String> {
    match schedule {
        Schedule::Recurring(recurring) => Some(recurring.recurrence.describe()),
        Schedule::Immediate | Schedule::OneTime { .. } => None,
    }
}

/// The fields that say when a job runs.
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

/// The retry settings of a job. Default values that have no field in the policy are left out.
fn retry(settings: &Settings) -> RetryBody {
    RetryBody {
        fail_on: (!settings.fail_on.is_empty()).then(|| settings.fail_on.clone()),
        timeout_growth: (settings.timeout_growth_pct != 100)
            .then_some(Growth { percent: settings.timeout_growth_pct }),
        ..waits(&settings.retry)
    }
}

fn waits(policy: &RetryPolicy) -> RetryBody {
    match policy {
        RetryPolicy::Exponential { delay_ms, max_delay_ms } => RetryBody {
            strategy: Some(RetryStrategy::Exponential),
            delay: Some(span(*delay_ms)),
            max_delay: Some(span(*max_delay_ms)),
            ..RetryBody::default()
        },
        RetryPolicy::Fixed { delay_ms } => RetryBody {
            strategy: Some(RetryStrategy::Fixed),
            delay: Some(span(*delay_ms)),
            ..RetryBody::default()
        },
        RetryPolicy::Ladder { steps_ms } => RetryBody {
            strategy: Some(RetryStrategy::Ladder),
            steps: Some(steps_ms.iter().copied().map(span).collect()),
            ..RetryBody::default()
        },
    }
}

fn span(ms: u64) -> Span {
    Span::from(Duration::from_millis(ms))
}
