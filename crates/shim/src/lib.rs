//! `punctual __shim`: runs one command for a worker and leaves no process of it behind.
//!
//! The shim is the subreaper of every process that the command starts: a process that loses its parent, even
//! after `setsid`, becomes a child of the shim. So the tree is gone exactly when the kernel reports that the
//! shim has no children left, and until then every process can be found from here. The shim stops the tree
//! when the worker asks for it, when the pipe from the worker closes (the worker dropped the execution, or is
//! dead), and when the command itself has ended.
//!
//! A command may stop or kill its shim. The worker and [`crate::containment`] handle that case; the shim puts
//! the command into its cgroup or its PID namespace. [`crate::sandbox`] decides what the command can reach.
//!
//! It has one thread: reaping and signalling alternate, so that no signal reaches a process that has reused
//! the pid of a dead one.

mod cgroups;
pub mod containment;
mod exec;
mod handed;
mod lines;
mod mountinfo;
mod namespace;
mod notes;
mod output;
pub mod sandbox;
mod tree;

pub use cgroups::place as cgroup_place;
pub use exec::{SUBCOMMAND as EXEC_SUBCOMMAND, run as exec};
pub use namespace::{INIT_SUBCOMMAND, run_init};
pub use tree::signal_all as signal_below;

use crate::containment::Owner;
use cgroups::{Cgroups, Entrance};
use exec::{Setup, WorkingDir};
use handed::Handed;
use namespace::{InitSetup, StatusPipe};
use notes::Notebook;
use output::{Outlet, Output, Pump};
use punctual_core::job::ResultOverflow;
use punctual_worker::process::ShimCommand;
use punctual_worker::process::containment::Containment;
use punctual_worker::process::protocol::{
    CommandEnd, Frame, Hold, How, Landlock, REQUEST_BYTES_MAX, Request, STOP_AT_ONCE, STOP_POLITELY,
};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, geteuid, getpid};
use sandbox::mounts::Mounts;
use sandbox::scratch::Scratch;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::pipe;
use tokio::process::ChildStdin;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

pub const SUBCOMMAND: &str = "__shim";

/// The running program, even after its file was replaced by another version.
pub const THIS_PROGRAM: &str = "/proc/self/exe";
/// The variables of the server's environment that commands get. All others may be secret.
const PASSED_ENV: [&str; 7] = ["PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ"];
const PASSED_ENV_PREFIX: &str = "LC_";
/// The search path if the server itself has no PATH.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The first and the longest pause between two rounds of SIGKILL. The second round is for processes that were
/// being forked during the first one, later ones for processes that do not die, such as another user's.
const KILL_PAUSE_MIN: Duration = Duration::from_millis(10);
const KILL_PAUSE_MAX: Duration = Duration::from_secs(1);

/// How a worker of this process starts shims. The arguments identify the worker, so that a later one finds
/// shims that this one has left behind.
pub fn command(containment: Arc<dyn Containment>) -> ShimCommand {
    let mut env: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| PASSED_ENV.contains(&name.as_str()) || name.starts_with(PASSED_ENV_PREFIX))
        .collect();
    env.entry("PATH".to_owned()).or_insert_with(|| DEFAULT_PATH.to_owned());
    let args = vec![SUBCOMMAND.into(), Owner::this().to_string().into()];
    ShimCommand { program: THIS_PROGRAM.into(), args, env, containment }
}

