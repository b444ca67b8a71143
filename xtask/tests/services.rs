//! Tests `cargo xtask services` through its binary, with real servers: their addresses, and that nothing is
//! left of them.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, PipeReader, Write};
use std::net::TcpStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A run of `xtask services` whose servers are ready.
struct Services {
    xtask: Child,
    /// Its standard output and standard error, combined.
    output: BufReader<PipeReader>,
    said: String,
    addresses: Vec<String>,
    folder: PathBuf,
}

impl Services {
    fn begin(words: &[&str]) -> Services {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        let (reader, writer) = std::io::pipe().unwrap();
        command.arg("services").args(words).stdin(Stdio::null());
        // The tests themselves may have this variable set.
        command.env_remove("PUNCTUAL_TEST_MYSQL");
        let xtask = command.stdout(writer.try_clone().unwrap()).stderr(writer).spawn().unwrap();
        // With the command's own ends of the pipe open, the output would never end.
        drop(command);
        let output = BufReader::new(reader);
        let mut services =
            Services { xtask, output, said: String::new(), addresses: vec![], folder: PathBuf::new() };
        while services.folder == Path::new("") {
            let line = services.line();
            if let Some((_, address)) = line.split_once("://punctual:punctual@") {
                let hosts = address.split('/').next().unwrap();
                services.addresses.extend(hosts.split(',').map(str::to_owned));
            } else if let Some(rest) = line.strip_prefix("# Their data is in ") {
                services.folder = rest.split(',').next().unwrap().into();
            }
        }
        services
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "xtask has ended early: {}", self.said);
        self.said.push_str(&line);
        line.trim_end().to_owned()
    }

    fn send(&self, signal: Signal) {
        let id = i32::try_from(self.xtask.id()).unwrap();
        kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
    }

    /// Waits until xtask itself has ended.
    fn end(&mut self) -> ExitStatus {
        self.xtask.wait().unwrap()
    }

    /// No listener, no process and no file is left.
    fn are_gone(&self) -> bool {
        let nobody_listens = self.addresses.iter().all(|address| TcpStream::connect(address).is_err());
        nobody_listens && processes_in(&self.folder).is_empty() && !self.folder.exists()
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        // The guard ends the rest.
        let _ = self.xtask.kill();
        let _ = self.xtask.wait();
    }
}

/// Servers, and all their descendants, run in the folder of their data.
fn processes_in(folder: &Path) -> Vec<PathBuf> {
    let processes = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let is_inside = |process: &PathBuf| {
        std::fs::read_link(process.join("cwd")).is_ok_and(|working| working.starts_with(folder))
    };
    processes.filter(is_inside).collect()
}

fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        #[expect(
            clippy::disallowed_methods,
            reason = "no signal reports the end of a process that is not our child"
        )]
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_command_finds_its_servers_and_its_outcome_is_passed_on() {
    let script = "echo \"at $PUNCTUAL_TEST_POSTGRES and $PUNCTUAL_TEST_MARIADB, not ${PUNCTUAL_TEST_MYSQL-set}\"; \
                  read line; exit 7";
    let mut services = Services::begin(&["run", "postgres", "mariadb", "--", "sh", "-c", script]);
    let [postgres, mariadb] = &services.addresses[..] else { panic!("{:?}", services.addresses) };
    let expected = format!(
        "at postgres://punctual:punctual@{postgres}/punctual and mysql://punctual:punctual@{mariadb}/punctual, not set"
    );
    assert_eq!(services.line(), expected);
    assert_eq!(services.end().code(), Some(7));
    assert!(services.are_gone());
}

#[test]
fn two_concurrent_runs_are_independent() {
    let (mut first, second) =
        (Services::begin(&["start", "postgres"]), Services::begin(&["start", "postgres"]));
    assert_ne!(first.addresses, second.addresses);
    assert_ne!(first.folder, second.folder);
    assert!(!processes_in(&first.folder).is_empty());
    first.send(Signal::INT);
    first.end();
    assert!(first.are_gone());
    assert!(second.addresses.iter().all(|address| TcpStream::connect(address).is_ok()));
}

#[test]
fn nothing_is_left_after_an_interrupt() {
    let mut services = Services::begin(&["start", "postgres", "mariadb"]);
    services.send(Signal::INT);
    assert_eq!(services.end().signal(), Some(Signal::INT.as_raw()));
    assert!(services.are_gone());
}

