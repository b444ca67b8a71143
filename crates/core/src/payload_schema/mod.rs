//! Schemas of payloads: the part of JSON Schema (draft 2020-12) that users of a job type can register.
//!
//! A keyword that is not in [`KEYWORDS`] is rejected when the schema is registered: one that was ignored would let
//! payloads through that it forbids. References lead to `$defs` of the same schema only. An error names the field of
//! the payload and repeats no value of it, which may be a secret. A reference to a secret is valid everywhere,
//! because only workers know its value.

mod check;
mod pattern;
#[cfg(test)]
mod tests;

use crate::job::InvalidField;
use crate::limits;
use crate::names::path_name_problem;
use crate::time::Timestamp;
use check::SchemaCheck;
use pattern::{SchemaParts, SchemaPattern};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// All keywords. The last line describes, and checks nothing.
const KEYWORDS: [&str; 38] = [
    "type",
    "enum",
    "const",
    "format",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "properties",
    "required",
    "additionalProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "dependentRequired",
    "items",
    "prefixItems",
    "minItems",
    "maxItems",
    "uniqueItems",
    "contains",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "$ref",
    "$defs", //
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "$schema",
    "$comment",
];
const TYPES: [&str; 7] = ["object", "array", "string", "number", "integer", "boolean", "null"];
const FORMATS: [&str; 5] = ["date-time", "date", "uuid", "uri", "email"];
/// Begins a reference to a definition of the schema.
const DEFINITION: &str = "#/$defs/";

/// The error in the name of a job type: like every name, and it can be part of a URL.
pub fn job_type_problem(name: &str) -> Option<String> {
    path_name_problem(name)
}

/// A job type as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredJobType {
    /// As registered.
    pub schema: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub set_at: Timestamp,
    pub set_by: String,
    /// A worker registered it, so workers may change it. One that a person has set stays.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_worker: bool,
}

/// A schema that payloads of a job type must match.
#[derive(Debug, Clone)]
pub struct PayloadSchema {
    root: SchemaNode,
    definitions: BTreeMap<String, SchemaNode>,
    bytes: usize,
}

/// What one schema object demands. All of it must hold.
#[derive(Debug, Clone, Default)]
struct SchemaNode {
    is_never: bool,
    /// Bytes of values and names that a comparison reads.
    data_bytes: usize,
    types: Vec<String>,
    values: Option<Vec<Value>>,
    format: Option<String>,
    pattern: Option<Arc<SchemaPattern>>,
    length: CountBounds<usize>,
    at_least: Option<(Number, f64)>,
    at_most: Option<(Number, f64)>,
    above: Option<(Number, f64)>,
    below: Option<(Number, f64)>,
    multiple_of: Option<f64>,
    properties: BTreeMap<String, SchemaNode>,
    required: Vec<String>,
    dependent: BTreeMap<String, Vec<String>>,
    additional: Option<Box<SchemaNode>>,
    names: Option<Box<SchemaNode>>,
    member_count: CountBounds<usize>,
    prefix: Vec<SchemaNode>,
    items: Option<Box<SchemaNode>>,
    contains: Option<Box<SchemaNode>>,
    item_count: CountBounds<usize>,
    has_unique_items: bool,
    all_of: Vec<SchemaNode>,
    any_of: Vec<SchemaNode>,
    one_of: Vec<SchemaNode>,
    not: Option<Box<SchemaNode>>,
    reference: Option<String>,
}

#[derive(Debug, Clone, Copy)]
struct CountBounds<T> {
    min: Option<T>,
    max: Option<T>,
}

impl<T> Default for CountBounds<T> {
    fn default() -> Self {
        CountBounds { min: None, max: None }
    }
}

