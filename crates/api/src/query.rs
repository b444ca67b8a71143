//! Query parameters. Unknown names are errors, so that a misspelled filter does not return everything.

use crate::Api;
use crate::cursors::{self, place_in};
use crate::error::ApiError;
use crate::suggest;
use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use punctual_client::{FieldError, time_fix};
use punctual_core::limits;
use punctual_core::time::{Timestamp, TimestampProblem};
use serde_json::{Map, Value};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Parameters with a position in a list.
const CURSORS: [&str; 2] = ["cursor", "before"];

/// The parameters of a request, taken out one by one. Parameters that are left at the end are unknown.
pub struct QueryParams {
    pairs: Vec<(String, String)>,
    known: Vec<&'static str>,
    errors: Vec<FieldError>,
}

impl FromRequestParts<Api> for QueryParams {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let Query(mut pairs) = Query::<Vec<(String, String)>>::from_request_parts(parts, api)
            .await
            .map_err(|rejection| invalid("query", format!("is not readable: {}", rejection.body_text())))?;
        for (_, value) in pairs.iter_mut().filter(|(name, _)| CURSORS.contains(&name.as_str())) {
            *value = cursors::opened(api, std::mem::take(value)).await?;
        }
        Ok(QueryParams { pairs, known: vec![], errors: vec![] })
    }
}

fn invalid(field: &str, detail: String) -> ApiError {
    ApiError::InvalidQuery(vec![FieldError { field: field.to_owned(), detail }])
}

