//! Parses JSON bodies, with errors that name the field and the expected value.
//!
//! The fast path is plain serde. Only when it fails is the body parsed a second time, with path tracking, so
//! that valid requests do not pay for the error messages of invalid ones.

use crate::error::{ApiError, BODY};
use crate::suggest;
use punctual_client::{FieldError, SubmitJob, time_fix};
use punctual_core::limits;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::error::Category;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// How many fields of a job that cannot be parsed an error names. A job could have any number of unknown ones.
const FIELD_ERRORS_MAX: usize = 20;

/// Names used by other schedulers, with ours: they differ too much to be suggested as misspellings.
const SYNONYMS: [(&str, &str); 8] = [
    ("at", "execute_at"),
    ("cron", "cron_expression"),
    ("every", "interval"),
    ("owner", "owner_id"),
    ("retries", "max_retries"),
    ("run_at", "execute_at"),
    ("timeout", "timeout_secs"),
    ("type", "job_type"),
];

/// What a text should contain. All of these are objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentShape {
    Job,
    Batch,
    /// The schedule fields of a job, for a preview.
    Schedule,
    ClockMove,
    /// A job inside a batch: positions in its own text would mislead the sender of the batch.
    JobOfBatch,
    /// The fields of a job to change.
    Patch,
    /// A job with a patch applied: the client did not send this text.
    PatchedJob,
    /// Dead letters to act on.
    DeadLetters,
    /// An action on everything that a filter selects.
    Bulk,
    /// A pause of the cluster.
    Pause,
    /// The settings of a queue.
    Queue,
    Token,
    /// The fields of a token to change.
    TokenPatch,
    /// A token with a patch applied: the client did not send this text.
    PatchedToken,
    User,
    /// The fields of a user to change.
    UserPatch,
    /// A user with a patch applied: the client did not send this text.
    PatchedUser,
    /// The value and rules of a secret.
    Secret,
    /// A channel of notifications, which may have secrets.
    Channel,
    /// A request of the worker protocol.
    Worker,
    /// The optional arguments of a verb.
    Verb,
    /// Any other object.
    Object,
}

pub fn parse<'a, T: Deserialize<'a>>(text: &'a [u8], shape: DocumentShape) -> Result<T, ApiError> {
    // serde would also read a struct from an array, by field order, which is not part of the API.
    let opening = text.iter().find(|byte| !byte.is_ascii_whitespace());
    if opening.is_some_and(|byte| *byte != b'{') {
        return Err(match serde_json::from_slice::<IgnoredAny>(text) {
            Ok(_) => wrong_shape(shape),
            Err(error) => ApiError::MalformedJson(error.to_string()),
        });
    }
    serde_json::from_slice(text).map_err(|error| explain::<T>(text, error, shape))
}

/// A job. If it cannot be parsed, the error names every field for which that is so.
pub fn parse_job(text: &[u8], shape: DocumentShape) -> Result<SubmitJob, ApiError> {
    parse(text, shape).map_err(|mut error| {
        if let ApiError::InvalidFields(errors) = &mut error {
            for other in unparsable(text) {
                if errors.len() < FIELD_ERRORS_MAX && errors.iter().all(|known| known.field != other.field) {
                    errors.push(other);
                }
            }
        }
        error
    })
}

/// The members of an object.
type ObjectMembers<'a> = BTreeMap<String, &'a RawValue>;

/// The first fields of a job that cannot be parsed, found by parsing each of them alone.
fn unparsable(text: &[u8]) -> Vec<FieldError> {
    let Ok(mut fields) = serde_json::from_slice::<ObjectMembers>(text) else { return vec![] };
    let name = fields.remove("name").map_or_else(String::new, |name| format!("\"name\":{name}"));
    let retry = fields.get("retry").and_then(|retry| serde_json::from_str::<ObjectMembers>(retry.get()).ok());
    if retry.is_some() {
        fields.remove("retry");
    }
    let alone = |(field, value): (String, &RawValue)| format!("{}:{value}", Value::from(field));
    let in_retry = retry.into_iter().flatten().map(|field| format!("\"retry\":{{{}}}", alone(field)));
    let others = fields.into_iter().map(alone).chain(in_retry).map(|field| format!("\"name\":\"x\",{field}"));
    let errors_of = |fields: String| match parse::<SubmitJob>(
        format!("{{{fields}}}").as_bytes(),
        DocumentShape::JobOfBatch,
    ) {
        Err(ApiError::InvalidFields(errors)) => errors,
        _ => vec![],
    };
    std::iter::once(name).chain(others).flat_map(errors_of).take(FIELD_ERRORS_MAX).collect()
}

