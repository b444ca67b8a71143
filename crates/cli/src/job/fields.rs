//! The fields of a job as flags, for `submit` and `update`.

use clap::builder::RangedI64ValueParser;
use punctual_client::{
    ChannelNames, Growth, NotifyBody, PriorityBody, ReplayRate, RetryBody, RetryStrategy, Seconds, Span,
    SubmitJob,
};
use punctual_config::args;
use punctual_core::job::ResultOverflow;
use punctual_core::limits;
use punctual_core::recurrence::{DstGap, DstOverlap};
use punctual_core::schedule::{MisfirePolicy, OverlapPolicy};
use punctual_core::time::Timestamp;

/// A heading holds until the next one, so these come after all flags without one.
#[derive(Debug, clap::Args)]
pub struct FieldArgs {
    #[command(flatten)]
    basic: BasicArgs,
    #[command(flatten)]
    when: When,
    #[command(flatten)]
    recurring: RecurringArgs,
    #[command(flatten)]
    overlap: OverlapArgs,
    #[command(flatten)]
    retry: RetryArgs,
}

/// Every group of flags in [`FieldArgs`], for flags that conflict with all of them. A group of groups would
/// be empty.
pub const GROUPS: [&str; 5] = ["BasicArgs", "When", "RecurringArgs", "OverlapArgs", "RetryArgs"];

/// What every job has.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The job")]
struct BasicArgs {
    /// The handler that runs the job; by default its name
    #[arg(long = "type", value_name = "JOB_TYPE")]
    job_type: Option<String>,
    /// The queue of the job, which decides the workers that may run it; by default `default`
    #[arg(long)]
    queue: Option<String>,
    /// Key of the resource that the job uses, for per-key limits of its queue
    #[arg(long, value_name = "KEY")]
    concurrency_key: Option<String>,
    /// 1 to 10, or low, medium, high
    #[arg(long)]
    priority: Option<PriorityBody>,
    /// Time limit of one attempt, such as 30s or 2h
    #[arg(long, value_name = "DURATION", value_parser = args::span)]
    timeout: Option<Span>,
    /// End the job if it has not started by this time
    #[arg(long, value_name = "TIME", value_parser = args::time, conflicts_with = "expires_after")]
    expires_at: Option<Timestamp>,
    /// End each run that has not started this long after its scheduled time
    #[arg(long, value_name = "DURATION", value_parser = args::span)]
    expires_after: Option<Span>,
    /// Notify channels about an event of the job: failure, missed, late, recovery or success, such as failure=ops; can
    /// be given more than once
    #[arg(long, value_name = "EVENT=CHANNEL", value_parser = notified)]
    notify: Vec<(NotifiedEvent, String)>,
    /// What to do with a result of more than 64 KiB: truncate (the default), fail, or store it as a blob
    #[arg(long, value_parser = args::small_word::<ResultOverflow>)]
    result_overflow: Option<ResultOverflow>,
    /// A label for the job; can be given more than once
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
}

/// When the job runs: at once, unless one of these is given.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
#[command(next_help_heading = "When it runs")]
struct When {
    /// Run once, at this time, such as 2026-11-15T08:30:00Z
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    at: Option<Timestamp>,
    /// Run once, after this time, such as 5m
    #[arg(long, value_name = "DURATION", value_parser = args::span)]
    delay: Option<Span>,
    /// Repeat at this interval, such as 90s, 1h or daily
    #[arg(long, value_name = "INTERVAL")]
    every: Option<String>,
    /// Repeat by this cron expression, such as "30 2 * * MON-FRI"
    #[arg(long, value_name = "EXPRESSION")]
    cron: Option<String>,
    /// Repeat by this recurrence rule of RFC 5545, such as "FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=18;BYMINUTE=0"
    #[arg(long, value_name = "RULE")]
    rrule: Option<String>,
}

