//! The fields of request bodies: parsing them with errors that name them, and the names that other APIs give to
//! the fields of `/api/v1`.

use crate::error::ApiError;
use punctual_client::SubmitJob;
use punctual_core::time::Timestamp;
use serde::de::{Unexpected, Visitor};
use serde::{Deserialize, Deserializer, de};
use std::fmt;

/// Pairs of a field of `/api/v1` and the field of another API from which it is made.
pub struct FieldNames(pub &'static [(&'static str, &'static str)]);

impl FieldNames {
    /// The error with the field names that the caller knows.
    pub fn in_error(&self, mut error: ApiError) -> ApiError {
        if let ApiError::InvalidFields(errors) = &mut error {
            for found in errors {
                let named = self.0.iter().find_map(|(ours, theirs)| {
                    let below = found.field.strip_prefix(ours)?;
                    (below.is_empty() || below.starts_with(['.', '['])).then(|| format!("{theirs}{below}"))
                });
                if let Some(named) = named {
                    found.field = named;
                }
            }
        }
        error
    }
}

/// A field of a change: given or left out. Null is an error, unless the field can have that value.
pub fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// A whole number within bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoundedCount<const MIN: u32, const MAX: u32>(pub u32);

impl<'de, const MIN: u32, const MAX: u32> Deserialize<'de> for BoundedCount<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_u64(BoundedCountVisitor)
    }
}

struct BoundedCountVisitor<const MIN: u32, const MAX: u32>;

impl<const MIN: u32, const MAX: u32> Visitor<'_> for BoundedCountVisitor<MIN, MAX> {
    type Value = BoundedCount<MIN, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from {MIN} to {MAX}")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
        match u32::try_from(number) {
            Ok(count) if (MIN..=MAX).contains(&count) => Ok(BoundedCount(count)),
            _ => Err(E::invalid_value(Unexpected::Unsigned(number), &self)),
        }
    }
}

/// A point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeField(pub Timestamp);

impl<'de> Deserialize<'de> for TimeField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TimeVisitor)
    }
}

struct TimeVisitor;

impl Visitor<'_> for TimeVisitor {
    type Value = TimeField;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time such as \"2026-11-15T08:30:00Z\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<TimeField, E> {
        text.parse().map(TimeField).map_err(E::custom)
    }
}

/// The field of `/api/v1` that repeats a job by this text: a cron expression has spaces or begins with `@`, and
/// an interval does not.
pub fn repeat_field(text: &str) -> &'static str {
    let is_cron = text.trim().contains(char::is_whitespace) || text.trim().starts_with('@');
    if is_cron { "cron_expression" } else { "interval" }
}

/// The job, repeated by a cron expression or an interval.
pub fn repeated(job: SubmitJob, text: String) -> SubmitJob {
    match repeat_field(&text) {
        "interval" => SubmitJob { interval: Some(text), ..job },
        _ => SubmitJob { cron_expression: Some(text), ..job },
    }
}
