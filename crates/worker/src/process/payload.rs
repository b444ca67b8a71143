//! Parses and checks the payloads of `process` and `shell` jobs. An invalid payload stays invalid at the next
//! attempt, so the error names the field and fails the job permanently.

use super::protocol::{CommandLimits, Enclosure, Request};
use jiff::SignedDuration;
use punctual_core::limits;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Prefix of the environment variables that Punctual sets.
const OWN_ENV_PREFIX: &str = "PUNCTUAL_";
/// The smallest memory limit of a command: with less, nothing starts at all.
const MEMORY_BYTES_MIN: u64 = 1024 * 1024;

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProcessPayload {
    command: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    stdin: Option<String>,
    cwd: Option<PathBuf>,
    #[serde(default)]
    limits: LimitsPayload,
    kill_grace: Option<Grace>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShellPayload {
    script: String,
    #[serde(default)]
    env: BTreeMap<String, String>,
    stdin: Option<String>,
    cwd: Option<PathBuf>,
    #[serde(default)]
    limits: LimitsPayload,
    kill_grace: Option<Grace>,
}

#[derive(Debug, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitsPayload {
    memory: Option<ByteCount>,
    cpu_secs: Option<u64>,
    processes: Option<u64>,
    output: Option<ByteCount>,
}

/// The request of a `process` job; its environment contains only the payload's variables.
pub(crate) fn process(payload: &str) -> Result<Request, String> {
    checked(parse(payload, r#"{"command": ["tar", "czf", "/backup.tgz", "/data"]}"#)?)
}

/// The request of a `shell` job: its script through `sh -c`.
pub(crate) fn shell(payload: &str) -> Result<Request, String> {
    let shell: ShellPayload = parse(payload, r#"{"script": "echo hello"}"#)?;
    if shell.script.contains('\0') {
        return Err(wrong("script", "must not contain a NUL character"));
    }
    let command = ["sh".to_owned(), "-c".to_owned(), shell.script].to_vec();
    let ShellPayload { script: _, env, stdin, cwd, limits, kill_grace } =
        ShellPayload { script: String::new(), ..shell };
    checked(ProcessPayload { command, env, stdin, cwd, limits, kill_grace })
}

fn parse<T: DeserializeOwned>(payload: &str, example: &str) -> Result<T, String> {
    if !payload.trim_start().starts_with('{') {
        return Err(format!("the payload must be an object, such as {example}"));
    }
    let mut json = serde_json::Deserializer::from_str(payload);
    serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let said = without_value(&error.inner().to_string()).replace('`', "");
        match error.path().to_string().as_str() {
            "." => format!("the payload is not valid: {said}; it looks like {example}"),
            field => wrong(field, &said),
        }
    })
}

/// What the parser says without the value: it may be a secret, and everyone who may see the job sees its errors.
/// The position in the payload's text is less useful than the field's name.
fn without_value(said: &str) -> String {
    // Values are before both of these, and may contain the same words.
    let said = said.rsplit_once(" at line ").map_or(said, |(said, _)| said);
    match (said.split_once(": "), said.rsplit_once(", expected ")) {
        (Some((problem @ ("invalid type" | "invalid value" | "invalid length"), _)), Some((_, expected))) => {
            format!("{problem}, expected {expected}")
        }
        _ => said.to_owned(),
    }
}

fn wrong(field: &str, detail: &str) -> String {
    format!("payload.{field} {detail}")
}

fn checked(payload: ProcessPayload) -> Result<Request, String> {
    if payload.command.first().is_none_or(String::is_empty) {
        return Err(wrong("command", "must name a program, such as [\"echo\", \"hello\"]"));
    }
    if let Some(place) = payload.command.iter().position(|argument| argument.contains('\0')) {
        return Err(wrong(&format!("command[{place}]"), "must not contain a NUL character"));
    }
    for (name, value) in &payload.env {
        check_env(name, value).map_err(|detail| wrong(&format!("env.{name}"), detail))?;
    }
    if payload.cwd.as_ref().is_some_and(|cwd| !cwd.is_absolute()) {
        return Err(wrong("cwd", "must be an absolute path"));
    }
    let kill_grace = payload.kill_grace.map_or(limits::KILL_GRACE_DEFAULT, |grace| grace.0);
    if kill_grace > limits::KILL_GRACE_MAX {
        let most = limits::KILL_GRACE_MAX.as_secs();
        return Err(wrong("kill_grace", &format!("must be at most {most} seconds")));
    }
    Ok(Request {
        command: payload.command,
        env: payload.env,
        cwd: payload.cwd,
        stdin: payload.stdin,
        kill_grace,
        limits: checked_limits(payload.limits)?,
        enclosure: Enclosure::default(),
    })
}

fn check_env(name: &str, value: &str) -> Result<(), &'static str> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err("is not a name of an environment variable");
    }
    if name.starts_with(OWN_ENV_PREFIX) {
        return Err("is set by Punctual: choose another name");
    }
    if value.contains('\0') { Err("must not contain a NUL character") } else { Ok(()) }
}