/// What else a recurring job may have.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "If it is recurring")]
struct RecurringArgs {
    /// Time zone of the schedule, such as Europe/Berlin; by default UTC
    #[arg(long, value_name = "ZONE")]
    timezone: Option<String>,
    /// How to handle local times that a DST change skips: SKIP or RUN_AFTER
    #[arg(long, value_name = "CHOICE", value_parser = args::word::<DstGap>)]
    dst_gap: Option<DstGap>,
    /// When to run at local times that a DST change repeats: FIRST, SECOND or BOTH
    #[arg(long, value_name = "CHOICE", value_parser = args::word::<DstOverlap>)]
    dst_overlap: Option<DstOverlap>,
    /// How to handle missed runs: SKIP_MISSED, RUN_ONCE or RUN_ALL
    #[arg(long, value_name = "POLICY", value_parser = args::word::<MisfirePolicy>)]
    misfire_policy: Option<MisfirePolicy>,
    /// How late a run may be before it counts as missed
    #[arg(long, value_name = "DURATION", value_parser = args::span)]
    misfire_grace: Option<Span>,
    /// How many missed runs RUN_ALL replays at most, the latest ones
    #[arg(long, value_name = "COUNT")]
    misfire_limit: Option<u32>,
    /// How late a missed run may be for RUN_ALL to replay it
    #[arg(long, value_name = "DURATION", value_parser = args::span)]
    max_lateness: Option<Span>,
    /// How fast RUN_ALL replays missed runs, such as 10/m or 2/s
    #[arg(long, value_name = "RATE")]
    replay_rate: Option<ReplayRate>,
    /// Spread the starts over this time
    #[arg(long, value_name = "DURATION", value_parser = args::span)]
    jitter: Option<Span>,
    /// A calendar whose excluded times are skipped; can be given more than once
    #[arg(long = "calendar", value_name = "NAME")]
    calendars: Vec<String>,
    /// End after this many runs
    #[arg(long, value_name = "COUNT")]
    max_runs: Option<u32>,
    /// No run before this time; an interval counts from it
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    start_at: Option<Timestamp>,
    /// No run after this time
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    end_at: Option<Timestamp>,
}

/// What happens when a run is due while an earlier one is open.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "If the previous run is still open")]
struct OverlapArgs {
    /// What to do if the previous run is still open: SKIP, ALLOW, QUEUE or REPLACE
    #[arg(long, value_name = "POLICY", value_parser = args::word::<OverlapPolicy>)]
    overlap_policy: Option<OverlapPolicy>,
    /// How many runs may wait behind an open one under QUEUE
    #[arg(long, value_name = "COUNT")]
    overlap_limit: Option<u32>,
    /// Maximum number of open runs
    #[arg(long, value_name = "COUNT")]
    max_open: Option<u32>,
}

/// How to go on after a failed attempt.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "If it fails")]
struct RetryArgs {
    /// Retries after the first attempt
    #[arg(long, value_name = "COUNT", value_parser = retries())]
    max_retries: Option<u32>,
    /// How the delay before a retry grows: exponential, fixed or ladder
    #[arg(long, value_name = "STRATEGY", value_parser = args::small_word::<RetryStrategy>)]
    retry_strategy: Option<RetryStrategy>,
    /// Delay before the first retry, or before each retry if fixed
    #[arg(long, value_name = "DURATION", value_parser = args::span)]
    retry_delay: Option<Span>,
    /// Maximum delay before a retry
    #[arg(long, value_name = "DURATION", value_parser = args::span)]
    retry_max_delay: Option<Span>,
    /// The delays of a ladder, separated by commas, such as 1m,5m,1h
    #[arg(long, value_name = "DURATIONS", value_delimiter = ',', value_parser = args::span)]
    retry_steps: Vec<Span>,
    /// Do not retry this failure: TIMED_OUT, LOST, or a substring of the error; can be given more than once
    #[arg(long, value_name = "FAILURE")]
    fail_on: Vec<String>,
    /// Multiply the time limit by this factor on each further attempt, such as 1.5
    #[arg(long, value_name = "FACTOR", value_parser = args::growth)]
    timeout_growth: Option<Growth>,
}

fn retries() -> RangedI64ValueParser<u32> {
    RangedI64ValueParser::new().range(0..=i64::from(limits::MAX_RETRIES_MAX))
}

impl FieldArgs {
    /// The time of a one-time job.
    pub fn at(&self) -> Option<Timestamp> {
        self.when.at
    }

    /// A job with only the given fields.
    pub fn job(&self) -> SubmitJob {
        let FieldArgs { basic, when, recurring, overlap, retry } = self;
        SubmitJob {
            job_type: basic.job_type.clone(),
            queue: basic.queue.clone(),
            concurrency_key: basic.concurrency_key.clone(),
            priority: basic.priority,
            execute_at: when.at,
            delay: when.delay,
            cron_expression: when.cron.clone(),
            interval: when.every.clone(),
            rrule: when.rrule.clone(),
            calendars: given(&recurring.calendars),
            timezone: recurring.timezone.clone(),
            dst_gap: recurring.dst_gap,
            dst_overlap: recurring.dst_overlap,
            misfire_policy: recurring.misfire_policy,
            misfire_grace: recurring.misfire_grace,
            misfire_limit: recurring.misfire_limit,
            max_lateness: recurring.max_lateness,
            replay_rate: recurring.replay_rate,
            jitter: recurring.jitter,
            max_runs: recurring.max_runs,
            start_at: recurring.start_at,
            end_at: recurring.end_at,
            overlap_policy: overlap.overlap_policy,
            overlap_limit: overlap.overlap_limit,
            max_open: overlap.max_open,
            max_retries: retry.max_retries,
            retry: retry.body(),
            timeout_secs: basic.timeout.map(|timeout| Seconds::from(timeout.get())),
            expires_at: basic.expires_at,
            expires_after: basic.expires_after,
            notify: notify_body(&basic.notify),
            result_overflow: basic.result_overflow,
            tags: given(&basic.tags),
            ..SubmitJob::default()
        }
    }
}

