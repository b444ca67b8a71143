//! Retries on the wire: delays between attempts, and failures that are not retried.

use crate::duration::Span;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// What to do after a failed attempt.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetryBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<RetryStrategy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Span>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_delay: Option<Span>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<Vec<Span>>,
    /// Failures that are not retried: `TIMED_OUT`, `LOST`, or a substring of the error message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail_on: Option<Vec<String>>,
    /// By how much the timeout grows from one attempt to the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_growth: Option<Growth>,
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
