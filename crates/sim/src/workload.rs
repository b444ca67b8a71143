//! The jobs of a run and when clients submit them: all kinds of schedule, priority, retry policy and handler,
//! small times, and every one of them with an end.

use crate::handlers::{Behaviour, Failing};
use crate::random::Rng;
use punctual_core::job::{JobSpec, Priority};
use punctual_core::recurrence::{RecurrenceSpec, Rule};
use punctual_core::retry::RetryPolicy;
use punctual_core::schedule::{Misfire, MisfirePolicy, OverlapPolicy, Recurring, Schedule};
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
        _ => recurring(rng, now).into(),
    }
}

/// Cron patterns of seconds and minutes.
const PATTERNS: [&str; 6] = [
    "* * * * * *",
    "*/3 * * * * *",
    "5-50/7 * * * * *",
    "0,1,30 * * * * *",
    "*/20 */2 * * * *",
    "0 * * * * *",
];

fn recurring(rng: &mut Rng, now: Timestamp) -> Recurring {
    let runs = rng.between(1, 12) as u32;
    let mut spec = if rng.per_mille(500) {
        // A zone without changes of clocks, but half an hour off the others.
        let zone = if rng.per_mille(500) { "UTC" } else { "Asia/Kolkata" };
        let pattern = *rng.pick(&PATTERNS);
        RecurrenceSpec::cron(pattern, 0).in_zone(zone)
    } else {
        let every_ms = if rng.per_mille(100) { rng.between(100, 400) } else { rng.between(400, 8_000) };
        let anchor = now.shifted(rng.below(8_000_000) as i64 - 2_000_000);
        RecurrenceSpec::interval(&format!("{every_ms}ms"), anchor)
    };
    let is_fast = matches!(&spec.rule, Rule::Interval { every, .. } if every.len() < "1000ms".len());
    let max_runs = (is_fast || !rng.per_mille(300)).then_some(runs);
    if max_runs.is_none() || rng.per_mille(300) {
        spec.end_at = Some(now.shifted(rng.between(10_000_000, 40_000_000) as i64));
    }
    let recurring = Recurring::new(spec).expect("the workload's schedules are valid");
    Recurring { max_runs, misfire: misfire(rng), ..recurring }
}

fn misfire(rng: &mut Rng) -> Misfire {
    let policy = *rng.pick(&[MisfirePolicy::SkipMissed, MisfirePolicy::RunOnce, MisfirePolicy::RunAll]);
    let bounded = policy == MisfirePolicy::RunAll;
    // Short, so that small outages miss something; but longer than anything takes in calm weather, or a job
    // that has to run so many times would never get there.
    let grace_ms = if rng.per_mille(700) { rng.between(300, 3_000) } else { Misfire::default().grace_ms };
    Misfire {
        policy,
        grace_ms,
        limit: (bounded && rng.per_mille(400)).then(|| rng.between(1, 20) as u32),
        max_lateness_ms: (bounded && rng.per_mille(400)).then(|| rng.between(0, 20_000)),
        replay_per_minute: (bounded && rng.per_mille(600)).then(|| rng.between(30, 600) as u32),
    }
}

/// Time that the handlers of this job need in all if every attempt is made and takes its longest, one after
/// the other.
pub fn work_of(spec: &JobSpec) -> Duration {
    let runs = match &spec.settings.schedule {
        // Without a count they end within 40 seconds, and none fires more often than once a second.
        Schedule::Recurring(recurring) => u64::from(recurring.max_runs.unwrap_or(40)),
        Schedule::Immediate | Schedule::OneTime { .. } => 1,
    };
    let attempts = u64::from(spec.settings.max_retries) + 1;
    Duration::from_millis(spec.settings.timeout_ms) * u32::try_from(runs * attempts).unwrap_or(u32::MAX)
}