fn checked_limits(given: LimitsPayload) -> Result<CommandLimits, String> {
    if given.memory.is_some_and(|memory| memory.0 < MEMORY_BYTES_MIN) {
        return Err(wrong("limits.memory", "must be at least 1M"));
    }
    for (name, limit) in [("cpu_secs", given.cpu_secs), ("processes", given.processes)] {
        if limit == Some(0) {
            return Err(wrong(&format!("limits.{name}"), "must be at least 1"));
        }
    }
    let output_bytes_max = limits::LOG_BYTES_PER_EXECUTION_MAX as u64;
    let output_bytes = given.output.map_or(output_bytes_max, |output| output.0);
    if output_bytes > output_bytes_max {
        return Err(wrong("limits.output", &format!("must be at most {output_bytes_max} bytes")));
    }
    Ok(CommandLimits {
        memory_bytes: given.memory.map(|memory| memory.0),
        cpu_secs: given.cpu_secs,
        processes: given.processes,
        output_bytes,
    })
}

/// A number of bytes, or a text such as `512M`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ByteCount(u64);

/// A number, or a text that is still to be parsed.
#[derive(Deserialize)]
#[serde(untagged, expecting = "must be a number or a text")]
enum NumberOrText {
    Number(u64),
    Text(String),
}

impl<'de> Deserialize<'de> for ByteCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wrong = || D::Error::custom("must be a number of bytes, or a text such as 64K, 512M or 2G");
        match NumberOrText::deserialize(deserializer).map_err(|_| wrong())? {
            NumberOrText::Number(bytes) => Ok(ByteCount(bytes)),
            NumberOrText::Text(text) => parse_bytes(&text).map(ByteCount).ok_or_else(wrong),
        }
    }
}

