//! Reading members of JSON-like values, and texts that several formats share.

use serde_json::{Map, Value};

/// The member as text; numbers and booleans as they are written.
pub fn text(fields: &Map<String, Value>, name: &str) -> Option<String> {
    match fields.get(name)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}

/// The member at a path of names.
pub fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, name| value.get(name)).filter(|value| !value.is_null())
}

/// Whole and fractional seconds as an interval or duration of elapsed time.
pub fn seconds(seconds: f64) -> String {
    match seconds.fract() == 0.0 {
        true => format!("{seconds:.0}s"),
        false => format!("{:.0}ms", seconds * 1_000.0),
    }
}
