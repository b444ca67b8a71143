//! The payloads of the built-in job types `process`, `shell` and `http`: what their handlers accept.
//!
//! A payload is checked when a job is submitted or changed, and the handler parses it with the same functions
//! when the job runs. No error repeats a value: it may be a secret, and everyone who may see the job sees its
//! errors.

pub mod commands;
pub mod web_call;

use crate::job::InvalidField;
use crate::secrets::{SecretReference, references, with_values};

/// Whether the payloads of this type are checked by rules of its own.
pub fn is_built_in(job_type: &str) -> bool {
    matches!(job_type, "process" | "shell" | "http")
}

/// What is wrong with the payload of a job of this type, as far as that is known before it runs. The payloads of
/// other types belong to their handlers.
pub fn payload_problem(job_type: &str, payload: &str) -> Option<InvalidField> {
    let check: fn(&str) -> Result<(), InvalidField> = match job_type {
        "process" => |payload| commands::process(payload).map(drop),
        "shell" => |payload| commands::shell(payload).and_then(|shell| commands::check_script(&shell)),
        "http" => |payload| web_call::parse(payload).map(drop),
        _ => return None,
    };
    match references(payload) {
        Ok(secrets) if secrets.is_empty() => check(payload).err(),
        Ok(secrets) => check(&with_values(payload, &secrets, stand_in)).err(),
        Err(problem) => Some(problem),
    }
}

/// A value that the handler accepts in place of a secret, which only the worker knows.
fn stand_in(secret: &SecretReference) -> String {
    let value = match secret.path.strip_prefix("payload.").unwrap_or_default() {
        "url" => "https://secret.invalid/",
        "method" => "GET",
        "cwd" => "/",
        "kill_grace" => "1s",
        "limits.memory" => "1G",
        "limits.output" => "1K",
        path if path.starts_with("expect_status") => "200",
        _ => "secret",
    };
    value.to_owned()
}

/// An error in a field of the payload.
fn wrong(field: &str, fix: impl Into<String>) -> InvalidField {
    InvalidField::new(format!("payload.{field}"), fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(job_type: &str, payload: &str) -> String {
        let InvalidField { field, fix } = payload_problem(job_type, payload).expect("it is invalid");
        format!("{field} {fix}")
    }

    #[test]
    fn only_built_in_types_have_rules() {
        for job_type in ["mail", "noop", "sleep", "HTTP"] {
            assert_eq!(payload_problem(job_type, "[1]"), None, "{job_type}");
        }
        assert_eq!(
            problem("process", r#"{"command": []}"#),
            "payload.command must name a program, such as [\"echo\", \"hello\"]"
        );
        assert_eq!(
            problem("http", r#"{"url": "file:///etc/passwd"}"#),
            "payload.url must begin with http:// or https://"
        );
        assert!(problem("http", r#"{"urll": "http://a/"}"#).starts_with("payload.urll is unknown"));
        for script in ["", " \n\t"] {
            let payload = serde_json::json!({ "script": script }).to_string();
            assert!(problem("shell", &payload).starts_with("payload.script must not be empty"));
        }
        assert!(problem("shell", "null").starts_with("payload must be an object, such as "));
    }

    #[test]
    fn a_secret_may_stand_wherever_a_text_may() {
        let secret = r#"{"$secret": "s"}"#;
        for (job_type, payload) in [
            (
                "http",
                r#"{"url": S, "method": S, "headers": {"A": S}, "body": S, "expect_status": S, "sign": {"key": S}}"#,
            ),
            ("http", r#"{"url": "http://a/", "body": {"a": [S]}, "expect_status": [204, S]}"#),
            (
                "process",
                r#"{"command": [S, S], "env": {"A": S}, "stdin": S, "cwd": S, "kill_grace": S,
                            "limits": {"memory": S, "output": S}}"#,
            ),
            ("shell", r#"{"script": S}"#),
        ] {
            let payload = payload.replace('S', secret);
            assert_eq!(payload_problem(job_type, &payload), None, "{payload}");
        }
        for (job_type, payload, said) in [
            ("process", r#"{"command": S}"#, "payload.command must be a list"),
            (
                "process",
                r#"{"command": [S], "limits": {"cpu_secs": S}}"#,
                "payload.limits.cpu_secs must be a whole",
            ),
            ("http", r#"{"url": S, "timeout": S}"#, "payload.timeout is unknown"),
            ("http", "S", "payload must be an object"),
            ("http", r#"{"url": S, "body": {"$secret": 1}}"#, "payload.body must have the name of a secret"),
        ] {
            let said_of = problem(job_type, &payload.replace('S', secret));
            assert!(said_of.starts_with(said), "{payload}: {said_of}");
        }
    }
}
