//! Turns the payloads of `process` and `shell` jobs into requests to the shim. An invalid payload stays invalid at the
//! next attempt, so the error names the field and fails the job permanently.

use super::protocol::{CommandLimits, Enclosure, Request};
use punctual_core::job::ResultOverflow;
use punctual_core::payloads::commands::{self, CommandSpec};

/// The request of a `process` job; its environment contains only the payload's variables.
pub(crate) fn process(payload: &str) -> Result<Request, String> {
    commands::process(payload).map(request).map_err(|problem| problem.to_string())
}

/// The request of a `shell` job: its script through `sh -c`.
pub(crate) fn shell(payload: &str) -> Result<Request, String> {
    commands::shell(payload).map(request).map_err(|problem| problem.to_string())
}

fn request(spec: CommandSpec) -> Request {
    Request {
        command: spec.command,
        env: spec.env,
        cwd: spec.cwd,
        stdin: spec.stdin,
        kill_grace: spec.kill_grace,
        limits: CommandLimits {
            memory_bytes: spec.memory_bytes,
            cpu_secs: spec.cpu_secs,
            processes: spec.processes,
            output_bytes: spec.output_bytes,
            // The executor sets it to that of the job.
            result_overflow: ResultOverflow::default(),
        },
        enclosure: Enclosure::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

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
                    output_bytes: 4_096,
                    ..CommandLimits::default()
                },
                enclosure: Enclosure::default(),
            }
        );
        assert_eq!(shell(r#"{"script": "echo $X"}"#).unwrap().command, ["sh", "-c", "echo $X"]);
    }

    #[test]
    fn an_error_names_the_field() {
        let error = shell(r#"{"script": "a", "stdin": 1}"#).unwrap_err();
        assert_eq!(error, "payload.stdin must be a string");
    }
}
