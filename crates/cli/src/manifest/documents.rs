//! The documents of a JSON or YAML file, each as JSON text. The only reader of such files.

use anyhow::Context;
use punctual_config::exit::CliError;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::fmt;
use std::path::Path;

/// The file name that stands for standard input.
pub const STDIN: &str = "-";

/// All documents of a file, or of standard input. YAML documents that are empty are left out.
pub fn read(file: &Path) -> anyhow::Result<Vec<Box<RawValue>>> {
    let text = text_of(file)?;
    parsed(file, &text).map_err(|error| CliError::refused(format!("{}: {error}", file.display())).into())
}

/// The text of a file, or of standard input.
pub fn text_of(file: &Path) -> anyhow::Result<String> {
    if file == Path::new(STDIN) {
        return std::io::read_to_string(std::io::stdin()).context("cannot read standard input");
    }
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// All documents of a file with this text.
pub fn parsed(file: &Path, text: &str) -> Result<Vec<Box<RawValue>>, String> {
    if is_yaml(file, text) { from_yaml(text) } else { from_json(text) }
}

/// Whether a file is YAML: by its name, and on standard input by its first character. Text that begins like
/// JSON is parsed as JSON, so that numbers reach the server as written.
fn is_yaml(file: &Path, text: &str) -> bool {
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("yaml" | "yml") => true,
        Some("json") => false,
        _ => !text.trim_start().starts_with(['{', '[']),
    }
}

fn from_json(text: &str) -> Result<Vec<Box<RawValue>>, String> {
    let documents = serde_json::Deserializer::from_str(text).into_iter();
    documents.collect::<Result<_, _>>().map_err(|error| error.to_string())
}

/// Only `true` and `false` are booleans, as in YAML 1.2.
fn from_yaml(text: &str) -> Result<Vec<Box<RawValue>>, String> {
    let options = serde_saphyr::options! { strict_booleans: true };
    let documents: Vec<JsonText> =
        serde_saphyr::from_multiple_with_options(text, options).map_err(|error| error.to_string())?;
    let documents = documents.into_iter().map(|document| RawValue::from_string(document.0));
    documents.collect::<Result<_, _>>().map_err(|error| error.to_string())
}

/// A value of YAML as JSON text. Unlike [`serde_json::Value`] it keeps the order of keys, which handlers may
/// see.
struct JsonText(String);

impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonTextVisitor)
    }
}

struct JsonTextVisitor;

/// The JSON text of a scalar.
fn scalar<E: serde::de::Error>(value: impl serde::Serialize) -> Result<JsonText, E> {
    serde_json::to_string(&value).map(JsonText).map_err(E::custom)
}

impl<'de> Visitor<'de> for JsonTextVisitor {
    type Value = JsonText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<JsonText, E> {
        scalar(value)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<JsonText, E> {
        scalar(value)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<JsonText, E> {
        scalar(value)
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<JsonText, E> {
        scalar(value)
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<JsonText, E> {
        scalar(value)
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<JsonText, E> {
        scalar(())
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<JsonText, E> {
        scalar(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<JsonText, D::Error> {
        JsonText::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<JsonText, A::Error> {
        let mut texts = Vec::new();
        while let Some(JsonText(item)) = items.next_element()? {
            texts.push(item);
        }
        Ok(JsonText(format!("[{}]", texts.join(","))))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<JsonText, A::Error> {
        let mut texts = Vec::new();
        while let Some((key, JsonText(value))) = members.next_entry::<String, JsonText>()? {
            let JsonText(key) = scalar::<A::Error>(key)?;
            texts.push(format!("{key}:{value}"));
        }
        Ok(JsonText(format!("{{{}}}", texts.join(","))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(documents: Result<Vec<Box<RawValue>>, String>) -> Vec<String> {
        documents.unwrap().iter().map(|document| document.get().to_owned()).collect()
    }

    #[test]
    fn yaml_is_read_as_the_json_that_it_stands_for() {
        let text = "jobs:\n- name: no\n  payload: {z: 5, on: true, a: [1.5, ~, '1']}\n- {name: b, 007: x}\n";
        assert_eq!(
            texts(from_yaml(text)),
            [
                r#"{"jobs":[{"name":"no","payload":{"z":5,"on":true,"a":[1.5,null,"1"]}},{"name":"b","007":"x"}]}"#
            ]
        );
        assert!(from_yaml("name: [").is_err());
        assert!(from_yaml("name: a\nname: b\n").is_err());
        let kinds = ["jobs.yaml", "jobs.yml", "jobs.json", "-"].map(|name| is_yaml(Path::new(name), " [1]"));
        assert_eq!(kinds, [true, true, false, false]);
        assert!(is_yaml(Path::new("-"), "- name: a"));
    }

    #[test]
    fn a_file_has_any_number_of_documents() {
        assert_eq!(
            texts(from_yaml("---\nname: a\n---\n---\nname: b\n")),
            [r#"{"name":"a"}"#, r#"{"name":"b"}"#]
        );
        assert_eq!(texts(from_json("{\"n\": 1.50}\n[2]\n")), ["{\"n\": 1.50}", "[2]"]);
        assert!(texts(from_yaml("")).is_empty());
        assert!(from_json("{\"n\": 1}\n{").is_err());
    }
}
