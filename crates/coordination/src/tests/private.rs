//! An ensemble that belongs to one test, which may break it. `cargo xtask` starts it, and ends it as soon as the test does.

use serde_json::Value;
use std::path::Path;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// Names the program that starts servers.
const PROGRAM: &str = "PUNCTUAL_TEST_SERVICES";

pub struct Private {
    _guard: Child,
    /// Orders go through it; when it is closed, all servers end.
    lifeline: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    /// Name and URL of each server.
    pub servers: Vec<(String, String)>,
}

impl Private {
    /// Starts all servers of a service and waits until they are ready.
    pub async fn start(service: &str) -> Self {
        Private::launch(service, None).await
    }

    /// The same for servers that speak TLS, with certificates of their own.
    pub async fn start_with(service: &str, certificates: &Path) -> Self {
        Private::launch(service, Some(certificates)).await
    }

    async fn launch(service: &str, certificates: Option<&Path>) -> Self {
        let program = std::env::var_os(PROGRAM).unwrap_or_else(|| {
            panic!(
                "{PROGRAM} is not set: run `cargo xtask test --full`, which starts ensembles for the tests"
            )
        });
        let mut command = Command::new(program);
        command.args(["services", "hold", service]).stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(folder) = certificates {
            command.env("PUNCTUAL_TEST_CERTIFICATES", folder);
        }
        // A group of its own: whoever ends the test with all it has started must not end the guard before the servers.
        let mut guard = command.process_group(0).spawn().expect("xtask starts");
        let answers = BufReader::new(guard.stdout.take().expect("stdout is piped")).lines();
        let lifeline = guard.stdin.take().expect("stdin is piped");
        let mut ensemble = Private { _guard: guard, lifeline, answers, servers: vec![] };
        let ready = ensemble.answer().await;
        let text = |server: &Value, field: &str| server[field].as_str().expect("text").to_owned();
        let servers = ready["servers"].as_array().expect("servers").iter();
        ensemble.servers = servers.map(|server| (text(server, "name"), text(server, "url"))).collect();
        ensemble
    }

    /// One URL for all servers.
    pub fn url(&self) -> String {
        let urls = self.servers.iter().map(|(_, url)| url.split("://").nth(1).expect("a host"));
        let scheme = self.servers[0].1.split("://").next().expect("a scheme");
        format!("{scheme}://{}", urls.collect::<Vec<_>>().join(","))
    }

    /// Ends a server as a power failure does.
    pub async fn kill(&mut self, name: &str) {
        self.order(&format!("kill {name}")).await;
    }

    pub async fn start_again(&mut self, name: &str) {
        self.order(&format!("start {name}")).await;
    }

    /// Says something to a server, as its operator would.
    pub async fn say(&mut self, name: &str, words: &str) {
        self.order(&format!("sql {name} {words}")).await;
    }

    async fn order(&mut self, order: &str) {
        self.lifeline.write_all(format!("{order}\n").as_bytes()).await.expect("the guard listens");
        let answer = self.answer().await;
        assert_eq!(answer["error"], Value::Null, "{order}: {answer}");
    }

    async fn answer(&mut self) -> Value {
        let line = self.answers.next_line().await.expect("the guard answers").expect("the guard lives");
        serde_json::from_str(&line).expect("an answer is JSON")
    }
}