impl PayloadSchema {
    /// A schema as a user writes it, or the first thing that is wrong with it.
    pub fn parse(text: &str) -> Result<Self, InvalidField> {
        if text.len() > limits::JOB_TYPE_SCHEMA_BYTES_MAX {
            let fix = format!("must be at most {} bytes", limits::JOB_TYPE_SCHEMA_BYTES_MAX);
            return Err(InvalidField::new("schema", fix));
        }
        let value: Value = serde_json::from_str(text)
            .map_err(|error| InvalidField::new("schema", format!("must be JSON: {error}")))?;
        let parts = RefCell::new(SchemaParts::default());
        let mut definitions = BTreeMap::new();
        if let Some(defs) = value.get("$defs") {
            let defs =
                defs.as_object().ok_or_else(|| InvalidField::new("schema.$defs", "must be an object"))?;
            for (name, schema) in defs {
                let definition = SchemaNode::parse(schema, &format!("schema.$defs.{name}"), &parts)?;
                definitions.insert(name.clone(), definition);
            }
        }
        let root = SchemaNode::parse(&value, "schema", &parts)?;
        let parts = parts.into_inner();
        let bytes = parts.nodes * size_of::<SchemaNode>() + text.len() + parts.pattern_bytes();
        let schema = PayloadSchema { root, definitions, bytes };
        schema.check_references()?;
        Ok(schema)
    }

    fn check_references(&self) -> Result<(), InvalidField> {
        let mut nodes: Vec<&SchemaNode> = self.definitions.values().chain([&self.root]).collect();
        while let Some(node) = nodes.pop() {
            if let Some(name) = node.reference.as_ref().filter(|name| !self.definitions.contains_key(*name)) {
                let fix = format!("refers to {DEFINITION}{name}, which is not in $defs");
                return Err(InvalidField::new("schema", fix));
            }
            nodes.extend(node.parts());
        }
        Ok(())
    }

    /// The memory that it takes, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The first thing in a payload that does not match.
    pub fn problem(&self, payload: &str) -> Option<InvalidField> {
        let value: Value = match serde_json::from_str(payload) {
            Ok(value) => value,
            Err(_) => {
                return Some(InvalidField::new(
                    "payload",
                    "must be JSON that can be compared with its schema",
                ));
            }
        };
        let mut check = SchemaCheck::new(self);
        let outcome = check.node(&self.root, &value, "payload");
        // Whatever was found after that is not to be trusted: an alternative may have been given up.
        if check.is_exhausted() {
            return Some(InvalidField::new(
                "payload",
                format!(
                    "takes too many steps to compare with the schema of its job type: more than {}; alternatives, long \
                     texts and large patterns take many",
                    limits::SCHEMA_STEPS_MAX
                ),
            ));
        }
        outcome.err()
    }
}

impl SchemaNode {
    fn parse(value: &Value, place: &str, parts: &RefCell<SchemaParts>) -> Result<Self, InvalidField> {
        parts.borrow_mut().nodes += 1;
        let wrong = |keyword: &str, fix: &str| InvalidField::new(format!("{place}.{keyword}"), fix);
        let fields = match value {
            Value::Bool(true) => return Ok(SchemaNode::default()),
            Value::Bool(false) => return Ok(SchemaNode { is_never: true, ..SchemaNode::default() }),
            Value::Object(fields) => fields,
            _ => return Err(InvalidField::new(place, "must be a schema: an object, true or false")),
        };
        if let Some(unknown) = fields.keys().find(|keyword| !KEYWORDS.contains(&keyword.as_str())) {
            let known = KEYWORDS.join(", ");
            return Err(wrong(
                unknown,
                &format!("is a keyword that Punctual does not check; it knows {known}"),
            ));
        }
        if place != "schema" && fields.contains_key("$defs") {
            return Err(wrong("$defs", "must be at the top of the schema"));
        }
        let read = SchemaReader { fields, place, parts };
        let mut node = SchemaNode {
            is_never: false,
            data_bytes: read.data_bytes(),
            types: read.types()?,
            values: read.values()?,
            format: read.word("format", &FORMATS)?,
            pattern: read.pattern()?,
            length: read.bounds("minLength", "maxLength")?,
            at_least: read.number("minimum")?,
            at_most: read.number("maximum")?,
            above: read.number("exclusiveMinimum")?,
            below: read.number("exclusiveMaximum")?,
            multiple_of: read.number("multipleOf")?.map(|(_, value)| value),
            properties: read.named("properties")?,
            required: read.texts("required")?,
            dependent: BTreeMap::new(),
            additional: read.node("additionalProperties")?,
            names: read.node("propertyNames")?,
            member_count: read.bounds("minProperties", "maxProperties")?,
            prefix: read.list("prefixItems")?,
            items: read.node("items")?,
            contains: read.node("contains")?,
            item_count: read.bounds("minItems", "maxItems")?,
            has_unique_items: read.flag("uniqueItems")?,
            all_of: read.list("allOf")?,
            any_of: read.list("anyOf")?,
            one_of: read.list("oneOf")?,
            not: read.node("not")?,
            reference: read.reference()?,
        };
        if node.multiple_of.is_some_and(|step| step <= 0.0) {
            return Err(wrong("multipleOf", "must be above 0"));
        }
        if let Some(dependent) = fields.get("dependentRequired") {
            let dependent =
                dependent.as_object().ok_or_else(|| wrong("dependentRequired", "must be an object"))?;
            for name in dependent.keys() {
                let place = &format!("{place}.dependentRequired");
                let read = SchemaReader { fields: dependent, place, parts };
                node.dependent.insert(name.clone(), read.texts(name)?);
            }
        }
        Ok(node)
    }

