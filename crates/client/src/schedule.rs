//! Recurring schedules on the wire: replay rates and previews.

use crate::duration::Span;
use crate::job::SubmitJob;
use crate::object;
use crate::wire::wire;
use crate::word;
use punctual_core::ids::JobId;
use punctual_core::recurrence::{DstEffect, DstGap, DstOverlap};
use punctual_core::time::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::str::FromStr;

/// How many missed occurrences are replayed per minute: `10/m`, `2/s`, or a plain number per minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayRate {
    pub per_minute: u32,
}

/// The text is not a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a rate such as 10/m, 2/s or 10 (a minute)")]
pub struct ParseRateError;

impl FromStr for ReplayRate {
    type Err = ParseRateError;

    fn from_str(text: &str) -> Result<Self, ParseRateError> {
        let (number, unit) = text.trim().split_once('/').unwrap_or((text.trim(), "m"));
        let number: u32 = number.trim().parse().map_err(|_| ParseRateError)?;
        let factor = match unit.trim() {
            "m" | "min" | "minute" => 1,
            "s" | "sec" | "second" => 60,
            _ => return Err(ParseRateError),
        };
        Ok(ReplayRate { per_minute: number.checked_mul(factor).ok_or(ParseRateError)? })
    }
}

impl fmt::Display for ReplayRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/m", self.per_minute)
    }
}

impl Serialize for ReplayRate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ReplayRate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a rate such as 10/m, 2/s or 10 (a minute)")]
        enum WrittenRate {
            Number(u32),
            Text(String),
        }
        match WrittenRate::deserialize(deserializer)? {
            WrittenRate::Number(per_minute) => Ok(ReplayRate { per_minute }),
            WrittenRate::Text(text) => text.parse().map_err(de::Error::custom),
        }
    }
}

wire! {
    /// One of several schedules of a job, with a cron expression, an interval or a recurrence rule.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct RecurrenceBody as "Recurrence" {
        /// What it is for; previews show it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub name: Option<String> = name().example("month end"),
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub cron_expression: Option<String> = field_of::<SubmitJob>("cron_expression"),
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub interval: Option<String> = field_of::<SubmitJob>("interval"),
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub rrule: Option<String> = field_of::<SubmitJob>("rrule"),
        /// The IANA name of its time zone; that of the job if omitted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub timezone: Option<String> = text().with("minLength", 1).example("Europe/Berlin"),
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "word::optional")]
        pub dst_gap: Option<DstGap> = field_of::<SubmitJob>("dst_gap"),
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "word::optional")]
        pub dst_overlap: Option<DstOverlap> = field_of::<SubmitJob>("dst_overlap"),
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub start_at: Option<Timestamp> = field_of::<SubmitJob>("start_at"),
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub end_at: Option<Timestamp> = field_of::<SubmitJob>("end_at"),
    }
}

wire! {
    /// A schedule to preview.
    #[derive(Debug, Clone, Default, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct PreviewRequest as "PreviewRequest" {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub cron_expression: Option<String> = field_of::<SubmitJob>("cron_expression"),
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub interval: Option<String> = field_of::<SubmitJob>("interval"),
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub rrule: Option<String> = field_of::<SubmitJob>("rrule"),
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub timezone: Option<String> = field_of::<SubmitJob>("timezone"),
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional_each")]
        pub schedules: Option<Vec<RecurrenceBody>> = field_of::<SubmitJob>("schedules"),
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub calendars: Option<Vec<String>> = field_of::<SubmitJob>("calendars"),
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "word::names")]
        pub calendar: Option<Vec<String>> = field_of::<SubmitJob>("calendar"),
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "word::optional")]
        pub dst_gap: Option<DstGap> = field_of::<SubmitJob>("dst_gap"),
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "word::optional")]
        pub dst_overlap: Option<DstOverlap> = field_of::<SubmitJob>("dst_overlap"),
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub start_at: Option<Timestamp> = field_of::<SubmitJob>("start_at"),
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub end_at: Option<Timestamp> = field_of::<SubmitJob>("end_at"),
        /// Ends the schedule after this many occurrences. Those between now and `after` count.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub max_runs: Option<u32> = field_of::<SubmitJob>("max_runs"),
        /// Delays each occurrence by up to this much. The delays depend on the id of the future job, so the
        /// preview has only their maximum, in its description.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub jitter: Option<Span> = field_of::<SubmitJob>("jitter"),
        /// The name of the future job: with its owner it decides what `H` stands for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub name: Option<String> = name(),
        /// The owner of the future job.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub owner_id: Option<String> = name(),
        /// Occurrences after this time; now if omitted. An interval without `start_at` begins now, also if this
        /// is in the past.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub after: Option<Timestamp>,
        /// How many.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub count: Option<usize> = whole(1..=limits::PREVIEW_MAX as u64).otherwise(10),
    }
}

