//! The comparison of a payload with a schema.

use super::{CountBounds, PayloadSchema, SchemaNode};
use crate::job::InvalidField;
use crate::limits;
use serde_json::{Map, Number, Value};

/// Values of an enumeration that an error lists.
const LISTED_MAX: usize = 10;
/// References that may lead to others without a step into the payload.
const DEPTH_MAX: u32 = 200;

/// A comparison under way.
pub(super) struct SchemaCheck<'a> {
    schema: &'a PayloadSchema,
    steps: u64,
    depth: u32,
}

impl<'a> SchemaCheck<'a> {
    pub(super) fn new(schema: &'a PayloadSchema) -> Self {
        SchemaCheck { schema, steps: 0, depth: 0 }
    }

    /// Whether it was given up.
    pub(super) fn is_exhausted(&self) -> bool {
        self.steps > limits::SCHEMA_STEPS_MAX
    }

    /// Counts steps, and gives the check up after too many.
    fn take(&mut self, steps: u64) -> Result<(), InvalidField> {
        self.steps = self.steps.saturating_add(steps);
        if self.is_exhausted() {
            return Err(InvalidField::new("payload", "is not compared any further"));
        }
        Ok(())
    }

    pub(super) fn node(&mut self, node: &SchemaNode, value: &Value, path: &str) -> Result<(), InvalidField> {
        self.take(if self.depth > DEPTH_MAX { u64::MAX } else { visit_steps(node, value, path) })?;
        if is_secret(value) {
            return Ok(());
        }
        let wrong = |fix: String| InvalidField::new(path, fix);
        if node.is_never {
            return Err(wrong("is not allowed".to_owned()));
        }
        if !node.types.is_empty() && !node.types.iter().any(|one| has_type(value, one)) {
            return Err(wrong(format!("must be {}", type_words(&node.types))));
        }
        if let Some(values) = &node.values
            && !values.iter().any(|one| is_same(one, value))
        {
            let listed: Vec<String> = values.iter().take(LISTED_MAX).map(Value::to_string).collect();
            let more = if values.len() > LISTED_MAX { ", …" } else { "" };
            return Err(wrong(format!("must be {}{more}", listed.join(" or "))));
        }
        match value {
            Value::String(text) => {
                let length = count_problem(node.length, text.chars().count(), "character", "characters");
                if let Some(fix) = length {
                    return Err(wrong(fix));
                }
                self.take(node.pattern.as_ref().map_or(0, |pattern| pattern.steps(text)))?;
                text_problem(node, text).map_or(Ok(()), |fix| Err(wrong(fix)))?;
            }
            Value::Number(number) => number_problem(node, number).map_or(Ok(()), |fix| Err(wrong(fix)))?,
            Value::Array(items) => self.items(node, items, path)?,
            Value::Object(members) => self.members(node, members, path)?,
            Value::Null | Value::Bool(_) => {}
        }
        self.combined(node, value, path)
    }

    /// A schema that applies to the same value.
    fn deeper(&mut self, node: &SchemaNode, value: &Value, path: &str) -> Result<(), InvalidField> {
        self.depth += 1;
        let outcome = self.node(node, value, path);
        self.depth -= 1;
        outcome
    }