fn wrong_shape(shape: DocumentShape) -> ApiError {
    match shape {
        DocumentShape::Job => ApiError::WrongShape {
            title: "the body is not a job",
            detail: "send one job as a JSON object, such as {\"name\": \"hello\"}, or many as {\"jobs\": […]} \
                     to /api/v1/jobs/batch",
        },
        DocumentShape::Batch => ApiError::WrongShape {
            title: "the body is not a batch of jobs",
            detail: "send the jobs as a JSON object: {\"jobs\": […]}",
        },
        DocumentShape::Schedule => ApiError::WrongShape {
            title: "the body is not a schedule",
            detail: "send the schedule fields of a job as a JSON object, such as {\"cron_expression\": \"0 9 * * *\"}",
        },
        DocumentShape::ClockMove => ApiError::WrongShape {
            title: "the body does not say where to move the clock",
            detail: "send a JSON object such as {\"by\": \"1h\"} or {\"to\": \"2026-03-29T03:00:00Z\"}",
        },
        DocumentShape::Patch => ApiError::WrongShape {
            title: "the body is not a change of a job",
            detail: "send the fields to change as a JSON object, such as {\"priority\": 8}",
        },
        DocumentShape::DeadLetters => ApiError::WrongShape {
            title: "the body does not name dead letters",
            detail: "send {\"ids\": […]} or {\"filter\": {…}}",
        },
        DocumentShape::Bulk => ApiError::WrongShape {
            title: "the body does not say what to do",
            detail: "send a JSON object such as {\"action\": \"pause\", \"filter\": {\"queue\": \"mail\"}}",
        },
        DocumentShape::Pause => ApiError::WrongShape {
            title: "the body does not say why to pause",
            detail: "send a JSON object such as {\"reason\": \"database upgrade\"}",
        },
        DocumentShape::Queue => ApiError::WrongShape {
            title: "the body is not the settings of a queue",
            detail: "send them as a JSON object, such as {\"max_depth\": 10000}",
        },
        DocumentShape::TokenPatch => ApiError::WrongShape {
            title: "the body is not a change of a token",
            detail: "send the fields to change as a JSON object, such as {\"role\": \"viewer\"}",
        },
        DocumentShape::Token | DocumentShape::PatchedToken => ApiError::WrongShape {
            title: "the body is not a token",
            detail: "send a JSON object, such as {\"name\": \"deploy\", \"role\": \"submitter\"}",
        },
        DocumentShape::User | DocumentShape::PatchedUser => ApiError::WrongShape {
            title: "the body is not a user",
            detail: "send a JSON object, such as {\"email\": \"ann@example.org\", \"role\": \"operator\"}",
        },
        DocumentShape::UserPatch => ApiError::WrongShape {
            title: "the body is not a change of a user",
            detail: "send the fields to change as a JSON object, such as {\"role\": \"viewer\"}",
        },
        DocumentShape::Secret => ApiError::WrongShape {
            title: "the body is not a secret",
            detail: "send a JSON object, such as {\"value\": \"…\", \"owners\": [\"team-mail\"]}",
        },
        DocumentShape::Channel => ApiError::WrongShape {
            title: "the body is not a channel",
            detail: "send a JSON object, such as {\"type\": \"webhook\", \"url\": \"https://example.org/hook\"}",
        },
        DocumentShape::Worker => ApiError::WrongShape {
            title: "the body is not an object",
            detail: "send a JSON object as docs/worker-protocol.md says",
        },
        DocumentShape::Verb => ApiError::WrongShape {
            title: "the body is not an object",
            detail: "send nothing, or a JSON object as the documentation of the route says",
        },
        DocumentShape::Object => ApiError::WrongShape {
            title: "the body is not an object",
            detail: "send a JSON object as the documentation of the route says",
        },
        DocumentShape::JobOfBatch | DocumentShape::PatchedJob => {
            ApiError::field(BODY, "must be an object, such as {\"name\": \"hello\"}")
        }
    }
}

