//! JSON schemas of the wire types, from which the server builds its OpenAPI document.
//!
//! `wire!` writes the schema of a struct; this module has the vocabulary for its fields and the schemas of the
//! types that fields have.

mod names;

pub use names::names_of;
// For the expressions in `wire!`.
pub use punctual_core::limits;
pub use serde_json::json;

use crate::protocol::{OutcomeWord, Verdict};
use crate::{
    ClockMode, ExecutionStatus, LogLevelBody, LogStreamBody, PriorityBody, ReplayRate, RetryStrategy,
    ScheduleType, Seconds, Span, WorkerState,
};
use punctual_core::gates::Gate;
use punctual_core::ids::{Epoch, ExecutionId, JobId, OccurrenceId, OperationId, SessionId};
use punctual_core::job::JobStatus;
use punctual_core::occurrence::Origin;
use punctual_core::recurrence::{DstEffect, DstGap, DstOverlap};
use punctual_core::schedule::{MisfirePolicy, OverlapPolicy, SkipReason};
use punctual_core::time::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::ops::RangeInclusive;

/// Ids in examples.
pub const JOB_EXAMPLE: &str = "0197e9a0-5b7e-7c3a-9d52-6a1f0c4e8b11";
pub const OCCURRENCE_EXAMPLE: &str = "0197e9a0-5b7e-7c3a-9d52-6a1f0c4e8b11.7";
pub const EXECUTION_EXAMPLE: &str = "0197e9a0-5b7e-7c3a-9d52-6a1f0c4e8b11.7.1";
pub const CURSOR_EXAMPLE: &str = "jobs~0197e9a0-5b7e-7c3a-9d52-6a1f0c4e8b11";

/// A type with a schema, to be used in a field.
pub trait WireType {
    fn schema() -> Schema;
}

/// A struct with a named schema.
pub trait WireObject: WireType {
    const NAME: &'static str;
    const DIRECTION: Direction;

    fn about() -> String;
    fn fields() -> Vec<Field>;

    fn object() -> Schema {
        object(&Self::about(), Self::DIRECTION, Self::fields())
    }
}

/// Requests have no other fields, and null means absent. Later versions may add fields to answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Request,
    Answer,
}

impl Direction {
    /// The direction of a struct with these attributes.
    pub const fn of(attributes: &str) -> Self {
        if contains(attributes, "deny_unknown_fields") { Direction::Request } else { Direction::Answer }
    }
}

/// A field of a struct.
#[derive(Debug, Clone)]
pub struct Field {
    pub name: String,
    /// The Rust type as written.
    pub type_name: &'static str,
    /// Serde's attributes as written.
    pub attributes: &'static str,
    pub schema: Schema,
}

impl Field {
    fn is_optional(&self) -> bool {
        self.type_name.starts_with("Option")
    }

    fn is_required(&self, direction: Direction) -> bool {
        let follows = match direction {
            Direction::Request => !self.is_optional() && !self.attributes.contains("default"),
            Direction::Answer => !self.is_omitted(),
        };
        self.schema.is_required.unwrap_or(follows)
    }

    /// Whether an answer may be without it.
    fn is_omitted(&self) -> bool {
        // A field of a job that can be left out is optional or has a default.
        let is_never_absent = self.attributes.contains("is_absent")
            && !self.is_optional()
            && !self.attributes.contains("default");
        self.attributes.contains("skip_serializing_if") && !is_never_absent
    }

    fn takes_null(&self, direction: Direction) -> bool {
        let follows = match direction {
            Direction::Request => self.is_optional() || self.attributes.contains("empty_if_null"),
            Direction::Answer => self.is_optional() && !self.is_omitted(),
        };
        self.schema.takes_null.unwrap_or(follows)
    }
}

/// An object with these fields.
pub fn object(about: &str, direction: Direction, fields: Vec<Field>) -> Schema {
    let order: Vec<String> = fields.iter().map(|field| field.name.clone()).collect();
    let required = fields.iter().filter(|field| field.is_required(direction));
    let required: Vec<String> = required.map(|field| field.name.clone()).collect();
    let property = |field: Field| {
        let takes_null = Some(field.takes_null(direction));
        (field.name, Schema { takes_null, ..field.schema }.value())
    };
    let properties: Map<String, Value> = fields.into_iter().map(property).collect();
    // A JSON map has no order; `x-order` keeps the order in which the fields were written.
    let mut schema = Schema::of("object").about(about).with("properties", properties).with("x-order", order);
    if !required.is_empty() {
        schema = schema.with("required", required);
    }
    match direction {
        Direction::Request => schema.with("additionalProperties", false),
        Direction::Answer => schema,
    }
}

