//! Converts a submitted job to the core's description and back, for reading a job and for changing only some of
//! its fields. Contradictions are rejected here, naming the field; core checks the limits.

use punctual_client::{
    Growth, PriorityBody, ReplayRate, RetryBody, RetryStrategy, ScheduleType, Seconds, Span, SubmitJob,
};
use punctual_core::job::{DEFAULT_QUEUE, Expiry, InvalidField, JobSpec, Priority, Settings};
use punctual_core::recurrence::{IntervalError, RecurrenceError, RecurrenceSpec, Rule, seed};
use punctual_core::retry::RetryPolicy;
use punctual_core::schedule::{Misfire, MisfirePolicy, OverlapPolicy, Recurring, Schedule};
use punctual_core::time::Timestamp;
use std::time::Duration;

/// The context in which a description is parsed.
#[derive(Debug, Clone, Copy)]
pub struct Basis<'a> {
    pub now: Timestamp,
    /// The owner of a job that names none.
    pub owner: &'a str,
    /// The job's current schedule, if it exists: an unchanged rule keeps its rhythm.
    pub stored: Option<&'a Schedule>,
    /// Whether the stored schedule stays as it is. An earlier release may have accepted it by looser rules.
    pub keeps_schedule: bool,
}

impl<'a> Basis<'a> {
    /// For a new job.
    pub const fn new(now: Timestamp, owner: &'a str) -> Self {
        Basis { now, owner, stored: None, keeps_schedule: false }
    }

    fn recurrence(&self) -> Option<&RecurrenceSpec> {
        match self.stored? {
            Schedule::Recurring(recurring) => Some(recurring.recurrence.spec()),
            Schedule::Immediate | Schedule::OneTime { .. } => None,
        }
    }
}

/// The parsed job, or everything that is wrong with it.
pub fn job_spec(job: SubmitJob, basis: Basis<'_>) -> Result<JobSpec, Vec<InvalidField>> {
    let mut problems = Vec::new();
    let schedule = schedule(&job, basis).unwrap_or_else(|found| {
        problems.extend(found);
        Schedule::Immediate
    });
    let expiry = expiry(&job).unwrap_or_else(|problem| {
        problems.push(problem);
        None
    });
    let defaults = Settings::default();
    let retry_body = job.retry.unwrap_or_default();
    let fail_on = retry_body.fail_on.clone().unwrap_or_default();
    let growth = retry_body.timeout_growth;
    let retry = retry_policy(retry_body, &mut problems);
    let spec = JobSpec {
        job_type: job.job_type.unwrap_or_else(|| job.name.clone()),
        name: job.name,
        queue: job.queue.unwrap_or_else(|| DEFAULT_QUEUE.to_owned()),
        owner: job.owner_id.unwrap_or_else(|| basis.owner.to_owned()),
        priority: job.priority.map_or(Priority::DEFAULT, |priority| priority.0),
        payload: job.payload.map_or_else(|| "null".to_owned(), |payload| Box::<str>::from(payload).into()),
        settings: Settings {
            schedule,
            overlap: job.overlap_policy.unwrap_or_default(),
            overlap_limit: job.overlap_limit.unwrap_or(defaults.overlap_limit),
            max_open: job.max_open.unwrap_or(defaults.max_open),
            max_retries: job.max_retries.unwrap_or(defaults.max_retries),
            retry,
            timeout_ms: job.timeout_secs.map_or(defaults.timeout_ms, |timeout| timeout.as_millis()),
            timeout_growth_pct: growth.map_or(defaults.timeout_growth_pct, |growth| growth.percent),
            fail_on,
            expiry,
            idempotency_key: job.idempotency_key,
            unique_key: job.unique_key,
            by_name: false,
            concurrency_key: job.concurrency_key,
            depends_on: job.depends_on.unwrap_or_default(),
            tags: job.tags.unwrap_or_default(),
        },
    };
    if problems.is_empty() {
        return Ok(spec);
    }
    // The engine checks as well, but an invalid job does not get that far, and the caller wants all problems
    // at once.
    problems.extend(spec.check().err().into_iter().flatten());
    Err(problems)
}