impl PreviewRequest {
    /// A job with this schedule.
    pub fn into_job(self) -> SubmitJob {
        SubmitJob {
            name: self.name.unwrap_or_else(|| "preview".to_owned()),
            owner_id: self.owner_id,
            cron_expression: self.cron_expression,
            interval: self.interval,
            rrule: self.rrule,
            schedules: self.schedules,
            calendars: self.calendars,
            calendar: self.calendar,
            timezone: self.timezone,
            dst_gap: self.dst_gap,
            dst_overlap: self.dst_overlap,
            start_at: self.start_at,
            end_at: self.end_at,
            max_runs: self.max_runs,
            jitter: self.jitter,
            ..SubmitJob::default()
        }
    }
}

wire! {
    /// A schedule in words, and its next occurrences.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct PreviewBody as "Preview" {
        /// The schedule in plain English.
        pub description: String = text().example("At minute 0 of every hour, UTC"),
        /// The rule that applies to local times that clocks skip, chosen or by default; null if no clock change
        /// affects the schedule.
        #[serde(default)]
        pub dst_gap: Option<DstGap>,
        /// The rule that applies to local times that clocks repeat, chosen or by default; null if no clock
        /// change affects the schedule.
        #[serde(default)]
        pub dst_overlap: Option<DstOverlap>,
        /// The next ones. No more than `max_runs` leaves.
        pub occurrences: Vec<OccurrencePreview>,
    }
}

wire! {
    /// One future occurrence.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct OccurrencePreview as "OccurrencePreview" {
        /// When, in UTC.
        pub scheduled_time: Timestamp,
        /// When, with the offset of the time zone.
        pub local_time: String = text().with("format", "date-time").example("2026-11-15T09:30:00+01:00"),
        /// How a daylight saving change affected it.
        pub dst: Option<DstEffect>,
        /// When it starts, if that is later because of the job's `jitter`; only for the occurrences of a job.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub due_at: Option<Timestamp>,
        /// The calendar that excludes it, if one does: it is skipped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub excluded_by: Option<String>,
        /// The name of the schedule that it belongs to, if the job has several `schedules`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub schedule: Option<String>,
    }
}

wire! {
    /// A job and when it fires within a range of time.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct JobFiresBody as "JobFires" {
        /// The job.
        pub job_id: JobId,
        /// Its name.
        pub name: String,
        /// Its type.
        pub job_type: String,
        /// Its queue.
        pub queue: String,
        /// Its schedule in plain English.
        pub schedule_description: String,
        /// The time zone of its schedule.
        pub timezone: String,
        /// How often it fires within the range.
        pub count: u64,
        /// Whether `count` is an upper bound: several schedules of the job may fire at the same instant, and they fire too often
        /// in this range to compare them.
        #[serde(default)]
        pub count_at_most: bool,
        /// Whether `fires` lists all of them.
        pub complete: bool,
        /// The first ones, at most `per_job`.
        pub fires: Vec<OccurrencePreview>,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_read_as_text_or_number_and_written_per_minute() {
        for (text, per_minute) in [("\"10/m\"", 10), ("\"2/s\"", 120), ("7", 7), ("\"7\"", 7)] {
            let rate: ReplayRate = serde_json::from_str(text).unwrap();
            assert_eq!(rate, ReplayRate { per_minute }, "{text}");
            assert_eq!(serde_json::to_string(&rate).unwrap(), format!("\"{per_minute}/m\""));
        }
        assert!("10/h".parse::<ReplayRate>().is_err());
        assert!("fast".parse::<ReplayRate>().is_err());
    }
}
