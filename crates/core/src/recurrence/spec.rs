//! A recurrence as the user wrote it, which is also its stored form.

use super::RECURRENCE_TEXT_BYTES_MAX;
use super::cron::CronError;
use super::dst::{DstDefaults, DstGap, DstOverlap};
use super::interval::IntervalError;
use super::rrule::RruleError;
use super::zone::UnknownZone;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

/// When a recurring job fires, as the user wrote it.
///
/// Unknown fields are rejected: a field written by a newer release would change when the job fires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecurrenceSpec {
    pub rule: Rule,
    /// The IANA name of the zone whose clocks are used.
    #[serde(default = "utc", skip_serializing_if = "is_utc")]
    pub zone: String,
    /// If `None`, the default of [`super::Recurrence::dst_gap`] applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst_gap: Option<DstGap>,
    /// If `None`, the default of [`super::Recurrence::dst_overlap`] applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst_overlap: Option<DstOverlap>,
    /// The rule behind these defaults. Stored only if it matters, so that releases before this field can read
    /// most schedules.
    #[serde(default = "DstDefaults::of_stored", skip_serializing_if = "DstDefaults::is_of_stored")]
    pub dst_defaults: DstDefaults,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_at: Option<Timestamp>,
}

/// The rule of a recurrence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Rule {
    Cron {
        pattern: String,
        /// The seed for the value of `H`. Stored only if the pattern contains one.
        #[serde(default, skip_serializing_if = "is_zero")]
        seed: u64,
    },
    Interval {
        every: String,
        anchor: Timestamp,
    },
    /// A recurrence rule of RFC 5545.
    Rrule {
        /// The value of the property, without its name.
        rule: String,
        /// The start, in place of `DTSTART`: the rule takes from it what it does not say itself, and counts from it.
        anchor: Timestamp,
        /// The last local time, in microseconds, of a rule with an end. Computed when the job is submitted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last: Option<i64>,
    },
    /// Whenever one of several recurrences fires. Those at the same instant are one occurrence.
    Union {
        parts: Vec<UnionPart>,
    },
}

/// One of several recurrences of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnionPart {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub spec: RecurrenceSpec,
}

fn utc() -> String {
    "UTC".to_owned()
}

fn is_utc(zone: &str) -> bool {
    zone == "UTC"
}

fn is_zero(seed: &u64) -> bool {
    *seed == 0
}

impl RecurrenceSpec {
    /// The rule on UTC clocks, without a window.
    pub fn new(rule: Rule) -> Self {
        RecurrenceSpec {
            rule,
            zone: utc(),
            dst_gap: None,
            dst_overlap: None,
            dst_defaults: DstDefaults::LATEST,
            start_at: None,
            end_at: None,
        }
    }

    pub fn cron(pattern: &str, seed: u64) -> Self {
        Self::new(Rule::Cron { pattern: pattern.to_owned(), seed })
    }

    pub fn interval(every: &str, anchor: Timestamp) -> Self {
        Self::new(Rule::Interval { every: every.to_owned(), anchor })
    }

    pub fn rrule(rule: &str, anchor: Timestamp) -> Self {
        Self::new(Rule::Rrule { rule: rule.to_owned(), anchor, last: None })
    }

    pub fn in_zone(self, zone: &str) -> Self {
        RecurrenceSpec { zone: zone.to_owned(), ..self }
    }

    /// Checks that need no parsing: texts are short and times can be printed, so that a stored spec can be
    /// read back.
    pub(super) fn check_bounds(&self) -> Result<(), RecurrenceError> {
        let (text_field, text, anchor) = match &self.rule {
            Rule::Cron { pattern, .. } => ("cron_expression", pattern.as_str(), None),
            Rule::Interval { every, anchor } => ("interval", every.as_str(), Some(*anchor)),
            Rule::Rrule { rule, anchor, .. } => ("rrule", rule.as_str(), Some(*anchor)),
            // Each part is checked when it is read.
            Rule::Union { .. } => ("schedules", "", None),
        };
        for (field, text) in [(text_field, text), ("timezone", self.zone.as_str())] {
            if text.len() > RECURRENCE_TEXT_BYTES_MAX {
                return Err(RecurrenceError::TooLong { field });
            }
        }
        for (field, at) in [("start_at", anchor), ("start_at", self.start_at), ("end_at", self.end_at)] {
            if at.is_some_and(|at| jiff::Timestamp::from_microsecond(at.as_micros()).is_err()) {
                return Err(RecurrenceError::OutOfRange { field });
            }
        }
        match (self.start_at, self.end_at) {
            (Some(start_at), Some(end_at)) if end_at < start_at => {
                Err(RecurrenceError::EndBeforeStart { start_at, end_at })
            }
            _ => Ok(()),
        }
    }
}

/// Why a recurrence is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecurrenceError {
    #[error(transparent)]
    Cron(#[from] CronError),
    #[error(transparent)]
    Interval(#[from] IntervalError),
    #[error(transparent)]
    Rrule(#[from] RruleError),
    #[error(transparent)]
    Zone(#[from] UnknownZone),
    #[error("must be at most {RECURRENCE_TEXT_BYTES_MAX} bytes")]
    TooLong { field: &'static str },
    #[error("must be before the last day of the year 9999")]
    OutOfRange { field: &'static str },
    #[error(
        "only applies to cron expressions and to intervals of days or longer: {every} is elapsed time, which \
         clock changes do not affect"
    )]
    DstOnElapsed { field: &'static str, every: String },
    #[error("must not be before start_at, but {end_at} is before {start_at}")]
    EndBeforeStart { start_at: Timestamp, end_at: Timestamp },
    #[error("{0}")]
    Parts(String),
}

impl RecurrenceError {
    /// The invalid field of a submitted job.
    pub const fn field(&self) -> &'static str {
        match self {
            RecurrenceError::Cron(_) => "cron_expression",
            RecurrenceError::Interval(_) => "interval",
            RecurrenceError::Rrule(_) => "rrule",
            RecurrenceError::Zone(_) => "timezone",
            RecurrenceError::TooLong { field }
            | RecurrenceError::OutOfRange { field }
            | RecurrenceError::DstOnElapsed { field, .. } => field,
            RecurrenceError::EndBeforeStart { .. } => "end_at",
            RecurrenceError::Parts(_) => "schedules",
        }
    }
}
