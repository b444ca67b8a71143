//! Secrets: references to them in payloads, which jobs may use them, and their removal from the output of
//! handlers. Keys and ciphers are behind [`SecretCipher`](crate::ports::SecretCipher).
//!
//! A payload refers to a secret with an object that has the single key `$secret`, at any place. Stored payloads
//! keep the reference; only the worker that runs an execution gets the value.

use crate::access::{NamePattern, is_any, problem_of};
use crate::job::InvalidField;
use crate::limits;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

/// The key of an object that stands for a secret.
pub const REFERENCE_KEY: &str = "$secret";

/// Which jobs may use a secret. All three lists must match.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SecretRule {
    /// The owners of the jobs. Without any, no job may use it.
    pub owners: Vec<NamePattern>,
    /// Empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<NamePattern>,
    /// Empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub job_types: Vec<NamePattern>,
}

impl SecretRule {
    pub fn allows(&self, owner: &str, queue: &str, job_type: &str) -> bool {
        self.has_owner(owner) && is_any(&self.queues, queue) && is_any(&self.job_types, job_type)
    }

    pub fn has_owner(&self, owner: &str) -> bool {
        self.owners.iter().any(|pattern| pattern.matches(owner))
    }

    pub fn problems(&self) -> impl Iterator<Item = InvalidField> {
        let lists = [("owners", &self.owners), ("queues", &self.queues), ("job_types", &self.job_types)];
        lists.into_iter().filter_map(|(field, list)| Some(InvalidField::new(field, problem_of(list)?)))
    }
}

/// The error in the name of a secret, to be appended to the field: "must …".
pub fn secret_name_problem(name: &str) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if name.len() > limits::SECRET_NAME_BYTES_MAX {
        let (most, bytes) = (limits::SECRET_NAME_BYTES_MAX, name.len());
        return Some(format!("must be at most {most} bytes, not {bytes}"));
    }
    let is_valid =
        name.bytes().all(is_plain) && name.starts_with(|first: char| first.is_ascii_alphanumeric());
    (!is_valid).then(|| {
        "must consist of letters, digits, dots, hyphens and underscores, and begin with a letter or digit"
            .to_owned()
    })
}

/// The error in a value, which is never repeated.
pub fn secret_value_problem(value: &str) -> Option<String> {
    match value.len() {
        0 => Some("must not be empty".to_owned()),
        bytes if bytes > limits::SECRET_VALUE_BYTES_MAX => {
            Some(format!("must be at most {} bytes, not {bytes}", limits::SECRET_VALUE_BYTES_MAX))
        }
        _ => None,
    }
}

/// A reference to a secret in a payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretReference {
    /// Where it is, such as `payload.env.TOKEN`.
    pub path: String,
    pub name: String,
    range: Range<usize>,
}

/// Whether a payload may have references. False is certain, and cheap to find out.
pub fn may_have_references(payload: &str) -> bool {
    // The key can be written with escapes.
    payload.contains(REFERENCE_KEY) || payload.contains("\\u")
}

/// The references in a payload, in the order of its text; or what is wrong with one of them.
pub fn references(payload: &str) -> Result<Vec<SecretReference>, InvalidField> {
    if !may_have_references(payload) {
        return Ok(vec![]);
    }
    let mut found = Vec::new();
    let Ok(whole) = serde_json::from_str::<&RawValue>(payload) else { return Ok(vec![]) };
    let mut left = vec![("payload".to_owned(), whole)];
    while let Some((path, part)) = left.pop() {
        let text = part.get();
        if text.starts_with('[') {
            let items: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
            let named = items.into_iter().enumerate();
            left.extend(named.map(|(place, item)| (format!("{path}[{place}]"), item)));
        } else if text.starts_with('{') {
            let Members(members) = serde_json::from_str(text).unwrap_or_default();
            if members.iter().any(|(key, _)| key == REFERENCE_KEY) {
                let start = text.as_ptr() as usize - payload.as_ptr() as usize;
                let name = referred(&members).map_err(|fix| InvalidField::new(&path, fix))?;
                found.push(SecretReference { path, name, range: start..start + text.len() });
            } else {
                left.extend(members.into_iter().map(|(key, member)| (format!("{path}.{key}"), member)));
            }
        }
    }
    if found.len() > limits::SECRET_REFERENCES_MAX {
        let most = limits::SECRET_REFERENCES_MAX;
        let fix = format!("must have at most {most} references to secrets, not {}", found.len());
        return Err(InvalidField::new("payload", fix));
    }
    found.sort_by_key(|reference| reference.range.start);
    Ok(found)
}

/// The name in an object that refers to a secret.
fn referred(members: &[(String, &RawValue)]) -> Result<String, String> {
    let [(_, name)] = members else {
        return Err(format!("must have no other key beside {REFERENCE_KEY}"));
    };
    let Ok(name) = serde_json::from_str::<String>(name.get()) else {
        return Err(format!("must have the name of a secret as {REFERENCE_KEY}, in quotes"));
    };
    match secret_name_problem(&name) {
        Some(problem) => {
            Err(format!("must have the name of a secret as {REFERENCE_KEY}: the name {problem}"))
        }
        None => Ok(name),
    }
}

/// The members of an object in their order, with duplicates.
#[derive(Default)]
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;

        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(members)
            }
        }

        deserializer.deserialize_map(MembersVisitor).map(Members)
    }
}

