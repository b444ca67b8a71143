//! When a job fires: the state of its schedule ([`ScheduleState`]) and how it starts. `plan` decides what one
//! fire does.
//!
//! The next nominal time is computed from the previous nominal time, never from now, so a late fire does not
//! shift the ones after it.

mod plan;
mod replay;

pub use plan::{FirePlan, Present};
pub use replay::{BackfillTerms, Replay};

use crate::calendar::{NamedCalendars, excluded_by};
use crate::gates::{Gate, Gates};
use crate::ids::JobId;
use crate::job::{Expiry, InvalidField, Job, Priority};
use crate::limits;
use crate::occurrence::{Live, LiveState, OccurrenceFlags, Origin};
use crate::rank::Shares;
use crate::recurrence::{PreviewedFire, Recurrence, RecurrenceError, RecurrenceSpec, jitter};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// When a job runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// As soon as it is submitted.
    #[default]
    Immediate,
    /// Once, at or after a time.
    OneTime { at: Timestamp },
    /// Repeatedly. Boxed, because most jobs run once.
    Recurring(Box<Recurring>),
}

/// A schedule that fires repeatedly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recurring {
    pub recurrence: Recurrence,
    /// Maximum number of occurrences that fire; skipped ones do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_runs: Option<u32>,
    /// The maximum delay of a start after its nominal time; the delay is fixed per job and occurrence.
    #[serde(default, skip_serializing_if = "is_default")]
    pub jitter_ms: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    pub misfire: Misfire,
    /// Occurrences that one of these calendars excludes are skipped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calendars: Vec<String>,
}

/// What happens to occurrences that are found too late to run normally.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Misfire {
    #[serde(skip_serializing_if = "is_default")]
    pub policy: MisfirePolicy,
    /// How late an occurrence may be found and still run normally.
    #[serde(skip_serializing_if = "is_default_grace")]
    pub grace_ms: u64,
    /// `RUN_ALL` runs at most this many of the missed occurrences, the latest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// `RUN_ALL` runs no occurrence that is later than this when found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_lateness_ms: Option<u64>,
    /// How many missed occurrences `RUN_ALL` runs per minute; all at once if not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay_per_minute: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum MisfirePolicy {
    #[default]
    SkipMissed,
    /// The latest one runs, unless an occurrence within the grace is due and runs instead.
    RunOnce,
    /// All run, also those within the grace, except the latest of these, which is regular.
    RunAll,
}

