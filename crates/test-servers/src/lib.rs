//! Servers that belong to one test or one run of the chaos suite, which may break them. `cargo xtask` finds
//! them, chooses the user they run as, starts them, and ends them as soon as this process ends. This crate
//! only talks to xtask; it knows no database and no protocol of the servers.

mod certificates;

pub use certificates::TestCertificates;

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::JoinHandle;

pub use anyhow::Result;

/// Environment variable with the program that starts servers; `cargo xtask` sets it.
const PROGRAM: &str = "PUNCTUAL_TEST_SERVICES";
/// Environment variable that tells that program where the certificates of TLS servers are.
const CERTIFICATES: &str = "PUNCTUAL_TEST_CERTIFICATES";
/// Last lines of its error output that an error includes.
const LINES_SHOWN_MAX: usize = 50;

/// The running servers of one service. They end when this is dropped.
pub struct Servers {
    service: String,
    guard: Child,
    /// Commands are written to it; when it is closed, all servers end.
    lifeline: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// Returns the last lines of the guard's error output.
    errors: Option<JoinHandle<VecDeque<String>>>,
    servers: Vec<TestServer>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestServer {
    /// The name of the service, or a name that begins with it where there are several servers:
    /// `replica-primary`, `galera-1`.
    pub name: String,
    pub url: String,
}

impl Servers {
    /// Starts all servers of a service and waits until they are ready. If one ends instead, the error
    /// contains its last output.
    pub fn start(service: &str) -> Result<Self> {
        Servers::launch(&program()?, service, None)
    }

    /// The same for TLS servers, with `ca.pem`, `server.pem` and `server.key` from this folder.
    pub fn start_with_certificates(service: &str, folder: &Path) -> Result<Self> {
        Servers::launch(&program()?, service, Some(folder))
    }

    fn launch(program: &OsStr, service: &str, certificates: Option<&Path>) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(["services", "hold", service]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(folder) = certificates {
            command.env(CERTIFICATES, folder);
        }
        // A separate process group: a signal that ends the test with all its processes must not end the guard
        // before the servers.
        let mut guard =
            command.process_group(0).spawn().with_context(|| format!("start {}", program.display()))?;
        let answers = BufReader::new(guard.stdout.take().context("xtask has no output")?);
        let errors = guard.stderr.take().context("xtask has no error output")?;
        let errors = Some(std::thread::spawn(move || pass_on(errors)));
        let (service, lifeline) = (service.to_owned(), guard.stdin.take());
        let mut all = Servers { service, guard, lifeline, answers, errors, servers: vec![] };
        let ready = all.answer()?;
        let servers = ready["servers"].as_array().with_context(|| format!("no servers in {ready}"))?;
        for server in servers {
            let text =
                |field: &str| server[field].as_str().with_context(|| format!("no {field} in {server}"));
            all.servers.push(TestServer { name: text("name")?.to_owned(), url: text("url")?.to_owned() });
        }
        ensure!(!all.servers.is_empty(), "{} has no servers", all.service);
        Ok(all)
    }

    pub fn all(&self) -> &[TestServer] {
        &self.servers
    }

    /// The URL of one server.
    pub fn url(&self, name: &str) -> Result<&str> {
        let found = self.servers.iter().find(|server| server.name == name);
        Ok(&found.with_context(|| format!("{} has no server {name}", self.service))?.url)
    }

    /// One URL for all servers, in order: that of the first one, with the hosts of all.
    pub fn url_of_all(&self) -> String {
        let hosts: Vec<&str> = self.servers.iter().map(|server| host_of(&server.url)).collect();
        self.servers[0].url.replacen(hosts[0], &hosts.join(","), 1)
    }

    /// Kills a server with all its processes, as a power failure does.
    pub fn kill(&mut self, name: &str) -> Result<()> {
        self.order(&format!("kill {name}")).map(drop)
    }

    /// Stops a server as an operator does.
    pub fn stop(&mut self, name: &str) -> Result<()> {
        self.order(&format!("stop {name}")).map(drop)
    }

    /// Starts a stopped server again and waits until it accepts connections.
    pub fn start_again(&mut self, name: &str) -> Result<()> {
        self.order(&format!("start {name}")).map(drop)
    }