/// When the job runs, or all contradictions.
pub fn schedule(job: &SubmitJob, basis: Basis<'_>) -> Result<Schedule, Vec<InvalidField>> {
    let mut problems = contradictions(job);
    let kept = basis.stored.filter(|_| basis.keeps_schedule).cloned();
    let schedule = kept.unwrap_or_else(|| planned(job, basis, &mut problems));
    if problems.is_empty() {
        return Ok(schedule);
    }
    problems.extend(schedule.problems());
    Err(problems)
}

/// The schedule as far as it can be told. What cannot is added to the problems.
fn planned(job: &SubmitJob, basis: Basis<'_>, problems: &mut Vec<InvalidField>) -> Schedule {
    let mut missing = |field, kind: ScheduleType, or| {
        // Fields of another kind have been reported, and there is no point in asking for more.
        if problems.is_empty() {
            let fix = format!("is needed for schedule_type {} (or give {or})", kind.as_str());
            problems.push(InvalidField::new(field, fix));
        }
        Schedule::Immediate
    };
    match (job.schedule_type, rule(job, basis), job.execute_at, job.delay) {
        (_, Some(rule), _, _) => recurring(job, rule, problems),
        (_, None, Some(at), _) => Schedule::OneTime { at },
        (_, None, None, Some(delay)) => Schedule::OneTime { at: basis.now.plus(delay.get()) },
        (Some(kind @ ScheduleType::OneTime), None, None, None) => missing("execute_at", kind, "delay"),
        (Some(kind @ ScheduleType::Recurring), None, None, None) => {
            missing("cron_expression", kind, "interval")
        }
        (Some(ScheduleType::Immediate) | None, None, None, None) => Schedule::Immediate,
    }
}

/// The rule of a recurring job. A rule that the job already has keeps its state: the value of `H`, and the
/// start of an interval without `start_at`.
fn rule(job: &SubmitJob, basis: Basis<'_>) -> Option<Rule> {
    let stored = basis.recurrence();
    match (&job.cron_expression, &job.interval) {
        (Some(pattern), _) => match stored.map(|spec| &spec.rule) {
            Some(kept @ Rule::Cron { pattern: same, .. }) if same == pattern => Some(kept.clone()),
            _ => {
                let seed = seed(job.owner_id.as_deref().unwrap_or(basis.owner), &job.name);
                Some(Rule::Cron { pattern: pattern.clone(), seed })
            }
        },
        (None, Some(every)) => {
            let kept = stored.and_then(|spec| match &spec.rule {
                Rule::Interval { every: same, anchor } if same == every && spec.start_at.is_none() => {
                    Some(*anchor)
                }
                _ => None,
            });
            // Without `start_at`, the first run is one interval from now.
            let anchor = job.start_at.or(kept).unwrap_or(basis.now);
            Some(Rule::Interval { every: every.clone(), anchor })
        }
        (None, None) => None,
    }
}

fn expiry(job: &SubmitJob) -> Result<Option<Expiry>, InvalidField> {
    match (job.expires_at, job.expires_after) {
        (Some(_), Some(_)) => {
            Err(InvalidField::new("expires_after", "cannot be combined with expires_at: give one of the two"))
        }
        (Some(at), None) => Ok(Some(Expiry::At(at))),
        (None, Some(after)) => Ok(Some(Expiry::AfterMs(millis(after)))),
        (None, None) => Ok(None),
    }
}