impl Default for Misfire {
    fn default() -> Self {
        Misfire {
            policy: MisfirePolicy::default(),
            grace_ms: limits::MISFIRE_GRACE.as_millis() as u64,
            limit: None,
            max_lateness_ms: None,
            replay_per_minute: None,
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn is_default_grace(grace_ms: &u64) -> bool {
    Duration::from_millis(*grace_ms) == limits::MISFIRE_GRACE
}

impl Recurring {
    /// This recurrence with the default values for everything else.
    pub fn new(spec: RecurrenceSpec) -> Result<Self, RecurrenceError> {
        Ok(Recurring {
            recurrence: Recurrence::new(spec)?,
            max_runs: None,
            jitter_ms: 0,
            misfire: Misfire::default(),
            calendars: vec![],
        })
    }

    /// The schedule in plain English.
    pub fn describe(&self) -> String {
        let mut text = self.recurrence.describe();
        match self.max_runs {
            None => {}
            Some(1) => text.push_str("; one run"),
            Some(max) => text.push_str(&format!("; at most {max} runs")),
        }
        if let Ok(jitter @ 1..) = i64::try_from(self.jitter_ms) {
            let jitter = jiff::SignedDuration::from_millis(jitter);
            text.push_str(&format!("; each starts up to {jitter:#} later"));
        }
        if !self.calendars.is_empty() {
            text.push_str(&format!("; except as the calendar {} says", self.calendars.join(", ")));
        }
        text
    }

    /// The next `count` occurrences after an instant, if all of them run and `fired` have run before; fewer if
    /// the schedule ends.
    pub fn preview(&self, after: Timestamp, count: usize, fired: u64) -> Vec<PreviewedFire> {
        let left = self.max_runs.map_or(u64::MAX, |max| u64::from(max).saturating_sub(fired));
        self.recurrence.preview(after, count.min(usize::try_from(left).unwrap_or(usize::MAX)))
    }

    /// When the occurrence of this job at `nominal` starts.
    pub fn due_at(&self, job: JobId, nominal: Timestamp) -> Timestamp {
        if self.jitter_ms == 0 {
            return nominal;
        }
        let (high, low) = job.as_bytes().split_at(8);
        let fold = |bytes: &[u8]| bytes.iter().fold(0_u64, |hash, byte| (hash << 8) | u64::from(*byte));
        nominal.plus(jitter(fold(high) ^ fold(low), nominal, Duration::from_millis(self.jitter_ms)))
    }

    /// When a schedule with its cursors at these times fires next.
    pub(crate) fn fires_at(
        &self,
        job: JobId,
        nominal: Option<Timestamp>,
        replay: Option<&Replay>,
    ) -> Option<Timestamp> {
        let regular = nominal.map(|nominal| self.due_at(job, nominal));
        regular.into_iter().chain(replay.map(|replay| replay.due_at)).min()
    }

    fn problems(&self) -> Vec<InvalidField> {
        let misfire = &self.misfire;
        let too_long = |ms: u64, max: Duration| Duration::from_millis(ms) > max;
        let mut problems = Vec::new();
        let mut refuse = |is_wrong: bool, field: &str, fix: &str| {
            if is_wrong {
                problems.push(InvalidField::new(field, fix));
            }
        };
        let most_calendars = limits::CALENDARS_OF_JOB_MAX;
        let is_too_many = self.calendars.len() > most_calendars;
        refuse(is_too_many, "calendars", &format!("must name at most {most_calendars} calendars"));
        refuse(self.max_runs == Some(0), "max_runs", "must be at least 1");
        refuse(too_long(self.jitter_ms, limits::JITTER_MAX), "jitter", "must be at most 24h");
        refuse(too_long(misfire.grace_ms, limits::MISFIRE_GRACE_MAX), "misfire_grace", "must be at most 24h");
        let limit_fix = "must be at least 1; to run none, use SKIP_MISSED";
        refuse(misfire.limit == Some(0), "misfire_limit", limit_fix);
        let is_too_late = misfire.max_lateness_ms.is_some_and(|ms| too_long(ms, limits::INTERVAL_MAX));
        refuse(is_too_late, "max_lateness", "must be at most 10 years");
        let most = limits::REPLAY_RATE_MAX;
        let is_bad_rate = misfire.replay_per_minute.is_some_and(|rate| rate == 0 || rate > most);
        refuse(is_bad_rate, "replay_rate", &format!("must be from 1 to {most} a minute"));
        problems
    }
}

impl From<Recurring> for Schedule {
    fn from(recurring: Recurring) -> Self {
        Schedule::Recurring(Box::new(recurring))
    }
}

impl Schedule {
    pub const fn is_immediate(&self) -> bool {
        matches!(self, Schedule::Immediate)
    }

    /// Whether the job fires at most once.
    pub const fn is_one_shot(&self) -> bool {
        matches!(self, Schedule::Immediate | Schedule::OneTime { .. })
    }

    /// Whether this schedule has the times of `recurrence`.
    pub(crate) fn has_recurrence(&self, recurrence: &Recurrence) -> bool {
        matches!(self, Schedule::Recurring(recurring) if recurring.recurrence == *recurrence)
    }

    /// The occurrence before `nominal` in this schedule.
    pub fn before(&self, nominal: Timestamp) -> Option<Timestamp> {
        match self {
            Schedule::Immediate | Schedule::OneTime { .. } => None,
            Schedule::Recurring(recurring) => {
                recurring.recurrence.last_time_at_or_before(nominal.shifted(-1))
            }
        }
    }

    /// The invalid fields and what they must be.
    pub fn problems(&self) -> Vec<InvalidField> {
        match self {
            Schedule::OneTime { at } if *at > Timestamp::MAX => {
                vec![InvalidField::new("execute_at", "must be before 9999-12-30")]
            }
            Schedule::Immediate | Schedule::OneTime { .. } => vec![],
            Schedule::Recurring(recurring) => recurring.problems(),
        }
    }
}

/// What a fire does while occurrences of the job are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum OverlapPolicy {
    /// The new occurrence is skipped: the job never runs twice at once.
    #[default]
    Skip,
    /// It runs in parallel.
    Allow,
    /// It waits until they have ended, with a limit on how many wait.
    Queue,
    /// They are cancelled, and it starts when they have ended.
    Replace,
}

/// The rules for occurrences that become due while others of the job are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overlap {
    pub policy: OverlapPolicy,
    /// How many may wait under [`OverlapPolicy::Queue`].
    pub limit: u32,
    /// How many may be open in total.
    pub max_open: u32,
}

impl Default for Overlap {
    fn default() -> Self {
        Overlap {
            policy: OverlapPolicy::default(),
            limit: limits::OVERLAP_LIMIT_DEFAULT,
            max_open: limits::MAX_OPEN_DEFAULT,
        }
    }
}

impl Overlap {
    /// The flags of an occurrence that is fired under these rules.
    pub(crate) fn flags(self) -> OccurrenceFlags {
        let followed = matches!(self.policy, OverlapPolicy::Queue | OverlapPolicy::Replace);
        OccurrenceFlags { followed, ..OccurrenceFlags::default() }
    }
}

/// Why occurrences did not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    Overlap,
    Misfire,
    Paused,
    Calendar,
    Dependency,
    Backlog,
    /// A user has asked to skip it.
    Requested,
}

