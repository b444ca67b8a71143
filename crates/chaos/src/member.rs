//! One process of the cluster: started, restarted when it ends, as systemd would, and killed, stopped, paused
//! and given a wrong clock on request.

use crate::plan::Role;
use anyhow::{Context, Result, bail};
use punctual_core::time::Timestamp;
use punctual_link::Link;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;

/// Pause before a process that has ended by itself is restarted.
const RESTART_PAUSE: Duration = Duration::from_millis(300);
/// Log lines shown of a process that could not be started.
const LOG_LINES_SHOWN_MAX: usize = 30;
/// The exit code of `punctual` when its database is unavailable at the start.
const UNAVAILABLE_EXIT: i32 = 7;

/// How to start it.
#[derive(Debug, Clone)]
pub struct MemberLaunch {
    pub binary: PathBuf,
    pub arguments: Vec<String>,
    /// The store URL that the process uses.
    pub store: String,
    /// Its data directory, which also holds its log.
    pub data: PathBuf,
    pub log: PathBuf,
    /// The library that changes its wall clock, if there is one.
    pub faketime: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DesiredState {
    Up,
    Down,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcessStatus {
    Gone,
    Starting(Pid),
    Ready(Pid),
}

impl ProcessStatus {
    fn pid(self) -> Option<Pid> {
        match self {
            ProcessStatus::Gone => None,
            ProcessStatus::Starting(pid) | ProcessStatus::Ready(pid) => Some(pid),
        }
    }
}

/// An end without an order.
#[derive(Debug, Clone, Serialize)]
pub struct UnorderedEnd {
    pub member: String,
    pub at: Timestamp,
    pub status: String,
    /// It could not start because its database was unavailable, which is correct.
    pub is_expected: bool,
}

pub struct MemberProcess {
    pub name: String,
    pub role: Role,
    /// The fault proxy to the database.
    pub link: Link,
    /// The fault proxy for its clients, if it is an API node.
    pub front: Option<Arc<Link>>,
    clock: PathBuf,
    log: PathBuf,
    binary: watch::Sender<PathBuf>,
    wanted: watch::Sender<DesiredState>,
    status: watch::Receiver<ProcessStatus>,
    ends: Arc<Mutex<Vec<UnorderedEnd>>>,
}

impl MemberProcess {
    pub fn start(
        name: &str,
        role: Role,
        link: Link,
        front: Option<Arc<Link>>,
        launch: MemberLaunch,
    ) -> Result<Self> {
        let clock = launch.data.join("clock");
        std::fs::create_dir_all(&launch.data)?;
        std::fs::write(&clock, "+0\n")?;
        let (wanted, status) =
            (watch::Sender::new(DesiredState::Up), watch::Sender::new(ProcessStatus::Gone));
        let ends = Arc::new(Mutex::new(Vec::new()));
        let binary = watch::Sender::new(launch.binary.clone());
        let member = MemberProcess {
            name: name.to_owned(),
            role,
            link,
            front: front.clone(),
            clock: clock.clone(),
            log: launch.log.clone(),
            status: status.subscribe(),
            ends: ends.clone(),
            wanted: wanted.clone(),
            binary: binary.clone(),
        };
        let binary = binary.subscribe();
        let supervisor = Supervisor { name: name.to_owned(), launch, binary, clock, front, status, ends };
        tokio::spawn(supervisor.keep(wanted.subscribe()));
        Ok(member)
    }

    /// Waits until it reports that it is ready.
    pub async fn is_ready(&self) {
        let _ = self.status.clone().wait_for(|status| matches!(status, ProcessStatus::Ready(_))).await;
    }

    /// Waits until it is ready for the first time. If it ends instead, the error contains the end of its log.
    pub async fn begins(&self) -> Result<()> {
        let failure = || self.unordered_ends().into_iter().find(|end| !end.is_expected);
        let is_known =
            |status: &ProcessStatus| matches!(status, ProcessStatus::Ready(_)) || failure().is_some();
        let _ = self.status.clone().wait_for(is_known).await;
        let Some(end) = failure() else { return Ok(()) };
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(LOG_LINES_SHOWN_MAX)..].join("\n");
        bail!("{} exited at its first start ({}):\n{last}", self.name, end.status)
    }

    /// Kills it and keeps it down.
    pub async fn kill(&self) {
        self.end(Signal::KILL).await;
    }

    /// Asks it to end, and keeps it down.
    pub async fn terminate(&self) {
        self.end(Signal::TERM).await;
    }

    async fn end(&self, signal: Signal) {
        self.wanted.send_replace(DesiredState::Down);
        let mut status = self.status.clone();
        let pid = status.borrow().pid();
        self.signal(pid, signal);
        let _ = status.wait_for(|status| *status == ProcessStatus::Gone).await;
    }

    /// Starts it again, and waits until it is ready.
    pub async fn start_again(&self) {
        self.wanted.send_replace(DesiredState::Up);
        self.is_ready().await;
    }

    /// Sets the binary for the next start.
    pub fn set_binary(&self, binary: &Path) {
        self.binary.send_replace(binary.to_owned());
    }

    /// Stops it until it is resumed.
    pub fn pause(&self) {
        self.signal(self.status.borrow().pid(), Signal::STOP);
    }

    pub fn go_on(&self) {
        self.signal(self.status.borrow().pid(), Signal::CONT);
    }

    /// Sets its wall clock off by this much; 0 corrects it.
    pub fn set_clock(&self, seconds: i64) -> Result<()> {
        // Atomically: the process may read it at any moment.
        let beside = self.clock.with_extension("new");
        std::fs::write(&beside, format!("{seconds:+}\n"))?;
        Ok(std::fs::rename(&beside, &self.clock)?)
    }

    /// Ends without an order.
    pub fn unordered_ends(&self) -> Vec<UnorderedEnd> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn signal(&self, pid: Option<Pid>, signal: Signal) {
        if let Some(pid) = pid {
            // It may have ended by itself just now.
            let _ = kill_process(pid, signal);
        }
    }
}

/// Keeps a process running for as long as it is wanted.
struct Supervisor {
    name: String,
    launch: MemberLaunch,
    binary: watch::Receiver<PathBuf>,
    clock: PathBuf,
    front: Option<Arc<Link>>,
    status: watch::Sender<ProcessStatus>,
    ends: Arc<Mutex<Vec<UnorderedEnd>>>,
}

impl Supervisor {
    async fn keep(self, mut wanted: watch::Receiver<DesiredState>) {
        while wanted.wait_for(|wanted| *wanted == DesiredState::Up).await.is_ok() {
            let outcome = self.live(&wanted).await;
            if *wanted.borrow() == DesiredState::Down {
                self.status.send_replace(ProcessStatus::Gone);
                continue;
            }
            let (status, code) = match outcome {
                Ok(status) => (status.to_string(), status.code()),
                Err(error) => (format!("{error:#}"), None),
            };
            self.ends.lock().unwrap_or_else(PoisonError::into_inner).push(UnorderedEnd {
                member: self.name.clone(),
                at: now(),
                status,
                is_expected: code == Some(UNAVAILABLE_EXIT),
            });
            // Recorded before the status shows that it is gone.
            self.status.send_replace(ProcessStatus::Gone);
            tokio::time::sleep(RESTART_PAUSE).await;
        }
    }