/// A field that belongs to one type of schedule, and whether a job sets it.
type ScheduleField = (&'static str, ScheduleType, fn(&SubmitJob) -> bool);

/// The fields that say when a job runs, besides `schedule_type`.
pub const SCHEDULE_FIELDS: [ScheduleField; 16] = [
    ("execute_at", ScheduleType::OneTime, |job| job.execute_at.is_some()),
    ("delay", ScheduleType::OneTime, |job| job.delay.is_some()),
    ("cron_expression", ScheduleType::Recurring, |job| job.cron_expression.is_some()),
    ("interval", ScheduleType::Recurring, |job| job.interval.is_some()),
    ("timezone", ScheduleType::Recurring, |job| job.timezone.is_some()),
    ("dst_gap", ScheduleType::Recurring, |job| job.dst_gap.is_some()),
    ("dst_overlap", ScheduleType::Recurring, |job| job.dst_overlap.is_some()),
    ("misfire_policy", ScheduleType::Recurring, |job| job.misfire_policy.is_some()),
    ("misfire_grace", ScheduleType::Recurring, |job| job.misfire_grace.is_some()),
    ("misfire_limit", ScheduleType::Recurring, |job| job.misfire_limit.is_some()),
    ("max_lateness", ScheduleType::Recurring, |job| job.max_lateness.is_some()),
    ("replay_rate", ScheduleType::Recurring, |job| job.replay_rate.is_some()),
    ("jitter", ScheduleType::Recurring, |job| job.jitter.is_some()),
    ("max_runs", ScheduleType::Recurring, |job| job.max_runs.is_some()),
    ("start_at", ScheduleType::Recurring, |job| job.start_at.is_some()),
    ("end_at", ScheduleType::Recurring, |job| job.end_at.is_some()),
];

/// Fields of recurring jobs that are not about time.
pub const RECURRING_FIELDS: [ScheduleField; 2] = [
    ("overlap_limit", ScheduleType::Recurring, |job| job.overlap_limit.is_some()),
    ("max_open", ScheduleType::Recurring, |job| job.max_open.is_some()),
];

/// The fields that were set, each with the type of schedule that it belongs to.
fn given(job: &SubmitJob) -> impl Iterator<Item = (&'static str, ScheduleType)> {
    let fields = SCHEDULE_FIELDS.into_iter().chain(RECURRING_FIELDS);
    fields.filter_map(|(field, kind, is_given)| is_given(job).then_some((field, kind)))
}

fn contradictions(job: &SubmitJob) -> Vec<InvalidField> {
    if let Some(said) = job.schedule_type {
        let of_others = given(job).filter(|(_, kind)| *kind != said).map(|(field, kind)| {
            let (kind, said) = (kind.as_str(), said.as_str());
            let fix = format!("belongs to schedule_type {kind}, not {said}: leave out one of the two");
            InvalidField::new(field, fix)
        });
        let of_others: Vec<InvalidField> = of_others.collect();
        if !of_others.is_empty() {
            return of_others;
        }
    }
    let mut problems = Vec::new();
    let mut refuse = |field: &str, fix: &str| problems.push(InvalidField::new(field, fix));
    if job.execute_at.is_some() && job.delay.is_some() {
        refuse("delay", "cannot be combined with execute_at: give one of the two");
    }
    if job.cron_expression.is_some() && job.interval.is_some() {
        refuse("interval", "cannot be combined with cron_expression: give one of the two");
    }
    let rule = job.cron_expression.as_ref().map(|_| "cron_expression");
    let (stray, fix) = match rule.or(job.interval.as_ref().map(|_| "interval")) {
        Some(rule) => (
            ScheduleType::OneTime,
            format!("cannot be combined with {rule}: give start_at for the first run"),
        ),
        None => {
            let fix = "only applies to recurring jobs: give cron_expression or interval, too";
            (ScheduleType::Recurring, fix.to_owned())
        }
    };
    for (field, _) in given(job).filter(|(_, kind)| *kind == stray) {
        refuse(field, &fix);
    }
    if stray == ScheduleType::OneTime {
        refuse_idle_bounds(job, refuse);
    }
    problems
}

/// Replay bounds without replay, or queue bounds without a queue, are probably a mistake.
fn refuse_idle_bounds(job: &SubmitJob, mut refuse: impl FnMut(&str, &str)) {
    let bounds = [
        ("misfire_limit", job.misfire_limit.is_some()),
        ("max_lateness", job.max_lateness.is_some()),
        ("replay_rate", job.replay_rate.is_some()),
    ];
    for (field, _) in bounds.into_iter().filter(|(_, is_given)| *is_given) {
        if job.misfire_policy != Some(MisfirePolicy::RunAll) {
            refuse(field, "only applies to misfire_policy RUN_ALL");
        }
    }
    if job.overlap_limit.is_some() && job.overlap_policy != Some(OverlapPolicy::Queue) {
        refuse("overlap_limit", "only applies to overlap_policy QUEUE");
    }
}

/// The schedule with this rule. An invalid part is added to the problems and replaced by a valid one, so that
/// the rest is checked as well.
fn recurring(job: &SubmitJob, rule: Rule, problems: &mut Vec<InvalidField>) -> Schedule {
    let mut spec = RecurrenceSpec {
        dst_gap: job.dst_gap,
        dst_overlap: job.dst_overlap,
        start_at: job.start_at,
        end_at: job.end_at,
        ..RecurrenceSpec::new(rule)
    };
    if let Some(zone) = &job.timezone {
        spec = spec.in_zone(zone);
    }
    let recurring = loop {
        match Recurring::new(spec.clone()) {
            Ok(recurring) => break recurring,
            Err(error) => {
                problems.push(InvalidField::new(error.field(), fix_of(&error)));
                let hourly = RecurrenceSpec::interval("1h", Timestamp::EPOCH);
                spec = match error.field() {
                    "timezone" => spec.in_zone(&hourly.zone),
                    "dst_gap" => RecurrenceSpec { dst_gap: None, ..spec },
                    "dst_overlap" => RecurrenceSpec { dst_overlap: None, ..spec },
                    // The start is also a part of an interval's rule.
                    "start_at" | "end_at" => hourly.in_zone(&spec.zone),
                    _ => RecurrenceSpec { rule: hourly.rule, ..spec },
                };
            }
        }
    };
    let default = Misfire::default();
    let misfire = Misfire {
        policy: job.misfire_policy.unwrap_or_default(),
        grace_ms: job.misfire_grace.map_or(default.grace_ms, millis),
        limit: job.misfire_limit,
        max_lateness_ms: job.max_lateness.map(millis),
        replay_per_minute: job.replay_rate.map(|rate| rate.per_minute),
    };
    let (max_runs, jitter_ms) = (job.max_runs, job.jitter.map_or(0, millis));
    Recurring { max_runs, jitter_ms, misfire, ..recurring }.into()
}

/// What is wrong, to follow the field's name.
fn fix_of(error: &RecurrenceError) -> String {
    match error {
        RecurrenceError::Cron(error) => format!("is not a cron expression: {error}"),
        RecurrenceError::Interval(IntervalError { found, problem }) => format!("{found} {problem}"),
        RecurrenceError::Zone(error) => format!("is not known: {error}"),
        other => other.to_string(),
    }
}

/// The policy. Delays of another strategy are added to the problems.
fn retry_policy(retry: RetryBody, problems: &mut Vec<InvalidField>) -> RetryPolicy {
    let strategy = retry.strategy.unwrap_or(match retry.steps {
        Some(_) => RetryStrategy::Ladder,
        None => RetryStrategy::Exponential,
    });
    let strays = [
        ("delay", retry.delay.is_some() && strategy == RetryStrategy::Ladder, "exponential or fixed"),
        ("max_delay", retry.max_delay.is_some() && strategy != RetryStrategy::Exponential, "exponential"),
        ("steps", retry.steps.is_some() && strategy != RetryStrategy::Ladder, "ladder"),
    ];
    for (field, _, belongs) in strays.into_iter().filter(|(_, is_stray, _)| *is_stray) {
        let fix = format!("only applies to retry.strategy {belongs}");
        problems.push(InvalidField::new(format!("retry.{field}"), fix));
    }
    let RetryPolicy::Exponential { delay_ms, max_delay_ms } = RetryPolicy::default() else {
        unreachable!("the default is exponential");
    };
    let delay_ms = retry.delay.map_or(delay_ms, millis);
    match strategy {
        RetryStrategy::Exponential => {
            // A long first delay without an explicit cap means a constant delay, not a contradiction.
            let max_delay_ms = retry.max_delay.map_or(max_delay_ms.max(delay_ms), millis);
            RetryPolicy::Exponential { delay_ms, max_delay_ms }
        }
        RetryStrategy::Fixed => RetryPolicy::Fixed { delay_ms },
        RetryStrategy::Ladder => {
            let steps = retry.steps.unwrap_or_default();
            RetryPolicy::Ladder { steps_ms: steps.into_iter().map(millis).collect() }
        }
    }
}

fn millis(span: Span) -> u64 {
    u64::try_from(span.get().as_millis()).unwrap_or(u64::MAX)
}

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
    let (dst_gap, dst_overlap) = recurring.recurrence.dst_choices();
    let misfire = &recurring.misfire;
    SubmitJob {
        schedule_type: Some(ScheduleType::Recurring),
        cron_expression,
        interval,
        timezone: Some(spec.zone.clone()),
        dst_gap,
        dst_overlap,
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

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::job::DEFAULT_OWNER;
    use punctual_core::schedule::Overlap;

    fn now() -> Timestamp {
        "2026-11-15T08:30:00Z".parse().unwrap()
    }

    fn spec(json: &str) -> Result<JobSpec, Vec<InvalidField>> {
        job_spec(serde_json::from_str(json).unwrap(), Basis::new(now(), DEFAULT_OWNER))
    }

    fn schedule_of(json: &str) -> Schedule {
        spec(json).unwrap().settings.schedule
    }

    fn refused(json: &str) -> Vec<String> {
        spec(json).unwrap_err().into_iter().map(|problem| problem.to_string()).collect()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_name_is_enough() {
        assert_eq!(spec(r#"{"name":"report"}"#), Ok(JobSpec::named("report")));
    }

    #[test]
    fn the_schedule_type_follows_from_the_fields() {
        assert_eq!(
            schedule_of(r#"{"name":"x","execute_at":"2026-11-15T09:00:00Z"}"#),
            Schedule::OneTime { at: at("2026-11-15T09:00:00Z") }
        );
        assert_eq!(
            schedule_of(r#"{"name":"x","delay":"5m"}"#),
            Schedule::OneTime { at: at("2026-11-15T08:35:00Z") }
        );
        assert_eq!(
            schedule_of(r#"{"name":"x","interval":"PT1H"}"#),
            Recurring::new(RecurrenceSpec::interval("PT1H", now())).unwrap().into()
        );
    }

    fn next_of(json: &str) -> Option<Timestamp> {
        match schedule_of(json) {
            Schedule::Recurring(recurring) => recurring.recurrence.next_time_after(now()),
            other => panic!("not recurring: {other:?}"),
        }
    }

    #[test]
    fn an_interval_begins_one_interval_from_now_or_in_the_rhythm_of_its_start() {
        assert_eq!(next_of(r#"{"name":"x","interval":"1h"}"#), Some(at("2026-11-15T09:30:00Z")));
        let past = r#"{"name":"x","interval":"1h","start_at":"2025-01-01T00:10:00Z"}"#;
        assert_eq!(next_of(past), Some(at("2026-11-15T09:10:00Z")));
        let months = r#"{"name":"x","interval":"monthly","timezone":"Europe/Berlin"}"#;
        assert_eq!(next_of(months), Some(at("2026-12-15T08:30:00Z")));
    }

    #[test]
    fn a_hash_in_a_cron_expression_depends_on_owner_and_name() {
        let next = |owner: &str, name: &str| {
            next_of(&format!(r#"{{"name":"{name}","owner_id":"{owner}","cron_expression":"H H * * *"}}"#))
        };
        assert_eq!(next("ann", "a"), next("ann", "a"));
        assert_ne!(next("ann", "a"), next("ann", "b"));
        assert_ne!(next("ann", "a"), next("ben", "a"));
    }

    #[test]
    fn the_answer_to_missed_runs_is_taken_over() {
        let json = r#"{"name":"x","cron_expression":"@daily","misfire_policy":"RUN_ALL","misfire_grace":"5m",
            "misfire_limit":9,"max_lateness":"1d","replay_rate":"2/s","jitter":"30s"}"#;
        let Schedule::Recurring(recurring) = schedule_of(json) else { panic!("not recurring") };
        let misfire = Misfire {
            policy: MisfirePolicy::RunAll,
            grace_ms: 300_000,
            limit: Some(9),
            max_lateness_ms: Some(86_400_000),
            replay_per_minute: Some(120),
        };
        assert_eq!((recurring.misfire, recurring.jitter_ms), (misfire, 30_000));
    }

    #[test]
    fn contradictions_name_the_field_in_the_way() {
        for (json, problem) in [
            (
                r#"{"name":"x","schedule_type":"IMMEDIATE","execute_at":"2026-11-15T09:00:00Z"}"#,
                "execute_at belongs to schedule_type ONE_TIME, not IMMEDIATE: leave out one of the two",
            ),
            (
                r#"{"name":"x","execute_at":"2026-11-15T09:00:00Z","delay":"5m"}"#,
                "delay cannot be combined with execute_at: give one of the two",
            ),
            (
                r#"{"name":"x","execute_at":"2026-11-15T09:00:00Z","interval":"5m"}"#,
                "execute_at cannot be combined with interval: give start_at for the first run",
            ),
            (
                r#"{"name":"x","max_runs":3}"#,
                "max_runs only applies to recurring jobs: give cron_expression or interval, too",
            ),
            (
                r#"{"name":"x","cron_expression":"@daily","interval":"1h"}"#,
                "interval cannot be combined with cron_expression: give one of the two",
            ),
            (
                r#"{"name":"x","cron_expression":"@daily","misfire_limit":3}"#,
                "misfire_limit only applies to misfire_policy RUN_ALL",
            ),
            (
                r#"{"name":"x","cron_expression":"@daily","overlap_policy":"REPLACE","overlap_limit":3}"#,
                "overlap_limit only applies to overlap_policy QUEUE",
            ),
            (
                r#"{"name":"x","max_open":3}"#,
                "max_open only applies to recurring jobs: give cron_expression or interval, too",
            ),
            (
                r#"{"name":"x","expires_at":"2026-11-15T09:00:00Z","expires_after":"1h"}"#,
                "expires_after cannot be combined with expires_at: give one of the two",
            ),
            (
                r#"{"name":"x","cron_expression":"0 25 * * *"}"#,
                "cron_expression is not a cron expression: hour 25 is out of range, use 0–23 (column 3)",
            ),
            (
                r#"{"name":"x","cron_expression":"@daily","timezone":"Europe/Berlim"}"#,
                "timezone is not known: unknown time zone Europe/Berlim, did you mean Europe/Berlin?",
            ),
            (
                r#"{"name":"x","schedule_type":"ONE_TIME"}"#,
                "execute_at is needed for schedule_type ONE_TIME (or give delay)",
            ),
            (
                r#"{"name":"x","schedule_type":"RECURRING"}"#,
                "cron_expression is needed for schedule_type RECURRING (or give interval)",
            ),
            (
                r#"{"name":"x","retry":{"strategy":"fixed","max_delay":"1h"}}"#,
                "retry.max_delay only applies to retry.strategy exponential",
            ),
        ] {
            assert_eq!(refused(json), [problem], "{json}");
        }
    }

    #[test]
    fn what_controls_a_job_is_taken_over() {
        let json = r#"{"name":"x","interval":"1h","overlap_policy":"QUEUE","overlap_limit":3,"max_open":50,
            "expires_after":"5m","unique_key":"u","idempotency_key":"i",
            "retry":{"fail_on":["TIMED_OUT","no such file"],"timeout_growth":1.5}}"#;
        let settings = spec(json).unwrap().settings;
        assert_eq!(settings.overlap(), Overlap { policy: OverlapPolicy::Queue, limit: 3, max_open: 50 });
        assert_eq!(settings.expiry, Some(Expiry::AfterMs(300_000)));
        assert_eq!(
            (settings.unique_key.as_deref(), settings.idempotency_key.as_deref()),
            (Some("u"), Some("i"))
        );
        assert_eq!(settings.fail_on, ["TIMED_OUT", "no such file"]);
        assert_eq!((settings.timeout_growth_pct, settings.retry), (150, RetryPolicy::default()));
    }

    #[test]
    fn the_rhythm_of_an_unchanged_rule_goes_on() {
        let hour = r#"{"name":"x","interval":"1h"}"#;
        let stored = schedule_of(hour);
        let later = now().plus(std::time::Duration::from_secs(600));
        let basis = Basis { stored: Some(&stored), ..Basis::new(later, DEFAULT_OWNER) };
        let again = |json: &str| schedule(&serde_json::from_str(json).unwrap(), basis).unwrap();
        assert_eq!(again(hour), stored);
        let anchor = |schedule: &Schedule| match schedule {
            Schedule::Recurring(recurring) => match recurring.recurrence.spec().rule {
                Rule::Interval { anchor, .. } => anchor,
                Rule::Cron { .. } => panic!("a cron rule"),
            },
            other => panic!("not recurring: {other:?}"),
        };
        assert_eq!(anchor(&again(r#"{"name":"x","interval":"1h","jitter":"5s"}"#)), now());
        assert_eq!(anchor(&again(r#"{"name":"x","interval":"2h"}"#)), later);

        let hashed = r#"{"name":"x","cron_expression":"H H * * *"}"#;
        let stored = schedule_of(hashed);
        let renamed: SubmitJob = serde_json::from_str(&hashed.replace("\"x\"", "\"y\"")).unwrap();
        let basis = Basis { stored: Some(&stored), ..basis };
        assert_eq!(schedule(&renamed, basis), Ok(stored.clone()));
        assert_ne!(schedule(&renamed, Basis::new(later, DEFAULT_OWNER)), Ok(stored));
    }

    #[test]
    fn everything_wrong_is_told_at_once() {
        // The engine checks the bounds of a job without contradictions.
        let problems = |json: &str| spec(json).and_then(|spec| spec.check()).unwrap_err();
        for (json, wrong) in [
            (
                r#""cron_expression":"99 * * * *","timezone":"X","jitter":"9d""#,
                "timezone cron_expression jitter",
            ),
            (
                r#""interval":"1h","max_runs":0,"jitter":"9d","misfire_grace":"2d""#,
                "max_runs jitter misfire_grace",
            ),
            (
                r#""interval":"1h","misfire_limit":3,"replay_rate":5,"timezone":"X""#,
                "misfire_limit replay_rate timezone",
            ),
            (r#""max_runs":3,"timezone":"UTC","timeout_secs":0"#, "timezone max_runs timeout_secs"),
            (r#""schedule_type":"IMMEDIATE","delay":"1m","interval":"1h""#, "delay interval"),
            (
                r#""retry":{"strategy":"fixed","max_delay":"1h","steps":["1m"]}"#,
                "retry.max_delay retry.steps",
            ),
        ] {
            let problems = problems(&format!(r#"{{"name":"x",{json}}}"#)).into_iter();
            let found: Vec<String> = problems.map(|problem| problem.field).collect();
            assert_eq!(found.join(" "), wrong, "{json}");
        }
        let problems = refused(r#"{"name":"","schedule_type":"ONE_TIME","max_retries":5000,"job_type":"x"}"#);
        assert_eq!(problems.len(), 3, "{problems:?}");
    }

    #[test]
    fn retries_take_their_defaults() {
        let retry = |json: &str| spec(&format!(r#"{{"name":"x","retry":{json}}}"#)).unwrap().settings.retry;
        assert_eq!(retry("{}"), RetryPolicy::default());
        assert_eq!(retry(r#"{"strategy":"fixed","delay":"5s"}"#), RetryPolicy::Fixed { delay_ms: 5_000 });
        assert_eq!(
            retry(r#"{"steps":["1m","5m"]}"#),
            RetryPolicy::Ladder { steps_ms: vec![60_000, 300_000] }
        );
        assert_eq!(
            retry(r#"{"delay":"2h"}"#),
            RetryPolicy::Exponential { delay_ms: 7_200_000, max_delay_ms: 7_200_000 }
        );
    }
}