/// An event that `--notify` names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NotifiedEvent {
    Failure,
    Missed,
    Late,
    Recovery,
    Success,
}

fn notified(text: &str) -> Result<(NotifiedEvent, String), String> {
    let (event, channel) =
        text.split_once('=').ok_or("must be an event and a channel, such as failure=ops")?;
    let event = match event.strip_prefix("on_").unwrap_or(event) {
        "failure" => NotifiedEvent::Failure,
        "missed" => NotifiedEvent::Missed,
        "late" => NotifiedEvent::Late,
        "recovery" => NotifiedEvent::Recovery,
        "success" => NotifiedEvent::Success,
        _ => return Err("must begin with failure, missed, late, recovery or success".to_owned()),
    };
    Ok((event, channel.to_owned()))
}

fn notify_body(given: &[(NotifiedEvent, String)]) -> Option<NotifyBody> {
    let of = |event: NotifiedEvent| {
        let channels = given.iter().filter(|(one, _)| *one == event).map(|(_, channel)| channel.clone());
        Some(ChannelNames(channels.collect())).filter(|names| !names.0.is_empty())
    };
    let body = NotifyBody {
        on_failure: of(NotifiedEvent::Failure),
        on_missed: of(NotifiedEvent::Missed),
        on_late: of(NotifiedEvent::Late),
        on_recovery: of(NotifiedEvent::Recovery),
        on_success: of(NotifiedEvent::Success),
    };
    (!given.is_empty()).then_some(body)
}

impl RetryArgs {
    fn body(&self) -> Option<RetryBody> {
        let body = RetryBody {
            strategy: self.retry_strategy,
            delay: self.retry_delay,
            max_delay: self.retry_max_delay,
            steps: given(&self.retry_steps),
            fail_on: given(&self.fail_on),
            timeout_growth: self.timeout_growth,
        };
        (body != RetryBody::default()).then_some(body)
    }
}

/// A list, or `None` if it is empty.
pub fn given<T: Clone>(list: &[T]) -> Option<Vec<T>> {
    (!list.is_empty()).then(|| list.to_vec())
}

/// Fields whose path differs from the name of their flag, here and in the filters of lists.
const OTHER_NAMES: [(&str, &str); 16] = [
    ("calendar", "calendars"),
    ("type", "job_type"),
    ("owner", "owner_id"),
    ("search", "q"),
    ("weight", "weights"),
    ("at", "execute_at"),
    ("every", "interval"),
    ("cron", "cron_expression"),
    ("timeout", "timeout_secs"),
    ("tag", "tags"),
    ("retry_strategy", "retry.strategy"),
    ("retry_delay", "retry.delay"),
    ("retry_max_delay", "retry.max_delay"),
    ("retry_steps", "retry.steps"),
    ("fail_on", "retry.fail_on"),
    ("timeout_growth", "retry.timeout_growth"),
];

/// The field with this name or with this flag.
pub fn field_name(text: &str) -> String {
    let name = text.trim_start_matches("--").replace('-', "_");
    let other = OTHER_NAMES.iter().find(|(flag, _)| *flag == name);
    other.map_or(name, |(_, field)| (*field).to_owned())
}

/// The name that the flag of this field has.
pub fn flag_name(field: &str) -> String {
    let other = OTHER_NAMES.iter().find(|(_, path)| *path == field);
    other.map_or(field, |(flag, _)| flag).replace(['_', '.'], "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_has_its_field_and_every_field_its_flag() {
        for flag in ["type", "timeout", "retry-max-delay", "fail-on", "every", "expires-after", "owner"] {
            assert_eq!(flag_name(&field_name(flag)), flag);
        }
    }

    #[test]
    fn a_field_can_be_named_like_its_flag() {
        for (text, field) in [
            ("queue", "queue"),
            ("--fail-on", "retry.fail_on"),
            ("retry.fail_on", "retry.fail_on"),
            ("every", "interval"),
            ("expires-after", "expires_after"),
        ] {
            assert_eq!(field_name(text), field);
        }
    }
}