    fn combined(&mut self, node: &SchemaNode, value: &Value, path: &str) -> Result<(), InvalidField> {
        if let Some(definition) = node.reference.as_ref().and_then(|name| self.schema.definitions.get(name)) {
            self.deeper(definition, value, path)?;
        }
        for part in &node.all_of {
            self.deeper(part, value, path)?;
        }
        if !node.any_of.is_empty() {
            let mut problems = Vec::new();
            for part in &node.any_of {
                match self.deeper(part, value, path) {
                    Ok(()) => {
                        problems.clear();
                        break;
                    }
                    Err(problem) => problems.push(problem),
                }
            }
            // Of several alternatives, the one that got furthest was probably meant.
            if let Some(problem) = problems.into_iter().max_by_key(|problem| problem.field.len()) {
                return Err(InvalidField::new(
                    problem.field,
                    format!("{} (in one of several allowed forms)", problem.fix),
                ));
            }
        }
        if !node.one_of.is_empty() {
            let mut problems = Vec::new();
            for part in &node.one_of {
                problems.extend(self.deeper(part, value, path).err());
            }
            match node.one_of.len() - problems.len() {
                1 => {}
                0 => {
                    let problem = problems.into_iter().max_by_key(|problem| problem.field.len());
                    let problem = problem.unwrap_or_else(|| InvalidField::new(path, "does not match"));
                    return Err(InvalidField::new(
                        problem.field,
                        format!("{} (in one of several allowed forms)", problem.fix),
                    ));
                }
                count => {
                    return Err(InvalidField::new(
                        path,
                        format!("matches {count} of the allowed forms, and must match one"),
                    ));
                }
            }
        }
        match &node.not {
            Some(not) if self.deeper(not, value, path).is_ok() => {
                Err(InvalidField::new(path, "has a form that the schema excludes"))
            }
            _ => Ok(()),
        }
    }

    fn items(&mut self, node: &SchemaNode, items: &[Value], path: &str) -> Result<(), InvalidField> {
        let wrong = |fix: String| Err(InvalidField::new(path, fix));
        if let Some(fix) = count_problem(node.item_count, items.len(), "item", "items") {
            return wrong(fix);
        }
        for (place, item) in items.iter().enumerate() {
            let schema = node.prefix.get(place).or(node.items.as_deref());
            if let Some(schema) = schema {
                self.node(schema, item, &format!("{path}[{place}]"))?;
            }
        }
        if let Some(schema) = &node.contains {
            let mut is_found = false;
            for item in items {
                is_found = is_found || self.node(schema, item, path).is_ok();
            }
            if !is_found {
                return wrong("must contain an item of the form that the schema demands".to_owned());
            }
        }
        if node.has_unique_items {
            self.take((items.len() * items.len() / 8) as u64)?;
            let mut places = items.iter().enumerate();
            if places.any(|(place, item)| items[..place].iter().any(|other| is_same(item, other))) {
                return wrong("must not contain an item twice".to_owned());
            }
        }
        Ok(())
    }

    fn members(
        &mut self,
        node: &SchemaNode,
        members: &Map<String, Value>,
        path: &str,
    ) -> Result<(), InvalidField> {
        let at = |name: &str| format!("{path}.{name}");
        if let Some(missing) = node.required.iter().find(|name| !members.contains_key(*name)) {
            return Err(InvalidField::new(at(missing), "is missing"));
        }
        for (name, others) in node.dependent.iter().filter(|(name, _)| members.contains_key(*name)) {
            if let Some(missing) = others.iter().find(|other| !members.contains_key(*other)) {
                return Err(InvalidField::new(at(missing), format!("is missing, and needed with {name}")));
            }
        }
        for (name, value) in members {
            if let Some(names) = &node.names {
                self.node(names, &Value::from(name.as_str()), &at(name))?;
            }
            match (node.properties.get(name), &node.additional) {
                (Some(schema), _) => self.node(schema, value, &at(name))?,
                (None, Some(schema)) if schema.is_never => {
                    let known: Vec<&str> = node.properties.keys().map(String::as_str).collect();
                    return Err(InvalidField::new(
                        at(name),
                        format!("is unknown; known are {}", known.join(", ")),
                    ));
                }
                (None, Some(schema)) => self.node(schema, value, &at(name))?,
                (None, None) => {}
            }
        }
        match count_problem(node.member_count, members.len(), "member", "members") {
            Some(fix) => Err(InvalidField::new(path, fix)),
            None => Ok(()),
        }
    }
}

/// The steps to compare a value with one schema, without its parts.
fn visit_steps(node: &SchemaNode, value: &Value, path: &str) -> u64 {
    let (texts, items) = match value {
        Value::String(text) => (text.len(), 0),
        Value::Array(items) => (0, items.len()),
        Value::Object(members) => (0, members.len()),
        Value::Null | Value::Bool(_) | Value::Number(_) => (0, 0),
    };
    let texts = (texts + path.len() + node.data_bytes) / limits::SCHEMA_TEXT_BYTES_PER_STEP;
    (1 + texts + items / limits::SCHEMA_ITEMS_PER_STEP) as u64
}

