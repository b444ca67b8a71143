//! Jobs on the wire: submissions, acknowledgements, and full descriptions.

use crate::duration::{Seconds, Span};
use crate::execution::{ExecutionStatus, ProgressBody};
use crate::object;
use crate::priority::PriorityBody;
use crate::problem::Problem;
use crate::retry::RetryBody;
use crate::schedule::ReplayRate;
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::job::JobStatus;
use punctual_core::recurrence::{DstGap, DstOverlap};
use punctual_core::schedule::{MisfirePolicy, OverlapPolicy};
use punctual_core::time::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::value::{RawValue, to_raw_value};
use std::borrow::Cow;

/// A job as submitted. Everything except the name is optional and defaults to the server's value.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubmitJob {
    pub name: String,
    /// Selects the handler; defaults to the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_type: Option<String>,
    /// Any JSON, passed to the handler unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<PriorityBody>,
    /// Derived from the other fields by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule_type: Option<ScheduleType>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execute_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Span>,
    /// Five fields (minute first), six (second first) or seven (year last), or `@daily` and the like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron_expression: Option<String>,
    /// `90s`, `PT3H`, `daily`: hours or less are elapsed time, days or longer are steps on the zone's calendar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<String>,
    /// The IANA name of the time zone; UTC by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst_gap: Option<DstGap>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst_overlap: Option<DstOverlap>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misfire_policy: Option<MisfirePolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misfire_grace: Option<Span>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misfire_limit: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_lateness: Option<Span>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_rate: Option<ReplayRate>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Span>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_runs: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap_policy: Option<OverlapPolicy>,
    /// How many occurrences may wait for an open one under `QUEUE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap_limit: Option<u32>,
    /// How many occurrences may be open in total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_open: Option<u32>,
    /// Retries after the first attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub retry: Option<RetryBody>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_secs: Option<Seconds>,
    /// Ends a one-time job that has not started by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Ends each occurrence that has not started this long after its scheduled time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_after: Option<Span>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner_id: Option<String>,
    /// Identifies one job of its owner: submitting it again returns that job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Identifies one unfinished job of its owner: another submit meanwhile is rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique_key: Option<String>,
    /// Names a shared resource: its queue may limit how many executions with the same key run at once or
    /// start in a span of time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency_key: Option<String>,
    /// Jobs that must succeed first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depends_on: Option<Vec<JobId>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
}

impl SubmitJob {
    /// A job that runs at once, with defaults for everything else.
    pub fn named(name: impl Into<String>) -> Self {
        SubmitJob { name: name.into(), ..SubmitJob::default() }
    }

    pub fn with_type(self, job_type: impl Into<String>) -> Self {
        SubmitJob { job_type: Some(job_type.into()), ..self }
    }

    pub fn with_payload(self, payload: &impl Serialize) -> Result<Self, serde_json::Error> {
        Ok(SubmitJob { payload: Some(to_raw_value(payload)?), ..self })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ScheduleType {
    Immediate,
    OneTime,
    Recurring,
}

impl ScheduleType {
    pub const fn as_str(self) -> &'static str {
        match self {
            ScheduleType::Immediate => "IMMEDIATE",
            ScheduleType::OneTime => "ONE_TIME",
            ScheduleType::Recurring => "RECURRING",
        }
    }
}

/// Case-insensitive: people write `recurring`.
impl<'de> Deserialize<'de> for ScheduleType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const WORDS: [&str; 3] = ["IMMEDIATE", "ONE_TIME", "RECURRING"];
        let word = Cow::<'de, str>::deserialize(deserializer)?;
        let kinds = [ScheduleType::Immediate, ScheduleType::OneTime, ScheduleType::Recurring];
        let meant = kinds.into_iter().find(|kind| kind.as_str().eq_ignore_ascii_case(&word));
        meant.ok_or_else(|| de::Error::unknown_variant(&word, &WORDS))
    }
}

/// The response to one accepted submit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmittedBody {
    pub job_id: JobId,
    pub status: JobStatus,
    pub next_run_time: Option<Timestamp>,
    /// Why it does not run when it should, as far as is known immediately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_reason: Option<String>,
    /// An earlier submit with the same `idempotency_key` created it: nothing new was stored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub existing: bool,
}