fn explain<'a, T: Deserialize<'a>>(
    text: &'a [u8],
    error: serde_json::Error,
    shape: DocumentShape,
) -> ApiError {
    if error.classify() != Category::Data {
        return ApiError::MalformedJson(error.to_string());
    }
    let mut reader = serde_json::Deserializer::from_slice(text);
    let path = match serde_path_to_error::deserialize::<_, T>(&mut reader) {
        Ok(_) => String::new(),
        Err(traced) => traced.path().to_string(),
    };
    let position = match shape {
        DocumentShape::JobOfBatch
        | DocumentShape::PatchedJob
        | DocumentShape::PatchedToken
        | DocumentShape::PatchedUser => String::new(),
        _ => format!(" (line {} column {})", error.line(), error.column()),
    };
    let message = error.to_string();
    let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
    let FieldError { field, mut detail } = field_error(&path, message);
    if matches!(shape, DocumentShape::Secret | DocumentShape::Channel) {
        // What was given instead may be the value of the secret.
        detail.truncate(detail.find(", not ").unwrap_or(detail.len()));
    }
    ApiError::field(field, detail + &position)
}

/// Turns a serde message about the field at this path into a field error.
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
    let field = if parent.is_empty() { BODY.to_owned() } else { parent.to_owned() };
    let detail = requirement(&field, message);
    FieldError { field, detail }
}

fn unknown_field(path: &str, name: &str, message: &str) -> FieldError {
    let field = child(path, name);
    let synonym = SYNONYMS.iter().find(|(theirs, _)| *theirs == strip_index(&field)).map(|(_, ours)| *ours);
    let known = || message.split('`').skip(3).step_by(2);
    let synonym = synonym.filter(|ours| known().any(|field| field == *ours));
    let detail = match synonym.or_else(|| suggest::closest(name, known())) {
        Some(meant) => format!("is not a known field, did you mean {meant}?"),
        None => "is not a known field".to_owned(),
    };
    FieldError { field, detail }
}

/// The field without the index of its job in a batch.
fn strip_index(field: &str) -> &str {
    match field.strip_prefix("jobs[").and_then(|rest| rest.split_once("].")) {
        Some((_, field)) => field,
        None => field,
    }
}

/// Turns serde's "invalid type: X, expected Y" into a requirement.
fn requirement(field: &str, message: &str) -> String {
    for prefix in ["invalid type: ", "invalid value: ", "invalid length "] {
        if let Some((given, expected)) =
            message.strip_prefix(prefix).and_then(|rest| rest.split_once(", expected "))
        {
            let wanted = wanted(field).unwrap_or_else(|| in_words(expected).to_owned());
            return format!("must be {wanted}, not {}", as_written(given));
        }
    }
    if let Some((given, expected)) =
        message.strip_prefix("unknown variant ").and_then(|rest| rest.split_once(", expected "))
    {
        return format!("must be {}, not {given}", expected.replace('`', "")).replace('`', "");
    }
    if let Some(text) = message.strip_prefix("not an RFC 3339 time").and_then(|rest| rest.split_once(": ")) {
        return time_fix(text.1);
    }
    match message {
        complete if complete.starts_with("must ") => complete.to_owned(),
        negative if negative.starts_with("not ") => format!("is {negative}"),
        other => format!("is not valid: {other}"),
    }
}

/// The expected value of a field whose type alone does not say it.
fn wanted(field: &str) -> Option<String> {
    let name = field.rsplit('.').next().unwrap_or(field);
    let name = name.split('[').next().unwrap_or(name);
    Some(match name {
        "max_retries" => format!("a whole number from 0 to {}", limits::MAX_RETRIES_MAX),
        "max_runs" | "misfire_limit" => format!("a whole number from 1 to {}", u32::MAX),
        "overlap_limit" => format!("a whole number from 1 to {}", limits::OVERLAP_LIMIT_MAX),
        "max_open" => format!("a whole number from 1 to {}", limits::MAX_OPEN_MAX),
        "timeout_growth" => "a number from 1.0 to 10.0".to_owned(),
        "depends_on" if field.ends_with(']') => "the id of a job".to_owned(),
        "timeout_secs" | "lease_secs" | "wait_secs" => "a number of seconds, such as 30".to_owned(),
        "by" | "settle" | "delay" | "interval" | "max_delay" | "steps" | "expires_after" | "overlap"
            if field != "retry.steps" =>
        {
            "a duration such as \"30s\", \"5m\" or \"PT3H\"".to_owned()
        }
        "execute_at" | "start_at" | "end_at" | "expires_at" | "died_from" | "died_until" | "to" => {
            "a time such as \"2026-11-15T08:30:00Z\"".to_owned()
        }
        _ => return None,
    })
}

