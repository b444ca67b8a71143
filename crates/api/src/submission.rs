//! Converts a submitted job to the core's description and back, for reading a job and for changing only some of
//! its fields. Contradictions are rejected here, naming the field; core checks the limits.

use punctual_client::{
    Growth, NotifyBody, PriorityBody, RecurrenceBody, ReplayRate, RetryBody, RetryStrategy, ScheduleType,
    Seconds, Span, SubmitJob,
};
use punctual_core::job::{DEFAULT_QUEUE, Expiry, InvalidField, JobSpec, Priority, ResultOverflow, Settings};
use punctual_core::limits;
use punctual_core::recurrence::{
    IntervalError, Recurrence, RecurrenceError, RecurrenceSpec, Rule, UnionPart, seed,
};
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
    let expiry = expiry(&job).map_err(|problem| problems.push(problem)).unwrap_or_default();
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
            notify: job.notify.map(Into::into).unwrap_or_default(),
            result_overflow: job.result_overflow.unwrap_or_default(),
            // The engine adds it.
            trace: None,
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

/// The schedule, as far as the fields are valid. Invalid fields are added to the problems.
fn planned(job: &SubmitJob, basis: Basis<'_>, problems: &mut Vec<InvalidField>) -> Schedule {
    let rule = match &job.schedules {
        Some(parts) => Some(union(job, parts, basis, problems)),
        None => rule(job, basis.now, basis.owner, basis.recurrence()),
    };
    let mut missing = |field, kind: ScheduleType, or| {
        // Fields of another kind have been reported, and there is no point in asking for more.
        if problems.is_empty() {
            let fix = format!("is needed for schedule_type {} (or give {or})", kind.as_str());
            problems.push(InvalidField::new(field, fix));
        }
        Schedule::Immediate
    };
    match (job.schedule_type, rule, job.execute_at, job.delay) {
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
fn rule(job: &SubmitJob, now: Timestamp, owner: &str, stored: Option<&RecurrenceSpec>) -> Option<Rule> {
    if let (None, None, Some(text)) = (&job.cron_expression, &job.interval, &job.rrule) {
        let kept = stored.and_then(|spec| match &spec.rule {
            Rule::Rrule { rule, anchor, .. } if rule.eq_ignore_ascii_case(text.trim()) => {
                Some(*anchor).filter(|_| spec.start_at.is_none())
            }
            _ => None,
        });
        let anchor = job.start_at.or(kept).unwrap_or(now);
        return Some(Rule::Rrule { rule: text.clone(), anchor, last: None });
    }
    match (&job.cron_expression, &job.interval) {
        (Some(pattern), _) => match stored.map(|spec| &spec.rule) {
            Some(kept @ Rule::Cron { pattern: same, .. }) if same == pattern => Some(kept.clone()),
            _ => {
                let seed = seed(job.owner_id.as_deref().unwrap_or(owner), &job.name);
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
            let anchor = job.start_at.or(kept).unwrap_or(now);
            Some(Rule::Interval { every: every.clone(), anchor })
        }
        (None, None) => None,
    }
}

/// The union of several schedules. What is wrong with one of them is added to the problems, and the rest is checked as
/// well. A schedule that the job already has keeps its state.
fn union(
    job: &SubmitJob,
    parts: &[RecurrenceBody],
    basis: Basis<'_>,
    problems: &mut Vec<InvalidField>,
) -> Rule {
    let stored = match basis.recurrence().map(|spec| &spec.rule) {
        Some(Rule::Union { parts }) => &parts[..],
        _ => &[],
    };
    let mut valid = Vec::with_capacity(parts.len());
    for (index, body) in parts.iter().take(limits::SCHEDULES_OF_JOB_MAX + 1).enumerate() {
        let mut refuse = |field: &str, fix: String| {
            problems.push(InvalidField::new(format!("schedules[{index}].{field}"), fix));
        };
        let rules = [&body.cron_expression, &body.interval, &body.rrule];
        if rules.into_iter().flatten().count() != 1 {
            refuse("cron_expression", "is needed, or interval or rrule: exactly one of them".to_owned());
            continue;
        }
        let alone = SubmitJob {
            name: job.name.clone(),
            owner_id: job.owner_id.clone(),
            cron_expression: body.cron_expression.clone(),
            interval: body.interval.clone(),
            rrule: body.rrule.clone(),
            start_at: body.start_at,
            ..SubmitJob::default()
        };
        let is_same = |part: &&UnionPart| match &part.spec.rule {
            Rule::Cron { pattern, .. } => Some(pattern) == body.cron_expression.as_ref(),
            Rule::Interval { every, .. } => Some(every) == body.interval.as_ref(),
            Rule::Rrule { rule, .. } => {
                body.rrule.as_ref().is_some_and(|text| rule.eq_ignore_ascii_case(text.trim()))
            }
            Rule::Union { .. } => false,
        };
        let kept = stored.iter().find(is_same).map(|part| &part.spec);
        let Some(rule) = rule(&alone, basis.now, basis.owner, kept) else { continue };
        // An interval or a rule begins at its anchor.
        let start_at = body.start_at.filter(|_| body.cron_expression.is_some());
        let zone = body.timezone.as_deref().or(job.timezone.as_deref()).unwrap_or("UTC");
        let spec = RecurrenceSpec {
            dst_gap: body.dst_gap,
            dst_overlap: body.dst_overlap,
            start_at,
            end_at: body.end_at,
            ..RecurrenceSpec::new(rule)
        };
        match Recurrence::new(spec.in_zone(zone)) {
            Ok(recurrence) => {
                valid.push(UnionPart { name: body.name.clone(), spec: recurrence.spec().clone() });
            }
            Err(error) => refuse(error.field(), fix_of(&error)),
        }
    }
    if valid.is_empty() && !parts.is_empty() {
        // The problems are known; this stands in for the schedules that have them.
        return RecurrenceSpec::interval("1h", Timestamp::EPOCH).rule;
    }
    Rule::Union { parts: valid }
}

/// The schedules of a union, as they can be submitted.
fn schedules_of(spec: &RecurrenceSpec) -> Option<Vec<RecurrenceBody>> {
    let Rule::Union { parts } = &spec.rule else { return None };
    let body = |UnionPart { name, spec: part }: &UnionPart| {
        let body = RecurrenceBody {
            name: name.clone(),
            timezone: (part.zone != spec.zone).then(|| part.zone.clone()),
            dst_gap: part.dst_gap,
            dst_overlap: part.dst_overlap,
            start_at: part.start_at,
            end_at: part.end_at,
            ..RecurrenceBody::default()
        };
        match &part.rule {
            Rule::Cron { pattern, .. } => RecurrenceBody { cron_expression: Some(pattern.clone()), ..body },
            Rule::Interval { every, anchor } => {
                RecurrenceBody { interval: Some(every.clone()), start_at: Some(*anchor), ..body }
            }
            Rule::Rrule { rule, anchor, .. } => {
                RecurrenceBody { rrule: Some(rule.clone()), start_at: Some(*anchor), ..body }
            }
            Rule::Union { .. } => body,
        }
    };
    Some(parts.iter().map(body).collect())
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
pub const SCHEDULE_FIELDS: [ScheduleField; 20] = [
    ("execute_at", ScheduleType::OneTime, |job| job.execute_at.is_some()),
    ("delay", ScheduleType::OneTime, |job| job.delay.is_some()),
    ("cron_expression", ScheduleType::Recurring, |job| job.cron_expression.is_some()),
    ("interval", ScheduleType::Recurring, |job| job.interval.is_some()),
    ("rrule", ScheduleType::Recurring, |job| job.rrule.is_some()),
    ("schedules", ScheduleType::Recurring, |job| job.schedules.is_some()),
    ("timezone", ScheduleType::Recurring, |job| job.timezone.is_some()),
    ("calendars", ScheduleType::Recurring, |job| job.calendars.as_ref().is_some_and(|all| !all.is_empty())),
    ("calendar", ScheduleType::Recurring, |job| job.calendar.as_ref().is_some_and(|all| !all.is_empty())),
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
    if job.calendar.is_some() && job.calendars.is_some() {
        refuse("calendar", "is another spelling of calendars: give one of the two");
    }
    if job.cron_expression.is_some() && job.interval.is_some() {
        refuse("interval", "cannot be combined with cron_expression: give one of the two");
    }
    if job.rrule.is_some() && (job.cron_expression.is_some() || job.interval.is_some()) {
        refuse("rrule", "cannot be combined with cron_expression or interval: give one of them");
    }
    if job.schedules.is_some() {
        for (field, is_given) in [
            ("cron_expression", job.cron_expression.is_some()),
            ("interval", job.interval.is_some()),
            ("rrule", job.rrule.is_some()),
        ] {
            if is_given {
                refuse(field, "cannot be combined with schedules: add it to them");
            }
        }
        for (field, is_given) in
            [("dst_gap", job.dst_gap.is_some()), ("dst_overlap", job.dst_overlap.is_some())]
        {
            if is_given {
                refuse(field, "belongs to one of the schedules: give it there");
            }
        }
    }
    let rule = job.cron_expression.as_ref().map(|_| "cron_expression");
    let rule = rule.or(job.interval.as_ref().map(|_| "interval"));
    let rule = rule.or(job.rrule.as_ref().map(|_| "rrule"));
    let (stray, fix) = match rule.or(job.schedules.as_ref().map(|_| "schedules")) {
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
    let calendars = job.calendar_names().cloned().unwrap_or_default();
    Recurring { max_runs, jitter_ms, misfire, calendars, ..recurring }.into()
}

/// What is wrong, to follow the field's name.
fn fix_of(error: &RecurrenceError) -> String {
    match error {
        RecurrenceError::Cron(error) => format!("is not a cron expression: {error}"),
        RecurrenceError::Interval(IntervalError { found, problem }) => format!("{found} {problem}"),
        RecurrenceError::Rrule(error) => format!("is not a recurrence rule that is supported: {error}"),
        RecurrenceError::Zone(error) => format!("is not known: {error}"),
        RecurrenceError::Parts(problem) => problem.clone(),
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
        notify: NotifyBody::of(&settings.notify),
        result_overflow: Some(settings.result_overflow).filter(|given| *given != ResultOverflow::default()),
        ..schedule_fields(&settings.schedule)
    }
}

/// A recurring schedule in plain English.
pub fn in_words(schedule: &Schedule) -> Option<String> {
    match schedule {
        Schedule::Recurring(recurring) => {
            let mut words = recurring.recurrence.describe();
            if !recurring.calendars.is_empty() {
                words.push_str(&format!(", except as the calendar {} says", recurring.calendars.join(", ")));
            }
            Some(words)
        }
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
    let (cron_expression, interval, rrule) = match &spec.rule {
        Rule::Cron { pattern, .. } => (Some(pattern.clone()), None, None),
        Rule::Interval { every, .. } => (None, Some(every.clone()), None),
        Rule::Rrule { rule, .. } => (None, None, Some(rule.clone())),
        Rule::Union { .. } => (None, None, None),
    };
    let (dst_gap, dst_overlap) = recurring.recurrence.dst_choices();
    let misfire = &recurring.misfire;
    SubmitJob {
        schedule_type: Some(ScheduleType::Recurring),
        cron_expression,
        interval,
        rrule,
        schedules: schedules_of(spec),
        calendars: Some(recurring.calendars.clone()).filter(|all| !all.is_empty()),
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
mod tests;