fn parse_bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_lowercase().trim_end_matches("ib") {
        "" | "b" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// Seconds, or a text such as `10s`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Grace(Duration);

impl<'de> Deserialize<'de> for Grace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wrong = || D::Error::custom("must be a number of seconds, or a text such as 500ms or 10s");
        match NumberOrText::deserialize(deserializer).map_err(|_| wrong())? {
            NumberOrText::Number(seconds) => Ok(Grace(Duration::from_secs(seconds))),
            NumberOrText::Text(text) => {
                let grace = text.parse::<SignedDuration>().map_err(|_| wrong())?;
                grace.try_into().map(Grace).map_err(|_| wrong())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_payload_becomes_a_request() {
        let request = process(
            r#"{"command": ["a", "b"], "env": {"X": "1"}, "stdin": "in", "cwd": "/tmp", "kill_grace": "1500ms",
                "limits": {"memory": "64MiB", "cpu_secs": 3, "processes": 9, "output": 4096}}"#,
        )
        .unwrap();
        assert_eq!(
            request,
            Request {
                command: vec!["a".to_owned(), "b".to_owned()],
                env: [("X".to_owned(), "1".to_owned())].into(),
                cwd: Some("/tmp".into()),
                stdin: Some("in".to_owned()),
                kill_grace: Duration::from_millis(1_500),
                limits: CommandLimits {
                    memory_bytes: Some(64 << 20),
                    cpu_secs: Some(3),
                    processes: Some(9),
                    output_bytes: 4_096
                },
                enclosure: Enclosure::default(),
            }
        );
    }

    #[test]
    fn a_script_runs_through_sh() {
        let request = shell(r#"{"script": "echo $X", "kill_grace": 7}"#).unwrap();
        assert_eq!(request.command, ["sh", "-c", "echo $X"]);
        assert_eq!(request.kill_grace, Duration::from_secs(7));
    }

    #[test]
    fn a_wrong_payload_names_its_field() {
        for (payload, said) in [
            ("null", "the payload must be an object, such as {\"command\""),
            ("{}", "the payload is not valid: missing field command"),
            (r#"{"command": "ls -l"}"#, "payload.command invalid type, expected a sequence"),
            (
                r#"{"command": "pa\"ss: word, expected at line 1"}"#,
                "payload.command invalid type, expected a sequence",
            ),
            (r#"{"command": ["a"], "limits": "pa\"ssword"}"#, "payload.limits invalid type, expected "),
            (r#"{"command": []}"#, "payload.command must name a program"),
            (r#"{"command": [""]}"#, "payload.command must name a program"),
            (r#"{"command": ["a", 1]}"#, "payload.command[1] invalid type, expected a string"),
            (r#"{"command": ["a", "\u0000"]}"#, "payload.command[1] must not contain a NUL"),
            (r#"{"command": ["a"], "comand": 1}"#, "payload.comand unknown field comand, expected one of"),
            (r#"{"command": ["a"], "env": {"A": 1}}"#, "payload.env.A invalid type, expected a string"),
            (r#"{"command": ["a"], "env": {"A=B": ""}}"#, "payload.env.A=B is not a name"),
            (
                r#"{"command": ["a"], "env": {"PUNCTUAL_JOB_ID": ""}}"#,
                "payload.env.PUNCTUAL_JOB_ID is set by",
            ),
            (r#"{"command": ["a"], "cwd": "here"}"#, "payload.cwd must be an absolute path"),
            (r#"{"command": ["a"], "stdin": 1}"#, "payload.stdin invalid type"),
            (r#"{"command": ["a"], "kill_grace": "61s"}"#, "payload.kill_grace must be at most 60 seconds"),
            (r#"{"command": ["a"], "kill_grace": "-1s"}"#, "payload.kill_grace must be a number of seconds"),
            (
                r#"{"command": ["a"], "limits": {"memory": "much"}}"#,
                "payload.limits.memory must be a number of",
            ),
            (r#"{"command": ["a"], "limits": {"memory": 5}}"#, "payload.limits.memory must be at least 1M"),
            (
                r#"{"command": ["a"], "limits": {"cpu_secs": 0}}"#,
                "payload.limits.cpu_secs must be at least 1",
            ),
            (r#"{"command": ["a"], "limits": {"output": "9M"}}"#, "payload.limits.output must be at most"),
        ] {
            let error = process(payload).unwrap_err();
            assert!(error.starts_with(said), "{payload}: {error}");
            assert!(!error.contains("ssword") && !error.contains("ss: word"), "{error}");
        }
        let error = shell(r#"{"command": ["a"]}"#).unwrap_err();
        assert!(
            error.starts_with("payload.command unknown field command, expected one of script"),
            "{error}"
        );
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let sizes = ["12", "64k", "64K", "512M", "1MiB", "2G", "5x", "", "M", "-1", "99999999999G"];
        let read = sizes.map(parse_bytes);
        assert_eq!(
            read,
            [
                Some(12),
                Some(65_536),
                Some(65_536),
                Some(512 << 20),
                Some(1 << 20),
                Some(2 << 30),
                None,
                None,
                None,
                None,
                None
            ]
        );
    }
}
