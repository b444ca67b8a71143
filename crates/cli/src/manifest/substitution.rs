//! References in the string values of a job: `${env:NAME}`, `${env:NAME:-default}` and `${file:PATH}`.
//!
//! Payloads are often shell scripts, in which `${NAME}` belongs to the shell, so every other `${…}` stays as
//! it is. `$${env:` and `$${file:` give the literal text with one `$`. References are replaced after parsing:
//! a value cannot add fields or jobs.

use punctual_core::limits;
use serde_json::Value;
use serde_json::value::RawValue;
use std::io::Read;
use std::path::Path;

const ENV: &str = "${env:";
const FILE: &str = "${file:";
/// Before the default of a variable.
const DEFAULT: &str = ":-";

/// Where values come from.
pub struct ReferenceSources<'a> {
    pub variable: &'a dyn Fn(&str) -> Result<Option<String>, String>,
    /// Paths of files are relative to this directory.
    pub directory: &'a Path,
}

/// A variable of the environment.
pub fn variable(name: &str) -> Result<Option<String>, String> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(format!("the variable {name} is not UTF-8")),
    }
}

/// The JSON with all references in its string values replaced.
pub fn substituted(json: &RawValue, sources: &ReferenceSources<'_>) -> Result<Box<RawValue>, String> {
    with_values(json, |text| resolved(text, sources))
}

/// The JSON with all texts that look like references escaped.
pub fn escaped(json: &RawValue) -> Result<Box<RawValue>, String> {
    let mark = |text: &str, mark: &str| text.replace(mark, &format!("${mark}"));
    with_values(json, |text| Ok(mark(&mark(text, ENV), FILE)))
}

/// The JSON with every string value that contains a mark replaced. Keys, and all else, stay as written.
fn with_values(
    json: &RawValue,
    replace: impl Fn(&str) -> Result<String, String>,
) -> Result<Box<RawValue>, String> {
    if !has_mark(json.get()) {
        return Ok(json.to_owned());
    }
    let mut changed = String::with_capacity(json.get().len());
    let mut rest = json.get();
    while let Some(start) = rest.find('"') {
        let end = start + string_length(&rest[start..]);
        let (before, token, after) = (&rest[..start], &rest[start..end], &rest[end..]);
        changed += before;
        rest = after;
        let is_key = after.trim_start().starts_with(':');
        let text: String = serde_json::from_str(token).map_err(|error| error.to_string())?;
        match !is_key && has_mark(&text) {
            true => changed += &Value::String(replace(&text)?).to_string(),
            false => changed += token,
        }
    }
    RawValue::from_string(changed + rest).map_err(|error| error.to_string())
}

/// Whether a string in this value refers to a variable or file.
pub fn has_reference(value: &Value) -> bool {
    match value {
        Value::String(text) => has_mark(text),
        Value::Array(items) => items.iter().any(has_reference),
        Value::Object(members) => members.values().any(has_reference),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn has_mark(text: &str) -> bool {
    text.contains(ENV) || text.contains(FILE)
}

/// The length of the string, with its quotes, that valid JSON begins with.
fn string_length(json: &str) -> usize {
    let mut is_escaped = false;
    let end = json.bytes().skip(1).position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    });
    end.map_or(json.len(), |end| end + 2)
}

fn resolved(text: &str, sources: &ReferenceSources<'_>) -> Result<String, String> {
    let mut done = String::new();
    let mut rest = text;
    loop {
        let marks = [ENV, FILE].into_iter().filter_map(|mark| Some((rest.find(mark)?, mark)));
        let Some((at, mark)) = marks.min() else { return Ok(done + rest) };
        let (before, after) = (&rest[..at], &rest[at + mark.len()..]);
        if let Some(before) = before.strip_suffix('$') {
            done = done + before + mark;
            rest = after;
            continue;
        }
        let Some((reference, after)) = after.split_once('}') else {
            return Err(format!("{mark} has no closing brace: write $${} for the literal text", &mark[1..]));
        };
        done += before;
        done += &match mark {
            ENV => from_environment(reference, sources)?,
            _ => from_file(reference, sources.directory)?,
        };
        rest = after;
    }
}

