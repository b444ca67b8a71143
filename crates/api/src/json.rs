//! Reading JSON bodies, with errors that name the field and say what would be right.
//!
//! The straight way is plain serde. Only when it fails is the body read a second time, with a path kept, so
//! that good requests do not pay for the errors of bad ones.

use crate::error::ApiError;
use crate::suggest;
use punctual_client::FieldError;
use serde::Deserialize;
use serde_json::error::Category;

/// Fields of a job that are planned and not built yet: naming them as such beats "unknown field".
const PLANNED_FIELDS: [&str; 13] = [
    "rrule",
    "overlap_limit",
    "max_open",
    "calendar",
    "expires_at",
    "expires_after",
    "idempotency_key",
    "unique_key",
    "depends_on",
    "concurrency_key",
    "notify",
    "retry.fail_on",
    "retry.timeout_growth",
];

pub fn parse<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, ApiError> {
    // serde would also read a struct from an array, field by field in an order that nobody knows.
    let opening = text.iter().find(|byte| !byte.is_ascii_whitespace());
    if opening.is_some_and(|byte| *byte == b'[') {
        return Err(ApiError::MalformedJson("the body must be a JSON object, not an array".to_owned()));
    }
    serde_json::from_slice(text).map_err(|error| explain::<T>(text, error))
}

fn explain<'a, T: Deserialize<'a>>(text: &'a [u8], error: serde_json::Error) -> ApiError {
    if error.classify() != Category::Data {
        return ApiError::MalformedJson(error.to_string());
    }
    let mut reader = serde_json::Deserializer::from_slice(text);
    let path = match serde_path_to_error::deserialize::<_, T>(&mut reader) {
        Ok(_) => String::new(),
        Err(traced) => traced.path().to_string(),
    };
    let position = format!(" (line {} column {})", error.line(), error.column());
    let message = error.to_string();
    let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
    let FieldError { field, detail } = field_error(&path, message);
    ApiError::field(field, detail + &position)
}

/// What a message of serde says about the field at this path.
fn field_error(path: &str, message: &str) -> FieldError {
    let parent = if path == "." { "" } else { path };
    if let Some(name) = quoted_after(message, "missing field `") {
        return FieldError { field: child(parent, name), detail: "is required".to_owned() };
    }
    if let Some(name) = quoted_after(message, "unknown field `") {
        return unknown_field(parent, name, message);
    }
    if let Some(name) = quoted_after(message, "duplicate field `") {
        return FieldError { field: child(parent, name), detail: "is given twice".to_owned() };
    }
    let field = if parent.is_empty() { "body".to_owned() } else { parent.to_owned() };
    FieldError { field, detail: requirement(message) }
}

fn unknown_field(path: &str, name: &str, message: &str) -> FieldError {
    let field = child(path, name);
    if PLANNED_FIELDS.contains(&strip_index(&field)) {
        return FieldError { field, detail: "is not supported yet".to_owned() };
    }
    let known = message.split('`').skip(3).step_by(2);
    let detail = match suggest::closest(name, known) {
        Some(meant) => format!("is not a known field, did you mean {meant}?"),
        None => "is not a known field".to_owned(),
    };
    FieldError { field, detail }
}

/// The field without the place of its job in a batch.
fn strip_index(field: &str) -> &str {
    match field.strip_prefix("jobs[").and_then(|rest| rest.split_once("].")) {
        Some((_, field)) => field,
        None => field,
    }
}

/// Turns serde's "invalid type: X, expected Y" into what would be right.
fn requirement(message: &str) -> String {
    for prefix in ["invalid type: ", "invalid value: ", "invalid length "] {
        if let Some((given, expected)) =
            message.strip_prefix(prefix).and_then(|rest| rest.split_once(", expected "))
        {
            let expected = if expected.starts_with("struct ") { "an object" } else { expected };
            return format!("must be {expected}, not {given}");
        }
    }
    if let Some((given, expected)) =
        message.strip_prefix("unknown variant ").and_then(|rest| rest.split_once(", expected "))
    {
        return format!("must be {}, not {given}", expected.replace('`', "")).replace('`', "");
    }
    match message {
        complete if complete.starts_with("must ") => complete.to_owned(),
        negative if negative.starts_with("not ") => format!("is {negative}"),
        other => format!("is not valid: {other}"),
    }
}

