//! The worker process that a shim and its cgroups belong to, so that other processes can tell whether it is
//! still running.

use super::cgroup::read;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::fmt;
use std::str::FromStr;

/// The start time of a process when `/proc` does not show it.
const UNKNOWN: u64 = 0;

/// A process, identified so that it cannot be confused with a later one that has the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The PID namespace of the pid.
    namespace: u64,
    pid: u32,
    /// In ticks since boot.
    started_at: u64,
}

impl Owner {
    /// This process.
    pub fn this() -> Self {
        let pid = std::process::id();
        let started_at = match ProcessState::read(pid) {
            Some(ProcessState::Running { started_at: moment }) if proc_shows_own_namespace() => moment,
            _ => UNKNOWN,
        };
        Owner { namespace: own_namespace(), pid, started_at }
    }

    /// Whether the process has certainly ended. Unknown for processes in other PID namespaces.
    pub fn is_gone(&self) -> bool {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        if self.namespace != own_namespace() || !proc_shows_own_namespace() {
            return false;
        }
        match pid.map(test_kill_process) {
            None | Some(Err(Errno::SRCH)) => true,
            // It exists, but `/proc` may hide it.
            Some(_) => match ProcessState::read(self.pid) {
                None => false,
                Some(ProcessState::Ended) => true,
                Some(ProcessState::Running { started_at: moment }) => {
                    self.started_at != UNKNOWN && self.started_at != moment
                }
            },
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}-{}-{}", self.namespace, self.pid, self.started_at)
    }
}

impl FromStr for Owner {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split('-');
        let mut number = || parts.next().and_then(|part| part.parse::<u64>().ok()).ok_or(());
        let (namespace, pid, started_at) = (number()?, number()?, number()?);
        let pid = u32::try_from(pid).map_err(|_| ())?;
        if parts.next().is_some() { Err(()) } else { Ok(Owner { namespace, pid, started_at }) }
    }
}

fn own_namespace() -> u64 {
    // For example "pid:[4026531836]".
    let link = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let link = link.to_string_lossy();
    link.trim_start_matches("pid:[").trim_end_matches(']').parse().unwrap_or_default()
}

/// Whether the pids in `/proc` belong to this process's namespace.
fn proc_shows_own_namespace() -> bool {
    let shown = std::fs::read_link("/proc/self").unwrap_or_default();
    shown.to_str() == Some(&std::process::id().to_string())
}

/// The state of a process in `/proc`.
enum ProcessState {
    /// `started_at` is in ticks since boot.
    Running { started_at: u64 },
    /// Not reaped yet.
    Ended,
}

impl ProcessState {
    fn read(pid: u32) -> Option<Self> {
        let stat = read(format!("/proc/{pid}/stat"));
        // The name before it may contain anything, including parentheses.
        let mut after_name = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        if matches!(after_name.next()?, "Z" | "X") {
            return Some(ProcessState::Ended);
        }
        // Field 22 of all fields.
        Some(ProcessState::Running { started_at: after_name.nth(18)?.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_gone_when_it_has_ended_or_its_pid_was_reused() {
        let this = Owner::this();
        assert_eq!(this.to_string().parse(), Ok(this));
        assert!(!this.is_gone());
        assert!(Owner { started_at: this.started_at + 1, ..this }.is_gone());
        assert!(!Owner { started_at: this.started_at + 1, namespace: 1, ..this }.is_gone());
        assert!(!Owner { started_at: UNKNOWN, ..this }.is_gone());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let owner = Owner { pid: child.id(), started_at: UNKNOWN, ..this };
        child.wait().unwrap();
        assert!(owner.is_gone());
    }

    #[test]
    fn other_names_are_not_taken_for_owners() {
        for text in ["", "1-2", "1-2-3-4", "a-2-3", "1-99999999999-3"] {
            assert_eq!(text.parse::<Owner>(), Err(()), "{text}");
        }
    }
}
