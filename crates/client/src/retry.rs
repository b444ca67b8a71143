//! Retries on the wire: delays between attempts, and failures that are not retried.

use crate::duration::Span;
use crate::wire::wire;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

wire! {
    /// When to retry a failed attempt.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct RetryBody as "Retry" {
        /// How the delays grow.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub strategy: Option<RetryStrategy> = words::<RetryStrategy>().otherwise("exponential"),
        /// The first delay; for `fixed` every delay. At most 366 days.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub delay: Option<Span> = the("Duration").example("60s").otherwise("60s"),
        /// The maximum delay of `exponential`. At most 366 days.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub max_delay: Option<Span> = the("Duration").example("1h").otherwise("1h"),
        /// The delays of `ladder`, in order; the last one repeats.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub steps: Option<Vec<Span>> =
            up_to(limits::RETRY_STEPS_MAX, list(the("Duration").about("One delay.")))
                .example(json!(["1m", "5m", "1h"])),
        /// Failures that are not retried: `TIMED_OUT`, `LOST`, or a part of the error message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub fail_on: Option<Vec<String>> =
            up_to(limits::FAIL_ON_MAX, list(text().with("minLength", 1).about("One of them.")))
                .example(json!(["TIMED_OUT", "no such customer"])),
        /// The factor by which the time limit grows with each retry; at most two decimals.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub timeout_growth: Option<Growth> =
            number(1.0..=f64::from(limits::TIMEOUT_GROWTH_PCT_MAX) / 100.0).otherwise(1.0).example(1.5),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryStrategy {
    Exponential,
    Fixed,
    Ladder,
}

/// A factor with at most two decimals: `1.5`. Stored in percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Growth {
    pub percent: u32,
}

impl Serialize for Growth {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(f64::from(self.percent) / 100.0)
    }
}

impl<'de> Deserialize<'de> for Growth {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let factor = f64::deserialize(deserializer)?;
        // The server rejects values in this range that are not allowed, together with all other errors.
        if !(0.0..=1e6).contains(&factor) {
            return Err(de::Error::custom("must be a factor from 1.0 to 10.0, such as 1.5"));
        }
        let percent = (factor * 100.0).round();
        if percent / 100.0 != factor {
            return Err(de::Error::custom("must have at most two decimals, such as 1.25"));
        }
        Ok(Growth { percent: percent as u32 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_with_up_to_two_decimals_is_kept_in_percent() {
        for (text, percent) in
            [("1", 100), ("1.0", 100), ("1.5", 150), ("1.1", 110), ("2.55", 255), ("10", 1_000)]
        {
            let growth: Growth = serde_json::from_str(text).unwrap();
            assert_eq!(growth, Growth { percent }, "{text}");
            let written = serde_json::to_string(&growth).unwrap();
            assert_eq!(serde_json::from_str::<Growth>(&written).unwrap(), growth, "{written}");
        }
        for text in ["1.234", "-1", "1e9", "\"2\"", "true"] {
            assert!(serde_json::from_str::<Growth>(text).is_err(), "{text}");
        }
    }
}
