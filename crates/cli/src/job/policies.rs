//! A job's policies for failures and delays, one line each.

use punctual_client::{JobBody, RetryStrategy, Span};
use punctual_core::retry::RetryPolicy;
use punctual_core::schedule::{MisfirePolicy, OverlapPolicy};
use std::time::Duration;

/// How often and when a failed attempt is retried.
pub fn retries(job: &JobBody) -> String {
    let count = match job.max_retries {
        0 => return "no retries".to_owned(),
        1 => "1 retry".to_owned(),
        count => format!("{count} retries"),
    };
    let growth = match job.retry.timeout_growth {
        Some(growth) if growth.percent != 100 => {
            format!("; the time limit grows by a factor of {} each time", f64::from(growth.percent) / 100.0)
        }
        _ => String::new(),
    };
    format!("{count}, {}{growth}", pauses(job))
}

fn pauses(job: &JobBody) -> String {
    let retry = &job.retry;
    // A server fills in all of them; absent ones have their defaults.
    let RetryPolicy::Exponential { delay_ms, max_delay_ms } = RetryPolicy::default() else {
        return String::new();
    };
    let of_millis = |millis| Span::from(Duration::from_millis(millis));
    let delay = retry.delay.unwrap_or(of_millis(delay_ms));
    match retry.strategy.unwrap_or(RetryStrategy::Exponential) {
        RetryStrategy::Exponential => {
            format!("exponential from {delay} to {}", retry.max_delay.unwrap_or(of_millis(max_delay_ms)))
        }
        RetryStrategy::Fixed => format!("each after {delay}"),
        RetryStrategy::Ladder => {
            let steps = retry.steps.iter().flatten().map(Span::to_string).collect::<Vec<_>>();
            format!("after {}", steps.join(", "))
        }
    }
}

/// The policy for missed runs, unless it is the default.
pub fn missed(job: &JobBody) -> Option<String> {
    let mut text = match job.misfire_policy.unwrap_or_default() {
        MisfirePolicy::SkipMissed => return None,
        MisfirePolicy::RunOnce => "one run replaces all".to_owned(),
        MisfirePolicy::RunAll => "all are replayed".to_owned(),
    };
    if let Some(limit) = job.misfire_limit {
        text += &format!(", at most {limit}");
    }
    if let Some(lateness) = job.max_lateness {
        text += &format!(", up to {lateness} late");
    }
    if let Some(rate) = job.replay_rate {
        text += &format!(", {rate}");
    }
    Some(text)
}

/// The overlap policy, unless it is the default.
pub fn overlap(job: &JobBody) -> Option<String> {
    let text = match job.overlap_policy.unwrap_or_default() {
        OverlapPolicy::Skip => return None,
        OverlapPolicy::Allow => "runs may overlap".to_owned(),
        OverlapPolicy::Queue => match job.overlap_limit {
            Some(limit) => format!("runs wait for each other, at most {limit}"),
            None => "runs wait for each other".to_owned(),
        },
        OverlapPolicy::Replace => "a new run replaces the previous one".to_owned(),
    };
    Some(text)
}