pub fn run() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.and_then(|runtime| runtime.block_on(serve())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: the shim of a command failed: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> io::Result<()> {
    let _ = rustix::thread::set_name(c"punctual-shim");
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let outlet = Outlet::new(pipe::Sender::from_owned_fd(io::stdout().as_fd().try_clone_to_owned()?)?);
    let mut inlet = BufReader::new(pipe::Receiver::from_owned_fd(io::stdin().as_fd().try_clone_to_owned()?)?);
    let Some(mut request) = read_request(&mut inlet).await? else { return Ok(()) };
    let signals = ShimSignals::listen()?;
    let sandbox = &request.enclosure.sandbox;
    let notes = sandbox.notes().to_string_lossy().into_owned();
    let (scratch, notebook) = match Scratch::create(sandbox).and_then(|scratch| {
        let notebook = Notebook::open(&sandbox.notes())?;
        Ok((scratch, notebook))
    }) {
        Ok(both) => both,
        Err(error) => {
            let text = format!("{} cannot be created: {error}", sandbox.scratch.display());
            outlet.send(&[Frame::Ended(CannotStart { text, is_permanent: false }.into())]).await;
            return Ok(());
        }
    };
    request.env.insert(notes::VARIABLE.to_owned(), notes);
    let ended = match prepared(&request) {
        Ok((cgroups, nonce, started)) => {
            let tree = Tree::new(started, &request, outlet.clone(), nonce, notebook)?;
            tree.run(inlet, signals, &cgroups).await
        }
        Err(problem) => problem.into(),
    };
    // Before the end is reported: the next attempt may need the space.
    drop(scratch);
    outlet.send(&[Frame::Ended(ended)]).await;
    Ok(())
}

/// Starts the command in its cgroups.
fn prepared(request: &Request) -> Result<(Cgroups, String, StartedCommand), CannotStart> {
    let later = |text: String| CannotStart { text, is_permanent: false };
    let cgroups = Cgroups::create(&request.enclosure, request.limits)
        .map_err(|error| later(format!("the cgroup of the command cannot be created: {error}")))?;
    let nonce = nonce().map_err(|error| later(format!("cannot read randomness: {error}")))?;
    let started = start(request, &cgroups, &nonce)?;
    Ok((cgroups, nonce, started))
}

/// The request, or `None` if the worker disconnected before it was complete.
async fn read_request(inlet: &mut BufReader<pipe::Receiver>) -> io::Result<Option<Request>> {
    let mut line = Vec::new();
    inlet.take(REQUEST_BYTES_MAX as u64).read_until(b'\n', &mut line).await?;
    if !line.ends_with(b"\n") {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(&line)?))
}

/// A text that no command can guess.
pub(crate) fn nonce() -> io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(u128::from_le_bytes(bytes).to_string())
}

/// The signals that a shim handles.
struct ShimSignals {
    child: tokio::signal::unix::Signal,
    /// Handled so that they do not end the shim: only the worker decides when the command stops.
    _ignored: Vec<tokio::signal::unix::Signal>,
}

impl ShimSignals {
    fn listen() -> io::Result<Self> {
        let ignored = [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::terminate()];
        Ok(ShimSignals {
            child: signal(SignalKind::child())?,
            _ignored: ignored.into_iter().map(signal).collect::<io::Result<_>>()?,
        })
    }
}

/// Why the command was not started.
struct CannotStart {
    text: String,
    is_permanent: bool,
}

impl From<CannotStart> for CommandEnd {
    fn from(problem: CannotStart) -> Self {
        CommandEnd {
            how: How::CannotStart { problem: problem.text, is_permanent: problem.is_permanent },
            result: None,
            overflow: None,
            stderr_tail: vec![],
            out_of_memory: false,
            was_stopped: false,
        }
    }
}

/// A command that has just been started.
struct StartedCommand {
    child: Child,
    /// Reports how the command ended where the child is not the command itself.
    status_pipe: Option<StatusPipe>,
}