/// The schema of a field that another type has too.
pub fn field_of<T: WireObject>(name: &str) -> Schema {
    let field = T::fields().into_iter().find(|field| field.name == name);
    field.map(|field| field.schema).unwrap_or_default()
}

/// The lines of a doc comment as one text.
pub fn joined(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// The name of a field on the wire, with serde's `rename`.
pub fn wire_name(field: &str, attributes: &str) -> String {
    let renamed = attributes.split("rename = \"").nth(1).and_then(|rest| rest.split('"').next());
    renamed.unwrap_or(field).to_owned()
}

const fn contains(text: &str, part: &str) -> bool {
    let (text, part) = (text.as_bytes(), part.as_bytes());
    let mut at = 0;
    while at + part.len() <= text.len() {
        let mut matching = 0;
        while matching < part.len() && text[at + matching] == part[matching] {
            matching += 1;
        }
        if matching == part.len() {
            return true;
        }
        at += 1;
    }
    false
}

/// A JSON schema under construction.
#[derive(Debug, Clone, Default)]
pub struct Schema {
    keywords: Map<String, Value>,
    /// Whether the field is required, where its Rust type and serde's attributes say otherwise.
    is_required: Option<bool>,
    /// The same for null.
    takes_null: Option<bool>,
}

impl Schema {
    pub fn of(kind: &str) -> Self {
        Schema::default().with("type", kind)
    }

    pub fn with(mut self, keyword: &str, value: impl Into<Value>) -> Self {
        self.keywords.insert(keyword.to_owned(), value.into());
        self
    }

    pub fn about(self, about: &str) -> Self {
        if about.is_empty() { self } else { self.with("description", about) }
    }

    pub fn example(self, value: impl Into<Value>) -> Self {
        self.with("examples", vec![value.into()])
    }

    /// The default value.
    pub fn otherwise(self, value: impl Into<Value>) -> Self {
        self.with("default", value)
    }

    /// Marks a field that is always there.
    pub fn needed(self) -> Self {
        Schema { is_required: Some(true), ..self }
    }

    /// Marks a field that is not always there.
    pub fn sometimes(self) -> Self {
        Schema { is_required: Some(false), ..self }
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

pub fn text() -> Schema {
    Schema::of("string")
}

/// Characters that names must not contain: controls, characters that change the direction of text, invisible
/// ones, and noncharacters. Those beyond 16 bits are left out, because regex dialects write them differently.
macro_rules! never_in_names {
    () => {
        r"\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufdd0-\ufdef\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
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
pub fn name() -> Schema {
    text().with("minLength", 1).with("maxLength", limits::NAME_BYTES_MAX).with("pattern", NAME_PATTERN)
}

pub fn whole(range: RangeInclusive<u64>) -> Schema {
    let schema = Schema::of("integer").with("minimum", *range.start());
    match *range.end() {
        u64::MAX => schema.with("format", "int64"),
        most if most <= i32::MAX as u64 => schema.with("format", "int32").with("maximum", most),
        most => schema.with("format", "int64").with("maximum", most),
    }
}

/// An unbounded count.
pub fn count() -> Schema {
    whole(0..=u64::MAX)
}

pub fn number(range: RangeInclusive<f64>) -> Schema {
    Schema::of("number")
        .with("format", "double")
        .with("minimum", *range.start())
        .with("maximum", *range.end())
}

pub fn flag() -> Schema {
    Schema::of("boolean")
}

pub fn time() -> Schema {
    text().with("format", "date-time").example("2026-11-15T08:30:00Z")
}

/// Any JSON value.
pub fn any() -> Schema {
    Schema::default()
}

pub fn list(items: Schema) -> Schema {
    Schema::of("array").with("items", items.value())
}

/// One name, or a list of names.
pub fn names(count: usize) -> Schema {
    let (one, all) = (name().value(), up_to(count, list(name().about("One of them."))).value());
    Schema::default().with("anyOf", Value::from(vec![one, all]))
}

pub fn up_to(count: usize, list: Schema) -> Schema {
    list.with("maxItems", count)
}

/// A reference to a named schema.
pub fn the(name: &str) -> Schema {
    Schema::default().with("$ref", format!("#/components/schemas/{name}"))
}

/// One of the words of an enum.
pub fn words<'de, T: Deserialize<'de>>() -> Schema {
    one_of(names_of::<T>())
}

pub fn one_of(words: &[&str]) -> Schema {
    text().with("enum", words.to_vec())
}

/// Types whose schema is named elsewhere, or always the same.
macro_rules! wire_types {
    ($($type:ty: $schema:expr),* $(,)?) => {
        $(impl WireType for $type {
            fn schema() -> Schema {
                $schema
            }
        })*
    };
}

wire_types! {
    Box<RawValue>: any(),
    ClockMode: words::<ClockMode>(),
    DstEffect: words::<DstEffect>(),
    Epoch: whole(0..=u32::MAX.into()).example(1),
    ExecutionStatus: the("ExecutionStatus"),
    Gate: words::<Gate>(),
    LogStreamBody: the("LogStream"),
    LogLevelBody: the("LogLevel"),
    Origin: words::<Origin>(),
    OutcomeWord: words::<OutcomeWord>(),
    PriorityBody: the("Priority"),
    ReplayRate: the("ReplayRate"),
    RetryStrategy: words::<RetryStrategy>(),
    ScheduleType: the("ScheduleType"),
    SessionId: Schema::of("integer")
        .with("format", "int64")
        .with("minimum", i64::MIN)
        .with("maximum", i64::MAX)
        .example(7),
    SkipReason: the("SkipReason"),
    Verdict: the("Verdict"),
    WorkerState: words::<WorkerState>(),
    String: text(),
    bool: flag(),
    u32: count(),
    u64: count(),
    usize: count(),
    Timestamp: time(),
    Span: the("Duration"),
    Seconds: number(0.0..=limits::TIMEOUT_MAX.as_secs_f64()),
    JobId: the("JobId"),
    OperationId: the("OperationId"),
    OccurrenceId: the("OccurrenceId"),
    ExecutionId: the("ExecutionId"),
    JobStatus: the("JobStatus"),
    DstGap: the("DstGap"),
    DstOverlap: the("DstOverlap"),
    MisfirePolicy: the("MisfirePolicy"),
    OverlapPolicy: the("OverlapPolicy"),
}

/// Whether null is allowed depends on where the field is.
impl<T: WireType> WireType for Option<T> {
    fn schema() -> Schema {
        T::schema()
    }
}

impl<T: WireType> WireType for Vec<T> {
    fn schema() -> Schema {
        list(T::schema())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::wire;
    use serde::{Deserialize, Serialize};

    wire! {
        /// A request
        /// of a test.
        #[derive(Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Asked as "Asked" {
            /// Its name.
            #[serde(rename = "type")]
            pub kind: String = name(),
            /// Its size.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub size: Option<u32> = whole(1..=9),
        }

        /// An answer.
        #[derive(Serialize, Deserialize)]
        pub struct Answered as "Answered" {
            /// When.
            pub at: Option<Timestamp>,
            /// If it was asked for.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub asked: Option<Asked>,
        }
    }

    #[test]
    fn what_is_required_and_null_follows_from_the_declaration() {
        let asked = Asked::object().value();
        assert_eq!(asked["description"], "A request of a test.");
        assert_eq!(asked["required"], json!(["type"]));
        assert_eq!(asked["additionalProperties"], false);
        assert_eq!(asked["properties"]["type"]["description"], "Its name.");
        assert_eq!(asked["properties"]["size"]["type"], json!(["integer", "null"]));
        let answered = Answered::object().value();
        assert_eq!(answered["required"], json!(["at"]));
        assert_eq!(answered["properties"]["at"]["type"], json!(["string", "null"]));
        assert_eq!(answered["properties"]["asked"]["$ref"], "#/components/schemas/Asked");
        assert!(answered.get("additionalProperties").is_none());
    }
}
