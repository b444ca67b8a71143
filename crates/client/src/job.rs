//! Jobs on the wire: submissions, acknowledgements, and full descriptions.

use crate::duration::{Seconds, Span};
use crate::execution::{ExecutionStatus, ProgressBody};
use crate::notification::NotifyBody;
use crate::object;
use crate::priority::PriorityBody;
use crate::problem::Problem;
use crate::retry::RetryBody;
use crate::schedule::{RecurrenceBody, ReplayRate};
use crate::wire::wire;
use crate::word;
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::job::{JobStatus, ResultOverflow};
use punctual_core::recurrence::{DstGap, DstOverlap};
use punctual_core::schedule::{MisfirePolicy, OverlapPolicy};
use punctual_core::time::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::value::{RawValue, to_raw_value};
use std::borrow::Cow;

/// Declares a job as submitted and a job as read from one list of their common fields: each with its type in
/// both, and its schema. The state of a job follows them where it is read.
macro_rules! jobs {
    (
        submitted and read {
            $(
                $(#[doc = $doc:literal])*
                $(#[serde($($attribute:tt)*)])?
                $field:ident: $submitted:ty => $(#[serde($($read_attribute:tt)*)])? $read:ty $(= $schema:expr)?,
            )*
        }
        read {
            $(
                $(#[doc = $state_doc:literal])*
                $(#[serde($($state_attribute:tt)*)])?
                $state:ident: $state_type:ty $(= $state_schema:expr)?,
            )*
        }
    ) => {
        wire! {
            /// A job as submitted. Only the name is required.
            #[derive(Debug, Clone, Default, Serialize, Deserialize)]
            #[serde(deny_unknown_fields)]
            pub struct SubmitJob as "SubmitJob" {
                /// The name of the job; at most 200 bytes.
                pub name: String = name().example("nightly-report"),
                /// Any JSON, passed to the handler unchanged; at most 256 KiB.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub payload: Option<Box<RawValue>> = any().example(json!({"url": "https://example.com/report"})),
                /// Run once, after this long.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub delay: Option<Span> = the("Duration").example("10m"),
                /// Another spelling of `calendars`: one name, or a list.
                #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "word::names")]
                pub calendar: Option<Vec<String>> =
                    names(limits::CALENDARS_OF_JOB_MAX).example("holidays"),
                $(
                    $(#[doc = $doc])*
                    #[serde(default, skip_serializing_if = "Option::is_none" $(, $($attribute)*)?)]
                    pub $field: $submitted $(= $schema)?,
                )*
            }

            /// A job as read: as submitted, with its defaults filled in, and its current state.
            #[derive(Debug, Clone, Serialize, Deserialize)]
            pub struct JobBody as "Job" {
                /// The job.
                pub job_id: JobId,
                /// The name of the job; at most 200 bytes.
                pub name: String = name().example("nightly-report"),
                /// As submitted.
                pub payload: Option<Box<RawValue>> = any(),
                $(
                    $(#[doc = $doc])*
                    #[serde(skip_serializing_if = "MayBeAbsent::is_absent" $(, $($read_attribute)*)?)]
                    pub $field: $read $(= $schema)?,
                )*
                $(
                    $(#[doc = $state_doc])*
                    $(#[serde($($state_attribute)*)])?
                    pub $state: $state_type $(= $state_schema)?,
                )*
            }
        }

        /// The current state of a job.
        #[derive(Debug, Clone)]
        pub struct JobState {
            $($(#[doc = $state_doc])* pub $state: $state_type,)*
        }

        impl JobBody {
            /// A job with its defaults filled in, in this state.
            pub fn new(job_id: JobId, job: SubmitJob, state: JobState) -> Self {
                JobBody {
                    job_id,
                    name: job.name,
                    payload: job.payload,
                    $($field: job.$field.into_read(),)*
                    $($state: state.$state,)*
                }
            }
        }
    };
}

jobs! {
    submitted and read {
        /// The handler that runs it; defaults to the name. `noop`, `sleep` and `http` are built in, `process` and
        /// `shell` where they are allowed.
        job_type: Option<String> => String = name().example("http"),
        /// Its queue: decides which workers may claim it.
        queue: Option<String> => String = name().otherwise("default"),
        /// Its priority in the queue.
        priority: Option<PriorityBody> => PriorityBody = the("Priority").otherwise(5),
        /// Derived from the other fields if omitted.
        schedule_type: Option<ScheduleType> => ScheduleType,
        /// Run once, at this time; a time in the past means now.
        execute_at: Option<Timestamp> => Option<Timestamp>,
        /// Repeat by a cron expression: five fields (minute first), six (second first) or seven (year last), or
        /// `@daily` and the like; `H` is a hash of owner and name.
        cron_expression: Option<String> => Option<String> =
            text().with("minLength", 1).example("0 9 * * MON-FRI"),
        /// Repeat at this interval: hours or less (`90s`, `PT3H`, `hourly`) in elapsed time, days or longer
        /// (`P1D`, `monthly`) as steps in the calendar of the time zone. From 100 ms to ten years.
        interval: Option<String> => Option<String> = text().with("minLength", 1).example("90s"),
        /// Repeat by a recurrence rule of RFC 5545, with FREQ=DAILY, WEEKLY, MONTHLY or YEARLY. It starts at `start_at`,
        /// at a `DTSTART` line in the same text, or now.
        rrule: Option<String> => #[serde(default)] Option<String> =
            text().with("minLength", 1).example("FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=18;BYMINUTE=0"),
        /// Repeat by several schedules instead of one: the job runs whenever one of them says so, once at each instant.
        /// Each has a cron expression, an interval of at least a minute, or a recurrence rule.
        #[serde(deserialize_with = "object::optional_each")]
        schedules: Option<Vec<RecurrenceBody>> => #[serde(default)] Option<Vec<RecurrenceBody>> =
            up_to(limits::SCHEDULES_OF_JOB_MAX, list(the("Recurrence").about("One of them.")))
                .example(json!([{"cron_expression": "0 9 * * MON-FRI"}, {"cron_expression": "0 11 * * SAT"}])),
        /// The IANA name of the time zone of the schedule.
        timezone: Option<String> => Option<String> =
            text().with("minLength", 1).otherwise("UTC").example("Europe/Berlin"),
        /// Depends on the schedule if omitted. Not for intervals of hours or less, which are elapsed time.
        #[serde(deserialize_with = "word::optional")]
        dst_gap: Option<DstGap> => Option<DstGap>,
        /// Depends on the schedule if omitted. Not for intervals of hours or less, which are elapsed time.
        #[serde(deserialize_with = "word::optional")]
        dst_overlap: Option<DstOverlap> => Option<DstOverlap>,
        /// The first time at which it may run; an interval counts from here.
        start_at: Option<Timestamp> => Option<Timestamp>,
        /// The last time at which it may run.
        end_at: Option<Timestamp> => Option<Timestamp>,
        /// For recurring jobs. Missed occurrences that are replayed wait for room under `overlap_policy` and
        /// `max_open`. `RUN_ALL` also replays those within the grace, except the latest.
        #[serde(deserialize_with = "word::optional")]
        misfire_policy: Option<MisfirePolicy> => Option<MisfirePolicy> =
            the("MisfirePolicy").otherwise("SKIP_MISSED"),
        /// How late an occurrence may be and still run normally; at most 24h.
        misfire_grace: Option<Span> => Option<Span> = the("Duration").example("60s").otherwise("60s"),
        /// `RUN_ALL` runs only this many of the latest occurrences; all if omitted.
        misfire_limit: Option<u32> => Option<u32> = whole(1..=u32::MAX.into()),
        /// `RUN_ALL` runs none that is later than this; no limit if omitted.
        max_lateness: Option<Span> => Option<Span> = the("Duration").example("6h"),
        /// How fast `RUN_ALL` replays missed occurrences; all at once if omitted.
        replay_rate: Option<ReplayRate> => Option<ReplayRate>,
        /// Delays each occurrence by up to this much, always by the same amount for one job and occurrence; at
        /// most 24h.
        jitter: Option<Span> => Option<Span> = the("Duration").example("5m"),
        /// Names of calendars: occurrences that one of them excludes are skipped with reason `calendar`.
        calendars: Option<Vec<String>> => #[serde(default)] Option<Vec<String>> =
            up_to(limits::CALENDARS_OF_JOB_MAX, list(name().about("One of them."))).example(json!(["holidays"])),
        /// Ends the schedule after this many occurrences; no limit if omitted.
        max_runs: Option<u32> => Option<u32> = whole(1..=u32::MAX.into()),
        /// For recurring jobs.
        #[serde(deserialize_with = "word::optional")]
        overlap_policy: Option<OverlapPolicy> => Option<OverlapPolicy> = the("OverlapPolicy").otherwise("SKIP"),
        /// How many occurrences may wait under `QUEUE`; further ones are skipped, but a replay of missed ones
        /// waits.
        overlap_limit: Option<u32> => Option<u32> =
            whole(1..=limits::OVERLAP_LIMIT_MAX.into()).otherwise(limits::OVERLAP_LIMIT_DEFAULT),
        /// How many occurrences may be open in total; further ones are skipped with reason `backlog`. A replay of
        /// missed occurrences waits instead, and the occurrences it has opened do not count for regular ones.
        max_open: Option<u32> => Option<u32> =
            whole(1..=limits::MAX_OPEN_MAX.into()).otherwise(limits::MAX_OPEN_DEFAULT),
        /// Retries after the first attempt; 0 means at most once.
        max_retries: Option<u32> => u32 =
            whole(0..=limits::MAX_RETRIES_MAX.into()).otherwise(limits::MAX_RETRIES_DEFAULT),
        /// When to retry a failed attempt.
        #[serde(deserialize_with = "object::optional")]
        retry: Option<RetryBody> => RetryBody,
        /// The time limit of one attempt, in seconds; `0.5` is half a second.
        timeout_secs: Option<Seconds> => Seconds =
            number(0.001..=limits::TIMEOUT_MAX.as_secs_f64()).otherwise(limits::TIMEOUT_DEFAULT.as_secs()),
        /// An execution that has not started by then ends `EXPIRED`; only for jobs that run once.
        expires_at: Option<Timestamp> => Option<Timestamp>,
        /// The same, relative to each occurrence's scheduled time; at most ten years. Cannot be combined with
        /// `expires_at`.
        expires_after: Option<Span> => Option<Span> = the("Duration").example("1h"),
        /// The owner whose share of the queue it counts against.
        owner_id: Option<String> => String = name().otherwise("default"),
        /// Identifies one job of its owner for as long as that job is stored: submitting it again returns that
        /// job.
        idempotency_key: Option<String> => Option<String> = name().example("order-1138"),
        /// Identifies one unfinished job of its owner: submitting another one in the meantime is rejected with
        /// 409, which names that job.
        unique_key: Option<String> => Option<String> = name().example("sync-customer-17"),
        /// Names a resource that the job uses: its queue may limit how many executions with the same key run at
        /// once or start in a time span.
        concurrency_key: Option<String> => Option<String> = name().example("customer-17"),
        /// Jobs that must succeed before this one starts.
        depends_on: Option<Vec<JobId>> => #[serde(default)] Vec<JobId> =
            up_to(limits::DEPENDS_ON_MAX, list(the("JobId").about("A job that runs once.")))
                .example(json!([JOB_EXAMPLE])),
        /// The channels that are notified about it.
        #[serde(deserialize_with = "object::optional")]
        notify: Option<NotifyBody> => Option<NotifyBody> = the("Notify").example(json!({"on_failure": "ops"})),
        /// What happens to a command's result of more than 64 KiB: its beginning is kept, the execution fails, or it is stored
        /// as a blob.
        result_overflow: Option<ResultOverflow> => #[serde(default)] Option<ResultOverflow> =
            words::<ResultOverflow>().otherwise("truncate"),
        /// Labels to find it by.
        tags: Option<Vec<String>> => Vec<String> =
            up_to(limits::TAGS_MAX, list(name().about("One of them."))).example(json!(["billing"])),
    }
    read {
        /// The schedule in plain English.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        schedule_description: Option<String> = text().example("At 09:00, Monday to Friday, Europe/Berlin"),
        /// The time from which an interval without `start_at` counts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        interval_anchor: Option<Timestamp>,
        /// The status of the job.
        status: JobStatus,
        /// Why it has this status, if the status alone does not say it; for a single job also that no worker has
        /// a handler for it.
        status_reason: Option<String>,
        /// When the next occurrence runs; null if none is left or the only one is running, while the job is
        /// paused, and while it waits for other jobs.
        next_run_time: Option<Timestamp>,
        /// When a failed attempt is tried again.
        next_retry_time: Option<Timestamp>,
        /// When the latest attempt started.
        last_run_time: Option<Timestamp>,
        /// The error of the latest finished attempt.
        last_error: Option<String>,
        /// The latest finished execution.
        last_execution: Option<LastExecution>,
        /// The result of the latest finished execution, or null.
        #[serde(default)]
        result: Option<Box<RawValue>>,
        /// The execution that a retry of the job has added; only in the response to the retry.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        execution_id: Option<ExecutionId>,
        /// The progress of its running execution; only where one job is shown, and only if it reports any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        progress: Option<ProgressBody>,
        /// Incremented by every update.
        version: u32 = whole(1..=u32::MAX.into()),
        /// When it was submitted.
        created_at: Timestamp,
        /// When it was last changed.
        updated_at: Timestamp,
    }
}

impl SubmitJob {
    /// The names of its calendars, in either spelling.
    pub fn calendar_names(&self) -> Option<&Vec<String>> {
        self.calendars.as_ref().or(self.calendar.as_ref())
    }
}

/// A field of a job as read, which may be left out.
trait MayBeAbsent {
    fn is_absent(&self) -> bool {
        false
    }
}

impl<T> MayBeAbsent for Option<T> {
    fn is_absent(&self) -> bool {
        self.is_none()
    }
}

impl MayBeAbsent for Vec<JobId> {
    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

impl MayBeAbsent for PriorityBody {}
impl MayBeAbsent for RetryBody {}
impl MayBeAbsent for ScheduleType {}
impl MayBeAbsent for Seconds {}
impl MayBeAbsent for String {}
impl MayBeAbsent for Vec<String> {}
impl MayBeAbsent for u32 {}

/// Converts a field as submitted to the field as read.
trait IntoRead<Read> {
    fn into_read(self) -> Read;
}

impl<T> IntoRead<Option<T>> for Option<T> {
    fn into_read(self) -> Option<T> {
        self
    }
}

/// Fields that are always there: the server fills in their defaults.
impl<T: Default> IntoRead<T> for Option<T> {
    fn into_read(self) -> T {
        self.unwrap_or_default()
    }
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ScheduleType {
    #[default]
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

wire! {
    /// A job that is stored.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct SubmittedBody as "Submitted" {
        /// The job.
        pub job_id: JobId,
        /// The status of the job.
        pub status: JobStatus,
        /// When it runs next.
        pub next_run_time: Option<Timestamp>,
        /// Why it does not run when it should: present while the server is stopping.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub status_reason: Option<String>,
        /// An earlier submit with the same `idempotency_key` had created it: nothing new was stored.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub existing: bool,
    }
}

wire! {
    /// Many jobs in one request; at most 8 MiB.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct BatchRequest as "Batch" {
        /// The jobs.
        #[serde(deserialize_with = "object::each")]
        pub jobs: Vec<SubmitJob> =
            up_to(limits::SUBMIT_BATCH_MAX, list(the("SubmitJob")).with("minItems", 1)),
    }
}

wire! {
    /// One result per submitted job.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct BatchAnswer as "BatchAnswer" {
        /// In the order of the request.
        pub items: Vec<BatchItem> = list(the("BatchItem").about("The result for one job.")),
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum BatchItem {
    Submitted(SubmittedBody),
    Refused { error: Problem },
}

impl JobBody {
    /// Whether nothing more will happen to this job without a request.
    pub const fn is_finished(&self) -> bool {
        matches!(self.status, JobStatus::Completed | JobStatus::Failed | JobStatus::Cancelled)
    }
}

wire! {
    /// The latest finished execution of a job.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct LastExecution as "LastExecution" {
        /// The execution.
        pub execution_id: ExecutionId = the("ExecutionId").example(EXECUTION_EXAMPLE),
        /// How it ended.
        pub status: ExecutionStatus = words::<ExecutionStatus>(),
        /// When it ended.
        pub completed_at: Timestamp,
    }
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
