//! Job descriptions, validated once when they enter the system.

use crate::ids::JobId;
use crate::lifecycle::Status;
use crate::limits;
use crate::names::{line_problem, name_problem, owner_name_problem, queue_name_problem};
use crate::notify::NotifySettings;
use crate::payload_schema::job_type_problem;
use crate::retry::RetryPolicy;
use crate::schedule::{Overlap, OverlapPolicy, Schedule};
use crate::time::Timestamp;
use crate::trace_context::SubmittedTrace;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How urgent a job is, from 1 to 10.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Priority(u8);

impl Priority {
    pub const MIN: Priority = Priority(1);
    pub const DEFAULT: Priority = Priority(5);
    pub const MAX: Priority = Priority(10);

    pub const fn new(priority: u8) -> Option<Self> {
        if priority >= 1 && priority <= 10 { Some(Priority(priority)) } else { None }
    }

    pub const fn get(self) -> u8 {
        self.0
    }
}

impl Default for Priority {
    fn default() -> Self {
        Priority::DEFAULT
    }
}

impl TryFrom<u8> for Priority {
    type Error = &'static str;

    fn try_from(priority: u8) -> Result<Self, Self::Error> {
        Priority::new(priority).ok_or("a priority is a number from 1 to 10")
    }
}

impl From<Priority> for u8 {
    fn from(priority: Priority) -> u8 {
        priority.0
    }
}

/// The queue of a job that does not name one.
pub const DEFAULT_QUEUE: &str = "default";
/// The owner of a job that does not name one.
pub const DEFAULT_OWNER: &str = "default";

/// A stored job. Its status is derived (see [`StoredStatus::status`]), except for the stored status `mark`.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    pub id: JobId,
    /// Incremented by every update.
    pub version: u32,
    pub mark: StoredStatus,
    /// The last assigned occurrence number, stored here when no schedule is left to count them. `None` as
    /// long as only the first occurrence can exist.
    pub numbered: Option<u32>,
    /// Runs of a schedule that has ended: they count if it is renewed.
    pub fired: u32,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub spec: JobSpec,
}

/// A validated job description.
#[derive(Debug, Clone, PartialEq)]
pub struct JobSpec {
    pub name: String,
    pub job_type: String,
    pub queue: String,
    pub owner: String,
    pub priority: Priority,
    /// JSON text.
    pub payload: String,
    pub settings: Settings,
}

/// The parts of a job that no list filters by. Stored as one JSON document without the default values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    #[serde(skip_serializing_if = "Schedule::is_immediate")]
    pub schedule: Schedule,
    #[serde(skip_serializing_if = "is_default")]
    pub overlap: OverlapPolicy,
    #[serde(skip_serializing_if = "is_default_overlap_limit")]
    pub overlap_limit: u32,
    #[serde(skip_serializing_if = "is_default_max_open")]
    pub max_open: u32,
    #[serde(skip_serializing_if = "is_default_max_retries")]
    pub max_retries: u32,
    #[serde(skip_serializing_if = "is_default")]
    pub retry: RetryPolicy,
    #[serde(skip_serializing_if = "is_default_timeout")]
    pub timeout_ms: u64,
    /// The timeout after each charged attempt, in percent of the previous one: 100 leaves it unchanged.
    #[serde(skip_serializing_if = "is_no_growth")]
    pub timeout_growth_pct: u32,
    /// Failures that a retry cannot fix: a status word, or a text that the error message contains.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fail_on: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiry: Option<Expiry>,
    /// Identifies one job of its owner for as long as the job is stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Identifies one unfinished job of its owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unique_key: Option<String>,
    /// Owner and name identify the job for as long as it is stored: it was put by its name.
    #[serde(skip_serializing_if = "is_default")]
    pub by_name: bool,
    /// Names a resource that the job uses. Its queue may limit how many executions use it at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency_key: Option<String>,
    /// One-shot jobs that must succeed first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<JobId>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The channels that are notified about it.
    #[serde(skip_serializing_if = "NotifySettings::is_empty")]
    pub notify: NotifySettings,
    #[serde(skip_serializing_if = "is_default")]
    pub result_overflow: ResultOverflow,
    /// The trace that the job was submitted in. No part of its definition: it says nothing about what runs or when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<SubmittedTrace>,
}