/// Consecutive occurrences that did not run, for the same reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SkipRange {
    pub first: Timestamp,
    pub last: Timestamp,
    pub count: u64,
    pub reason: SkipReason,
}

/// The state of a job's schedule: a narrow row next to the wide job row. A job without one has nothing left
/// to fire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleState {
    pub job: JobId,
    /// Incremented by every fire and every change of the schedule. A fire is a compare-and-swap on it.
    pub version: u32,
    /// The next nominal time; `None` when only a replay is left.
    pub nominal: Option<Timestamp>,
    /// When to fire next: the nominal time plus its delay, or the replay's next time, whichever is earlier.
    /// `None` while the job is paused.
    pub due_at: Option<Timestamp>,
    /// Missed occurrences that are being replayed next to the regular ones.
    pub replay: Option<Replay>,
    /// Occurrences fired so far.
    pub fired: u32,
    /// The last assigned occurrence number; triggers are numbered, too.
    pub numbered: u32,
    pub job_version: u32,
    pub queue: String,
    pub job_type: String,
    pub owner: String,
    pub priority: Priority,
    pub overlap: Overlap,
    pub expiry: Option<Expiry>,
    /// Whether the job depends on others.
    pub depends: bool,
    /// Whether other jobs may depend on the outcome of its next occurrence.
    pub awaited: bool,
    pub schedule: Schedule,
}

/// How a submitted job starts.
#[derive(Debug, Clone, PartialEq)]
pub enum Beginning {
    /// It is due: its only occurrence is open from the start.
    Due(Live),
    Later(ScheduleState),
    /// Its schedule ended before it started: there is nothing to fire.
    Over,
}

/// The first run of a job: its nominal time and when it is due. Times of the schedule before the job was
/// created do not count as missed. `None` if the schedule ends before that.
pub fn first_run(job: &Job) -> Option<(Timestamp, Timestamp)> {
    run_after(job, job.created_at)
}