/// The payload with values in place of its references. Everything else stays as it was written.
pub fn resolved(payload: &str, references: &[SecretReference], value: impl Fn(&str) -> String) -> String {
    let mut text = String::with_capacity(payload.len());
    let mut end = 0;
    for reference in references {
        text.push_str(&payload[end..reference.range.start]);
        text.push_str(&Value::String(value(&reference.name)).to_string());
        end = reference.range.end;
    }
    text.push_str(&payload[end..]);
    text
}

/// Replaces the values of secrets in texts of handlers: the value itself, each of its lines, and its Base64.
#[derive(PartialEq, Eq)]
pub struct Redactor {
    /// Longest first.
    needles: Vec<Needle>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Needle {
    text: String,
    mark: String,
}

/// Without the values.
impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let marks: BTreeSet<&str> = self.needles.iter().map(|needle| needle.mark.as_str()).collect();
        f.debug_tuple("Redactor").field(&marks).finish()
    }
}

/// What stands in place of a result or checkpoint that would be too large with the names of its secrets.
const TOO_LARGE: &str = "[removed: it contained secrets]";

impl Redactor {
    /// For secrets with these names and values.
    pub fn new<'a>(secrets: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut needles = BTreeSet::new();
        for (name, value) in secrets {
            let mark = format!("[secret {name}]");
            let encoded = [STANDARD_NO_PAD.encode(value), URL_SAFE_NO_PAD.encode(value)];
            let is_long = value.chars().count() >= limits::SECRET_REDACTED_CHARS_MIN;
            let parts = value.lines().map(str::trim).filter(|line| line.len() < value.len());
            let whole = [value.to_owned()].into_iter().chain(encoded).filter(|_| is_long);
            needles.extend(
                whole
                    .chain(parts.map(str::to_owned))
                    .filter(|text| text.chars().count() >= limits::SECRET_REDACTED_CHARS_MIN)
                    .map(|text| Needle { text, mark: mark.clone() }),
            );
        }
        let mut needles: Vec<Needle> = needles.into_iter().collect();
        needles.sort_by_key(|needle| std::cmp::Reverse(needle.text.len()));
        Redactor { needles }
    }

    pub fn text(&self, text: String) -> String {
        let found = self.found(&text);
        if found.is_empty() { text } else { without(&text, 0..text.len(), &found) }
    }

    /// The same for consecutive lines of one stream: a value may be spread over several of them.
    pub fn lines(&self, lines: &mut [&mut String]) {
        let joined: String = lines.iter().map(|line| line.as_str()).collect();
        let found = self.found(&joined);
        if found.is_empty() {
            return;
        }
        let mut start = 0;
        for line in lines {
            let end = start + line.len();
            **line = without(&joined, start..end, &found);
            start = end;
        }
    }

    /// The same for a JSON text of at most so many bytes: in its strings, the names of its members, and numbers.
    pub fn json(&self, json: String, bytes_max: usize) -> String {
        let Ok(mut value) = serde_json::from_str::<Value>(&json) else { return self.text(json) };
        if !self.replace(&mut value) {
            return json;
        }
        let json = value.to_string();
        if json.len() > bytes_max { Value::String(TOO_LARGE.to_owned()).to_string() } else { json }
    }

    /// Whether there was anything to replace.
    fn replace(&self, value: &mut Value) -> bool {
        match value {
            Value::Null | Value::Bool(_) => false,
            Value::Number(number) => {
                let text = number.to_string();
                let is_found = !self.found(&text).is_empty();
                if is_found {
                    *value = Value::String(self.text(text));
                }
                is_found
            }
            Value::String(text) => {
                let is_found = !self.found(text).is_empty();
                if is_found {
                    *text = self.text(std::mem::take(text));
                }
                is_found
            }
            // All of them, not only up to the first one.
            Value::Array(items) => {
                items.iter_mut().filter_map(|item| self.replace(item).then_some(())).count() > 0
            }
            Value::Object(members) => {
                let mut is_any = false;
                let before = std::mem::take(members);
                for (key, mut member) in before {
                    is_any |= self.replace(&mut member) | !self.found(&key).is_empty();
                    members.insert(self.text(key), member);
                }
                is_any
            }
        }
    }

    /// Where there are values, in order and without overlaps.
    fn found(&self, text: &str) -> Vec<(Range<usize>, &str)> {
        let mut all: Vec<(Range<usize>, &str)> = Vec::new();
        for needle in &self.needles {
            let places = text.match_indices(&needle.text);
            all.extend(places.map(|(start, found)| (start..start + found.len(), needle.mark.as_str())));
        }
        all.sort_by_key(|(range, _)| (range.start, std::cmp::Reverse(range.end)));
        let mut apart: Vec<(Range<usize>, &str)> = Vec::with_capacity(all.len());
        for (range, mark) in all {
            match apart.last_mut() {
                Some((last, _)) if range.start < last.end => last.end = last.end.max(range.end),
                _ => apart.push((range, mark)),
            }
        }
        apart
    }
}

/// A part of a text with marks in place of what was found.
fn without(text: &str, part: Range<usize>, found: &[(Range<usize>, &str)]) -> String {
    let mut kept = String::new();
    let mut at = part.start;
    for (range, mark) in found.iter().filter(|(range, _)| range.start < part.end && range.end > part.start) {
        kept.push_str(&text[at..range.start.max(at)]);
        kept.push_str(mark);
        at = range.end.min(part.end);
    }
    kept.push_str(&text[at..part.end]);
    kept
}

#[cfg(test)]
mod tests;
