//! `punctual demo`: example jobs on a running server, and alerts on a private one.

use crate::redact::redacted;
use crate::server::{BINARY, PATIENCE, Server, eventually};
use punctual_core::job::JobStatus;
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Command, Stdio};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use tokio::time::timeout;

#[tokio::test]
async fn the_demo_ends_as_it_says_and_can_be_repeated_and_removed() {
    let server = Server::start();
    server.submit(serde_json::json!({"name": "demo-nap", "job_type": "noop"})).await;
    let told = server.said(&["demo"]);
    insta::assert_snapshot!(
        "demo_told",
        redacted(&told).replace("COMPLETED", "[ended]").replace("ACTIVE", "[ended]")
    );
    let status = async |name: &str| {
        let id: serde_json::Value =
            serde_json::from_str(&server.said(&["job", "list", "--name", name, "-o", "json"])).unwrap();
        let tagged = id["items"].as_array().unwrap().iter().find(|job| job["tags"][0] == "demo").unwrap();
        serde_json::from_value::<JobStatus>(tagged["status"].clone()).unwrap()
    };
    for name in ["demo-flaky", "demo-extract", "demo-transform", "demo-load", "demo-later", "demo-nap"] {
        assert_eq!(status(name).await, JobStatus::Completed, "{name}");
    }
    assert_eq!(status("demo-hopeless").await, JobStatus::Failed);
    let flaky = server.said(&["job", "history", "demo-flaky"]);
    // A slow machine may need one attempt more.
    assert!(flaky.matches("TIMED_OUT").count() >= 2, "{flaky}");
    assert_eq!(flaky.matches("SUCCEEDED").count(), 1, "{flaky}");
    assert!(server.said(&["dlq", "list"]).contains("demo-hopeless"));
    let again = server.said(&["demo", "--no-watch", "-o", "json"]);
    let again: serde_json::Value = serde_json::from_str(&again).unwrap();
    assert_eq!((&again["removed"], again["items"].as_array().unwrap().len()), (&8.into(), 8));
    assert_eq!(server.said(&["demo", "--clean"]), "removed 8 jobs of the demo\n");
    assert_eq!(server.said(&["demo", "--clean"]), "removed 0 jobs of the demo\n");
    // Other jobs with the same name are kept.
    assert_eq!(server.client().jobs(&Default::default()).await.unwrap().items.len(), 1);
}

#[test]
fn without_a_server_the_demo_says_how_to_start_one() {
    let directory = tempfile::tempdir().unwrap();
    let output =
        Command::new(crate::server::BINARY).arg("demo").current_dir(directory.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(5));
    assert!(String::from_utf8_lossy(&output.stderr).contains("start `punctual serve`"));
}

/// A running demo of alerts.
struct AlertDemo {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    said: Vec<String>,
}

impl AlertDemo {
    fn start(directory: &Path, options: &[&str]) -> Self {
        let mut command = tokio::process::Command::new(BINARY);
        command.args(["demo", "--alerts"]).args(options).current_dir(directory).stdout(Stdio::piped());
        // The settings of another server.
        command.env("PUNCTUAL_STORE", "postgres://nobody@127.0.0.1:1/none").env("TMPDIR", directory);
        let mut child = command.kill_on_drop(true).spawn().expect("the binary starts");
        let lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        AlertDemo { child, lines, said: vec![] }
    }

    /// Reads on until a line contains this text, and returns it.
    async fn says(&mut self, text: &str) -> String {
        loop {
            let read = timeout(PATIENCE, self.lines.next_line()).await;
            let line = read.ok().and_then(|line| line.expect("text"));
            let line = line.unwrap_or_else(|| panic!("{text}: {:#?}", self.said));
            self.said.push(line.clone());
            if line.contains(text) {
                return line;
            }
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.id().expect("it still runs");
        kill_process(Pid::from_raw(pid.cast_signed()).expect("an id"), signal).expect("it still runs");
    }

    /// The address of its server.
    async fn server(&mut self) -> String {
        let line = self.says("http://").await;
        let (_, after) = line.split_once("http://").expect("a URL");
        after.split_once(',').expect("an address").0.to_owned()
    }
}

#[tokio::test]
async fn the_demo_of_alerts_shows_failures_messages_and_recoveries() {
    let directory = tempfile::tempdir().unwrap();
    // The configuration of another server.
    std::fs::write(directory.path().join("punctual.toml"), "[notify]\nallow = [\"10.0.0.0/8\"]\n").unwrap();
    let mut demo = AlertDemo::start(directory.path(), &[]);
    let server = demo.server().await;
    assert!(demo.says("Dashboard").await.contains(&format!("http://{server}/ui/")), "{:#?}", demo.said);
    demo.says("Ctrl-C ends the demo").await;
    demo.signal(Signal::INT);
    demo.says("The receiver got").await;
    assert!(demo.child.wait().await.unwrap().success());
    let said = demo.said.join("\n");
    for event in [
        "demo-tick was fired and succeeded",
        "demo-report was fired and failed",
        "demo-backup was fired, and waits",
        "ALERT RECEIVED, signature verified: job.failed demo-report: The only attempt",
        "ALERT RECEIVED, signature verified: job.missed demo-backup: ",
        "the queue demo-night is paused",
        "ALERT RECEIVED, signature verified: job.recovered demo-report: ",
        "ALERT RECEIVED, signature verified: job.recovered demo-backup: ",
    ] {
        assert!(said.contains(event), "{event}: {said}");
    }
    assert!(said.contains("got 4 messages, 4 of them with the right signature"), "{said}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "its data is removed: {said}");
    assert!(tokio::net::TcpStream::connect(&server).await.is_err(), "its server has ended");
}

#[tokio::test]
async fn the_demo_of_alerts_ends_after_its_time_and_reports_to_programs() {
    let directory = tempfile::tempdir().unwrap();
    let output = tokio::process::Command::new(BINARY)
        .args(["demo", "--alerts", "--for", "1ms", "-o", "json"])
        .env("TMPDIR", directory.path())
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report, serde_json::json!({"messages": []}));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn the_server_of_a_killed_demo_ends_too() {
    let directory = tempfile::tempdir().unwrap();
    let mut demo = AlertDemo::start(directory.path(), &[]);
    let server = demo.server().await;
    assert!(tokio::net::TcpStream::connect(&server).await.is_ok());
    demo.signal(Signal::KILL);
    eventually("its server ends", async || tokio::net::TcpStream::connect(&server).await.is_err()).await;
}