impl QueryParams {
    /// The fields of an object, as if they were parameters: a list is a parameter that is repeated, null is none, and
    /// the fields of an object have names with dots.
    pub fn of_object(fields: &Map<String, Value>) -> Self {
        let mut pairs = Vec::new();
        for (name, value) in fields {
            add_pairs(&mut pairs, name, value);
        }
        QueryParams { pairs, known: vec![], errors: vec![] }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// All errors in the fields of an object in a body, if any.
    pub fn finish_in(self, object: &str) -> Result<(), ApiError> {
        self.finish().map_err(|error| match error {
            ApiError::InvalidQuery(errors) => {
                let named =
                    |error: FieldError| FieldError { field: format!("{object}.{}", error.field), ..error };
                ApiError::InvalidFields(errors.into_iter().map(named).collect())
            }
            other => other,
        })
    }

    pub fn text(&mut self, name: &'static str) -> Option<String> {
        self.known.push(name);
        let place = self.pairs.iter().position(|(key, _)| key == name)?;
        let (_, value) = self.pairs.swap_remove(place);
        if self.pairs.iter().any(|(key, _)| key == name) {
            self.error(name, "is given twice".to_owned());
            self.pairs.retain(|(key, _)| key != name);
        }
        Some(value)
    }

    /// All values of a repeatable parameter.
    pub fn texts(&mut self, name: &'static str, most: usize) -> Vec<String> {
        self.known.push(name);
        let (named, rest): (Vec<_>, Vec<_>) = self.pairs.drain(..).partition(|(key, _)| key == name);
        self.pairs = rest;
        if named.len() > most {
            self.error(name, format!("must be given at most {most} times"));
        }
        named.into_iter().map(|(_, value)| value).collect()
    }

    /// All parameters whose names consist of a prefix and a field, such as `payload.FIELD`, by field.
    pub fn fields(&mut self, name: &'static str, most: usize) -> Vec<(String, String)> {
        self.known.push(name);
        let prefix = name.trim_end_matches(char::is_uppercase);
        let (named, rest): (Vec<_>, Vec<_>) =
            self.pairs.drain(..).partition(|(key, _)| key.starts_with(prefix));
        self.pairs = rest;
        if named.len() > most {
            self.error(name, format!("must be given at most {most} times"));
        }
        named.into_iter().map(|(key, value)| (key[prefix.len()..].to_owned(), value)).collect()
    }

    pub fn parsed<T: FromStr<Err: Display>>(&mut self, name: &'static str) -> Option<T> {
        let text = self.text(name)?;
        match text.parse() {
            Ok(value) => Some(value),
            Err(error) => {
                let said = error.to_string();
                let is_bare = said.starts_with("not ");
                self.error(name, if is_bare { format!("is {said}") } else { said });
                None
            }
        }
    }

    pub fn time(&mut self, name: &'static str) -> Option<Timestamp> {
        let text = self.text(name)?;
        // A plus sign in a query is a space: an offset such as +01:00 arrives as one.
        let with_offset = text.replace(' ', "+");
        let time: Result<Timestamp, _> = with_offset.parse();
        if let Err(error) = &time {
            let is_malformed = error.problem == TimestampProblem::Malformed;
            self.error(name, time_fix(if is_malformed { &text } else { &with_offset }));
        }
        time.ok()
    }

    /// A word of an enum, as in JSON but case-insensitive: people type `active`.
    pub fn word<T: serde::de::DeserializeOwned>(&mut self, name: &'static str) -> Option<T> {
        type Word<'a> = serde::de::value::StrDeserializer<'a, serde::de::value::Error>;
        let text = self.text(name)?;
        let upper = T::deserialize(Word::new(&text.to_ascii_uppercase()));
        match upper.or_else(|_| T::deserialize(Word::new(&text.to_ascii_lowercase()))) {
            Ok(value) => Some(value),
            Err(error) => {
                let said = error.to_string();
                let expected = said.split_once(", expected ").map_or(said.as_str(), |(_, expected)| expected);
                self.error(name, format!("must be {}", expected.replace('`', "")));
                None
            }
        }
    }

    /// All words of a repeatable parameter.
    pub fn words<T: serde::de::DeserializeOwned>(&mut self, name: &'static str, most: usize) -> Vec<T> {
        let mut words = Vec::new();
        for text in self.texts(name, most) {
            self.pairs.push((name.to_owned(), text));
            words.extend(self.word(name));
        }
        words
    }

    /// A number within bounds.
    pub fn number(&mut self, name: &'static str, bounds: RangeInclusive<usize>) -> Option<usize> {
        let number = self.text(name)?.parse().ok().filter(|number| bounds.contains(number));
        if number.is_none() {
            self.error(name, format!("must be a number from {} to {}", bounds.start(), bounds.end()));
        }
        number
    }

    /// A boolean.
    pub fn flag(&mut self, name: &'static str) -> Option<bool> {
        let text = self.text(name)?;
        match text.as_str() {
            "true" => Some(true),
            "false" => Some(false),
            _ => {
                self.error(name, "must be true or false".to_owned());
                None
            }
        }
    }

    /// Rejects a parameter for a reason that only the route knows.
    pub fn refuse(&mut self, name: &str, detail: &str) {
        self.error(name, detail.to_owned());
    }

    /// The page size.
    pub fn limit(&mut self) -> usize {
        let Some(text) = self.text("limit") else { return limits::PAGE_ITEMS_DEFAULT };
        match text.parse() {
            Ok(limit @ 1..=limits::PAGE_ITEMS_MAX) => limit,
            _ => {
                self.error("limit", format!("must be a number from 1 to {}", limits::PAGE_ITEMS_MAX));
                limits::PAGE_ITEMS_DEFAULT
            }
        }
    }

    /// The same for lists that are usually short: the default is the maximum page size.
    pub fn limit_or_most(&mut self) -> usize {
        self.number("limit", 1..=limits::PAGE_ITEMS_MAX).unwrap_or(limits::PAGE_ITEMS_MAX)
    }

    /// The position at which the previous page ended, if the cursor belongs to this list.
    pub fn cursor<T: FromStr>(&mut self, list: &str) -> Option<T> {
        self.cursor_from(list, "must be a next_cursor of this same list")
    }

    /// The same for cursors of something other than a paged list; `fix` says where its cursors come from.
    pub fn cursor_from<T: FromStr>(&mut self, list: &str, fix: &str) -> Option<T> {
        self.cursor_in("cursor", list, fix)
    }

    /// A position in this list under another name.
    pub fn cursor_in<T: FromStr>(&mut self, name: &'static str, list: &str, fix: &str) -> Option<T> {
        let text = self.text(name)?;
        let parsed = place_in(list, &text);
        if parsed.is_none() {
            self.error(name, fix.to_owned());
        }
        parsed
    }

    /// All errors in the parameters, if any.
    pub fn finish(mut self) -> Result<(), ApiError> {
        for (name, _) in std::mem::take(&mut self.pairs) {
            let detail = match suggest::closest(&name, self.known.iter().copied()) {
                Some(meant) => format!("is not a known parameter, did you mean {meant}?"),
                None if self.known.is_empty() => "is not a known parameter; there are none".to_owned(),
                None => format!("is not a known parameter; known are {}", self.known.join(", ")),
            };
            self.errors.push(FieldError { field: name, detail });
        }
        if self.errors.is_empty() { Ok(()) } else { Err(ApiError::InvalidQuery(self.errors)) }
    }

    fn error(&mut self, name: &str, detail: String) {
        self.errors.push(FieldError { field: name.to_owned(), detail });
    }
}

fn add_pairs(pairs: &mut Vec<(String, String)>, name: &str, value: &Value) {
    match value {
        Value::Null => {}
        Value::String(text) => pairs.push((name.to_owned(), text.clone())),
        Value::Array(items) => items.iter().for_each(|item| add_pairs(pairs, name, item)),
        Value::Object(fields) => {
            fields.iter().for_each(|(field, value)| add_pairs(pairs, &format!("{name}.{field}"), value));
        }
        scalar => pairs.push((name.to_owned(), scalar.to_string())),
    }
}

/// The items after one, up to `limit`, and the last of them if there are more. The input is sorted.
pub fn page_after<T: Ord + Copy>(
    items: impl IntoIterator<Item = T>,
    after: Option<T>,
    limit: usize,
) -> (Vec<T>, Option<T>) {
    let mut rest = items.into_iter().filter(|item| after.is_none_or(|after| *item > after));
    let page: Vec<T> = rest.by_ref().take(limit).collect();
    let next = rest.next().and(page.last().copied());
    (page, next)
}