fn start(request: &Request, cgroups: &Cgroups, nonce: &str) -> Result<StartedCommand, CannotStart> {
    let sandbox = &request.enclosure.sandbox;
    let limits = request.limits;
    // Open until the command has inherited them: by their paths, they may be read-only for it.
    let entrances = cgroups.entrances().map_err(|error| CannotStart {
        text: format!("the cgroups of the command cannot be used: {error}"),
        is_permanent: false,
    })?;
    let setup = Setup {
        cgroups: entrances.iter().map(Entrance::path).collect(),
        memory_bytes: limits.memory_bytes.filter(|_| !cgroups.limit_memory()),
        cpu_secs: limits.cpu_secs,
        // Counted here: the command's own `/proc` may not show the other processes of its user.
        processes: limits
            .processes
            .filter(|_| !cgroups.limit_processes())
            .map(|most| most + exec::processes_of(sandbox.account.as_ref())),
        cwd: working_dir(request),
        account: sandbox.account.clone(),
        landlock: sandbox.landlock.clone(),
        scratch: sandbox.scratch.clone(),
    };
    let setup = hand_over(&setup)?;
    let mut command = Command::new(THIS_PROGRAM);
    let namespace = match request.enclosure.hold {
        Hold::ShimOnly | Hold::Cgroup { .. } if !sandbox.namespaces => None,
        _ => Some(enter_namespace(&mut command, request)?),
    };
    command
        .arg(exec::SUBCOMMAND)
        .arg(setup.argument())
        .args(&request.command)
        .env_clear()
        .envs(request.env.iter().map(|(name, value)| (exec::carried_name(name), value)))
        .env(exec::NONCE_VARIABLE, nonce)
        // Nothing refers to a directory that is hidden later; the last stage enters the command's own.
        .current_dir("/")
        .process_group(0)
        .stdin(if request.stdin.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().map_err(|error| exec::cannot_start(&request.command[0], &error))?;
    if namespace.is_some() && !geteuid().is_root() {
        // Giving up rights always works.
        let _ = namespace::drop_capabilities();
    }
    Ok(StartedCommand { child, status_pipe: namespace.map(|(status_pipe, _)| status_pipe) })
}

/// Commands see the arguments of the stage before them, which must not show the paths that are hidden from them.
fn hand_over(setup: &impl serde::Serialize) -> Result<Handed, CannotStart> {
    Handed::new(setup).map_err(|error| CannotStart {
        text: format!("the setup of the command cannot be passed on: {error}"),
        is_permanent: false,
    })
}

/// Where the command runs: by default in the worker's directory, unless it is hidden or the command has
/// another user.
fn working_dir(request: &Request) -> WorkingDir {
    if let Some(path) = &request.cwd {
        return WorkingDir { path: path.clone(), is_given: true };
    }
    let sandbox = &request.enclosure.sandbox;
    let hidden: Vec<&PathBuf> = match &sandbox.landlock {
        _ if sandbox.namespaces => sandbox.hidden.iter().map(|place| &place.path).collect(),
        Landlock::Denies(paths) => paths.iter().collect(),
        Landlock::Off => vec![],
    };
    let is_hidden = |dir: &Path| {
        hidden.iter().filter_map(|path| path.canonicalize().ok()).any(|path| dir.starts_with(path))
    };
    let own = std::env::current_dir().ok().filter(|dir| sandbox.account.is_none() && !is_hidden(dir));
    WorkingDir { path: own.unwrap_or_else(|| sandbox.temporary_dir()), is_given: false }
}

/// Makes the command start under the first process of a new PID namespace, whose setup is open until then.
fn enter_namespace(command: &mut Command, request: &Request) -> Result<(StatusPipe, Handed), CannotStart> {
    let sandbox = &request.enclosure.sandbox;
    let unshared = if sandbox.namespaces { namespace::unshare_for_mounts() } else { namespace::unshare() };
    let opened = unshared.and_then(|()| StatusPipe::open());
    let status_pipe = opened.map_err(|error| CannotStart {
        text: format!("the PID namespace of the command cannot be created: {error}"),
        is_permanent: false,
    })?;
    let mounts = sandbox.namespaces.then(|| Mounts {
        hidden: sandbox.hidden.clone(),
        scratch: sandbox.scratch.clone(),
        protects_kernel: sandbox.protects_kernel,
    });
    let setup = hand_over(&InitSetup::new(&status_pipe, request.kill_grace, mounts))?;
    command.arg(INIT_SUBCOMMAND).arg(setup.argument());
    Ok((status_pipe, setup))
}

/// A command with all processes that it has started.
struct Tree {
    main: Pid,
    kill_grace: Duration,
    outlet: Arc<Outlet>,
    stdout: tokio::task::JoinHandle<Output>,
    stderr: tokio::task::JoinHandle<Output>,
    /// Forwards the command's notes.
    noted: tokio::task::JoinHandle<()>,
    /// Becomes true when no process of the tree is left.
    is_dead: watch::Sender<bool>,
    /// Messages of the shim itself that are being sent.
    words: tokio::task::JoinSet<()>,
    status: Option<WaitStatus>,
    status_pipe: Option<StatusPipe>,
    phase: TreePhase,
    was_stopped: bool,
    /// Whether a large result is stored as a blob.
    stores_blob: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TreePhase {
    Running,
    /// SIGTERM was sent; SIGKILL follows at this time.
    Stopping(Instant),
    Killing,
}

impl Tree {
    fn new(
        StartedCommand { mut child, status_pipe }: StartedCommand,
        request: &Request,
        outlet: Arc<Outlet>,
        nonce: String,
        notebook: Notebook,
    ) -> io::Result<Self> {
        let (is_dead, dead) = watch::channel(false);
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(io::Error::other("the pipes of the command are missing"));
        };
        if let (Some(stdin), Some(text)) = (child.stdin.take(), request.stdin.clone()) {
            let mut stdin = ChildStdin::from_std(stdin)?;
            // A command need not read its input.
            tokio::spawn(async move { stdin.write_all(text.as_bytes()).await });
        }
        let noted = tokio::spawn(notebook.pass_on(outlet.clone(), dead.clone()));
        let pump = Pump::new(outlet.clone(), request.limits.output_bytes, nonce, dead);
        let stores_blob = request.limits.result_overflow == ResultOverflow::Blob;
        let stdout_pump = pump.clone().forwarding_long_lines(stores_blob);
        let stdout = tokio::process::ChildStdout::from_std(stdout)?;
        let stderr = tokio::process::ChildStderr::from_std(stderr)?;
        Ok(Tree {
            main: Pid::from_child(&child),
            kill_grace: request.kill_grace,
            outlet,
            stdout: tokio::spawn(stdout_pump.run(stdout, Frame::Stdout)),
            stderr: tokio::spawn(pump.run(stderr, Frame::Stderr)),
            noted,
            is_dead,
            words: tokio::task::JoinSet::new(),
            status: None,
            status_pipe,
            phase: TreePhase::Running,
            was_stopped: false,
            stores_blob,
        })
    }

    async fn run(
        mut self,
        inlet: BufReader<pipe::Receiver>,
        mut signals: ShimSignals,
        cgroups: &Cgroups,
    ) -> CommandEnd {
        let mut stops = listen(inlet);
        let mut kill_pause = KILL_PAUSE_MIN;
        while self.reap() {
            if self.status.is_some() && self.phase == TreePhase::Running {
                self.note("the command left processes running: stopping them".to_owned());
                self.stop_politely();
            }
            let wakes_at = match self.phase {
                TreePhase::Running => None,
                TreePhase::Stopping(until) => Some(until),
                TreePhase::Killing => {
                    cgroups.kill();
                    tree::signal_all(getpid(), Signal::KILL);
                    let wakes_at = Instant::now() + kill_pause;
                    kill_pause = (kill_pause * 2).min(KILL_PAUSE_MAX);
                    Some(wakes_at)
                }
            };
            tokio::select! {
                biased;
                Some(stop) = stops.recv() => self.stop(stop),
                _ = signals.child.recv() => {}
                () = wake_at(wakes_at) => self.woken(),
            }
        }
        self.is_dead.send_replace(true);
        self.ended(cgroups).await
    }

    /// Reaps ended processes; returns whether any are left.
    fn reap(&mut self) -> bool {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.main => self.status = Some(status),
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                Ok(None) => return true,
                // No children: nothing is left.
                Err(_) => return false,
            }
        }
    }

    fn stop(&mut self, stop: u8) {
        let has_ended = self.status_pipe.as_ref().map_or(self.status.is_some(), StatusPipe::has_report);
        self.was_stopped |= !has_ended;
        match (stop, self.phase) {
            (STOP_POLITELY, TreePhase::Running) => {
                self.note(format!("asked to stop: SIGTERM, and SIGKILL after {:?}", self.kill_grace));
                self.stop_politely();
            }
            (STOP_POLITELY, _) => {}
            _ => self.phase = TreePhase::Killing,
        }
    }

    fn stop_politely(&mut self) {
        tree::signal_all(getpid(), Signal::TERM);
        self.phase = TreePhase::Stopping(Instant::now() + self.kill_grace);
    }

    fn woken(&mut self) {
        if let TreePhase::Stopping(_) = self.phase {
            self.note(format!("still running {:?} after SIGTERM: SIGKILL", self.kill_grace));
            self.phase = TreePhase::Killing;
        }
    }

    /// Sends a message without waiting for a slow worker: stopping comes first.
    fn note(&mut self, text: String) {
        let outlet = self.outlet.clone();
        self.words.spawn(async move { outlet.send(&[Frame::Note(text)]).await });
    }

    async fn ended(self, cgroups: &Cgroups) -> CommandEnd {
        self.words.join_all().await;
        let _ = self.noted.await;
        let stdout = self.stdout.await.unwrap_or_default();
        let stderr = self.stderr.await.unwrap_or_default();
        let reported = stderr.cannot_start.or_else(|| self.status_pipe.and_then(StatusPipe::read));
        let how = ending(reported, self.status.map(how));
        let overflow = stdout.overflow();
        let result = match stdout.result() {
            Ok(result) => result,
            Err(_) if self.stores_blob && overflow.is_some() => None,
            Err(problem) => {
                self.outlet.send(&[Frame::Note(problem)]).await;
                None
            }
        };
        CommandEnd {
            how,
            result,
            overflow,
            stderr_tail: stderr.tail.into(),
            out_of_memory: cgroups.out_of_memory(),
            was_stopped: self.was_stopped,
        }
    }
}