    /// Runs a statement on a server, as its operator would, and returns the answer.
    pub fn sql(&mut self, name: &str, statement: &str) -> Result<String> {
        let answer = self.order(&format!("sql {name} {statement}"))?;
        Ok(answer["said"].as_str().context("no answer")?.to_owned())
    }

    fn order(&mut self, order: &str) -> Result<Value> {
        writeln!(self.lifeline.as_mut().context("the servers were ended")?, "{order}")
            .with_context(|| format!("{order}: xtask does not read"))?;
        let answer = self.answer()?;
        ensure!(answer["error"].is_null(), "{order}: {}", answer["error"].as_str().unwrap_or_default());
        Ok(answer)
    }

    fn answer(&mut self) -> Result<Value> {
        let mut line = String::new();
        self.answers.read_line(&mut line).context("read what xtask answers")?;
        if line.is_empty() {
            let status = self.guard.wait()?;
            let said = self.errors.take().and_then(|errors| errors.join().ok()).unwrap_or_default();
            bail!("{} ended ({status}):\n{}", self.service, Vec::from(said).join("\n"));
        }
        serde_json::from_str(&line).with_context(|| format!("xtask answered {line:?}"))
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.lifeline = None;
        let _ = self.guard.wait();
    }
}

fn program() -> Result<std::ffi::OsString> {
    std::env::var_os(PROGRAM).with_context(|| {
        format!(
            "{PROGRAM} is not set: run `cargo xtask test`, or `cargo xtask services start` and set the variables that it prints"
        )
    })
}

/// Forwards error output as it arrives, and keeps its last lines.
fn pass_on(output: ChildStderr) -> VecDeque<String> {
    let mut last = VecDeque::new();
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        eprintln!("{line}");
        if last.len() == LINES_SHOWN_MAX {
            last.pop_front();
        }
        last.push_back(line);
    }
    last
}

/// The host and port of a URL, with or without a user before it.
pub fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let place = rest.split('/').next().unwrap_or_default();
    place.rsplit('@').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use tempfile::TempDir;

    /// Starts servers through a script in place of xtask. The script is read while it runs, so its folder is
    /// returned as well.
    fn start(script: &str) -> Result<(Servers, TempDir)> {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("xtask");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        Ok((Servers::launch(program.as_os_str(), "galera", None)?, folder))
    }

    const READY: &str = r#"echo '{"servers": [{"name": "galera-1", "url": "mysql://ann:x@127.0.0.1:1/jobs"},
        {"name": "galera-2", "url": "mysql://ann:x@127.0.0.1:2/jobs"}]}' | tr -d '\n'; echo"#;

    #[test]
    fn servers_that_end_at_once_are_reported_with_their_last_output() {
        let error = start("echo 'galera-1 ended: unknown user mysql' >&2; exit 3").err().unwrap().to_string();
        assert_eq!(error, "galera ended (exit status: 3):\ngalera-1 ended: unknown user mysql");
    }

    #[test]
    fn servers_that_end_later_are_reported_by_the_next_command() {
        let (mut servers, _folder) =
            start(&format!("{READY}; read order; echo 'no space left' >&2; exit 1")).unwrap();
        let error = servers.kill("galera-1").unwrap_err().to_string();
        assert_eq!(error, "galera ended (exit status: 1):\nno space left");
    }

    #[test]
    fn commands_are_answered_and_rejections_are_errors() {
        let script = r#"read order; echo '{"error": null, "said": "2"}'; read order; echo '{"error": "it runs"}'; read order"#;
        let (mut servers, _folder) = start(&format!("{READY}; {script}")).unwrap();
        assert_eq!(servers.url("galera-2").unwrap(), "mysql://ann:x@127.0.0.1:2/jobs");
        assert_eq!(servers.url_of_all(), "mysql://ann:x@127.0.0.1:1,127.0.0.1:2/jobs");
        assert_eq!(servers.sql("galera-1", "SELECT 1 + 1").unwrap(), "2");
        assert_eq!(servers.start_again("galera-1").unwrap_err().to_string(), "start galera-1: it runs");
    }
}
