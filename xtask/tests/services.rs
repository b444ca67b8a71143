//! `cargo xtask services` through its binary, with real servers: where they are, and that nothing of them is left.

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, PipeReader};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A run of `xtask services` whose servers are ready.
struct Services {
    xtask: Child,
    /// What it says to people and what it prints, in one.
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
        let xtask = command.stdout(writer.try_clone().unwrap()).stderr(writer).spawn().unwrap();
        // With the command's own ends open, the output would never end.
        drop(command);
        let output = BufReader::new(reader);
        let mut services =
            Services { xtask, output, said: String::new(), addresses: vec![], folder: PathBuf::new() };
        while services.folder == Path::new("") {
            let line = services.line();
            if let Some((_, address)) = line.split_once("://punctual:punctual@") {
                services.addresses.push(address.split('/').next().unwrap().to_owned());
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

    /// The end of xtask itself.
    fn end(&mut self) -> ExitStatus {
        self.xtask.wait().unwrap()
    }

    /// Nothing listens, nothing runs, nothing lies around.
    fn are_gone(&self) -> bool {
        let nobody_listens = self.addresses.iter().all(|address| TcpStream::connect(address).is_err());
        nobody_listens && processes_in(&self.folder).is_empty() && !self.folder.exists()
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        // The guard sees to the rest.
        let _ = self.xtask.kill();
        let _ = self.xtask.wait();
    }
}

/// Servers work in the folder of their data, and so does all that they start.
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
            reason = "nobody signals the end of processes that are not our children"
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
fn two_runs_at_once_do_not_meet() {
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
fn a_command_is_told_to_end_before_its_servers_are() {
    let script = "trap 'echo told; exec true' TERM; echo waiting; while :; do sleep 0.05; done";
    let mut services = Services::begin(&["run", "postgres", "--", "sh", "-c", script]);
    assert_eq!(services.line(), "waiting");
    services.send(Signal::TERM);
    assert_eq!(services.line(), "told");
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