async fn wake_at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// How the command ended: by the report of another stage, and by the status of the child, which is the command or ends
/// with the command's exit code. A command may be able to forge the report, but not the status, so a report never
/// contradicts an exit code. The first process of a namespace has none if it was killed after the command had ended.
fn ending(reported: Option<How>, status: Option<How>) -> How {
    match (reported, status) {
        (_, Some(How::Exited { code: 0 })) => How::Exited { code: 0 },
        (Some(How::Exited { .. }), Some(How::Exited { code })) => How::Exited { code },
        (Some(reported), _) => reported,
        (None, Some(status)) => status,
        (None, None) => How::Exited { code: -1 },
    }
}

fn how(status: WaitStatus) -> How {
    match (status.exit_status(), status.terminating_signal()) {
        (_, Some(signal)) => How::Signaled { signal },
        (code, None) => How::Exited { code: code.unwrap_or(-1) },
    }
}

/// Forwards the worker's requests. A closed pipe is the most urgent stop.
fn listen(mut inlet: BufReader<pipe::Receiver>) -> mpsc::Receiver<u8> {
    let (sender, receiver) = mpsc::channel(4);
    tokio::spawn(async move {
        loop {
            let stop = inlet.read_u8().await;
            let is_last = stop.is_err();
            if sender.send(stop.unwrap_or(STOP_AT_ONCE)).await.is_err() || is_last {
                return;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_never_contradicts_an_exit_code() {
        let exited = |code: i32| How::Exited { code };
        let killed = How::Signaled { signal: 9 };
        let not_started = How::CannotStart { problem: "no".to_owned(), is_permanent: true };
        for (reported, status, how) in [
            (Some(exited(0)), Some(exited(3)), exited(3)),
            (Some(exited(3)), Some(exited(0)), exited(0)),
            (Some(not_started.clone()), Some(exited(0)), exited(0)),
            (Some(not_started.clone()), Some(exited(1)), not_started),
            (Some(killed.clone()), Some(exited(1)), killed.clone()),
            (Some(exited(0)), Some(killed.clone()), exited(0)),
            (None, Some(killed.clone()), killed),
            (None, None, exited(-1)),
        ] {
            assert_eq!(ending(reported.clone(), status.clone()), how, "{reported:?} {status:?}");
        }
    }
}