/// A Rust type in the words of users.
fn in_words(expected: &str) -> &str {
    match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number of at least 0",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a sequence" => "an array",
        "a map" => "an object",
        expected if expected.starts_with("struct ") => "an object",
        expected => expected,
    }
}

/// Turns serde's ``integer `5` `` into the text of the body.
fn as_written(given: &str) -> &str {
    match given {
        "sequence" => return "an array",
        "map" => return "an object",
        _ => {}
    }
    for kind in ["integer ", "floating point ", "boolean ", "string "] {
        if let Some(value) = given.strip_prefix(kind) {
            return value.trim_matches('`');
        }
    }
    given
}

fn quoted_after<'a>(message: &'a str, prefix: &str) -> Option<&'a str> {
    message.strip_prefix(prefix)?.split('`').next()
}

/// `parent.name`, unless the path already ends with the name.
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
    use punctual_client::BatchRequest;

    fn check<'a, T: Deserialize<'a>>(text: &'a str, field: &str, detail: &str) {
        match parse::<T>(text.as_bytes(), DocumentShape::Job).map(|_| ()) {
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
        check::<SubmitJob>(r#"{"name":5}"#, "name", "must be a string, not 5");
        check::<SubmitJob>(
            r#"{"name":"x","pirority":5}"#,
            "pirority",
            "is not a known field, did you mean priority?",
        );
        check::<SubmitJob>(r#"{"name":"x","zzz":5}"#, "zzz", "is not a known field");
        check::<SubmitJob>(
            r#"{"name":"x","result_overflow":"drop"}"#,
            "result_overflow",
            "must be one of truncate, fail, blob, not drop",
        );
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
            "must be a time such as 2026-11-15T08:30:00Z, not \"tomorrow\"",
        );
        check::<SubmitJob>(
            r#"{"name":"x","schedule_type":"SOMETIMES"}"#,
            "schedule_type",
            "must be one of IMMEDIATE, ONE_TIME, RECURRING, not SOMETIMES",
        );
        check::<SubmitJob>(
            r#"{"name":"x","overlap_policy":"WAIT"}"#,
            "overlap_policy",
            "must be one of SKIP, ALLOW, QUEUE, REPLACE, not WAIT",
        );
    }

    #[test]
    fn errors_about_secrets_do_not_repeat_what_was_given() {
        for (text, field) in [
            (r#"{"value": 987654321987}"#, "value"),
            (r#"{"value": 98765432.1987}"#, "value"),
            (r#"{"value": {"a": 987654321987}}"#, "value"),
            (r#"{"value": "x", "owners": "987654321987"}"#, "owners"),
            (r#"{"value": "x", "owners": [987654321987]}"#, "owners[0]"),
        ] {
            let Err(ApiError::InvalidFields(errors)) =
                parse::<punctual_client::SetSecret>(text.as_bytes(), DocumentShape::Secret)
            else {
                panic!("{text} was accepted")
            };
            let FieldError { field: found, detail } = &errors[0];
            assert!(
                found == field && detail.starts_with("must be ") && !detail.contains("987"),
                "{found}: {detail}"
            );
        }
    }

    fn refused(text: &str) -> Vec<String> {
        match parse_job(text.as_bytes(), DocumentShape::Job) {
            Err(ApiError::InvalidFields(errors)) => errors.into_iter().map(|error| error.field).collect(),
            other => panic!("{text} gave {other:?}"),
        }
    }

    #[test]
    fn every_field_that_cannot_be_parsed_is_named_once() {
        let text = r#"{"priority":11,"queue":"q","retry":{"delay":5,"steps":["x"],"fail_on":["LOST"]},"zzz":1,
            "payload":{"a":[1]},"max_retries":-1}"#;
        let fields = ["priority", "name", "max_retries", "zzz", "retry.delay", "retry.steps[0]"];
        assert_eq!(refused(text), fields);
        assert_eq!(refused(r#"{"name":5,"retry":7}"#), ["name", "retry"]);
        assert_eq!(refused(r#"{"name":"x","name":"y","delay":5}"#), ["name", "delay"]);
        let unknown: Vec<String> = (0..1_000).map(|number| format!("\"field{number}\":1")).collect();
        assert_eq!(refused(&format!("{{{}}}", unknown.join(","))).len(), FIELD_ERRORS_MAX);
    }

    #[test]
    fn errors_speak_of_values_and_not_of_types() {
        let retries = "must be a whole number from 0 to 1000, not ";
        check::<SubmitJob>(r#"{"name":"x","max_retries":-1}"#, "max_retries", &format!("{retries}-1"));
        check::<SubmitJob>(r#"{"name":"x","max_retries":1.5}"#, "max_retries", &format!("{retries}1.5"));
        check::<SubmitJob>(
            r#"{"name":"x","timeout_secs":"30s"}"#,
            "timeout_secs",
            "must be a number of seconds, such as 30, not \"30s\"",
        );
        let duration = "must be a duration such as \"30s\", \"5m\" or \"PT3H\", not 5";
        check::<SubmitJob>(r#"{"name":"x","delay":5}"#, "delay", duration);
        check::<SubmitJob>(r#"{"name":"x","retry":{"steps":[5]}}"#, "retry.steps[0]", duration);
        check::<SubmitJob>(
            r#"{"name":"x","execute_at":1763195400}"#,
            "execute_at",
            "must be a time such as \"2026-11-15T08:30:00Z\", not 1763195400",
        );
        check::<SubmitJob>(
            r#"{"name":"x","max_open":-5}"#,
            "max_open",
            "must be a whole number from 1 to 10000, not -5",
        );
        check::<SubmitJob>(r#"{"name":"x","expires_after":5}"#, "expires_after", duration);
        check::<SubmitJob>(r#"{"name":"x","tags":"a"}"#, "tags", "must be an array, not \"a\"");
        check::<SubmitJob>(r#"{"name":["x"]}"#, "name", "must be a string, not an array");
    }

    #[test]
    fn names_from_elsewhere_lead_to_ours() {
        for (theirs, ours) in SYNONYMS {
            let text = format!(r#"{{"name":"x","{theirs}":1}}"#);
            check::<SubmitJob>(&text, theirs, &format!("is not a known field, did you mean {ours}?"));
        }
    }

    #[test]
    fn errors_name_fields_inside_of_others() {
        check::<SubmitJob>(
            r#"{"name":"x","retry":{"steps":["1m","x"]}}"#,
            "retry.steps[1]",
            "must be a duration such as 30s, 5m, 1h30m, 1d or PT3H",
        );
        check::<SubmitJob>(
            r#"{"name":"x","retry":{"timeout_growth":1.234}}"#,
            "retry.timeout_growth",
            "must have at most two decimals, such as 1.25",
        );
        let id = "0197e9a0-0000-7000-8000-000000000001";
        check::<SubmitJob>(
            &format!(r#"{{"name":"x","depends_on":["{id}","{id}","mine"]}}"#),
            "depends_on[2]",
            "is not a job id (a UUID): mine",
        );
        check::<SubmitJob>(
            r#"{"name":"x","depends_on":[5]}"#,
            "depends_on[0]",
            "must be the id of a job, not 5",
        );
        check::<SubmitJob>(r#"{"name":"x","depends_on":5}"#, "depends_on", "must be an array, not 5");
        check::<BatchRequest>(
            r#"{"jobs":[{"name":"a"},{"name":"b","payload":{"x":1},"result_overflow":"x"}]}"#,
            "jobs[1].result_overflow",
            "must be one of truncate, fail, blob, not x",
        );
    }

    #[test]
    fn broken_json_is_told_with_its_position() {
        for (text, position) in
            [("{", "line 1 column 1"), ("{\"name\":}", "line 1 column 9"), ("", "line 1 column 0")]
        {
            match parse::<SubmitJob>(text.as_bytes(), DocumentShape::Job) {
                Err(ApiError::MalformedJson(detail)) => assert!(detail.contains(position), "{detail}"),
                other => panic!("{text} gave {other:?}"),
            }
        }
        for text in ["[]", "[\"x\"]", "\"x\"", "5", "null"] {
            let read = parse::<SubmitJob>(text.as_bytes(), DocumentShape::Job);
            assert!(matches!(read, Err(ApiError::WrongShape { .. })), "{text} gave {read:?}");
        }
    }
}