/// What happens to a command's result of more than [`limits::RESULT_BYTES_MAX`] bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResultOverflow {
    /// Its beginning is kept, marked as such.
    #[default]
    Truncate,
    /// The execution fails permanently.
    Fail,
    /// It is stored as a blob, and the result is a reference to it.
    Blob,
}

/// When an occurrence that has not started expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expiry {
    At(Timestamp),
    /// This long after its scheduled time.
    AfterMs(u64),
}

impl Expiry {
    pub fn of(self, scheduled_time: Timestamp) -> Timestamp {
        match self {
            Expiry::At(at) => at,
            Expiry::AfterMs(ms) => scheduled_time.plus(Duration::from_millis(ms)),
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn is_default_max_retries(max_retries: &u32) -> bool {
    *max_retries == limits::MAX_RETRIES_DEFAULT
}

fn is_default_overlap_limit(overlap_limit: &u32) -> bool {
    *overlap_limit == limits::OVERLAP_LIMIT_DEFAULT
}

fn is_default_max_open(max_open: &u32) -> bool {
    *max_open == limits::MAX_OPEN_DEFAULT
}

fn is_no_growth(percent: &u32) -> bool {
    *percent == 100
}

fn is_default_timeout(timeout_ms: &u64) -> bool {
    Duration::from_millis(*timeout_ms) == limits::TIMEOUT_DEFAULT
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            schedule: Schedule::Immediate,
            overlap: OverlapPolicy::default(),
            overlap_limit: limits::OVERLAP_LIMIT_DEFAULT,
            max_open: limits::MAX_OPEN_DEFAULT,
            max_retries: limits::MAX_RETRIES_DEFAULT,
            retry: RetryPolicy::default(),
            timeout_ms: limits::TIMEOUT_DEFAULT.as_millis() as u64,
            timeout_growth_pct: 100,
            fail_on: Vec::new(),
            expiry: None,
            idempotency_key: None,
            unique_key: None,
            by_name: false,
            concurrency_key: None,
            depends_on: Vec::new(),
            tags: Vec::new(),
            notify: NotifySettings::default(),
            result_overflow: ResultOverflow::default(),
            trace: None,
        }
    }
}

impl Settings {
    /// The rules for occurrences that become due while others of the job are open.
    pub fn overlap(&self) -> Overlap {
        Overlap { policy: self.overlap, limit: self.overlap_limit, max_open: self.max_open }
    }

    /// The time limit of an attempt that follows this many charged attempts.
    pub fn timeout_after(&self, charged: u32) -> Duration {
        let mut timeout = Duration::from_millis(self.timeout_ms);
        if self.timeout_growth_pct == 100 {
            return timeout;
        }
        for _ in 0..charged {
            timeout = (timeout * self.timeout_growth_pct / 100).min(limits::TIMEOUT_MAX);
            if timeout == limits::TIMEOUT_MAX {
                break;
            }
        }
        timeout
    }

    /// When the occurrence scheduled for this time expires.
    pub fn expires_at(&self, scheduled_time: Timestamp) -> Option<Timestamp> {
        self.expiry.map(|expiry| expiry.of(scheduled_time))
    }

