//! A filter on a field of payloads. It reads the plain text of a payload, so it is the same for all databases.

use crate::limits;
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

/// Matches payloads in which a field has a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PayloadFilter {
    /// The keys of objects, separated by dots.
    path: String,
    value: String,
}

impl PayloadFilter {
    /// The error is to be appended to the name of the parameter: "must …".
    pub fn new(path: impl Into<String>, value: impl Into<String>) -> Result<Self, String> {
        let (path, value) = (path.into(), value.into());
        if path.split('.').any(str::is_empty) {
            return Err(NO_FIELD.to_owned());
        }
        for (what, text) in [("the field", &path), ("the value", &value)] {
            let (bytes, most) = (text.len(), limits::PAYLOAD_FILTER_BYTES_MAX);
            if bytes > most {
                return Err(format!("must have at most {most} bytes in {what}, not {bytes}"));
            }
        }
        Ok(PayloadFilter { path, value })
    }

    /// The name of its query parameter.
    pub fn parameter(&self) -> String {
        format!("payload.{}", self.path)
    }

    /// Whether the field of this payload has the value: a string with this text, or a number, a boolean or null that
    /// is written so.
    pub fn matches(&self, payload: &str) -> bool {
        let is_value = |found: &Value| self.is_value(found);
        serde_json::from_str(payload).is_ok_and(|payload| is_below(&payload, &self.path, &is_value))
    }

    fn is_value(&self, found: &Value) -> bool {
        match found {
            Value::String(text) => *text == self.value,
            Value::Number(number) => {
                serde_json::from_str::<Number>(&self.value).is_ok_and(|value| are_equal(number, &value))
            }
            Value::Bool(truth) => self.value.parse() == Ok(*truth),
            Value::Null => self.value == "null",
            Value::Array(_) | Value::Object(_) => false,
        }
    }
}

const NO_FIELD: &str = "must name a field of the payload, such as payload.customer or payload.customer.id";

/// Matches payloads that have a field, whatever its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PayloadField(String);

impl PayloadField {
    /// The error is to be appended to the name of the parameter: "must …".
    pub fn new(path: impl Into<String>) -> Result<Self, String> {
        let path = path.into();
        if path.split('.').any(str::is_empty) {
            return Err("must name a field of the payload, such as customer or customer.id".to_owned());
        }
        let (bytes, most) = (path.len(), limits::PAYLOAD_FILTER_BYTES_MAX);
        if bytes > most {
            return Err(format!("must have at most {most} bytes, not {bytes}"));
        }
        Ok(PayloadField(path))
    }

    pub fn is_in(&self, payload: &str) -> bool {
        serde_json::from_str(payload).is_ok_and(|payload| is_below(&payload, &self.0, &|_| true))
    }
}

/// Whether a member at this path of an object is one that is looked for.
fn is_below(value: &Value, path: &str, is_found: &dyn Fn(&Value) -> bool) -> bool {
    let Value::Object(members) = value else { return false };
    if members.get(path).is_some_and(is_found) {
        return true;
    }
    // A key may contain dots itself.
    let mut dots = path.match_indices('.').map(|(place, _)| place);
    dots.any(|dot| {
        members.get(&path[..dot]).is_some_and(|member| is_below(member, &path[dot + 1..], is_found))
    })
}

/// As whole numbers where both are, because a float holds only some of the large ones.
fn are_equal(one: &Number, other: &Number) -> bool {
    if let (Some(one), Some(other)) = (one.as_i128(), other.as_i128()) {
        return one == other;
    }
    matches!((one.as_f64(), other.as_f64()), (Some(one), Some(other)) if one == other)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAYLOAD: &str = r#"{"customer": 42, "name": "ann", "big": 9007199254740993, "ok": true, "none": null, "price": 1.50,
        "order": {"id": "A-7", "lines": [1, 2], "a.b": 1}, "a.b": {"c": 2}, "text": "42"}"#;

    fn is_match(path: &str, value: &str) -> bool {
        PayloadFilter::new(path, value).unwrap().matches(PAYLOAD)
    }

    #[test]
    fn a_scalar_matches_at_any_depth_by_its_value() {
        for (path, value) in [
            ("customer", "42"),
            ("customer", "42.0"),
            ("name", "ann"),
            ("ok", "true"),
            ("none", "null"),
            ("price", "1.5"),
            ("order.id", "A-7"),
            ("order.a.b", "1"),
            ("a.b.c", "2"),
            ("text", "42"),
            ("big", "9007199254740993"),
        ] {
            assert!(is_match(path, value), "{path}={value}");
        }
        for (path, value) in [
            ("customer", "4"),
            ("customer", "\"42\""),
            ("name", "Ann"),
            ("name", ""),
            ("ok", "false"),
            ("missing", "null"),
            ("order", "{}"),
            ("order.lines", "1"),
            ("order.lines.0", "1"),
            ("order.id.x", "A-7"),
            ("big", "9007199254740992"),
        ] {
            assert!(!is_match(path, value), "{path}={value}");
        }
        let filter = PayloadFilter::new("a", "1").unwrap();
        assert!(
            !["", "null", "[]", "{", "punctual-sealed:1:a:b"].iter().any(|payload| filter.matches(payload))
        );
    }

    #[test]
    fn a_filter_without_a_field_or_with_too_much_text_names_the_fix() {
        for path in ["", ".", "a.", ".a", "a..b"] {
            assert!(PayloadFilter::new(path, "1").unwrap_err().starts_with("must name a field"), "{path}");
        }
        let long = "x".repeat(limits::PAYLOAD_FILTER_BYTES_MAX + 1);
        assert!(PayloadFilter::new(&long[1..], &long[1..]).is_ok());
        assert!(PayloadFilter::new("a", long.clone()).unwrap_err().contains("in the value, not 501"));
        assert!(PayloadFilter::new(long, "a").unwrap_err().contains("in the field"));
    }
}
