//! Secrets: references to them in payloads, which jobs may use them, and their removal from the output of
//! handlers. Keys and ciphers are behind [`SecretCipher`](crate::ports::SecretCipher).
//!
//! A payload refers to a secret with an object that has the single key `$secret`, at any place. Stored payloads
//! keep the reference; only the worker that runs an execution gets the value.

use crate::access::{NamePattern, Scope, is_any, may_overlap, problem_of};
use crate::job::InvalidField;
use crate::limits;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::fmt;
use std::ops::Range;

mod redaction;
mod unescaped;
pub use redaction::Redactor;

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

    /// Whether it may allow some job in a scope.
    pub fn may_allow_in(&self, scope: &Scope) -> bool {
        scope.owner.as_deref().is_none_or(|owner| self.has_owner(owner))
            && may_overlap(&self.queues, &scope.queues)
            && may_overlap(&self.job_types, &scope.job_types)
    }

    pub fn problems(&self) -> impl Iterator<Item = InvalidField> {
        let lists = [("owners", &self.owners), ("queues", &self.queues), ("job_types", &self.job_types)];
        lists.into_iter().filter_map(|(field, list)| Some(InvalidField::new(field, problem_of(list)?)))
    }
}

/// A change of a rule; lists that are absent stay as they are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SecretRuleChange {
    pub owners: Option<Vec<NamePattern>>,
    pub queues: Option<Vec<NamePattern>>,
    pub job_types: Option<Vec<NamePattern>>,
}

impl SecretRuleChange {
    pub fn applied_to(&self, rule: &SecretRule) -> SecretRule {
        let changed =
            |new: &Option<Vec<NamePattern>>, old: &Vec<NamePattern>| new.as_ref().unwrap_or(old).clone();
        SecretRule {
            owners: changed(&self.owners, &rule.owners),
            queues: changed(&self.queues, &rule.queues),
            job_types: changed(&self.job_types, &rule.job_types),
        }
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
    let Ok(whole) = serde_json::from_str::<&RawValue>(payload) else { return Ok(vec![]) };
    let (mut found, mut count) = (Vec::new(), 0);
    // Paths are put together only where they are needed: a payload can have a long key above many values.
    let mut opened: Vec<PathPart> = Vec::new();
    let mut left = vec![(PathPart { parent: None, step: PathStep::Whole }, whole)];
    while let Some((part, raw)) = left.pop() {
        let text = raw.get();
        let parent = Some(opened.len());
        if text.starts_with('[') {
            opened.push(part);
            let items: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
            let inner = items.into_iter().enumerate().filter(|(_, item)| may_be_above(item));
            left.extend(inner.map(|(place, item)| (PathPart { parent, step: PathStep::Item(place) }, item)));
        } else if text.starts_with('{') {
            let Members(members) = serde_json::from_str(text).unwrap_or_default();
            if members.iter().any(|(key, _)| key == REFERENCE_KEY) {
                let start = text.as_ptr() as usize - payload.as_ptr() as usize;
                let name =
                    referred(&members).map_err(|fix| InvalidField::new(path_of(&part, &opened), fix))?;
                count += 1;
                if count <= limits::SECRET_REFERENCES_MAX {
                    let path = path_of(&part, &opened);
                    found.push(SecretReference { path, name, range: start..start + text.len() });
                }
            } else {
                opened.push(part);
                let inner = members.into_iter().filter(|(_, member)| may_be_above(member));
                left.extend(
                    inner.map(|(key, member)| (PathPart { parent, step: PathStep::Member(key) }, member)),
                );
            }
        }
    }
    if count > limits::SECRET_REFERENCES_MAX {
        let most = limits::SECRET_REFERENCES_MAX;
        let fix = format!("must have at most {most} references to secrets, not {count}");
        return Err(InvalidField::new("payload", fix));
    }
    found.sort_by_key(|reference| reference.range.start);
    Ok(found)
}

/// Where a value is: one step below another value.
struct PathPart {
    /// The place of the value above in the list of those that were opened.
    parent: Option<usize>,
    step: PathStep,
}

enum PathStep {
    Whole,
    Item(usize),
    Member(String),
}

/// Whether a value is an array or an object.
fn may_be_above(value: &RawValue) -> bool {
    value.get().starts_with(['[', '{'])
}

/// Such as `payload.env.TOKEN`. The beginning of a long one is kept.
fn path_of(part: &PathPart, opened: &[PathPart]) -> String {
    let mut steps = vec![&part.step];
    let mut parent = part.parent;
    while let Some(above) = parent.and_then(|place| opened.get(place)) {
        steps.push(&above.step);
        parent = above.parent;
    }
    let mut path = String::new();
    for step in steps.into_iter().rev() {
        match step {
            PathStep::Whole => path.push_str("payload"),
            PathStep::Item(place) => path.push_str(&format!("[{place}]")),
            PathStep::Member(key) => {
                path.push('.');
                path.push_str(&key[..key.floor_char_boundary(limits::SECRET_PATH_BYTES_MAX)]);
            }
        }
        if path.len() > limits::SECRET_PATH_BYTES_MAX {
            path.truncate(path.floor_char_boundary(limits::SECRET_PATH_BYTES_MAX));
            path.push('…');
            break;
        }
    }
    path
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
    with_values(payload, references, |reference| value(&reference.name))
}

/// The same, with a value for each place.
pub fn with_values(
    payload: &str,
    references: &[SecretReference],
    value: impl Fn(&SecretReference) -> String,
) -> String {
    let mut text = String::with_capacity(payload.len());
    let mut end = 0;
    for reference in references {
        text.push_str(&payload[end..reference.range.start]);
        text.push_str(&Value::String(value(reference)).to_string());
        end = reference.range.end;
    }
    text.push_str(&payload[end..]);
    text
}

#[cfg(test)]
mod tests;
