//! The jobs of a run and when clients submit them: all kinds of schedules, priorities, retry policies and
//! handlers, with short times, and all of them finite.

use crate::calendar::ClockChange;
use crate::handlers::{Failing, HandlerBehaviour};
use crate::random::Rng;
use punctual_core::job::{Expiry, JobSpec, Priority};
use punctual_core::limiter::{QueueLimits, Rate};
use punctual_core::queue::QueueSettings;
use punctual_core::recurrence::{RecurrenceSpec, Rule};
use punctual_core::retry::RetryPolicy;
use punctual_core::schedule::{Misfire, MisfirePolicy, OverlapPolicy, Recurring, Schedule};
use punctual_core::time::Timestamp;
use std::time::Duration;

pub const QUEUES: [&str; 3] = ["default", "mail", "reports"];
pub const JOB_TYPES: [&str; 3] = ["alpha", "beta", "gamma"];
const OWNERS: [&str; 4] = ["ann", "ben", "cem", "dia"];

/// How long clients wait before their first request: in a run without faults every node is up by then.
pub const UP_AND_RUNNING: Duration = Duration::from_millis(200);

/// The longest time between two starts under a rate limit that remains after the fault phase.
pub const SLOWEST_STEP: Duration = Duration::from_millis(200);

/// Runs with fickle clients, in a thousand.
const FICKLE_PER_MILLE: u64 = 150;

/// One submit request of a client.
#[derive(Debug, Clone)]
pub struct Submission {
    pub after: Duration,
    pub jobs: Vec<JobSpec>,
    /// Each one-time job depends on this many of the jobs known by then.
    pub parents: usize,
    /// Whether the request carries a key, so that repeating it creates nothing twice.
    pub is_keyed: bool,
}

/// All client requests of a run.
#[derive(Debug, Clone)]
pub struct Workload {
    pub submissions: Vec<Submission>,
    /// When clients act on existing objects.
    pub actions: Vec<Duration>,
    /// The limits of queues from the beginning.
    pub limits: Vec<(&'static str, QueueSettings)>,
}

/// Common settings of the jobs of a run.
#[derive(Debug, Clone, Copy)]
pub struct WorkloadSetting {
    pub faults_for: Duration,
    pub change: Option<ClockChange>,
    pub mood: ClientBehaviour,
    /// Whether queues have limits, and owners weights.
    pub is_limited: bool,
}

/// The behaviour of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientBehaviour {
    /// Anything.
    Mixed,
    /// A few one-time jobs that depend on each other, with clients that pause, trigger and postpone them:
    /// executions that wait for several things at once, which hardly happens otherwise.
    Fickle,
}

impl ClientBehaviour {
    pub fn drawn(rng: &mut Rng) -> Self {
        if rng.per_mille(FICKLE_PER_MILLE) { ClientBehaviour::Fickle } else { ClientBehaviour::Mixed }
    }
}

/// All requests of a run that begins at `start`.
pub fn workload(rng: &mut Rng, start: Timestamp, setting: WorkloadSetting) -> Workload {
    let ClientActivity { jobs, actions, submits_for, parents_per_mille } =
        ClientActivity::drawn(rng, setting);
    let mut submissions = Vec::new();
    let mut left = jobs;
    while left > 0 {
        let size = if rng.per_mille(200) { rng.between(2, 12).min(left) } else { 1 };
        left -= size;
        let after = UP_AND_RUNNING + Duration::from_micros(rng.below(submits_for.as_micros() as u64));
        let jobs = (0..size).map(|_| job(rng, start.plus(after), setting)).collect();
        let parents = if rng.per_mille(parents_per_mille) { rng.between(1, 3) as usize } else { 0 };
        submissions.push(Submission { after, jobs, parents, is_keyed: rng.per_mille(250) });
    }
    submissions.sort_by_key(|submission| submission.after);
    let span_us = setting.faults_for.as_micros() as u64;
    let actions = (0..actions).map(|_| UP_AND_RUNNING + Duration::from_micros(rng.below(span_us)));
    let mut actions: Vec<Duration> = actions.collect();
    actions.sort_unstable();
    let is_set = rng.per_mille(250) || setting.is_limited;
    let mut limits: Vec<_> =
        QUEUES.into_iter().filter(|_| is_set).map(|queue| (queue, queue_settings(rng, setting))).collect();
    if setting.is_limited && rng.per_mille(300) {
        // Clients set them later, over an existing backlog.
        limits.clear();
    }
    Workload { submissions, actions, limits }
}

