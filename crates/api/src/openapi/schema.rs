//! A small builder for JSON schemas.

use super::fields::names_of;
use punctual_core::limits;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::ops::RangeInclusive;

/// A JSON schema under construction.
#[derive(Debug, Clone, Default)]
pub struct Schema {
    keywords: Map<String, Value>,
    /// Whether the field is required; by default it is in responses and not in requests.
    is_needed: Option<bool>,
    /// Whether null means absent; by default it does in requests where the field is not required.
    takes_null: Option<bool>,
}

impl Schema {
    pub fn of(kind: &str, about: &str) -> Self {
        Schema::default().with("type", kind).with("description", about)
    }

    pub fn with(mut self, keyword: &str, value: impl Into<Value>) -> Self {
        self.keywords.insert(keyword.to_owned(), value.into());
        self
    }

    pub fn example(self, value: impl Into<Value>) -> Self {
        self.with("examples", vec![value.into()])
    }

    /// The default value.
    pub fn otherwise(self, value: impl Into<Value>) -> Self {
        self.with("default", value)
    }

    /// Marks a field that requests must have.
    pub fn needed(self) -> Self {
        Schema { is_needed: Some(true), ..self }
    }

    /// Marks a field that responses do not always have.
    pub fn sometimes(self) -> Self {
        Schema { is_needed: Some(false), ..self }
    }

    pub fn or_null(self) -> Self {
        Schema { takes_null: Some(true), ..self }
    }

    pub fn not_null(self) -> Self {
        Schema { takes_null: Some(false), ..self }
    }

    pub fn value(self) -> Value {
        let mut keywords = self.keywords;
        if self.takes_null == Some(true) {
            allow_null(&mut keywords);
        }
        Value::Object(keywords)
    }
}

fn allow_null(keywords: &mut Map<String, Value>) {
    if let Some(reference) = keywords.remove("$ref") {
        keywords.insert("anyOf".to_owned(), json!([{"$ref": reference}, {"type": "null"}]));
    } else if let Some(Value::Array(kinds)) = keywords.get_mut("anyOf") {
        kinds.push(json!({"type": "null"}));
    } else if let Some(kind) = keywords.get_mut("type") {
        *kind = json!([kind.take(), "null"]);
        if let Some(Value::Array(words)) = keywords.get_mut("enum") {
            words.push(Value::Null);
        }
    }
}

pub fn text(about: &str) -> Schema {
    Schema::of("string", about)
}

/// Characters that names must not contain: controls, characters that change the direction of text, and
/// invisible ones. Those beyond 16 bits are left out, because regex dialects write them differently.
macro_rules! never_in_names {
    () => {
        r"\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"
    };
}
/// One visible character, or text that begins and ends with one.
const NAME_PATTERN: &str = concat!(
    "^[^",
    never_in_names!(),
    r"\s\u2800]([^",
    never_in_names!(),
    "]*[^",
    never_in_names!(),
    r"\s\u2800])?$"
);

/// A name of a job, type, queue, owner or tag.
pub fn name(about: &str) -> Schema {
    text(about).with("minLength", 1).with("maxLength", limits::NAME_BYTES_MAX).with("pattern", NAME_PATTERN)
}

pub fn whole(about: &str, range: RangeInclusive<u64>) -> Schema {
    let schema = Schema::of("integer", about).with("minimum", *range.start());
    match *range.end() {
        u64::MAX => schema.with("format", "int64"),
        most if most <= i32::MAX as u64 => schema.with("format", "int32").with("maximum", most),
        most => schema.with("format", "int64").with("maximum", most),
    }
}

/// An unbounded count.
pub fn count(about: &str) -> Schema {
    whole(about, 0..=u64::MAX)
}

pub fn number(about: &str, range: RangeInclusive<f64>) -> Schema {
    Schema::of("number", about)
        .with("format", "double")
        .with("minimum", *range.start())
        .with("maximum", *range.end())
}

pub fn flag(about: &str) -> Schema {
    Schema::of("boolean", about)
}

pub fn time(about: &str) -> Schema {
    text(about).with("format", "date-time").example("2026-11-15T08:30:00Z")
}

/// Any JSON value.
pub fn any(about: &str) -> Schema {
    Schema::default().with("description", about)
}

pub fn list(about: &str, items: Schema) -> Schema {
    Schema::of("array", about).with("items", items.value())
}

pub fn up_to(count: usize, list: Schema) -> Schema {
    list.with("maxItems", count)
}

/// A reference to a named schema.
pub fn the(name: &str, about: &str) -> Schema {
    Schema::default().with("$ref", format!("#/components/schemas/{name}")).with("description", about)
}

/// One of the words of an enum.
pub fn words<'de, T: Deserialize<'de>>(about: &str) -> Schema {
    one_of(about, names_of::<T>())
}

pub fn one_of(about: &str, words: &[&str]) -> Schema {
    text(about).with("enum", words.to_vec())
}

/// The named schemas.
#[derive(Default)]
pub struct Schemas {
    pub named: Map<String, Value>,
}

type Fields = Vec<(&'static str, Schema)>;

impl Schemas {
    pub fn add(&mut self, name: &str, schema: Schema) {
        let before = self.named.insert(name.to_owned(), schema.value());
        assert!(before.is_none(), "two schemas are named {name}");
    }

    /// A request object: it has no other fields, and null means absent.
    pub fn request<'de, T: Deserialize<'de>>(&mut self, name: &'static str, about: &str, fields: Fields) {
        let fields = fields.into_iter().map(|(field, schema)| {
            let is_needed = schema.is_needed.unwrap_or(false);
            let takes_null = schema.takes_null.unwrap_or(!is_needed);
            (field, Schema { is_needed: Some(is_needed), takes_null: Some(takes_null), ..schema })
        });
        let object = object(name, names_of::<T>(), about, fields.collect());
        self.add(name, object.with("additionalProperties", false));
    }

    /// A response object: later versions may add fields.
    pub fn answer<'de, T: Deserialize<'de>>(&mut self, name: &'static str, about: &str, fields: Fields) {
        let object = object(name, names_of::<T>(), about, fields);
        self.add(name, object);
    }
}

/// An object with these fields, which must match the fields that serde knows.
fn object(name: &str, known: &[&str], about: &str, fields: Fields) -> Schema {
    let described: Vec<&str> = fields.iter().map(|(field, _)| *field).collect();
    debug_assert!(
        described.len() == known.len() && described.iter().all(|field| known.contains(field)),
        "{name} has the fields {known:?} on the wire, and {described:?} are described in openapi/types"
    );
    let is_needed = |schema: &Schema| schema.is_needed.unwrap_or(true);
    let needed: Vec<&str> =
        fields.iter().filter(|(_, schema)| is_needed(schema)).map(|(field, _)| *field).collect();
    let properties: Map<String, Value> =
        fields.into_iter().map(|(field, schema)| (field.to_owned(), schema.value())).collect();
    // A JSON map has no order; `x-order` keeps the order in which the fields were written.
    let schema = Schema::of("object", about).with("properties", properties).with("x-order", described);
    if needed.is_empty() { schema } else { schema.with("required", needed) }
}
