//! A cluster of databases that belongs to one test, which may break it. `cargo xtask` starts it, and ends it as soon as the
//! test does.

use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Names the program that starts servers.
const PROGRAM: &str = "PUNCTUAL_TEST_SERVICES";

/// A running cluster. Its servers are named by the service: `replica-primary`, `replica-standby`, `galera-1` and so on.
pub struct Private {
    guard: Child,
    /// Orders go through it; when it is closed, all servers end.
    lifeline: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// Name and URL of each server.
    servers: Vec<(String, String)>,
}

impl Private {
    /// Starts all servers of a service and waits until they are ready.
    pub fn start(service: &str) -> Self {
        let program = std::env::var_os(PROGRAM).unwrap_or_else(|| {
            panic!("{PROGRAM} is not set: run `cargo xtask test --full`, which starts clusters for the tests")
        });
        let mut command = Command::new(program);
        command.args(["services", "hold", service]).stdin(Stdio::piped()).stdout(Stdio::piped());
        // A group of its own: whoever ends the test with all it has started must not end the guard before the servers.
        let mut guard = command.process_group(0).spawn().expect("xtask starts");
        let answers = BufReader::new(guard.stdout.take().expect("stdout is piped"));
        let mut cluster = Private { lifeline: guard.stdin.take(), guard, answers, servers: vec![] };
        let ready = cluster.answer();
        let text = |server: &Value, field: &str| server[field].as_str().expect("text").to_owned();
        let servers = ready["servers"].as_array().expect("servers").iter();
        cluster.servers = servers.map(|server| (text(server, "name"), text(server, "url"))).collect();
        cluster
    }

    /// The URL of one server.
    pub fn url(&self, name: &str) -> &str {
        let found = self.servers.iter().find(|(other, _)| other == name);
        &found.unwrap_or_else(|| panic!("no server {name}")).1
    }

    /// One URL for all servers, in their order.
    pub fn url_of_all(&self) -> String {
        let host = |url: &str| url.split(['@', '/']).nth(3).expect("a host").to_owned();
        let hosts: Vec<String> = self.servers.iter().map(|(_, url)| host(url)).collect();
        self.servers[0].1.replacen(&hosts[0], &hosts.join(","), 1)
    }

    /// Ends a server as a power failure does, with all its processes.
    pub fn kill(&mut self, name: &str) {
        self.order(&format!("kill {name}"));
    }

    /// Starts a server again that was killed, and waits until it takes connections.
    pub fn start_again(&mut self, name: &str) {
        self.order(&format!("start {name}"));
    }

    /// Says a statement to a server, as its operator would; what it answers.
    pub fn sql(&mut self, name: &str, statement: &str) -> String {
        let answer = self.order(&format!("sql {name} {statement}"));
        answer["said"].as_str().expect("an answer").to_owned()
    }

    fn order(&mut self, order: &str) -> Value {
        writeln!(self.lifeline.as_mut().expect("a lifeline"), "{order}").expect("the guard listens");
        let answer = self.answer();
        assert!(answer["error"].is_null(), "{order}: {answer}");
        answer
    }

    fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("the guard speaks");
        serde_json::from_str(&line).expect("an answer of the guard")
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        self.lifeline = None;
        let _ = self.guard.wait();
    }
}