fn from_environment(reference: &str, sources: &ReferenceSources<'_>) -> Result<String, String> {
    let (name, default) = match reference.split_once(DEFAULT) {
        Some((name, default)) => (name, Some(default)),
        None => (reference, None),
    };
    let is_name = !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    if !is_name {
        return Err(format!("{ENV}{reference}}} does not name a variable: write {ENV}NAME}}"));
    }
    let value = (sources.variable)(name)?.or_else(|| default.map(str::to_owned));
    value.ok_or_else(|| {
        format!("the variable {name} is not set: set it, or write {ENV}{name}:-default}} to give a default")
    })
}

/// The text of a file, which must fit into a payload.
fn from_file(path: &str, directory: &Path) -> Result<String, String> {
    let path = directory.join(path);
    let shown = path.display();
    let most = limits::PAYLOAD_BYTES_MAX as u64;
    let mut text = String::new();
    let file = std::fs::File::open(&path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    file.take(most + 1).read_to_string(&mut text).map_err(|error| format!("cannot read {shown}: {error}"))?;
    if text.len() as u64 > most {
        return Err(format!("{shown} is longer than {most} bytes, the limit of a payload"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(json: &str) -> Result<String, String> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let variable = |name: &str| Ok((name == "A").then(|| "it's \"x\": [1]\n".to_owned()));
        let json = RawValue::from_string(json.to_owned()).unwrap();
        let sources = ReferenceSources { variable: &variable, directory: &directory };
        Ok(substituted(&json, &sources)?.get().to_owned())
    }

    #[test]
    fn references_are_replaced_in_string_values_only() {
        let given = r#"{"${env:A}" : "<${env:A}>", "n": 1.50, "l": ["${env:B:-b}", "\"\\"], "d": "${env:A:-no}${env:B:-}"}"#;
        let a = r#"it's \"x\": [1]\n"#;
        let expected = format!(r#"{{"${{env:A}}" : "<{a}>", "n": 1.50, "l": ["b", "\"\\"], "d": "{a}"}}"#);
        assert_eq!(replaced(given).unwrap(), expected);
        let file: String = serde_json::from_str(&replaced(r#""${file:lib.rs}""#).unwrap()).unwrap();
        assert_eq!(file, include_str!("../lib.rs"));
    }

    #[test]
    fn what_belongs_to_a_shell_stays_as_it_is() {
        for script in [r#""echo ${HOME} $HOME ${1:-x} $${X} ${environment}""#, r#""$$ ${env} {env:A}""#] {
            assert_eq!(replaced(script).unwrap(), script);
        }
    }

    #[test]
    fn an_escaped_reference_is_literal_text() {
        for (given, text) in
            [(r#""$${env:A} $${file:x}""#, r#""${env:A} ${file:x}""#), (r#""$$${env:A""#, r#""$${env:A""#)]
        {
            assert_eq!(replaced(given).unwrap(), text);
            let raw = RawValue::from_string(text.to_owned()).unwrap();
            assert_eq!(escaped(&raw).unwrap().get(), given);
        }
    }

    #[test]
    fn an_error_names_the_reference() {
        for (given, error) in [
            (
                r#""${env:B}""#,
                "the variable B is not set: set it, or write ${env:B:-default} to give a default",
            ),
            (r#""${env:}""#, "${env:} does not name a variable: write ${env:NAME}"),
            (r#""${env:1 2}""#, "${env:1 2} does not name a variable: write ${env:NAME}"),
            (r#""${env:A""#, "${env: has no closing brace: write $${env: for the literal text"),
        ] {
            assert_eq!(replaced(given).unwrap_err(), error);
        }
        assert!(replaced(r#""${file:no such file}""#).unwrap_err().contains("no such file"));
    }
}