/// Whether a value is a reference to a secret.
fn is_secret(value: &Value) -> bool {
    value
        .as_object()
        .is_some_and(|members| members.len() == 1 && members.get("$secret").is_some_and(Value::is_string))
}

fn has_type(value: &Value, word: &str) -> bool {
    match (word, value) {
        ("integer", Value::Number(number)) => {
            number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|number| number.fract() == 0.0)
        }
        ("object", Value::Object(_)) | ("array", Value::Array(_)) | ("string", Value::String(_)) => true,
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) | ("null", Value::Null) => true,
        _ => false,
    }
}

fn type_words(types: &[String]) -> String {
    let word = |word: &String| match word.as_str() {
        "object" => "an object",
        "array" => "a list",
        "string" => "a string",
        "number" => "a number",
        "integer" => "a whole number",
        "boolean" => "true or false",
        _ => "null",
    };
    types.iter().map(word).collect::<Vec<_>>().join(" or ")
}

/// Numbers are compared by value: 1 and 1.0 are the same.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, value)| other.get(name).is_some_and(|other| is_same(value, other)))
        }
        _ => one == other,
    }
}

fn count_problem(bounds: CountBounds<usize>, count: usize, one: &str, many: &str) -> Option<String> {
    let noun = |bound: usize| if bound == 1 { one.to_owned() } else { many.to_owned() };
    match (bounds.min, bounds.max) {
        (Some(min), _) if count < min => Some(format!("must have at least {min} {}", noun(min))),
        (_, Some(max)) if count > max => Some(format!("must have at most {max} {}", noun(max))),
        _ => None,
    }
}

fn text_problem(node: &SchemaNode, text: &str) -> Option<String> {
    let pattern = || {
        let pattern = node.pattern.as_ref().filter(|pattern| !pattern.is_match(text))?;
        Some(format!("must match the pattern {}", pattern.text))
    };
    let format = || {
        let (is_valid, example) = match node.format.as_deref()? {
            "date-time" => (text.parse::<jiff::Timestamp>().is_ok(), "a time such as 2026-11-15T08:30:00Z"),
            "date" => (text.parse::<jiff::civil::Date>().is_ok(), "a date such as 2026-11-15"),
            "email" => (is_email(text), "an email address such as ada@example.com"),
            "uuid" => (uuid::Uuid::parse_str(text).is_ok(), "a UUID"),
            _ => (url::Url::parse(text).is_ok(), "a URI such as https://example.com/"),
        };
        (!is_valid).then(|| format!("must be {example}"))
    };
    pattern().or_else(format)
}

/// Whether a text has the form of an address. Whether it receives mail, only mail can tell.
fn is_email(text: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && !part.contains(|char: char| char.is_whitespace());
    text.rsplit_once('@').is_some_and(|(local, host)| is_part(local) && is_part(host))
}

fn number_problem(node: &SchemaNode, number: &Number) -> Option<String> {
    let value = number.as_f64().unwrap_or_default();
    let at_least = node.at_least.as_ref().filter(|(_, bound)| value < *bound);
    let at_most = node.at_most.as_ref().filter(|(_, bound)| value > *bound);
    let above = node.above.as_ref().filter(|(_, bound)| value <= *bound);
    let below = node.below.as_ref().filter(|(_, bound)| value >= *bound);
    let bounds = [("at least", at_least), ("at most", at_most), ("above", above), ("below", below)];
    let bound = bounds
        .into_iter()
        .find_map(|(word, bound)| bound.map(|(number, _)| format!("must be {word} {number}")));
    let multiple = || {
        let step = node.multiple_of?;
        let rest = (value / step).fract().abs();
        (rest > 1e-9 && rest < 1.0 - 1e-9).then(|| format!("must be a multiple of {step}"))
    };
    bound.or_else(multiple)
}