/// The first run of a job whose schedule starts at `since`.
fn run_after(job: &Job, since: Timestamp) -> Option<(Timestamp, Timestamp)> {
    match &job.spec.settings.schedule {
        Schedule::Immediate => Some((since, since)),
        Schedule::OneTime { at } => Some((*at, *at)),
        Schedule::Recurring(recurring) => {
            let nominal = recurring.recurrence.next_time_after(since)?;
            Some((nominal, recurring.due_at(job.id, nominal)))
        }
    }
}

/// Decides how a new job starts. `waits_for_parents` says whether jobs that it depends on are unfinished.
pub fn begin(job: &Job, now: Timestamp, waits_for_parents: bool, shares: &mut Shares) -> Beginning {
    let spec = &job.spec;
    let due_since = match &spec.settings.schedule {
        Schedule::Immediate => Some(now),
        Schedule::OneTime { at } => Some(*at).filter(|at| *at <= now),
        Schedule::Recurring(_) => None,
    };
    if let Some(scheduled_time) = due_since {
        let lag = shares.lag(&spec.queue, &spec.owner, now);
        let id = job.id.occurrence(1);
        let live = Live::fired(id, scheduled_time, Origin::Schedule, job.version, spec.priority, now, lag);
        let state = if waits_for_parents { behind(Gate::Dependency) } else { live.state };
        let expires_at = spec.settings.expires_at(scheduled_time);
        return Beginning::Due(Live { state, expires_at, flags: spec.settings.overlap().flags(), ..live });
    }
    match scheduled(job, job.created_at) {
        Some(state) => Beginning::Later(state),
        None => Beginning::Over,
    }
}

fn behind(gate: Gate) -> LiveState {
    LiveState::Waiting(Gates::only(gate))
}

/// The state of a job's schedule that starts at `since`; `None` if nothing is left to fire.
pub(crate) fn scheduled(job: &Job, since: Timestamp) -> Option<ScheduleState> {
    let (nominal, due_at) = run_after(job, since)?;
    let spec = &job.spec;
    Some(ScheduleState {
        job: job.id,
        version: 1,
        nominal: Some(nominal),
        due_at: Some(due_at),
        replay: None,
        fired: 0,
        numbered: 0,
        job_version: job.version,
        queue: spec.queue.clone(),
        job_type: spec.job_type.clone(),
        owner: spec.owner.clone(),
        priority: spec.priority,
        overlap: spec.settings.overlap(),
        expiry: spec.settings.expiry,
        depends: !spec.settings.depends_on.is_empty(),
        awaited: false,
        schedule: spec.settings.schedule.clone(),
    })
}

/// Whether a job with this schedule, submitted now, is due at once.
pub fn is_due_at_once(schedule: &Schedule, now: Timestamp) -> bool {
    match schedule {
        Schedule::Immediate => true,
        Schedule::OneTime { at } => *at <= now,
        Schedule::Recurring(_) => false,
    }
}

impl ScheduleState {
    /// The last nominal time of a recurring schedule that has fired, was skipped or is being replayed.
    pub(crate) fn last_accounted(&self) -> Option<Timestamp> {
        self.schedule.before(self.nominal.unwrap_or(Timestamp::MAX))
    }

    /// The calendars that it names.
    pub fn calendars(&self) -> &[String] {
        match &self.schedule {
            Schedule::Recurring(recurring) => &recurring.calendars,
            Schedule::Immediate | Schedule::OneTime { .. } => &[],
        }
    }

    /// The state during a pause: nothing becomes due until it is released.
    pub(crate) fn held(&self) -> ScheduleState {
        ScheduleState { version: self.version + 1, due_at: None, ..self.clone() }
    }

    /// The state after a pause that ends at `now`. Occurrences that became due meanwhile are skipped as one
    /// range, but a one-time job runs late and a replay continues. `None` if nothing is left.
    pub(crate) fn released(&self, now: Timestamp) -> (Option<ScheduleState>, Option<SkipRange>) {
        let Schedule::Recurring(recurring) = &self.schedule else {
            let state = ScheduleState { version: self.version + 1, due_at: self.nominal, ..self.clone() };
            return (Some(state), None);
        };
        let (nominal, skipped) = self.passed_over(recurring, now);
        let replay = self.replay.clone().map(|replay| replay.resumed(now));
        let due_at = recurring.fires_at(self.job, nominal, replay.as_ref());
        let state = ScheduleState { version: self.version + 1, nominal, due_at, replay, ..self.clone() };
        (due_at.is_some().then_some(state), skipped)
    }