    /// One process, from its start to its end.
    async fn live(&self, wanted: &watch::Receiver<DesiredState>) -> Result<ExitStatus> {
        let mut child = self.spawn()?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let pid = pid.context("it has no process id")?;
        self.status.send_replace(ProcessStatus::Starting(pid));
        // A caller that wanted it down a moment ago may have found no process to kill.
        if *wanted.borrow() == DesiredState::Down {
            child.start_kill()?;
        }
        let mut output = BufReader::new(child.stdout.take().context("it has no output")?);
        let mut greeting = String::new();
        output.read_line(&mut greeting).await?;
        if !greeting.is_empty() {
            if let (Some(front), Some((_, address))) = (&self.front, greeting.trim().split_once("http://")) {
                front.set_target(address);
            }
            self.status.send_replace(ProcessStatus::Ready(pid));
        }
        // The rest is not used, but the pipe must be drained.
        let drained = tokio::spawn(async move { output.read_to_end(&mut Vec::new()).await });
        let status = child.wait().await?;
        drained.abort();
        Ok(status)
    }

    fn spawn(&self) -> Result<Child> {
        let launch = &self.launch;
        let binary = self.binary.borrow().clone();
        let mut command = launcher(&binary);
        command.args(&launch.arguments).arg("--data-dir").arg(&launch.data);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PUNCTUAL_") {
                command.env_remove(name);
            }
        }
        // In an environment variable, because a URL with a password must not be visible to other users.
        command.env("PUNCTUAL_STORE", &launch.store).env("NO_COLOR", "1");
        if let Some(library) = &launch.faketime {
            command.env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", &self.clock);
            command.env("FAKETIME_CACHE_DURATION", "1");
            // Two names, for older and newer versions of the library.
            command.env("DONT_FAKE_MONOTONIC", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        let log = OpenOptions::new().create(true).append(true).open(&launch.log)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
        command.spawn().with_context(|| format!("start {}", binary.display()))
    }
}

/// Starts a program so that it is killed when this process ends, where `setpriv` is available.
fn launcher(binary: &Path) -> Command {
    let setpriv = Path::new("/usr/bin/setpriv");
    if !setpriv.exists() {
        return Command::new(binary);
    }
    let mut command = Command::new(setpriv);
    command.args(["--pdeathsig", "KILL", "--"]).arg(binary);
    command
}

/// By this machine's clock, which is also the database's.
pub fn now() -> Timestamp {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let micros = since_epoch.map_or(0, |since| since.as_micros());
    Timestamp::from_micros(i64::try_from(micros).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[tokio::test]
    async fn a_process_that_cannot_start_is_reported_with_the_end_of_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let binary = folder.path().join("punctual");
        std::fs::write(&binary, "#!/bin/sh\necho 'the tables are too new' >&2\nexit 3\n").unwrap();
        std::fs::set_permissions(&binary, std::fs::Permissions::from_mode(0o755)).unwrap();
        let launch = MemberLaunch {
            binary,
            arguments: vec![],
            store: String::new(),
            data: folder.path().join("data"),
            log: folder.path().join("log"),
            faketime: None,
        };
        let link = Link::open("").await.unwrap();
        let member = MemberProcess::start("scheduler-1", Role::Scheduler, link, None, launch).unwrap();
        let error = member.begins().await.unwrap_err().to_string();
        assert_eq!(error, "scheduler-1 exited at its first start (exit status: 3):\nthe tables are too new");
    }
}