    /// Whether the job asks not to retry such a failure.
    pub fn fails_for_good(&self, status: Status, error: Option<&str>) -> bool {
        let word = match status {
            Status::TimedOut => Some("TIMED_OUT"),
            Status::Lost => Some("LOST"),
            _ => None,
        };
        self.fail_on.iter().any(|text| {
            word == Some(text.as_str()) || error.is_some_and(|error| error.contains(text.as_str()))
        })
    }
}

/// A field with an invalid value, and how to fix it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {fix}")]
pub struct InvalidField {
    pub field: String,
    /// What would be valid, to be appended to the field's name: "must be …".
    pub fix: String,
}

impl InvalidField {
    pub fn new(field: impl Into<String>, fix: impl Into<String>) -> Self {
        InvalidField { field: field.into(), fix: fix.into() }
    }
}

impl JobSpec {
    /// A job with the given name and the default values for everything else.
    pub fn named(name: impl Into<String>) -> Self {
        let name = name.into();
        JobSpec {
            job_type: name.clone(),
            name,
            queue: DEFAULT_QUEUE.to_owned(),
            owner: DEFAULT_OWNER.to_owned(),
            priority: Priority::DEFAULT,
            payload: "null".to_owned(),
            settings: Settings::default(),
        }
    }

    /// Checks the description and returns all errors.
    pub fn check(&self) -> Result<(), Vec<InvalidField>> {
        let mut problems = Vec::new();
        for (field, fix) in [
            ("name", name_problem(&self.name)),
            ("job_type", job_type_problem(&self.job_type)),
            ("queue", queue_name_problem(&self.queue)),
            ("owner_id", owner_name_problem(&self.owner)),
        ] {
            if let Some(fix) = fix {
                problems.push(InvalidField::new(field, fix));
            }
        }
        if self.payload.len() > limits::PAYLOAD_BYTES_MAX {
            problems.push(InvalidField::new(
                "payload",
                format!(
                    "must be at most {} bytes as JSON, not {}",
                    limits::PAYLOAD_BYTES_MAX,
                    self.payload.len()
                ),
            ));
        }
        let settings = &self.settings;
        if settings.tags.len() > limits::TAGS_MAX {
            problems.push(InvalidField::new("tags", format!("must be at most {}", limits::TAGS_MAX)));
        }
        for (index, tag) in settings.tags.iter().enumerate() {
            if let Some(fix) = name_problem(tag) {
                problems.push(InvalidField::new(format!("tags[{index}]"), fix));
            }
        }
        if settings.max_retries > limits::MAX_RETRIES_MAX {
            problems.push(InvalidField::new(
                "max_retries",
                format!("must be at most {}", limits::MAX_RETRIES_MAX),
            ));
        }
        if settings.timeout_ms == 0 || Duration::from_millis(settings.timeout_ms) > limits::TIMEOUT_MAX {
            let seconds = limits::TIMEOUT_MAX.as_secs();
            problems.push(InvalidField::new(
                "timeout_secs",
                format!("must be more than 0 and at most {seconds} ({} days)", seconds / 86_400),
            ));
        }
        if let Some((field, fix)) = settings.retry.problem() {
            problems.push(InvalidField::new(field, fix));
        }
        problems.extend(settings.notify.problems());
        problems.extend(settings.schedule.problems());
        settings.check_control(&mut problems);
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    /// Like [`JobSpec::check`], for an update of a stored job: an unchanged name is accepted even if today's
    /// rules would reject it.
    pub fn check_update(&self, before: &JobSpec) -> Result<(), Vec<InvalidField>> {
        let (mine, theirs) = (&self.settings, &before.settings);
        let stays = |problem: &InvalidField| match problem.field.as_str() {
            "name" => self.name == before.name,
            "job_type" => self.job_type == before.job_type,
            "queue" => self.queue == before.queue,
            "owner_id" => self.owner == before.owner,
            field if field.starts_with("tags") => mine.tags == theirs.tags,
            "idempotency_key" => mine.idempotency_key == theirs.idempotency_key,
            "unique_key" => mine.unique_key == theirs.unique_key,
            "concurrency_key" => mine.concurrency_key == theirs.concurrency_key,
            _ => false,
        };
        let Err(mut problems) = self.check() else { return Ok(()) };
        problems.retain(|problem| !stays(problem));
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }
}

impl Settings {
    /// Checks the settings about other jobs, other occurrences and failures.
    fn check_control(&self, problems: &mut Vec<InvalidField>) {
        let mut refuse = |field: &str, fix: String| problems.push(InvalidField::new(field, fix));
        let up_to = |max: u32| format!("must be from 1 to {max}");
        if self.overlap_limit == 0 || self.overlap_limit > limits::OVERLAP_LIMIT_MAX {
            refuse("overlap_limit", up_to(limits::OVERLAP_LIMIT_MAX));
        }
        if self.max_open == 0 || self.max_open > limits::MAX_OPEN_MAX {
            refuse("max_open", up_to(limits::MAX_OPEN_MAX));
        }
        if !(100..=limits::TIMEOUT_GROWTH_PCT_MAX).contains(&self.timeout_growth_pct) {
            refuse("retry.timeout_growth", "must be from 1.0 to 10.0".to_owned());
        }
        if self.fail_on.len() > limits::FAIL_ON_MAX {
            refuse("retry.fail_on", format!("must name at most {} texts", limits::FAIL_ON_MAX));
        }
        if let Some(fix) = self.fail_on.iter().find_map(|text| line_problem(text)) {
            refuse("retry.fail_on", format!("each {fix}"));
        }
        for (field, key) in [
            ("idempotency_key", &self.idempotency_key),
            ("unique_key", &self.unique_key),
            ("concurrency_key", &self.concurrency_key),
        ] {
            if let Some(fix) = key.as_deref().and_then(name_problem) {
                refuse(field, fix);
            }
        }
        if let Some((field, fix)) = self.expiry_problem() {
            refuse(field, fix.to_owned());
        }
        if self.depends_on.len() > limits::DEPENDS_ON_MAX {
            refuse("depends_on", format!("must name at most {} jobs", limits::DEPENDS_ON_MAX));
        }
        if !self.depends_on.is_empty() && !self.schedule.is_one_shot() {
            refuse("depends_on", "only applies to jobs that run once".to_owned());
        }
        let mut sorted = self.depends_on.clone();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            refuse("depends_on", "must name each job once".to_owned());
        }
    }