/// Many jobs in one request.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchRequest {
    #[serde(deserialize_with = "object::each")]
    pub jobs: Vec<SubmitJob>,
}

/// An outcome per submitted job, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchAnswer {
    pub items: Vec<BatchItem>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum BatchItem {
    Submitted(SubmittedBody),
    Refused { error: Problem },
}

/// A job as read: as submitted, with defaults filled in, and its current state.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobBody {
    pub job_id: JobId,
    pub name: String,
    pub job_type: String,
    pub payload: Option<Box<RawValue>>,
    pub queue: String,
    pub priority: PriorityBody,
    pub schedule_type: ScheduleType,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execute_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron_expression: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst_gap: Option<DstGap>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst_overlap: Option<DstOverlap>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misfire_policy: Option<MisfirePolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misfire_grace: Option<Span>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misfire_limit: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_lateness: Option<Span>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_rate: Option<ReplayRate>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Span>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_runs: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_at: Option<Timestamp>,
    /// The schedule in plain English.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule_description: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap_policy: Option<OverlapPolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap_limit: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_open: Option<u32>,
    pub max_retries: u32,
    pub retry: RetryBody,
    pub timeout_secs: Seconds,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_after: Option<Span>,
    pub owner_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency_key: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<JobId>,
    pub tags: Vec<String>,
    pub status: JobStatus,
    /// Why the job has this status, where the status alone does not explain it.
    pub status_reason: Option<String>,
    pub next_run_time: Option<Timestamp>,
    pub next_retry_time: Option<Timestamp>,
    pub last_run_time: Option<Timestamp>,
    pub last_error: Option<String>,
    pub last_execution: Option<LastExecution>,
    /// The result of the latest finished execution, if it has one.
    #[serde(default)]
    pub result: Option<Box<RawValue>>,
    /// The execution that a retry has added; only in the response to the retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<ExecutionId>,
    /// The progress of its running execution; only where a single job is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<ProgressBody>,
    /// Incremented by every update.
    pub version: u32,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl JobBody {
    /// Whether nothing more will happen to this job without a request.
    pub const fn is_finished(&self) -> bool {
        matches!(self.status, JobStatus::Completed | JobStatus::Failed | JobStatus::Cancelled)
    }
}

/// The latest finished execution of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastExecution {
    pub execution_id: ExecutionId,
    pub status: ExecutionStatus,
    pub completed_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_submitted_job_writes_only_what_was_said() {
        let job = SubmitJob::named("report").with_payload(&serde_json::json!({"a": 1})).unwrap();
        assert_eq!(serde_json::to_string(&job).unwrap(), r#"{"name":"report","payload":{"a":1}}"#);
    }

    #[test]
    fn a_payload_passes_through_untouched() {
        let text = r#"{"name":"x","payload":{"b": 1.0e3,  "a":[ ]}}"#;
        let job: SubmitJob = serde_json::from_str(text).unwrap();
        assert_eq!(job.payload.unwrap().get(), r#"{"b": 1.0e3,  "a":[ ]}"#);
    }

    #[test]
    fn unknown_fields_are_errors() {
        let error = serde_json::from_str::<SubmitJob>(r#"{"name":"x","pirority":1}"#).unwrap_err();
        assert!(error.to_string().starts_with("unknown field `pirority`"), "{error}");
    }

    #[test]
    fn schedule_types_are_read_in_any_case() {
        for word in ["ONE_TIME", "one_time", "One_Time"] {
            let job = format!(r#"{{"name":"x","schedule_type":"{word}"}}"#);
            let job: SubmitJob = serde_json::from_str(&job).unwrap();
            assert_eq!(job.schedule_type, Some(ScheduleType::OneTime), "{word}");
        }
        assert!(serde_json::from_str::<ScheduleType>("\"SOMETIMES\"").is_err());
    }

    #[test]
    fn batch_items_are_told_apart_by_their_fields() {
        let refused = BatchItem::Refused { error: Problem::new(422, "invalid") };
        let text = serde_json::to_string(&refused).unwrap();
        assert_eq!(serde_json::from_str::<BatchItem>(&text).unwrap(), refused);
    }
}