fn quoted_after<'a>(message: &'a str, prefix: &str) -> Option<&'a str> {
    message.strip_prefix(prefix)?.split('`').next()
}

/// `parent.name`, unless the path leads to the name already.
fn child(parent: &str, name: &str) -> String {
    if parent.is_empty() || parent == name {
        name.to_owned()
    } else if parent.strip_suffix(name).is_some_and(|rest| rest.ends_with('.')) {
        parent.to_owned()
    } else {
        format!("{parent}.{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_client::{BatchRequest, SubmitJob};

    fn check<'a, T: Deserialize<'a>>(text: &'a str, field: &str, detail: &str) {
        match parse::<T>(text.as_bytes()).map(|_| ()) {
            Err(ApiError::InvalidFields(errors)) => {
                let found = &errors[0];
                let said = found.detail.split(" (line").next().unwrap_or_default();
                assert_eq!((found.field.as_str(), said), (field, detail), "{text}");
            }
            other => panic!("{text} gave {other:?}"),
        }
    }

    #[test]
    fn errors_name_the_field_and_what_would_be_right() {
        check::<SubmitJob>("{}", "name", "is required");
        check::<SubmitJob>(r#"{"name":5}"#, "name", "must be a string, not integer `5`");
        check::<SubmitJob>(
            r#"{"name":"x","pirority":5}"#,
            "pirority",
            "is not a known field, did you mean priority?",
        );
        check::<SubmitJob>(r#"{"name":"x","zzz":5}"#, "zzz", "is not a known field");
        check::<SubmitJob>(r#"{"name":"x","rrule":"x"}"#, "rrule", "is not supported yet");
        check::<SubmitJob>(r#"{"name":"x","name":"y"}"#, "name", "is given twice");
        check::<SubmitJob>(
            r#"{"name":"x","priority":11}"#,
            "priority",
            "must be a number from 1 to 10, or low, medium or high",
        );
        check::<SubmitJob>(
            r#"{"name":"x","delay":"soon"}"#,
            "delay",
            "must be a duration such as 30s, 5m, 1h30m, 1d or PT3H",
        );
        check::<SubmitJob>(
            r#"{"name":"x","execute_at":"tomorrow"}"#,
            "execute_at",
            "is not an RFC 3339 time such as 2026-11-15T08:30:00Z: tomorrow",
        );
        check::<SubmitJob>(
            r#"{"name":"x","overlap_policy":"QUEUE"}"#,
            "overlap_policy",
            "must be SKIP or ALLOW, not QUEUE",
        );
    }

    #[test]
    fn errors_name_fields_inside_of_others() {
        check::<SubmitJob>(
            r#"{"name":"x","retry":{"steps":["1m","x"]}}"#,
            "retry.steps[1]",
            "must be a duration such as 30s, 5m, 1h30m, 1d or PT3H",
        );
        check::<SubmitJob>(r#"{"name":"x","retry":{"fail_on":[]}}"#, "retry.fail_on", "is not supported yet");
        check::<BatchRequest>(
            r#"{"jobs":[{"name":"a"},{"name":"b","payload":{"x":1},"rrule":"FREQ=DAILY"}]}"#,
            "jobs[1].rrule",
            "is not supported yet",
        );
    }

    #[test]
    fn broken_json_is_told_with_its_position() {
        for (text, position) in
            [("{", "line 1 column 1"), ("{\"name\":}", "line 1 column 9"), ("", "line 1 column 0")]
        {
            match parse::<SubmitJob>(text.as_bytes()) {
                Err(ApiError::MalformedJson(detail)) => assert!(detail.contains(position), "{detail}"),
                other => panic!("{text} gave {other:?}"),
            }
        }
        assert!(matches!(parse::<SubmitJob>(b"[\"x\"]"), Err(ApiError::MalformedJson(_))));
    }
}
