//! Which worker process a shim and its cgroups belong to, so that others can tell whether it still runs.

use super::cgroup::read;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// A process that cannot be mistaken for a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The PID namespace that the number belongs to.
    namespace: u64,
    pid: u32,
    /// In ticks since the machine was started.
    started_at: u64,
}

impl Owner {
    /// This process.
    pub fn this() -> Self {
        let pid = std::process::id();
        Owner { namespace: own_namespace(), pid, started_at: started_at(pid).unwrap_or_default() }
    }

    /// Whether the process has ended. Unknown, and so false, for processes of other PID namespaces.
    pub fn is_gone(&self) -> bool {
        self.namespace == own_namespace()
            && Path::new("/proc/self/stat").exists()
            && started_at(self.pid) != Some(self.started_at)
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
    // Such as "pid:[4026531836]".
    let link = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let link = link.to_string_lossy();
    link.trim_start_matches("pid:[").trim_end_matches(']').parse().unwrap_or_default()
}

/// When a process was started, unless it has ended. One that merely has not been reaped has ended.
fn started_at(pid: u32) -> Option<u64> {
    let stat = read(format!("/proc/{pid}/stat"));
    // The name before it may contain anything, also parentheses.
    let mut after_name = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = after_name.next()?;
    // The 22nd of all fields.
    let started_at = after_name.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(started_at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_gone_when_it_has_ended_or_its_number_has_another_one() {
        let this = Owner::this();
        assert_eq!(this.to_string().parse(), Ok(this));
        assert!(!this.is_gone());
        assert!(Owner { started_at: this.started_at + 1, ..this }.is_gone());
        assert!(!Owner { started_at: this.started_at + 1, namespace: 1, ..this }.is_gone());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        let owner = Owner { pid, started_at: started_at(pid).unwrap_or(1), ..this };
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
