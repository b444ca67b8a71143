//! Setting values about traces.

use crate::oidc::is_issuer;
use crate::value::{Raw, Value};
use punctual_core::trace_context::SampleRatio;
use serde_json::Value as Json;

/// The path of traces below a collector's address.
const TRACES_PATH: &str = "/v1/traces";

/// The address of a collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectorUrl(String);

impl CollectorUrl {
    /// Where spans are sent.
    pub fn traces(&self) -> String {
        let base = self.0.trim_end_matches('/');
        if base.ends_with(TRACES_PATH) { base.to_owned() } else { format!("{base}{TRACES_PATH}") }
    }
}

impl Value for CollectorUrl {
    fn kind() -> String {
        "the URL of a collector, such as http://localhost:4318".to_owned()
    }

    fn placeholder() -> String {
        "URL".to_owned()
    }

    fn read(raw: &Raw) -> Result<Self, String> {
        let text = raw.text().map(str::trim).filter(|text| is_issuer(text));
        text.map(|text| CollectorUrl(text.to_owned()))
            .ok_or_else(|| format!("must be {}, without a user, a query and a fragment", Self::kind()))
    }

    fn written(&self) -> Json {
        self.0.as_str().into()
    }
}

/// A share of a whole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio(pub SampleRatio);

impl Value for Ratio {
    fn kind() -> String {
        "a number from 0 to 1, such as 0.1".to_owned()
    }

    fn placeholder() -> String {
        "RATIO".to_owned()
    }

    fn read(raw: &Raw) -> Result<Self, String> {
        let text = match raw {
            Raw::Number(number) => Some(number.as_str()),
            raw => raw.text(),
        };
        let ratio = text.and_then(|text| text.trim().parse().ok()).and_then(SampleRatio::new);
        ratio.map(Ratio).ok_or_else(|| format!("must be {}", Self::kind()))
    }

    fn written(&self) -> Json {
        match self.0.get() {
            // As it is usually written.
            1.0 => 1.into(),
            0.0 => 0.into(),
            ratio => ratio.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_go_to_the_path_of_traces() {
        let traces = |text: &str| CollectorUrl::read(&Raw::word(text)).map(|url| url.traces());
        assert_eq!(traces("http://localhost:4318").unwrap(), "http://localhost:4318/v1/traces");
        assert_eq!(traces("https://otlp.example.org/a/").unwrap(), "https://otlp.example.org/a/v1/traces");
        assert_eq!(traces("https://example.org/v1/traces").unwrap(), "https://example.org/v1/traces");
        for wrong in ["", "localhost:4318", "grpc://localhost:4317", "http://a:b@c", "http://"] {
            assert!(traces(wrong).unwrap_err().starts_with("must be the URL of a collector"), "{wrong}");
        }
    }

    #[test]
    fn a_ratio_is_between_nothing_and_all() {
        let written = |raw: Raw| Ratio::read(&raw).map(|ratio| ratio.written());
        assert_eq!(written(Raw::word("0.1")).unwrap(), 0.1);
        assert_eq!(written(Raw::Number("1".to_owned())).unwrap(), 1);
        assert_eq!(written(Raw::Number("0.25".to_owned())).unwrap(), 0.25);
        for wrong in ["", "-0.1", "1.1", "NaN", "10%", "all"] {
            assert!(written(Raw::word(wrong)).is_err(), "{wrong}");
        }
    }
}
