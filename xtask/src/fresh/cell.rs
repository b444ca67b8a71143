//! Runs commands in separate namespaces: their mounts are invisible elsewhere, and mounts and processes are
//! gone when they end, even if this process is interrupted or killed.

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub struct NamespaceCell {
    state: Arc<Mutex<CellState>>,
}

#[derive(Default)]
struct CellState {
    /// The program that waits for the first process of the namespaces.
    running: Option<Pid>,
    interrupted_by: Option<i32>,
}

impl NamespaceCell {
    /// Handles signals from now on.
    pub fn watch() -> Result<Self> {
        let state = Arc::new(Mutex::new(CellState::default()));
        let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
        let shared = state.clone();
        std::thread::spawn(move || {
            for signal in signals.forever() {
                let mut state = locked(&shared);
                state.interrupted_by.get_or_insert(signal);
                state.running.into_iter().for_each(end);
            }
        });
        Ok(NamespaceCell { state })
    }

    /// A command to be run by [`NamespaceCell::run`].
    pub fn command(program: impl AsRef<OsStr>) -> Command {
        // If this process is killed, so is the first process in the namespaces, and with it all others.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "unshare", "--mount", "--pid", "--kill-child"]);
        command.args(["--mount-proc", "--"]).arg(program);
        command
    }

    /// Runs a command until it and all processes that it has started have ended.
    pub fn run(&self, command: &mut Command) -> Result<ExitStatus> {
        // A separate process group: Ctrl-C reaches only this process, which ends the group as a whole.
        command.stdin(Stdio::null()).process_group(0);
        let mut state = self.state();
        ensure!(state.interrupted_by.is_none(), "interrupted");
        let mut child = command.spawn().with_context(|| format!("start {command:?}"))?;
        let id = Pid::from_child(&child);
        state.running = Some(id);
        drop(state);
        // It can be signalled for as long as its pid is not reused.
        waitid(WaitId::Pid(id), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
        let mut state = self.state();
        state.running = None;
        let status = child.wait()?;
        ensure!(state.interrupted_by.is_none(), "interrupted");
        Ok(status)
    }

    /// Runs a command that must succeed.
    pub fn succeed(&self, command: &mut Command) -> Result<()> {
        let status = self.run(command)?;
        ensure!(status.success(), "{command:?} failed: {status}");
        Ok(())
    }

    /// Ends this process with the signal that it received.
    pub fn end_if_interrupted(&self) {
        let signal = self.state().interrupted_by;
        if let Some(signal) = signal {
            let _ = emulate_default_handler(signal);
        }
    }

    fn state(&self) -> MutexGuard<'_, CellState> {
        locked(&self.state)
    }
}

fn locked(state: &Mutex<CellState>) -> MutexGuard<'_, CellState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills the first process of the namespaces. Its end is reported only after all others have ended. The
/// program that waits for it has no other children, and is killed itself if it has not started one yet.
fn end(waiting: Pid) {
    let id = waiting.as_raw_nonzero();
    let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    let first = children.split_whitespace().find_map(|id| Pid::from_raw(id.parse().ok()?));
    // It may have ended just now.
    let _ = kill_process(first.unwrap_or(waiting), Signal::KILL);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether this user has the root permissions that `cargo xtask fresh` needs.
    fn is_allowed() -> bool {
        let mut probe = Command::new("unshare");
        probe.args(["--mount", "--pid", "--kill-child", "--mount-proc", "--", "true"]);
        probe.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }

    #[test]
    fn mounts_and_processes_end_with_the_command() {
        if !is_allowed() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (mounted, file) = (folder.path().join("mounted"), folder.path().join("id"));
        std::fs::create_dir(&mounted).unwrap();
        let script = "mount -t tmpfs none \"$1\" && touch \"$1/inside\" && ls \"$1\" > \"$2\"; \
                      sh -c 'sleep 1000; :' \"$1\" & exit 7";
        let cell = NamespaceCell::watch().unwrap();
        let mut command = NamespaceCell::command("sh");
        command.args(["-c", script, "sh"]).arg(&mounted).arg(&file);
        assert_eq!(cell.run(&mut command).unwrap().code(), Some(7));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "inside\n");
        assert_eq!(std::fs::read_dir(&mounted).unwrap().count(), 0, "the mount is gone");
        let processes =
            std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path().join("cmdline"));
        let words = mounted.display().to_string();
        let mut lines = processes.filter_map(|file| std::fs::read_to_string(file).ok());
        assert!(!lines.any(|line| line.contains(&words)), "the process is gone");
    }
}