    fn expiry_problem(&self) -> Option<(&'static str, &'static str)> {
        match (self.expiry?, &self.schedule) {
            (Expiry::At(_), Schedule::Recurring(_)) => Some((
                "expires_at",
                "only applies to jobs that run once: give expires_after, or end_at to end the schedule",
            )),
            (Expiry::At(at), Schedule::OneTime { at: execute_at }) if at <= *execute_at => {
                Some(("expires_at", "must be after the time of the run"))
            }
            (Expiry::At(at), _) if at > Timestamp::MAX => Some(("expires_at", "must be before 9999-12-30")),
            (Expiry::AfterMs(0), _) => Some(("expires_after", "must be more than 0")),
            (Expiry::AfterMs(ms), _) if Duration::from_millis(ms) > limits::EXPIRES_AFTER_MAX => {
                Some(("expires_after", "must be at most 10 years"))
            }
            _ => None,
        }
    }
}

/// The stored part of a job's status. The common transition from active to completed writes nothing: a job is
/// completed when nothing is left to fire and no occurrence is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoredStatus {
    Active,
    Paused,
    Failed,
    Cancelled,
    /// Hidden, and removed as soon as no live row is left.
    Deleted,
}

/// A job's status as shown to users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum JobStatus {
    Active,
    Paused,
    Completed,
    Failed,
    Cancelled,
}

impl JobStatus {
    pub const ALL: [JobStatus; 5] =
        [JobStatus::Active, JobStatus::Paused, JobStatus::Completed, JobStatus::Failed, JobStatus::Cancelled];

    /// As in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            JobStatus::Active => "ACTIVE",
            JobStatus::Paused => "PAUSED",
            JobStatus::Completed => "COMPLETED",
            JobStatus::Failed => "FAILED",
            JobStatus::Cancelled => "CANCELLED",
        }
    }
}

