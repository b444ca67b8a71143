//! Queues on the wire.

use crate::client::{Client, ClientError, segment};
use crate::duration::Span;
use crate::wire::wire;
use punctual_core::limiter::{QueueLimits, Rate};
use punctual_core::queue::QueueSettings;
use punctual_core::time::Timestamp;
use reqwest::Method;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

wire! {
    /// All settings of a queue: omitted ones get their defaults.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct SetQueue as "SetQueue" {
        /// How many executions may wait or be queued before submits that would add to them are answered 429; null
        /// for no limit.
        #[serde(default)]
        pub max_depth: Option<u64> = whole(0..=limits::QUEUE_DEPTH_MAX).example(10_000),
        /// How many executions may be queued or running at once; null for no limit.
        #[serde(default)]
        pub concurrency: Option<u32> = whole(1..=limits::CONCURRENCY_MAX.into()).example(20),
        /// How many executions become claimable in a time span, from a second to a day; null for no limit.
        #[serde(default)]
        pub rate: Option<StartRate> = text().example("100/1m"),
        /// Like `concurrency`, for the executions of each `concurrency_key`.
        #[serde(default)]
        pub key_concurrency: Option<u32> = whole(1..=limits::CONCURRENCY_MAX.into()).example(1),
        /// Like `rate`, for the executions of each `concurrency_key`.
        #[serde(default)]
        pub key_rate: Option<StartRate> = text().example("5/1s"),
        /// The weights of owners in the queue; all other owners have weight 1.
        #[serde(default, deserialize_with = "empty_if_null")]
        pub weights: BTreeMap<String, u32> = Schema::of("object")
            .with("additionalProperties", whole(1..=limits::OWNER_WEIGHT_MAX.into()).value())
            .example(json!({"ann": 3})),
    }

    /// A queue: its executions and its settings.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct QueueBody as "Queue" {
        /// Its name.
        pub queue: String = text().example("default"),
        /// It is paused and starts no executions.
        pub paused: bool,
        /// Since when.
        pub paused_at: Option<Timestamp>,
        /// Why its settings cannot be read; omitted if they can. Until they are set again, the queue behaves as if
        /// it were paused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub unreadable: Option<String>,
        /// Waiting executions that wait only for `concurrency` or `rate`.
        #[serde(default)]
        pub in_line: u64,
        /// Executions that may not start yet.
        pub waiting: u64,
        /// Executions that could start now.
        pub queued: u64,
        /// Executions that run.
        pub running: u64,
        /// When the oldest queued execution became available.
        pub oldest_queued_at: Option<Timestamp>,
        flatten settings: SetQueue,
    }
}

impl Client {
    /// Changes some settings of a queue: a merge patch of [`SetQueue`].
    pub async fn patch_queue(
        &self,
        queue: &str,
        patch: &Map<String, Value>,
    ) -> Result<QueueBody, ClientError> {
        self.send(self.request(Method::PATCH, &format!("/queues/{}", segment(queue))).json(patch)).await
    }
}

impl QueueBody {
    /// What counts against `max_depth`: executions that have not started.
    pub fn depth(&self) -> u64 {
        self.waiting.saturating_add(self.queued)
    }
}

impl From<SetQueue> for QueueSettings {
    fn from(set: SetQueue) -> Self {
        let limits = QueueLimits {
            concurrency: set.concurrency,
            rate: set.rate.map(|rate| rate.0),
            key_concurrency: set.key_concurrency,
            key_rate: set.key_rate.map(|rate| rate.0),
            weights: set.weights,
        };
        QueueSettings { max_depth: set.max_depth, limits }
    }
}

impl From<QueueSettings> for SetQueue {
    fn from(settings: QueueSettings) -> Self {
        let QueueLimits { concurrency, rate, key_concurrency, key_rate, weights } = settings.limits;
        SetQueue {
            max_depth: settings.max_depth,
            concurrency,
            rate: rate.map(StartRate),
            key_concurrency,
            key_rate: key_rate.map(StartRate),
            weights,
        }
    }
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

    #[test]
    fn a_queue_may_have_fields_of_a_later_version() {
        let text = r#"{"queue":"mail","paused":false,"paused_at":null,"waiting":1,"queued":2,"running":0,
            "oldest_queued_at":null,"max_depth":3,"weights":{"ann":3},"colour":"red"}"#;
        let queue: QueueBody = serde_json::from_str(text).unwrap();
        assert_eq!((queue.depth(), queue.settings.max_depth, queue.settings.weights["ann"]), (3, Some(3), 3));
        let written = serde_json::to_value(&queue).unwrap();
        assert_eq!((&written["max_depth"], &written["rate"]), (&3.into(), &serde_json::Value::Null));
    }
}