    /// The state with the next time where the present time zone data has it: the occurrence nearest to the stored one
    /// that is still to come. `None` if the stored one is right, or is due, or if there is none.
    pub fn retimed(&self, now: Timestamp) -> Option<ScheduleState> {
        let Schedule::Recurring(recurring) = &self.schedule else { return None };
        let stored = self.nominal.filter(|nominal| *nominal > now)?;
        let recurrence = &recurring.recurrence;
        let earlier = recurrence.last_time_at_or_before(stored).filter(|time| *time > now);
        if earlier == Some(stored) {
            return None;
        }
        let later = recurrence.next_time_after(stored);
        let nominal = match (earlier, later) {
            (Some(earlier), Some(later)) if stored.since(earlier) <= later.since(stored) => earlier,
            (earlier, later) => later.or(earlier)?,
        };
        let due_at = recurring.fires_at(self.job, Some(nominal), self.replay.as_ref());
        let due_at = self.due_at.and(due_at);
        Some(ScheduleState { version: self.version + 1, nominal: Some(nominal), due_at, ..self.clone() })
    }

    /// The state under a schedule with the same recurrence: both cursors stay where they are, and everything
    /// else applies from the next fire on. `SKIP_MISSED` ends a replay. `None` if nothing is left.
    pub(crate) fn continued(self, recurring: &Recurring) -> Option<ScheduleState> {
        let is_kept = |replay: &Replay| {
            replay.backfill.is_some() || recurring.misfire.policy != MisfirePolicy::SkipMissed
        };
        let replay = self.replay.filter(is_kept);
        let due_at = recurring.fires_at(self.job, self.nominal, replay.as_ref())?;
        let schedule = recurring.clone().into();
        Some(ScheduleState { due_at: Some(due_at), replay, schedule, ..self })
    }

    /// The state that users see as the next fire: occurrences that a calendar excludes do not count.
    #[must_use]
    pub fn next_allowed(mut self, calendars: &NamedCalendars) -> ScheduleState {
        let Schedule::Recurring(recurring) = &self.schedule else { return self };
        if calendars.is_empty() {
            return self;
        }
        let first = self.nominal;
        let later = |nominal: &Timestamp| recurring.recurrence.next_time_after(*nominal);
        let nominal = std::iter::successors(first, later)
            .take(limits::CALENDAR_STEPS_MAX)
            .find(|nominal| excluded_by(calendars, *nominal).is_none());
        let due_at = recurring.fires_at(self.job, nominal, self.replay.as_ref());
        self.due_at = self.due_at.and(due_at);
        self.nominal = nominal;
        self
    }

    /// The position of the regular cursor after everything that is due by `now`, and the range that it
    /// skipped.
    fn passed_over(&self, recurring: &Recurring, now: Timestamp) -> (Option<Timestamp>, Option<SkipRange>) {
        let is_due = |nominal: &Timestamp| recurring.due_at(self.job, *nominal) <= now;
        let Some(first) = self.nominal.filter(is_due) else { return (self.nominal, None) };
        let recurrence = &recurring.recurrence;
        let jitter = Duration::from_millis(recurring.jitter_ms);
        // Everything older than the jitter is due; each of the rest has its own delay.
        let mut last =
            recurrence.last_time_at_or_before(now.minus(jitter)).map_or(first, |last| last.max(first));
        while let Some(next) = recurrence.next_time_after(last).filter(is_due) {
            last = next;
        }
        let count = recurrence.count_between(first.shifted(-1), last).max(1);
        let skipped = SkipRange { first, last, count, reason: SkipReason::Paused };
        (recurrence.next_time_after(last), Some(skipped))
    }
}