#[test]
fn a_command_is_stopped_before_its_servers() {
    let script = "trap 'echo stopped; exec true' TERM; echo waiting; while :; do sleep 0.05; done";
    let mut services = Services::begin(&["run", "postgres", "--", "sh", "-c", script]);
    assert_eq!(services.line(), "waiting");
    services.send(Signal::TERM);
    assert_eq!(services.line(), "stopped");
    assert_eq!(services.end().signal(), Some(Signal::TERM.as_raw()));
    assert!(services.are_gone());
}

#[test]
fn servers_do_not_outlive_a_killed_xtask() {
    let mut services = Services::begin(&["start", "postgres", "mariadb"]);
    services.send(Signal::KILL);
    services.end();
    eventually("the guard ends the servers", || services.are_gone());
}

#[test]
fn a_command_that_cannot_be_started_leaves_nothing_behind() {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["services", "run", "postgres", "--", "/nonexistent/program"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("start /nonexistent/program"), "{said}");
    let folder = said.split("Their data is in ").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
    assert!(!Path::new(folder).exists());
}

#[test]
fn a_server_that_ends_early_is_reported_with_its_output() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["ca.pem", "server.pem", "server.key"] {
        std::fs::write(folder.path().join(name), "not a certificate").unwrap();
    }
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["services", "run", "redis-secured", "--", "true"])
        .env("PUNCTUAL_TEST_CERTIFICATES", folder.path())
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("redis-secured ended: exit status: 1"), "{said}");
    assert!(said.contains("Failed to configure TLS"), "{said}");
}

/// A guard that a test controls itself, as the tests that break a cluster do.
struct Cluster {
    guard: Child,
    lifeline: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    folder: PathBuf,
    addresses: Vec<String>,
}

impl Cluster {
    fn begin(service: &str) -> Cluster {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.args(["services", "hold", service]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut guard = command.process_group(0).spawn().unwrap();
        let answers = BufReader::new(guard.stdout.take().unwrap());
        let lifeline = guard.stdin.take();
        let mut cluster = Cluster { guard, lifeline, answers, folder: PathBuf::new(), addresses: vec![] };
        let ready = cluster.answer();
        cluster.folder = ready["folder"].as_str().unwrap().into();
        let urls = ready["servers"].as_array().unwrap().iter().map(|server| server["url"].as_str().unwrap());
        cluster.addresses = urls.map(|url| url.split(['@', '/']).nth(3).unwrap().to_owned()).collect();
        cluster
    }

    fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("no answer: {line:?}"))
    }

    fn order(&mut self, order: &str) {
        writeln!(self.lifeline.as_mut().unwrap(), "{order}").unwrap();
        let answer = self.answer();
        assert!(answer["error"].is_null(), "{answer}");
    }

    /// Which of its servers accept connections.
    fn listening(&self) -> Vec<bool> {
        self.addresses.iter().map(|address| TcpStream::connect(address).is_ok()).collect()
    }

    /// A server that was killed by a command is not an error.
    fn ends_well(mut self) {
        self.lifeline = None;
        assert!(self.guard.wait().unwrap().success());
        assert!(processes_in(&self.folder).is_empty() && !self.folder.exists());
    }
}

mod replica {
    use super::Cluster;

    #[test]
    fn a_standby_outlives_its_primary_and_nothing_outlives_the_lifeline() {
        let mut cluster = Cluster::begin("replica");
        assert_eq!(cluster.listening(), [true, true]);
        cluster.order("kill replica-primary");
        assert_eq!(cluster.listening(), [false, true]);
        cluster.order("start replica-primary");
        assert_eq!(cluster.listening(), [true, true]);
        cluster.ends_well();
    }
}

mod galera {
    use super::{Cluster, Services};
    use rustix::process::Signal;

    #[test]
    fn a_cluster_survives_a_killed_server_which_can_join_again() {
        let mut cluster = Cluster::begin("galera");
        cluster.order("kill galera-1");
        assert_eq!(cluster.listening(), [false, true, true]);
        cluster.order("start galera-1");
        assert_eq!(cluster.listening(), [true, true, true]);
        cluster.order("kill galera-3");
        cluster.ends_well();
    }

    #[test]
    fn all_servers_are_printed_in_one_url() {
        let mut services = Services::begin(&["start", "galera"]);
        assert_eq!(services.addresses.len(), 3);
        services.send(Signal::TERM);
        services.end();
        assert!(services.are_gone());
    }
}