impl StoredStatus {
    pub const fn status(self, has_schedule: bool, has_open_occurrence: bool) -> JobStatus {
        match self {
            StoredStatus::Active if has_schedule || has_open_occurrence => JobStatus::Active,
            StoredStatus::Active => JobStatus::Completed,
            StoredStatus::Paused if has_schedule || has_open_occurrence => JobStatus::Paused,
            StoredStatus::Paused => JobStatus::Completed,
            StoredStatus::Failed => JobStatus::Failed,
            StoredStatus::Cancelled | StoredStatus::Deleted => JobStatus::Cancelled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recurrence::RecurrenceSpec;
    use crate::schedule::{Misfire, MisfirePolicy, Recurring};

    fn every_5s() -> Recurring {
        Recurring::new(RecurrenceSpec::interval("5s", Timestamp::EPOCH)).unwrap()
    }

    #[test]
    fn default_settings_are_an_empty_document() {
        assert_eq!(serde_json::to_string(&Settings::default()).unwrap(), "{}");
        assert_eq!(serde_json::from_str::<Settings>("{}").unwrap(), Settings::default());
    }

    #[test]
    fn settings_read_back_what_they_write() {
        let settings = Settings {
            schedule: Recurring {
                max_runs: Some(3),
                jitter_ms: 5,
                misfire: Misfire { policy: MisfirePolicy::RunAll, limit: Some(7), ..Misfire::default() },
                ..every_5s()
            }
            .into(),
            overlap: OverlapPolicy::Allow,
            max_retries: 0,
            retry: RetryPolicy::Ladder { steps_ms: vec![1, 2] },
            timeout_ms: 5,
            timeout_growth_pct: 150,
            fail_on: vec!["TIMED_OUT".to_owned()],
            expiry: Some(Expiry::AfterMs(9)),
            unique_key: Some("nightly".to_owned()),
            tags: vec!["a".to_owned()],
            ..Settings::default()
        };
        let text = serde_json::to_string(&settings).unwrap();
        assert_eq!(serde_json::from_str::<Settings>(&text).unwrap(), settings, "{text}");
    }

    #[test]
    fn a_plain_recurring_schedule_is_stored_without_its_defaults() {
        let schedule = Schedule::from(every_5s());
        let text = serde_json::to_string(&schedule).unwrap();
        assert_eq!(
            text,
            r#"{"recurring":{"recurrence":{"rule":{"interval":{"every":"5s","anchor":"1970-01-01T00:00:00Z"}}}}}"#
        );
        assert_eq!(serde_json::from_str::<Schedule>(&text).unwrap(), schedule);
    }

    #[test]
    fn a_growing_timeout_grows_with_each_charged_attempt_up_to_the_longest() {
        let settings = Settings { timeout_ms: 10_000, timeout_growth_pct: 150, ..Settings::default() };
        let seconds = |charged| settings.timeout_after(charged).as_secs_f64();
        assert_eq!([seconds(0), seconds(1), seconds(2)], [10.0, 15.0, 22.5]);
        assert_eq!(settings.timeout_after(u32::MAX), limits::TIMEOUT_MAX);
        assert_eq!(Settings::default().timeout_after(u32::MAX), limits::TIMEOUT_DEFAULT);
    }

    #[test]
    fn a_failure_is_for_good_by_its_status_word_or_by_a_part_of_its_message() {
        let fail_on = vec!["TIMED_OUT".to_owned(), "no such file".to_owned()];
        let settings = Settings { fail_on, ..Settings::default() };
        assert!(settings.fails_for_good(Status::TimedOut, None));
        assert!(settings.fails_for_good(Status::Failed, Some("open: no such file or directory")));
        assert!(!settings.fails_for_good(Status::Failed, Some("connection refused")));
        assert!(!settings.fails_for_good(Status::Lost, None));
    }

    #[test]
    fn an_expiry_must_leave_room_for_the_run() {
        let field = |schedule, expiry| {
            let settings = Settings { schedule, expiry: Some(expiry), ..Settings::default() };
            settings.expiry_problem().map(|(field, _)| field)
        };
        let at = Timestamp::from_micros(5_000_000);
        assert_eq!(field(Schedule::OneTime { at }, Expiry::At(at)), Some("expires_at"));
        assert_eq!(field(Schedule::OneTime { at }, Expiry::At(at.shifted(1))), None);
        assert_eq!(field(every_5s().into(), Expiry::At(at)), Some("expires_at"));
        assert_eq!(field(every_5s().into(), Expiry::AfterMs(0)), Some("expires_after"));
        assert_eq!(field(every_5s().into(), Expiry::AfterMs(1)), None);
    }

    #[test]
    fn limits_on_occurrences_failures_and_dependencies_name_their_fields() {
        let fields = |change: fn(&mut Settings)| {
            let mut spec = JobSpec::named("report");
            change(&mut spec.settings);
            let problems = spec.check().err().unwrap_or_default();
            problems.into_iter().map(|problem| problem.field).collect::<Vec<_>>()
        };
        let parent = |n| JobId::new(Timestamp::EPOCH, n);
        assert_eq!(fields(|settings| settings.overlap_limit = 0), ["overlap_limit"]);
        assert_eq!(fields(|settings| settings.max_open = limits::MAX_OPEN_MAX + 1), ["max_open"]);
        assert_eq!(fields(|settings| settings.timeout_growth_pct = 99), ["retry.timeout_growth"]);
        assert_eq!(fields(|settings| settings.timeout_growth_pct = 1_001), ["retry.timeout_growth"]);
        assert_eq!(fields(|settings| settings.fail_on = vec![String::new()]), ["retry.fail_on"]);
        assert_eq!(fields(|settings| settings.unique_key = Some(String::new())), ["unique_key"]);
        assert_eq!(fields(|settings| settings.idempotency_key = Some("\n".to_owned())), ["idempotency_key"]);
        assert_eq!(
            fields(|settings| settings.depends_on = vec![JobId::from_bytes([7; 16]); 2]),
            ["depends_on"]
        );
        let recurring = |settings: &mut Settings| {
            settings.schedule = every_5s().into();
            settings.depends_on = vec![JobId::from_bytes([7; 16])];
        };
        assert_eq!(fields(recurring), ["depends_on"]);
        let mut many = JobSpec::named("report");
        many.settings.depends_on = (0..=limits::DEPENDS_ON_MAX as u64).map(parent).collect();
        assert_eq!(many.check().unwrap_err().len(), 1);
    }

    #[test]
    fn an_update_may_keep_a_name_that_is_refused_today() {
        let mut before = JobSpec::named("old\u{200b}name");
        before.queue = "..".to_owned();
        before.settings.tags = vec![" ".to_owned()];
        let fields = |spec: &JobSpec| {
            let problems = spec.check_update(&before).err().unwrap_or_default();
            problems.into_iter().map(|problem| problem.field).collect::<Vec<_>>()
        };
        let mut after = before.clone();
        after.settings.max_retries = 1;
        assert_eq!(fields(&after), [""; 0]);
        after.settings.max_retries = limits::MAX_RETRIES_MAX + 1;
        after.name = "new\u{200b}name".to_owned();
        assert_eq!(fields(&after), ["name", "max_retries"]);
    }

    #[test]
    fn every_problem_names_its_field() {
        let mut spec = JobSpec::named("");
        spec.queue = "x".repeat(201);
        spec.owner = "a\nb".to_owned();
        spec.payload = "1".repeat(limits::PAYLOAD_BYTES_MAX + 1);
        spec.settings.timeout_ms = 0;
        spec.settings.max_retries = 1_001;
        spec.settings.retry = RetryPolicy::Ladder { steps_ms: vec![] };
        spec.settings.schedule = Recurring { max_runs: Some(0), ..every_5s() }.into();
        let fields: Vec<String> =
            spec.check().unwrap_err().into_iter().map(|problem| problem.field).collect();
        assert_eq!(
            fields,
            [
                "name",
                "job_type",
                "queue",
                "owner_id",
                "payload",
                "max_retries",
                "timeout_secs",
                "retry.steps",
                "max_runs"
            ]
        );
        assert_eq!(JobSpec::named("report").check(), Ok(()));
    }
}
