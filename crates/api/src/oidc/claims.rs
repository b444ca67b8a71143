//! What a verified JWT says about its subject.

use punctual_core::names::line_problem;
use punctual_core::time::Timestamp;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// The claims of a JWT whose signature, issuer, audience and times are right.
#[derive(Debug, Clone)]
pub struct Claims {
    pub issuer: String,
    pub subject: String,
    /// Until when the JWT is valid.
    pub until: Timestamp,
    pub values: Map<String, Value>,
}

impl Claims {
    /// The subject, told apart from those of other issuers.
    pub fn principal(&self) -> String {
        format!("{}#{}", self.issuer, self.subject)
    }

    /// A name for people: the email address, if it is verified. Without any address, the name that the subject has
    /// there, unless it looks like an address.
    pub fn name(&self) -> String {
        let is_line = |name: &&str| line_problem(name).is_none();
        let name = match self.text("email") {
            Some(email) => Some(email).filter(|_| self.is_email_verified()),
            None => {
                let mut names =
                    ["preferred_username", "name"].into_iter().filter_map(|claim| self.text(claim));
                names.find(|name| !name.contains('@') && is_line(name))
            }
        };
        name.filter(is_line).unwrap_or(&self.subject).to_owned()
    }

    /// The email address, in lower case.
    pub fn email(&self) -> Option<String> {
        self.text("email").map(str::to_lowercase)
    }

    /// The same if the issuer has verified that it belongs to the subject.
    pub fn verified_email(&self) -> Option<String> {
        self.email().filter(|_| self.is_email_verified())
    }

    fn is_email_verified(&self) -> bool {
        self.values.get("email_verified") == Some(&Value::Bool(true))
    }

    /// A claim by its name, or by the names on the way to it, separated by dots.
    pub fn find(&self, path: &str) -> Option<&Value> {
        // Some names are URLs, which have dots of their own.
        self.values.get(path).or_else(|| {
            let mut names = path.split('.');
            let first = self.values.get(names.next()?)?;
            names.try_fold(first, |value, name| value.get(name))
        })
    }

    pub fn text(&self, path: &str) -> Option<&str> {
        self.find(path).and_then(Value::as_str).filter(|text| !text.is_empty())
    }
}

/// The object in a JSON text. An object in which a name occurs twice is refused: another parser may have read
/// the other value.
pub fn object_in(json: &[u8]) -> Option<Map<String, Value>> {
    match serde_json::from_slice::<Unique>(json).ok()?.0 {
        Value::Object(object) => Some(object),
        _ => None,
    }
}

/// A JSON value without doubled names.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Unique)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON without doubled names")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(Unique(item)) = items.next_element()? {
            all.push(item);
        }
        Ok(all.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some((name, Unique(value))) = members.next_entry::<String, Unique>()? {
            if all.insert(name, value).is_some() {
                return Err(A::Error::custom("a name occurs twice"));
            }
        }
        Ok(all.into())
    }
}
