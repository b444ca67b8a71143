//! All child processes that have not ended yet.

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};
use std::io::{BufReader, PipeReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Default)]
pub struct Children {
    state: Mutex<ChildrenState>,
    /// Notified when a process has ended.
    ended: Condvar,
}

#[derive(Default)]
struct ChildrenState {
    /// No further process may start.
    is_closed: bool,
    running: Vec<RunningChild>,
}

struct RunningChild {
    child: Child,
    id: Pid,
    stop_signal: Signal,
}

impl Children {
    /// Starts a command as the leader of a process group. Returns the output of it and all its descendants,
    /// until the last of them has ended.
    pub fn spawn(&self, command: &mut Command, stop_signal: Signal) -> Result<(Pid, BufReader<PipeReader>)> {
        let mut state = self.state();
        ensure!(!state.is_closed, "the services are being stopped");
        let (reader, writer) = std::io::pipe()?;
        command.stdout(writer.try_clone()?).stderr(writer).process_group(0);
        let spawned = command.spawn().with_context(|| format!("start {command:?}"));
        // `command` still holds the write ends of the pipe; while they are open, the output would never end.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = spawned?;
        let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("an invalid process id")?;
        state.running.push(RunningChild { child, id, stop_signal });
        Ok((id, BufReader::new(reader)))
    }

    /// Waits for a process whose output has ended.
    pub fn wait(&self, id: Pid) -> Result<ExitStatus> {
        // It stays in the list, and can be killed, for as long as it runs.
        waitid(WaitId::Pid(id), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
        let mut state = self.state();
        let at = state.running.iter().position(|running| running.id == id).context("waited for already")?;
        // Removed from the list together with its end: the pid may be reused from then on.
        let status = state.running.remove(at).child.wait();
        self.ended.notify_all();
        Ok(status?)
    }

    /// Kills one, with its group.
    pub fn kill(&self, id: Pid) {
        if self.state().running.iter().any(|running| running.id == id) {
            let _ = kill_process_group(id, Signal::KILL);
        }
    }

    /// Asks one to end with a signal.
    pub fn stop(&self, id: Pid, signal: Signal) {
        if self.state().running.iter().any(|running| running.id == id) {
            let _ = kill_process(id, signal);
        }
    }

    /// Asks all of them to end, and lets no other one start.
    pub fn stop_all(&self) {
        let mut state = self.state();
        state.is_closed = true;
        for running in &state.running {
            let _ = kill_process_group(running.id, running.stop_signal);
        }
    }

    /// Kills all that are left, with their descendants.
    pub fn kill_all(&self) {
        let mut state = self.state();
        state.is_closed = true;
        for running in &state.running {
            let _ = kill_process_group(running.id, Signal::KILL);
        }
    }

    /// Whether all have ended within this time.
    pub fn have_ended_within(&self, time_max: Duration) -> bool {
        let some_run = |state: &mut ChildrenState| !state.running.is_empty();
        let waited = self.ended.wait_timeout_while(self.state(), time_max, some_run);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn state(&self) -> MutexGuard<'_, ChildrenState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Kills every process whose working directory is below a folder. The processes of PostgreSQL need this: each
/// is in its own group.
pub fn kill_all_in(folder: &Path) -> Result<()> {
    for entry in std::fs::read_dir("/proc").context("read /proc")? {
        let process = entry?.path();
        let id = process.file_name().and_then(|name| name.to_str()?.parse().ok()).and_then(Pid::from_raw);
        let is_inside =
            std::fs::read_link(process.join("cwd")).is_ok_and(|working| working.starts_with(folder));
        if let (Some(id), true) = (id, is_inside) {
            let _ = kill_process(id, Signal::KILL);
        }
    }
    Ok(())
}
