//! The jobs of a run and when clients submit them: all kinds of schedule, priority, retry policy and handler,
//! small times, and every one of them with an end.

use crate::handlers::{Behaviour, Failing};
use crate::random::Rng;
use punctual_core::job::{JobSpec, Priority};
use punctual_core::retry::RetryPolicy;
use punctual_core::schedule::{OverlapPolicy, Schedule};
use punctual_core::time::Timestamp;
use std::time::Duration;

pub const QUEUES: [&str; 3] = ["default", "mail", "reports"];
pub const JOB_TYPES: [&str; 3] = ["alpha", "beta", "gamma"];
const OWNERS: [&str; 4] = ["ann", "ben", "cem", "dia"];

/// How long clients wait before their first request: in a run without faults every node is up by then.
const UP_AND_RUNNING: Duration = Duration::from_millis(200);

/// One request of a client.
#[derive(Debug, Clone)]
pub struct Submission {
    pub after: Duration,
    pub jobs: Vec<JobSpec>,
}

/// All requests of a run that begins at `start` and has faults for `faults_for`.
pub fn workload(rng: &mut Rng, start: Timestamp, faults_for: Duration) -> Vec<Submission> {
    let count = if rng.per_mille(150) { rng.between(100, 300) } else { rng.between(10, 80) };
    let span_ms = faults_for.as_millis() as u64;
    let mut submissions = Vec::new();
    let mut left = count;
    while left > 0 {
        let size = if rng.per_mille(200) { rng.between(2, 12).min(left) } else { 1 };
        left -= size;
        let after = UP_AND_RUNNING + Duration::from_micros(rng.below(span_ms * 1_000));
        let jobs = (0..size).map(|_| job(rng, start.plus(after), faults_for)).collect();
        submissions.push(Submission { after, jobs });
    }
    submissions.sort_by_key(|submission| submission.after);
    submissions
}

fn job(rng: &mut Rng, now: Timestamp, faults_for: Duration) -> JobSpec {
    let mut spec = JobSpec::named(format!("job-{}", rng.below(50)));
    spec.job_type = (*rng.pick(&JOB_TYPES)).to_owned();
    spec.queue = (*rng.pick(&QUEUES)).to_owned();
    spec.owner = (*rng.pick(&OWNERS)).to_owned();
    spec.priority = Priority::new(rng.between(1, 10) as u8).unwrap_or_default();
    let behaviour = behaviour(rng);
    spec.payload = behaviour.payload();
    let settings = &mut spec.settings;
    settings.max_retries = rng.below(5) as u32;
    settings.retry = retry(rng);
    settings.timeout_ms = if behaviour.failing == Failing::Hanging {
        rng.between(200, 2_000)
    } else {
        behaviour.lasts_ms + rng.between(1_000, 20_000)
    };
    settings.schedule = schedule(rng, now, faults_for);
    if rng.per_mille(500) {
        settings.overlap = OverlapPolicy::Allow;
    }
    spec
}

fn behaviour(rng: &mut Rng) -> Behaviour {
    let lasts_ms = match rng.below(10) {
        0 => rng.between(3_000, 12_000),
        1..=3 => rng.between(500, 2_500),
        _ => rng.below(300),
    };
    let (failures, failing) = match rng.below(20) {
        0..=10 => (0, Failing::Retryable),
        11..=13 => (rng.between(1, 4) as u32, Failing::Retryable),
        14..=15 => (u32::MAX, Failing::Retryable),
        16 => (u32::MAX, Failing::ForGood),
        17..=18 => (rng.between(1, 3) as u32, Failing::Hanging),
        _ => (u32::MAX, Failing::Hanging),
    };
    Behaviour { failures, failing, lasts_ms }
}

fn retry(rng: &mut Rng) -> RetryPolicy {
    match rng.below(3) {
        0 => RetryPolicy::Fixed { delay_ms: rng.between(0, 3_000) },
        1 => {
            RetryPolicy::Exponential { delay_ms: rng.between(10, 500), max_delay_ms: rng.between(500, 4_000) }
        }
        _ => RetryPolicy::Ladder { steps_ms: (0..rng.between(1, 3)).map(|_| rng.below(3_000)).collect() },
    }
}

fn schedule(rng: &mut Rng, now: Timestamp, faults_for: Duration) -> Schedule {
    let span_us = faults_for.as_micros() as i64;
    match rng.below(10) {
        0..=4 => Schedule::Immediate,
        5..=7 => Schedule::OneTime { at: now.shifted(rng.below(span_us as u64 * 2) as i64 - span_us / 2) },
        _ => {
            let every_us = if rng.per_mille(100) {
                rng.between(100_000, 400_000) as i64
            } else {
                rng.between(400_000, 8_000_000) as i64
            };
            // Some begin so long ago that their first times are missed for good.
            let ago_us = if rng.per_mille(150) { 150_000_000 } else { 2_000_000 };
            let anchor = now.shifted(rng.below(ago_us as u64 + 6_000_000) as i64 - ago_us);
            let runs = rng.between(1, 12) as u32;
            let end_at = anchor.shifted(ago_us + every_us * i64::from(runs) + 1_000_000);
            let (max_runs, end_at) = match rng.below(3) {
                0 => (Some(runs), None),
                1 => (None, Some(end_at)),
                _ => (Some(runs), Some(end_at)),
            };
            Schedule::Interval { every_us, anchor, max_runs, end_at }
        }
    }
}

/// Time that the handlers of this job need in all if every attempt is made and takes its longest, one after
/// the other.
pub fn work_of(spec: &JobSpec) -> Duration {
    let runs = match spec.settings.schedule {
        Schedule::Interval { every_us, anchor, max_runs, end_at } => {
            let by_end = end_at.map(|end| end.since(anchor).as_micros() as u64 / every_us as u64 + 1);
            max_runs.map(u64::from).into_iter().chain(by_end).min().unwrap_or(1)
        }
        Schedule::Immediate | Schedule::OneTime { .. } => 1,
    };
    let attempts = u64::from(spec.settings.max_retries) + 1;
    Duration::from_millis(spec.settings.timeout_ms) * u32::try_from(runs * attempts).unwrap_or(u32::MAX)
}