/// Random settings of a queue. Its size limit may be small, so that it is full at times; or it has limits,
/// which admit most of what clients submit.
pub fn queue_settings(rng: &mut Rng, setting: WorkloadSetting) -> QueueSettings {
    if !setting.is_limited {
        return QueueSettings::holding(rng.per_mille(650).then(|| rng.below(9)));
    }
    if rng.per_mille(150) {
        return QueueSettings::default();
    }
    let max_depth = rng.per_mille(100).then(|| rng.between(4, 30));
    let limits = limits(rng);
    if setting.mood == ClientBehaviour::Fickle && rng.per_mille(700) {
        // One at a time, so that there is a wait list with executions that clients pause and postpone.
        return QueueSettings { max_depth, limits: QueueLimits { concurrency: Some(1), ..limits } };
    }
    QueueSettings { max_depth, limits }
}

fn limits(rng: &mut Rng) -> QueueLimits {
    let owners: Vec<&str> = OWNERS.into_iter().filter(|_| rng.per_mille(250)).collect();
    QueueLimits {
        concurrency: rng.per_mille(550).then(|| rng.between(1, 4) as u32),
        rate: rng.per_mille(250).then(|| rate(rng)),
        key_concurrency: rng.per_mille(550).then(|| rng.between(1, 2) as u32),
        key_rate: rng.per_mille(200).then(|| rate(rng)),
        weights: owners.into_iter().map(|owner| (owner.to_owned(), rng.between(2, 5) as u32)).collect(),
    }
}

fn rate(rng: &mut Rng) -> Rate {
    Rate { count: rng.between(1, 40) as u32, per_ms: rng.between(1_000, 5_000) }
}

/// The limits without rates that would make a run last too long.
pub fn without_slow_rates(limits: &QueueLimits) -> QueueLimits {
    let quick = |rate: &Rate| Duration::from_millis(rate.per_ms) / rate.count <= SLOWEST_STEP;
    QueueLimits { rate: limits.rate.filter(quick), key_rate: limits.key_rate.filter(quick), ..limits.clone() }
}

/// The amount of client activity.
struct ClientActivity {
    jobs: u64,
    actions: u64,
    /// They submit within this time.
    submits_for: Duration,
    /// Submissions of jobs with dependencies, in a thousand.
    parents_per_mille: u64,
}

impl ClientActivity {
    fn drawn(rng: &mut Rng, setting: WorkloadSetting) -> Self {
        let faults_for = setting.faults_for;
        if setting.mood == ClientBehaviour::Fickle {
            let (jobs, actions) = (rng.between(4, 16), rng.between(80, 240));
            return ClientActivity { jobs, actions, submits_for: faults_for / 2, parents_per_mille: 800 };
        }
        let (jobs, actions, submits_for) = match rng.below(10) {
            // No actions, so that they cannot hide failures that happen without them.
            0..=1 => (rng.between(10, 80), 0, faults_for),
            // A few jobs that all actions target.
            2..=5 => (rng.between(2, 10), rng.between(40, 160), faults_for / 3),
            6 => (rng.between(80, 160), rng.between(20, 100), faults_for),
            _ => (rng.between(8, 60), rng.between(5, 100), faults_for),
        };
        ClientActivity { jobs, actions, submits_for, parents_per_mille: 350 }
    }
}

fn job(rng: &mut Rng, now: Timestamp, setting: WorkloadSetting) -> JobSpec {
    let mut spec = JobSpec::named(format!("job-{}", rng.below(50)));
    spec.job_type = (*rng.pick(&JOB_TYPES)).to_owned();
    spec.queue = (*rng.pick(&QUEUES)).to_owned();
    // One of them has more to do than the others.
    let owners = if rng.per_mille(400) { &OWNERS[..1] } else { &OWNERS[..] };
    spec.owner = (*rng.pick(owners)).to_owned();
    spec.settings.concurrency_key = concurrency_key(rng);
    spec.priority = Priority::new(rng.between(1, 10) as u8).unwrap_or_default();
    handler(rng, &mut spec);
    spec.settings.retry = retry(rng);
    spec.settings.schedule = schedule(rng, now, setting);
    crowding(rng, &mut spec);
    expiry(rng, &mut spec, now);
    if setting.mood == ClientBehaviour::Fickle {
        fickle(rng, &mut spec, now);
    }
    let settings = &mut spec.settings;
    if rng.per_mille(60) {
        settings.idempotency_key = Some(format!("once-{}", rng.below(3)));
    }
    if rng.per_mille(150) {
        settings.unique_key = Some(format!("unique-{}", rng.below(2)));
    }
    spec
}

