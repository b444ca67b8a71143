//! The payloads of `process` and `shell` jobs.

use super::wrong;
use crate::job::InvalidField;
use crate::limits;
use jiff::SignedDuration;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Prefix of the environment variables that Punctual sets.
const OWN_ENV_PREFIX: &str = "PUNCTUAL_";
/// The smallest memory limit of a command: with less, nothing starts at all.
const MEMORY_BYTES_MIN: u64 = 1024 * 1024;

/// A command as its job describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandSpec {
    /// The program and its arguments.
    pub command: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub stdin: Option<String>,
    pub cwd: Option<PathBuf>,
    pub kill_grace: Duration,
    pub memory_bytes: Option<u64>,
    pub cpu_secs: Option<u64>,
    pub processes: Option<u64>,
    /// Bytes of stdout and stderr that are kept.
    pub output_bytes: u64,
}

#[derive(Deserialize)]
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

#[derive(Deserialize)]
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

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitsPayload {
    memory: Option<ByteCount>,
    cpu_secs: Option<u64>,
    processes: Option<u64>,
    output: Option<ByteCount>,
}

/// The command of a `process` job.
pub fn process(payload: &str) -> Result<CommandSpec, InvalidField> {
    checked(parse(payload, r#"{"command": ["tar", "czf", "/backup.tgz", "/data"]}"#)?)
}

/// The command of a `shell` job: its script through `sh -c`.
pub fn shell(payload: &str) -> Result<CommandSpec, InvalidField> {
    let ShellPayload { script, env, stdin, cwd, limits, kill_grace } =
        parse(payload, r#"{"script": "echo hello"}"#)?;
    if script.contains('\0') {
        return Err(wrong("script", "must not contain a NUL character"));
    }
    let command = ["sh".to_owned(), "-c".to_owned(), script].to_vec();
    checked(ProcessPayload { command, env, stdin, cwd, limits, kill_grace })
}

/// A new job needs something to run. Jobs that were stored with an empty script go on to succeed.
pub(super) fn check_script(shell: &CommandSpec) -> Result<(), InvalidField> {
    match shell.command.last().is_some_and(|script| !script.trim().is_empty()) {
        true => Ok(()),
        false => Err(wrong("script", "must not be empty; it looks like \"echo hello\"")),
    }
}

fn parse<T: DeserializeOwned>(payload: &str, example: &str) -> Result<T, InvalidField> {
    if !payload.trim_start().starts_with('{') {
        return Err(InvalidField::new("payload", format!("must be an object, such as {example}")));
    }
    let mut json = serde_json::Deserializer::from_str(payload);
    serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let said = error.inner().to_string().replace('`', "");
        let path = error.path().to_string();
        match (said.strip_prefix("missing field "), path.as_str()) {
            (Some(rest), _) => {
                let field = rest.split(" at line ").next().unwrap_or_default();
                wrong(field, format!("is missing; the payload looks like {example}"))
            }
            (None, ".") => InvalidField::new("payload", format!("must be an object, such as {example}")),
            (None, field) => wrong(field, fix_of(&said)),
        }
    })
}

/// What would be valid, from what the parser says. Everything before may contain the value.
fn fix_of(said: &str) -> String {
    // Values are before both of these, and may contain the same words.
    let said = said.rsplit_once(" at line ").map_or(said, |(said, _)| said);
    let problem = said.split_once(": ").map_or(said, |(problem, _)| problem);
    match (problem, said.rsplit_once(", expected ")) {
        ("invalid type" | "invalid value" | "invalid length", Some((_, expected))) => {
            let expected = match expected {
                "a sequence" => "a list",
                "a map" => "an object",
                "a string" | "path string" => "a string",
                "u64" => "a whole number",
                expected if expected.starts_with("struct ") => "an object",
                other => other,
            };
            format!("must be {expected}")
        }
        (unknown, Some((_, known))) if unknown.starts_with("unknown field ") => {
            format!("is unknown; known are {}", known.trim_start_matches("one of "))
        }
        _ => said.to_owned(),
    }
}

fn checked(payload: ProcessPayload) -> Result<CommandSpec, InvalidField> {
    if payload.command.first().is_none_or(String::is_empty) {
        return Err(wrong("command", "must name a program, such as [\"echo\", \"hello\"]"));
    }
    if let Some(place) = payload.command.iter().position(|argument| argument.contains('\0')) {
        return Err(wrong(&format!("command[{place}]"), "must not contain a NUL character"));
    }
    for (name, value) in &payload.env {
        check_env(name, value).map_err(|fix| wrong(&format!("env.{name}"), fix))?;
    }
    if payload.cwd.as_ref().is_some_and(|cwd| !cwd.is_absolute()) {
        return Err(wrong("cwd", "must be an absolute path"));
    }
    let kill_grace = payload.kill_grace.map_or(limits::KILL_GRACE_DEFAULT, |grace| grace.0);
    if kill_grace > limits::KILL_GRACE_MAX {
        let most = limits::KILL_GRACE_MAX.as_secs();
        return Err(wrong("kill_grace", format!("must be at most {most} seconds")));
    }
    let given = payload.limits;
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
        return Err(wrong("limits.output", format!("must be at most {output_bytes_max} bytes")));
    }
    Ok(CommandSpec {
        command: payload.command,
        env: payload.env,
        stdin: payload.stdin,
        cwd: payload.cwd,
        kill_grace,
        memory_bytes: given.memory.map(|memory| memory.0),
        cpu_secs: given.cpu_secs,
        processes: given.processes,
        output_bytes,
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

    fn refusal(parsed: Result<CommandSpec, InvalidField>) -> String {
        let InvalidField { field, fix } = parsed.unwrap_err();
        format!("{field} {fix}")
    }

    #[test]
    fn a_full_payload_becomes_a_command() {
        let spec = process(
            r#"{"command": ["a", "b"], "env": {"X": "1"}, "stdin": "in", "cwd": "/tmp", "kill_grace": "1500ms",
                "limits": {"memory": "64MiB", "cpu_secs": 3, "processes": 9, "output": 4096}}"#,
        );
        assert_eq!(
            spec.unwrap(),
            CommandSpec {
                command: vec!["a".to_owned(), "b".to_owned()],
                env: [("X".to_owned(), "1".to_owned())].into(),
                cwd: Some("/tmp".into()),
                stdin: Some("in".to_owned()),
                kill_grace: Duration::from_millis(1_500),
                memory_bytes: Some(64 << 20),
                cpu_secs: Some(3),
                processes: Some(9),
                output_bytes: 4_096,
            }
        );
    }

    #[test]
    fn a_script_runs_through_sh() {
        let spec = shell(r#"{"script": "echo $X", "kill_grace": 7}"#).unwrap();
        assert_eq!(spec.command, ["sh", "-c", "echo $X"]);
        assert_eq!(spec.kill_grace, Duration::from_secs(7));
    }

    #[test]
    fn a_wrong_payload_names_its_field() {
        for (payload, said) in [
            ("null", "payload must be an object, such as {\"command\""),
            ("{}", "payload.command is missing; the payload looks like {\"command\""),
            (r#"{"command": "ls -l"}"#, "payload.command must be a list"),
            (r#"{"command": "pa\"ss: word, expected at line 1"}"#, "payload.command must be a list"),
            (r#"{"command": ["a"], "limits": "pa\"ssword"}"#, "payload.limits must be an object"),
            (r#"{"command": []}"#, "payload.command must name a program"),
            (r#"{"command": [""]}"#, "payload.command must name a program"),
            (r#"{"command": ["a", 1]}"#, "payload.command[1] must be a string"),
            (r#"{"command": ["a", "\u0000"]}"#, "payload.command[1] must not contain a NUL"),
            (
                r#"{"command": ["a"], "comand": 1}"#,
                "payload.comand is unknown; known are command, env, stdin",
            ),
            (r#"{"command": ["a"], "env": {"A": 1}}"#, "payload.env.A must be a string"),
            (r#"{"command": ["a"], "env": {"A=B": ""}}"#, "payload.env.A=B is not a name"),
            (
                r#"{"command": ["a"], "env": {"PUNCTUAL_JOB_ID": ""}}"#,
                "payload.env.PUNCTUAL_JOB_ID is set by",
            ),
            (r#"{"command": ["a"], "cwd": "here"}"#, "payload.cwd must be an absolute path"),
            (r#"{"command": ["a"], "stdin": 1}"#, "payload.stdin must be a string"),
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
            (r#"{"command": ["a"], "limits": {"cpu_secs": -1}}"#, "payload.limits.cpu_secs must be a whole"),
            (r#"{"command": ["a"], "limits": {"output": "9M"}}"#, "payload.limits.output must be at most"),
        ] {
            let error = refusal(process(payload));
            assert!(error.starts_with(said), "{payload}: {error}");
            assert!(!error.contains("ssword") && !error.contains("ss: word"), "{error}");
        }
        let error = refusal(shell(r#"{"command": ["a"]}"#));
        assert!(error.starts_with("payload.command is unknown; known are script, env"), "{error}");
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let sizes = ["12", "64k", "64K", "512M", "1MiB", "2G", "5x", "", "M", "-1", "99999999999G"];
        let read = sizes.map(parse_bytes);
        let valid = [12, 65_536, 65_536, 512 << 20, 1 << 20, 2 << 30].map(Some);
        assert_eq!(read[..6], valid);
        assert_eq!(read[6..], [None; 5]);
    }
}
