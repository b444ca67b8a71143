//! A small part of JSONPath, for `-o jsonpath=PATH`: fields, indexes and `[*]`.

use serde_json::Value;
use std::str::FromStr;

/// A path such as `{.items[*].name}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonPath(Vec<JsonPathStep>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum JsonPathStep {
    Field(String),
    Index(usize),
    Each,
}

impl FromStr for JsonPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("must be a path of fields such as {{.items[*].name}}, not {text:?}");
        let inner = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(text);
        let mut rest = inner.strip_prefix('$').unwrap_or(inner);
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('[') {
                let (index, after) = after.split_once(']').ok_or_else(wrong)?;
                steps.push(match index {
                    "*" => JsonPathStep::Each,
                    _ => JsonPathStep::Index(index.parse().map_err(|_| wrong())?),
                });
                rest = after;
            } else if let Some(after) = rest.strip_prefix('.') {
                let end = after.find(['.', '[']).unwrap_or(after.len());
                if end == 0 {
                    return Err(wrong());
                }
                steps.push(JsonPathStep::Field(after[..end].to_owned()));
                rest = &after[end..];
            } else {
                return Err(wrong());
            }
        }
        if steps.is_empty() { Err(wrong()) } else { Ok(JsonPath(steps)) }
    }
}

impl JsonPath {
    /// The values at this path: texts without quotes, everything else as JSON.
    pub fn texts(&self, value: &Value) -> Vec<String> {
        let mut found = vec![value];
        for step in &self.0 {
            found = found.into_iter().flat_map(|value| step.from(value)).collect();
        }
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        found.into_iter().map(text).collect()
    }
}

impl JsonPathStep {
    fn from<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        match (self, value) {
            (JsonPathStep::Field(name), Value::Object(fields)) => fields.get(name).into_iter().collect(),
            (JsonPathStep::Index(index), Value::Array(items)) => items.get(*index).into_iter().collect(),
            (JsonPathStep::Each, Value::Array(items)) => items.iter().collect(),
            _ => vec![],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_path_finds_fields_and_items() {
        let page =
            json!({"items": [{"name": "a", "tags": ["x"], "n": 1}, {"name": "b", "tags": [], "n": null}]});
        let found = |path: &str| path.parse::<JsonPath>().unwrap().texts(&page);
        assert_eq!(found("{.items[*].name}"), ["a", "b"]);
        assert_eq!(found("$.items[0].tags"), [r#"["x"]"#]);
        assert_eq!(found(".items[*].tags[*]"), ["x"]);
        assert_eq!(found(".items[*].n"), ["1", "null"]);
        assert_eq!(found(".items[9].name"), Vec::<String>::new());
        for wrong in ["", "{}", "items", ".items[", ".items[x]", "..a", ".a..b"] {
            assert!(wrong.parse::<JsonPath>().is_err(), "{wrong}");
        }
    }
}