    /// The schemas directly inside this one.
    fn parts(&self) -> impl Iterator<Item = &SchemaNode> {
        let boxed = [&self.additional, &self.names, &self.items, &self.contains, &self.not];
        let boxed = boxed.into_iter().flatten().map(|node| &**node);
        let lists = [&self.prefix, &self.all_of, &self.any_of, &self.one_of];
        boxed.chain(self.properties.values()).chain(lists.into_iter().flatten())
    }
}

/// Reads the keywords of one schema object.
struct SchemaReader<'a> {
    fields: &'a Map<String, Value>,
    place: &'a str,
    parts: &'a RefCell<SchemaParts>,
}

impl SchemaReader<'_> {
    fn wrong(&self, keyword: &str, fix: impl Into<String>) -> InvalidField {
        InvalidField::new(format!("{}.{keyword}", self.place), fix)
    }

    fn data_bytes(&self) -> usize {
        let data = ["enum", "const", "required", "dependentRequired"];
        let data = data.iter().filter_map(|keyword| self.fields.get(*keyword));
        let names = self.fields.get("properties").and_then(Value::as_object);
        let names = names.into_iter().flat_map(Map::keys).map(String::len);
        data.map(|value| value.to_string().len()).chain(names).sum()
    }

    fn types(&self) -> Result<Vec<String>, InvalidField> {
        let types = match self.fields.get("type") {
            None => vec![],
            Some(Value::String(one)) => vec![one.clone()],
            Some(_) => self.texts("type")?,
        };
        match types.iter().find(|one| !TYPES.contains(&one.as_str())) {
            Some(_) => Err(self.wrong("type", format!("must be one of {}", TYPES.join(", ")))),
            None => Ok(types),
        }
    }

    fn values(&self) -> Result<Option<Vec<Value>>, InvalidField> {
        let listed = match self.fields.get("enum") {
            None => None,
            Some(Value::Array(values)) if !values.is_empty() => Some(values.clone()),
            Some(_) => return Err(self.wrong("enum", "must be a list with at least one value")),
        };
        match (self.fields.get("const"), listed) {
            (Some(_), Some(_)) => Err(self.wrong("const", "cannot be combined with enum")),
            (Some(value), None) => Ok(Some(vec![value.clone()])),
            (None, listed) => Ok(listed),
        }
    }

    fn word(&self, keyword: &str, words: &[&str]) -> Result<Option<String>, InvalidField> {
        match self.fields.get(keyword) {
            None => Ok(None),
            Some(Value::String(word)) if words.contains(&word.as_str()) => Ok(Some(word.clone())),
            Some(_) => Err(self.wrong(keyword, format!("must be one of {}", words.join(", ")))),
        }
    }

    fn flag(&self, keyword: &str) -> Result<bool, InvalidField> {
        match self.fields.get(keyword) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(self.wrong(keyword, "must be true or false")),
        }
    }

    fn pattern(&self) -> Result<Option<Arc<SchemaPattern>>, InvalidField> {
        let Some(pattern) = self.fields.get("pattern") else { return Ok(None) };
        let text = pattern.as_str().ok_or_else(|| self.wrong("pattern", "must be a text"))?;
        let pattern = self.parts.borrow_mut().pattern(text);
        pattern.map(Some).map_err(|fix| self.wrong("pattern", fix))
    }

    fn bounds(&self, min: &str, max: &str) -> Result<CountBounds<usize>, InvalidField> {
        let bound = |keyword: &str| match self.fields.get(keyword) {
            None => Ok(None),
            Some(value) => {
                let count = value.as_u64().and_then(|count| usize::try_from(count).ok());
                count.map(Some).ok_or_else(|| self.wrong(keyword, "must be a whole number from 0 on"))
            }
        };
        Ok(CountBounds { min: bound(min)?, max: bound(max)? })
    }

    fn number(&self, keyword: &str) -> Result<Option<(Number, f64)>, InvalidField> {
        match self.fields.get(keyword) {
            None => Ok(None),
            Some(Value::Number(number)) => Ok(Some((number.clone(), number.as_f64().unwrap_or_default()))),
            Some(_) => Err(self.wrong(keyword, "must be a number")),
        }
    }

    fn texts(&self, keyword: &str) -> Result<Vec<String>, InvalidField> {
        let Some(list) = self.fields.get(keyword) else { return Ok(vec![]) };
        let texts = list.as_array().and_then(|list| {
            list.iter().map(|one| one.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
        });
        texts.ok_or_else(|| self.wrong(keyword, "must be a list of texts"))
    }

    fn node(&self, keyword: &str) -> Result<Option<Box<SchemaNode>>, InvalidField> {
        let place = || format!("{}.{keyword}", self.place);
        let parse = |value| SchemaNode::parse(value, &place(), self.parts).map(Box::new);
        self.fields.get(keyword).map(parse).transpose()
    }

    fn list(&self, keyword: &str) -> Result<Vec<SchemaNode>, InvalidField> {
        let Some(list) = self.fields.get(keyword) else { return Ok(vec![]) };
        let list = list.as_array().filter(|list| !list.is_empty());
        let list = list.ok_or_else(|| self.wrong(keyword, "must be a list with at least one schema"))?;
        let parse = |(place, value)| {
            SchemaNode::parse(value, &format!("{}.{keyword}[{place}]", self.place), self.parts)
        };
        list.iter().enumerate().map(parse).collect()
    }

    fn named(&self, keyword: &str) -> Result<BTreeMap<String, SchemaNode>, InvalidField> {
        let Some(object) = self.fields.get(keyword) else { return Ok(BTreeMap::new()) };
        let object = object.as_object().ok_or_else(|| self.wrong(keyword, "must be an object of schemas"))?;
        let parse = |(name, value): (&String, &Value)| {
            let place = format!("{}.{keyword}.{name}", self.place);
            Ok((name.clone(), SchemaNode::parse(value, &place, self.parts)?))
        };
        object.iter().map(parse).collect()
    }

    fn reference(&self) -> Result<Option<String>, InvalidField> {
        match self.fields.get("$ref") {
            None => Ok(None),
            Some(value) => {
                let name = value
                    .as_str()
                    .and_then(|text| text.strip_prefix(DEFINITION))
                    .filter(|name| !name.contains('/'));
                let fix =
                    format!("must refer to a definition of the same schema, such as {DEFINITION}address");
                name.map(|name| Some(name.to_owned())).ok_or_else(|| self.wrong("$ref", fix))
            }
        }
    }
}