fn concurrency_key(rng: &mut Rng) -> Option<String> {
    rng.per_mille(500).then(|| format!("customer-{}", rng.below(3)))
}

/// Makes a job one of those that wait for several things at once.
fn fickle(rng: &mut Rng, spec: &mut JobSpec, now: Timestamp) {
    let lasts_ms = rng.between(500, 4_000);
    let failures = if rng.per_mille(300) { rng.between(1, 2) as u32 } else { 0 };
    let behaviour = HandlerBehaviour { failures, failing: Failing::Retryable, lasts_ms, notes: 0 };
    spec.payload = behaviour.payload();
    let settings = &mut spec.settings;
    settings.timeout_ms = lasts_ms + 2_000;
    settings.schedule = if rng.per_mille(300) { Schedule::Immediate } else { soon(rng, now) };
    settings.overlap = *rng.pick(&[OverlapPolicy::Queue, OverlapPolicy::Skip]);
    settings.expiry = rng.per_mille(500).then(|| Expiry::AfterMs(rng.between(500, 9_000)));
}

fn soon(rng: &mut Rng, now: Timestamp) -> Schedule {
    Schedule::OneTime { at: now.shifted(rng.between(100_000, 8_000_000) as i64) }
}

/// The handler's behaviour, its timeout, and which failures are final.
fn handler(rng: &mut Rng, spec: &mut JobSpec) {
    let behaviour = behaviour(rng);
    spec.payload = behaviour.payload();
    let settings = &mut spec.settings;
    settings.max_retries = rng.below(5) as u32;
    settings.timeout_ms = if behaviour.failing == Failing::Hanging {
        rng.between(200, 2_000)
    } else {
        behaviour.lasts_ms + rng.between(1_000, 20_000)
    };
    settings.timeout_growth_pct = if rng.per_mille(150) { rng.between(101, 200) as u32 } else { 100 };
    settings.fail_on.clear();
    if rng.per_mille(150) {
        settings.fail_on.push((*rng.pick(&["attempt 2", "TIMED_OUT", "LOST"])).to_owned());
    }
}

fn crowding(rng: &mut Rng, spec: &mut JobSpec) {
    let policies = [OverlapPolicy::Skip, OverlapPolicy::Allow, OverlapPolicy::Queue, OverlapPolicy::Replace];
    let settings = &mut spec.settings;
    settings.overlap = *rng.pick(&policies);
    if rng.per_mille(500) {
        settings.overlap_limit = rng.between(1, 3) as u32;
    }
    if rng.per_mille(300) {
        settings.max_open = rng.between(1, 4) as u32;
    }
}

fn expiry(rng: &mut Rng, spec: &mut JobSpec, now: Timestamp) {
    let settings = &mut spec.settings;
    settings.expiry = match rng.below(10) {
        0..=1 => Some(Expiry::AfterMs(rng.between(20, 8_000))),
        2 if settings.schedule.is_one_shot() => {
            let from = match settings.schedule {
                Schedule::OneTime { at } => at.max(now),
                _ => now,
            };
            Some(Expiry::At(from.shifted(rng.between(100_000, 15_000_000) as i64)))
        }
        _ => None,
    };
}

/// An updated description of a job, with a few changes.
pub fn changed(rng: &mut Rng, spec: &JobSpec, now: Timestamp, setting: WorkloadSetting) -> JobSpec {
    let mut spec = spec.clone();
    if setting.mood == ClientBehaviour::Fickle && rng.per_mille(700) {
        spec.settings.schedule = soon(rng, now);
        match rng.below(10) {
            0..=2 => spec.settings.expiry = Some(Expiry::AfterMs(rng.between(500, 9_000))),
            // It expires before the next scan, unless that happens at once.
            3..=4 => spec.settings.expiry = Some(Expiry::AfterMs(rng.between(1, 60))),
            _ => {}
        }
        return spec;
    }
    for _ in 0..rng.between(1, 3) {
        match rng.below(11) {
            10 => spec.settings.concurrency_key = concurrency_key(rng),
            // The same times with other misfire and jitter settings.
            9 => {
                if let Schedule::Recurring(recurring) = &mut spec.settings.schedule {
                    recurring.misfire = misfire(rng);
                    recurring.jitter_ms = if rng.per_mille(500) { rng.below(2_000) } else { 0 };
                }
            }
            0 => spec.queue = (*rng.pick(&QUEUES)).to_owned(),
            1 => spec.job_type = (*rng.pick(&JOB_TYPES)).to_owned(),
            2 => spec.priority = Priority::new(rng.between(1, 10) as u8).unwrap_or_default(),
            3 => handler(rng, &mut spec),
            4 => spec.settings.retry = retry(rng),
            5 => crowding(rng, &mut spec),
            6 => expiry(rng, &mut spec, now),
            _ => {
                let setting = WorkloadSetting { faults_for: setting.faults_for / 3, ..setting };
                spec.settings.schedule = schedule(rng, now, setting);
                if !spec.settings.schedule.is_one_shot() {
                    spec.settings.expiry = None;
                }
            }
        }
    }
    spec
}

