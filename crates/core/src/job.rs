//! What a user asked for, checked once at the door.

use crate::ids::JobId;
use crate::limits;
use crate::retry::RetryPolicy;
use crate::schedule::{OverlapPolicy, Schedule};
use crate::time::Timestamp;
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

/// The queue of a job that names none.
pub const DEFAULT_QUEUE: &str = "default";
/// The owner of a job that names none.
pub const DEFAULT_OWNER: &str = "default";

/// A job as it is kept. Its status is derived (see [`JobMark::status`]), except for the mark.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    pub id: JobId,
    /// Raised by every update.
    pub version: u32,
    pub mark: JobMark,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub spec: JobSpec,
}

/// A checked job description.
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

/// The parts of a job that no list filters by. Kept as one JSON document, in which defaults are left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    #[serde(skip_serializing_if = "Schedule::is_immediate")]
    pub schedule: Schedule,
    #[serde(skip_serializing_if = "is_default")]
    pub overlap: OverlapPolicy,
    #[serde(skip_serializing_if = "is_default_max_retries")]
    pub max_retries: u32,
    #[serde(skip_serializing_if = "is_default")]
    pub retry: RetryPolicy,
    #[serde(skip_serializing_if = "is_default_timeout")]
    pub timeout_ms: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn is_default_max_retries(max_retries: &u32) -> bool {
    *max_retries == limits::MAX_RETRIES_DEFAULT
}

fn is_default_timeout(timeout_ms: &u64) -> bool {
    Duration::from_millis(*timeout_ms) == limits::TIMEOUT_DEFAULT
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            schedule: Schedule::Immediate,
            overlap: OverlapPolicy::default(),
            max_retries: limits::MAX_RETRIES_DEFAULT,
            retry: RetryPolicy::default(),
            timeout_ms: limits::TIMEOUT_DEFAULT.as_millis() as u64,
            tags: Vec::new(),
        }
    }
}

/// A field that cannot be accepted, and what would be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {fix}")]
pub struct InvalidField {
    pub field: String,
    /// What would be right, to follow the field's name: "must be …".
    pub fix: String,
}

impl InvalidField {
    pub fn new(field: impl Into<String>, fix: impl Into<String>) -> Self {
        InvalidField { field: field.into(), fix: fix.into() }
    }
}

impl JobSpec {
    /// A job with the given name and payload and everything else as by default.
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

    /// All that is wrong with this job, if anything.
    pub fn check(&self) -> Result<(), Vec<InvalidField>> {
        let mut problems = Vec::new();
        for (field, text) in [
            ("name", &self.name),
            ("job_type", &self.job_type),
            ("queue", &self.queue),
            ("owner_id", &self.owner),
        ] {
            if let Some(fix) = name_problem(text) {
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
        if let Some(fix) = settings.tags.iter().find_map(|tag| name_problem(tag)) {
            problems.push(InvalidField::new("tags", format!("each {fix}")));
        }
        if settings.max_retries > limits::MAX_RETRIES_MAX {
            problems.push(InvalidField::new(
                "max_retries",
                format!("must be at most {}", limits::MAX_RETRIES_MAX),
            ));
        }
        if settings.timeout_ms == 0 || Duration::from_millis(settings.timeout_ms) > limits::TIMEOUT_MAX {
            problems.push(InvalidField::new(
                "timeout_secs",
                format!("must be more than 0 and at most {}", limits::TIMEOUT_MAX.as_secs()),
            ));
        }
        if let Some((field, fix)) = settings.retry.problem() {
            problems.push(InvalidField::new(field, fix));
        }
        if let Some((field, fix)) = settings.schedule.problem() {
            problems.push(InvalidField::new(field, fix));
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.settings.timeout_ms)
    }
}

fn name_problem(text: &str) -> Option<String> {
    if text.is_empty() {
        return Some("must not be empty".to_owned());
    }
    if text.len() > limits::NAME_BYTES_MAX {
        return Some(format!("must be at most {} bytes", limits::NAME_BYTES_MAX));
    }
    text.chars().any(char::is_control).then(|| "must not contain control characters".to_owned())
}

/// The part of a job's status that is stored. The common way of a job, from active to completed, writes
/// nothing: it is completed when nothing is left to fire and nothing is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JobMark {
    Active,
    Paused,
    Failed,
    Cancelled,
}

/// A job's status as people see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum JobStatus {
    Active,
    Paused,
    Completed,
    Failed,
    Cancelled,
}

impl JobMark {
    pub const fn status(self, has_schedule: bool, has_open_occurrence: bool) -> JobStatus {
        match self {
            JobMark::Active if has_schedule || has_open_occurrence => JobStatus::Active,
            JobMark::Active => JobStatus::Completed,
            JobMark::Paused => JobStatus::Paused,
            JobMark::Failed => JobStatus::Failed,
            JobMark::Cancelled => JobStatus::Cancelled,
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
            tags: vec!["a".to_owned()],
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
