//! Setting values about how much clients may send.

use crate::value::{Raw, Value};
use punctual_client::StartRate;
use punctual_core::limiter::Rate;
use punctual_core::limits::{RATE_LIMIT_MAX, RATE_SPAN_MAX, RATE_SPAN_MIN};
use serde_json::Value as Json;
use std::time::Duration;

const NONE: &str = "none";

/// A number per second; `None` for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerSecond(pub Option<u32>);

impl Value for PerSecond {
    fn kind() -> String {
        format!("a number from 1 to {RATE_LIMIT_MAX}, or none")
    }

    fn placeholder() -> String {
        "N|none".to_owned()
    }

    fn read(raw: &Raw) -> Result<Self, String> {
        let number = raw.number().filter(|number| *number <= u64::from(RATE_LIMIT_MAX));
        match number.and_then(|number| u32::try_from(number).ok()) {
            Some(0) => Err("must be at least 1; `none` means no limit".to_owned()),
            Some(number) => Ok(PerSecond(Some(number))),
            None if raw.text().map(str::trim) == Some(NONE) => Ok(PerSecond(None)),
            None => Err(format!("must be {}", Self::kind())),
        }
    }

    fn written(&self) -> Json {
        self.0.map_or_else(|| NONE.into(), Json::from)
    }
}

/// A number in a span of time; `None` for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerTime(pub Option<Rate>);

impl Value for PerTime {
    fn kind() -> String {
        "a number and a span of time from 1s to 1d, such as 1000/1m, or none".to_owned()
    }

    fn placeholder() -> String {
        "N/DURATION|none".to_owned()
    }

    fn read(raw: &Raw) -> Result<Self, String> {
        let text = raw.text().map(str::trim).unwrap_or_default();
        if text == NONE {
            return Ok(PerTime(None));
        }
        let is_valid = |rate: &Rate| {
            let span = Duration::from_millis(rate.per_ms);
            (1..=RATE_LIMIT_MAX).contains(&rate.count) && (RATE_SPAN_MIN..=RATE_SPAN_MAX).contains(&span)
        };
        let rate = text.parse::<StartRate>().ok().map(|StartRate(rate)| rate).filter(is_valid);
        rate.map(|rate| PerTime(Some(rate))).ok_or_else(|| format!("must be {}", Self::kind()))
    }

    fn written(&self) -> Json {
        self.0.map_or_else(|| NONE.to_owned(), |rate| rate.to_string()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_number_or_none() {
        let limit = |raw: Raw| PerSecond::read(&raw).ok().map(|limit| limit.0);
        assert_eq!(limit(Raw::word("100")), Some(Some(100)));
        assert_eq!(limit(Raw::Number("100".to_owned())), Some(Some(100)));
        assert_eq!(limit(Raw::Text("none".to_owned())), Some(None));
        assert!(PerSecond::read(&Raw::word("0")).unwrap_err().contains("`none` means no limit"));
        for wrong in ["", "0", "-1", "1.5", "many", "1000000001", "100/1s"] {
            assert_eq!(limit(Raw::word(wrong)), None, "{wrong}");
        }
    }

    #[test]
    fn a_quota_is_a_number_in_a_span_or_none() {
        let written = |text: &str| PerTime::read(&Raw::word(text)).ok().map(|quota| quota.written());
        assert_eq!(written("1000/1m"), Some("1000/1m".into()));
        assert_eq!(written("5/s"), Some("5/1s".into()));
        assert_eq!(written("none"), Some("none".into()));
        for wrong in ["", "1000", "0/1m", "5/0s", "5/500ms", "5/2d", "x/1m", "1/never"] {
            assert_eq!(written(wrong), None, "{wrong}");
        }
    }
}