fn behaviour(rng: &mut Rng) -> HandlerBehaviour {
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
    let notes = if rng.per_mille(400) { rng.between(1, 4) as u32 } else { 0 };
    HandlerBehaviour { failures, failing, lasts_ms, notes }
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

fn schedule(rng: &mut Rng, now: Timestamp, setting: WorkloadSetting) -> Schedule {
    let span_us = setting.faults_for.as_micros() as i64;
    match rng.below(10) {
        0..=3 => Schedule::Immediate,
        4..=6 => Schedule::OneTime { at: now.shifted(rng.below(span_us as u64 * 2) as i64 - span_us / 2) },
        _ => recurring(rng, now, setting.change).into(),
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

fn recurring(rng: &mut Rng, now: Timestamp, change: Option<ClockChange>) -> Recurring {
    let runs = rng.between(1, 12) as u32;
    let changing = change.filter(|_| rng.per_mille(400));
    let mut spec = if let Some(change) = changing {
        changing_clocks(rng, change)
    } else if rng.per_mille(500) {
        // A zone without daylight saving, with an offset of half an hour.
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
    if changing.is_some() || max_runs.is_none() || rng.per_mille(300) {
        spec.end_at = Some(now.shifted(rng.between(10_000_000, 40_000_000) as i64));
    }
    let recurring = Recurring::new(spec).expect("the workload's schedules are valid");
    let jitter_ms = if rng.per_mille(200) { rng.between(1, 3_000) } else { 0 };
    Recurring { max_runs, jitter_ms, misfire: misfire(rng), ..recurring }
}

/// A pattern around a daylight-saving change: for every hour, or for the hour that is skipped or repeated.
fn changing_clocks(rng: &mut Rng, change: ClockChange) -> RecurrenceSpec {
    let pattern = if rng.per_mille(500) {
        (*rng.pick(&PATTERNS)).to_owned()
    } else {
        let seconds = *rng.pick(&["*", "*/3", "0,1,30"]);
        format!("{seconds} * {} * * *", change.hour())
    };
    RecurrenceSpec::cron(&pattern, 0).in_zone(change.zone)
}

fn misfire(rng: &mut Rng) -> Misfire {
    let policy = *rng.pick(&[MisfirePolicy::SkipMissed, MisfirePolicy::RunOnce, MisfirePolicy::RunAll]);
    let bounded = policy == MisfirePolicy::RunAll;
    // Short, so that small outages miss something; but longer than anything takes without faults, or a job
    // with a fixed number of runs would never finish.
    let grace_ms = if rng.per_mille(700) { rng.between(300, 3_000) } else { Misfire::default().grace_ms };
    // Missed times run anyway here. With a grace that many fires exceed, replays happen all the time.
    let is_impatient = bounded && grace_ms % 3 > 0;
    let grace_ms = if is_impatient { grace_ms / 100 } else { grace_ms };
    Misfire {
        policy,
        grace_ms,
        limit: (bounded && rng.per_mille(400)).then(|| rng.between(1, 20) as u32),
        max_lateness_ms: (bounded && rng.per_mille(400)).then(|| rng.between(0, 20_000)),
        replay_per_minute: (bounded && rng.per_mille(600)).then(|| rng.between(30, 600) as u32),
    }
}

/// The total time of this job's handlers if every attempt is made and takes its longest, in sequence.
pub fn work_of(spec: &JobSpec) -> Duration {
    Duration::from_millis(spec.settings.timeout_ms) * starts_of(spec)
}

/// How often it starts if every attempt is made.
pub fn starts_of(spec: &JobSpec) -> u32 {
    let runs = match &spec.settings.schedule {
        // Without a count they end within 40 seconds, and none fires more often than once a second.
        Schedule::Recurring(recurring) => recurring.max_runs.unwrap_or(40),
        Schedule::Immediate | Schedule::OneTime { .. } => 1,
    };
    runs * (spec.settings.max_retries + 1)
}
