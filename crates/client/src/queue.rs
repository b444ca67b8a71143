//! Queues on the wire.

use crate::duration::Span;
use punctual_core::limiter::Rate;
use punctual_core::time::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// A queue with live work, or one that is paused or has settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueBody {
    pub queue: String,
    pub paused: bool,
    pub paused_at: Option<Timestamp>,
    /// Why its settings cannot be read. The queue is held as if paused until they are set again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
    /// How many executions may wait or be queued before submits are rejected; null for no limit.
    #[serde(default)]
    pub max_depth: Option<u64>,
    /// How many executions may be queued or running at once; null for no limit.
    #[serde(default)]
    pub concurrency: Option<u32>,
    /// How many executions may become claimable in a span of time; null for no limit.
    #[serde(default)]
    pub rate: Option<StartRate>,
    /// The same for each `concurrency_key`.
    #[serde(default)]
    pub key_concurrency: Option<u32>,
    #[serde(default)]
    pub key_rate: Option<StartRate>,
    /// The weights of owners; all others have the weight one.
    #[serde(default)]
    pub weights: BTreeMap<String, u32>,
    pub waiting: u64,
    /// Waiting executions that wait only for `concurrency` or `rate`.
    #[serde(default)]
    pub in_line: u64,
    pub queued: u64,
    pub running: u64,
    /// When the oldest queued execution became available.
    pub oldest_queued_at: Option<Timestamp>,
}

impl QueueBody {
    /// What counts against `max_depth`: executions that have not started.
    pub fn depth(&self) -> u64 {
        self.waiting + self.queued
    }

    /// The settings, to be changed and set again.
    pub fn settings(&self) -> SetQueue {
        SetQueue {
            max_depth: self.max_depth,
            concurrency: self.concurrency,
            rate: self.rate,
            key_concurrency: self.key_concurrency,
            key_rate: self.key_rate,
            weights: self.weights.clone(),
        }
    }
}

/// All settings of a queue. Absent fields are reset to their defaults.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetQueue {
    /// How many executions may wait or be queued before submits are rejected; null for no limit.
    #[serde(default)]
    pub max_depth: Option<u64>,
    /// How many executions may be queued or running at once; null for no limit.
    #[serde(default)]
    pub concurrency: Option<u32>,
    /// How many executions may become claimable in a span of time; null for no limit.
    #[serde(default)]
    pub rate: Option<StartRate>,
    /// The same for each `concurrency_key`.
    #[serde(default)]
    pub key_concurrency: Option<u32>,
    #[serde(default)]
    pub key_rate: Option<StartRate>,
    /// The weights of owners; all others have the weight one.
    #[serde(default, deserialize_with = "empty_if_null")]
    pub weights: BTreeMap<String, u32>,
}

fn empty_if_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, u32>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// A number of starts in a span of time, as people write it: `100/1m`, `5/s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartRate(pub Rate);

/// The text is not a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a number of starts and a span of time, such as 100/1m or 5/1s")]
pub struct ParseStartRateError;

impl FromStr for StartRate {
    type Err = ParseStartRateError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (count, span) = text.split_once('/').ok_or(ParseStartRateError)?;
        let count = count.trim().parse().map_err(|_| ParseStartRateError)?;
        let span = span.trim();
        // A unit without a number means one.
        let span = if span.starts_with(|c: char| c.is_ascii_digit() || c == 'P') {
            Cow::Borrowed(span)
        } else {
            Cow::Owned(format!("1{span}"))
        };
        let span: Span = span.parse().map_err(|_| ParseStartRateError)?;
        let per_ms = u64::try_from(span.get().as_millis()).map_err(|_| ParseStartRateError)?;
        Ok(StartRate(Rate { count, per_ms }))
    }
}

impl fmt::Display for StartRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for StartRate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for StartRate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_read_as_it_is_written() {
        let read = |text: &str| text.parse::<StartRate>().map(|rate| (rate.0.count, rate.0.per_ms));
        assert_eq!(read("100/1m"), Ok((100, 60_000)));
        assert_eq!(read("5/s"), Ok((5, 1_000)));
        assert_eq!(read("7 / PT2H"), Ok((7, 7_200_000)));
        for text in ["100/1m", "5/1s", "7/2h", "1/90s"] {
            assert_eq!(text.parse::<StartRate>().unwrap().to_string(), text);
        }
        for text in ["", "100", "100/", "/1m", "-1/1m", "x/1m", "1/month", "1.5/1s"] {
            assert_eq!(read(text), Err(ParseStartRateError), "{text}");
        }
    }

    #[test]
    fn settings_are_sent_as_they_were_got() {
        let text = r#"{"max_depth":3,"concurrency":5,"rate":"100/1m","key_concurrency":null,"key_rate":null,"weights":{"ann":3}}"#;
        let settings: SetQueue = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&settings).unwrap(), text);
        assert_eq!(serde_json::from_str::<SetQueue>(r#"{"weights":null}"#).unwrap(), SetQueue::default());
    }
}
