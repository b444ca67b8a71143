//! The rules of attempts that the auditor computes for itself: statuses, times of retries, timeouts, and which claims serve a lane.

use punctual_core::ids::ExecutionId;
use punctual_core::job::{JobSpec, Settings};
use punctual_core::lifecycle::{Ending, Status};
use punctual_core::occurrence::ReportedEnd;
use punctual_core::ports::{Claim, CommitEffects, DueKind, Lane};
use punctual_core::retry::{ChosenTime, RetryPolicy};
use punctual_core::time::Timestamp;

pub(super) fn status_of(ending: Ending) -> Status {
    match ending {
        Ending::Succeeded => Status::Succeeded,
        Ending::Failed => Status::Failed,
        Ending::TimedOut => Status::TimedOut,
        Ending::Cancelled => Status::Cancelled,
        Ending::Lost => Status::Lost,
        Ending::Snoozed => Status::Snoozed,
    }
}

/// The time that a handler has chosen. The workload chooses short delays only.
pub(super) fn chosen_time(end: &ReportedEnd, now: Timestamp) -> Timestamp {
    match end.next_at {
        Some(ChosenTime::After(delay)) => now.plus(delay),
        Some(ChosenTime::At(time)) => time.max(now),
        None => now,
    }
}

/// The due time of an attempt according to the commit effects.
pub(super) fn retry_time_in(effects: &CommitEffects, next: ExecutionId) -> Option<Timestamp> {
    let what = DueKind::Live { occurrence: next.occurrence, attempt: next.attempt };
    effects.due.iter().find(|due| due.what == what).map(|due| due.at)
}

/// Whether the job's policy excludes this failure from retries.
pub(super) fn is_final(spec: &JobSpec, status: Status, error: Option<&str>) -> bool {
    spec.settings.fail_on.iter().any(|text| match status {
        Status::TimedOut if text == "TIMED_OUT" => true,
        Status::Lost if text == "LOST" => true,
        _ => error.is_some_and(|error| error.contains(text)),
    })
}

/// The timeout of an attempt after this many charged attempts.
pub(super) fn timeout_ns(settings: &Settings, charged: u32) -> u128 {
    let first = u128::from(settings.timeout_ms) * 1_000_000;
    (0..charged).fold(first, |timeout, _| timeout * u128::from(settings.timeout_growth_pct) / 100)
}

pub(super) fn serves(claim: &Claim, lane: &Lane) -> bool {
    (claim.queues.is_empty() || claim.queues.iter().any(|queue| queue == lane.queue()))
        && claim.job_types.iter().any(|job_type| job_type == lane.job_type())
}

/// The delay before the n-th retry, without jitter.
pub(super) fn backoff_ms(policy: &RetryPolicy, retry: u32) -> u64 {
    match policy {
        RetryPolicy::Fixed { delay_ms } => *delay_ms,
        RetryPolicy::Exponential { delay_ms, max_delay_ms } => {
            let mut wait = *delay_ms;
            for _ in 1..retry {
                wait = (wait * 2).min(*max_delay_ms);
            }
            wait.min(*max_delay_ms)
        }
        RetryPolicy::Ladder { steps_ms } => {
            let last = steps_ms.last().copied().unwrap_or(0);
            steps_ms.get(retry as usize - 1).copied().unwrap_or(last)
        }
    }
}
