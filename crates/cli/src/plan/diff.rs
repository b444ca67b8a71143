//! The fields in which two descriptions of a job differ.

use crate::manifest::ManifestJob;
use crate::manifest::fields_of::HIDDEN;
use punctual_client::SubmitJob;
use punctual_config::output::shortened;
use serde::Serialize;
use serde_json::{Map, Value};

/// Characters of a value in a line for people.
const VALUE_CHARS_MAX: usize = 100;

/// A field that changes; null stands for no value. Values from the environment or a file are not in it: the
/// new one is the reference, the old one is hidden.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FieldChange {
    /// The path of the field, such as `retry.delay`.
    pub field: String,
    pub before: Value,
    pub after: Value,
}

impl FieldChange {
    /// `field: old → new`.
    pub fn told(&self) -> String {
        let shown = |value: &Value| match value {
            Value::Null => "(none)".to_owned(),
            Value::String(text) if text == HIDDEN => text.clone(),
            value => shortened(&value.to_string(), VALUE_CHARS_MAX),
        };
        format!("{}: {} → {}", self.field, shown(&self.before), shown(&self.after))
    }
}

/// All differences, by path. Descriptions have all defaults filled in, so a difference is a change.
pub fn changes(before: &SubmitJob, after: &SubmitJob, job: &ManifestJob) -> Vec<FieldChange> {
    let mut changes = Vec::new();
    compare(&mut vec![], (&members(before), &members(after)), &mut changes);
    let change = |(path, before, after): (Vec<String>, Value, Value)| {
        let (before, after) = match job.reference_at(&path) {
            Some(reference) => (Value::from(HIDDEN), reference),
            None => (before, after),
        };
        FieldChange { field: path.join("."), before, after }
    };
    changes.into_iter().map(change).collect()
}

/// All differences between fields, by path.
pub fn of_fields(before: &Map<String, Value>, after: &Map<String, Value>) -> Vec<FieldChange> {
    let mut changes = Vec::new();
    compare(&mut vec![], (before, after), &mut changes);
    let change = |(path, before, after): (Vec<String>, Value, Value)| FieldChange {
        field: path.join("."),
        before,
        after,
    };
    changes.into_iter().map(change).collect()
}

/// The fields as values. A payload with a number that no value can hold is compared as text.
fn members(job: &SubmitJob) -> Map<String, Value> {
    let payload = job
        .payload
        .as_ref()
        .map(|payload| serde_json::from_str(payload.get()).unwrap_or_else(|_| Value::from(payload.get())));
    let others = SubmitJob { payload: None, ..job.clone() };
    let mut members = match serde_json::to_value(others) {
        Ok(Value::Object(members)) => members,
        _ => Map::new(),
    };
    members.extend(payload.map(|payload| ("payload".to_owned(), payload)));
    members
}

/// Objects are compared member by member, everything else as a whole.
fn compare(
    path: &mut Vec<String>,
    (before, after): (&Map<String, Value>, &Map<String, Value>),
    changes: &mut Vec<(Vec<String>, Value, Value)>,
) {
    let added = after.keys().filter(|key| !before.contains_key(*key));
    for key in before.keys().chain(added) {
        path.push(key.clone());
        match (before.get(key).unwrap_or(&Value::Null), after.get(key).unwrap_or(&Value::Null)) {
            (Value::Object(before), Value::Object(after)) => compare(path, (before, after), changes),
            (before, after) if is_empty(before) && is_empty(after) => {}
            (before, after) if before == after => {}
            (before, after) => changes.push((path.clone(), before.clone(), after.clone())),
        }
        path.pop();
    }
}

/// An empty list of tags or dependencies means the same as none.
fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::ManifestJob;

    fn told(before: &str, after: &str, file: &str) -> Vec<String> {
        let job = ManifestJob::for_test(file);
        let [before, after] = [before, after].map(|text| serde_json::from_str(text).unwrap());
        changes(&before, &after, &job).iter().map(FieldChange::told).collect()
    }

    #[test]
    fn every_changed_field_is_named_by_its_path() {
        let before = r#"{"name":"a","queue":"q","tags":[],"retry":{"delay":"1m","strategy":"fixed"},"payload":{"a":{"b":1.0,"c":2},"d":[1]}}"#;
        let after = r#"{"name":"a","queue":"r","retry":{"delay":"2m","strategy":"fixed"},"interval":"1h","payload":{"d":[2],"a":{"b":1.00}}}"#;
        assert_eq!(
            told(before, after, r#"{"name":"a"}"#),
            [
                r#"payload.a.c: 2 → (none)"#,
                r#"payload.d: [1] → [2]"#,
                r#"queue: "q" → "r""#,
                r#"retry.delay: "1m" → "2m""#,
                r#"interval: (none) → "1h""#,
            ]
        );
        assert!(told(before, before, r#"{"name":"a"}"#).is_empty());
    }

    #[test]
    fn values_from_the_environment_are_not_shown() {
        let file = r#"{"name":"a","payload":{"key":"${env:PATH}"}}"#;
        let [before, after] =
            ["old", "new"].map(|key| format!(r#"{{"name":"a","payload":{{"key":"{key}"}}}}"#));
        assert_eq!(told(&before, &after, file), [r#"payload.key: (hidden) → "${env:PATH}""#]);
    }
}
