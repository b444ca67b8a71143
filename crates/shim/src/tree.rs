//! The processes below a shim, from `/proc`.

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::fs;
use std::io;

/// Sends the signal to every process below this one, parents first: a shell whose command was killed must not
/// start the next one. Returns whether there were any that had not ended.
pub fn signal_all(root: Pid, signal: Signal) -> bool {
    let root = root.as_raw_pid();
    let below = below(root);
    let tree: BTreeSet<i32> = below.iter().copied().chain([root]).collect();
    let mut any = false;
    for pid in below {
        any |= signal_one(pid, &tree, signal);
    }
    any
}

/// Sends the signal to a process if it still belongs to the tree: its pid may have been reused.
fn signal_one(pid: i32, tree: &BTreeSet<i32>, signal: Signal) -> bool {
    let Some(id) = Pid::from_raw(pid) else { return false };
    let process = match pidfd_open(id, PidfdFlags::empty()) {
        Ok(process) => Some(process),
        Err(Errno::SRCH) => return false,
        // The kernel is older than pidfds, or denies them.
        Err(_) => None,
    };
    match ProcessStat::read(pid) {
        Some(stat) if tree.contains(&stat.parent) && !stat.has_ended => {}
        _ => return false,
    }
    let _ = match process {
        Some(process) => pidfd_send_signal(process, signal),
        None => kill_process(id, signal),
    };
    true
}

/// Every process below this one, parents before their children.
fn below(root: i32) -> Vec<i32> {
    let mut found: Vec<i32> = Vec::new();
    let mut scanned = None;
    let mut next = Some(root);
    let mut looked_at = 0;
    while let Some(pid) = next {
        let children = match listed_children(pid) {
            Ok(children) => children,
            // A kernel without these lists: scan all processes of the machine, once.
            Err(_) if pid == root => {
                let scan: &BTreeMap<i32, Vec<i32>> = scanned.get_or_insert_with(scan);
                scan.get(&pid).cloned().unwrap_or_default()
            }
            Err(_) => match &scanned {
                Some(scan) => scan.get(&pid).cloned().unwrap_or_default(),
                // It has just ended; its children are ours now, and found in the next round.
                None => vec![],
            },
        };
        found.extend(children);
        next = found.get(looked_at).copied();
        looked_at += 1;
    }
    found
}

/// The children of all threads of a process.
fn listed_children(pid: i32) -> io::Result<Vec<i32>> {
    let mut children = Vec::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let list = fs::read_to_string(thread?.path().join("children"))?;
        children.extend(list.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    Ok(children)
}

/// The children of every process of the machine.
fn scan() -> BTreeMap<i32, Vec<i32>> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    let Ok(entries) = fs::read_dir("/proc") else { return children };
    for entry in entries.flatten() {
        if let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok())
            && let Some(parent) = parent(pid)
        {
            children.entry(parent).or_default().push(pid);
        }
    }
    children
}

/// The parent, which would reap this process.
fn parent(pid: i32) -> Option<i32> {
    ProcessStat::read(pid).map(|stat| stat.parent)
}

/// The parent of this process, as numbered in the namespace that `/proc` shows.
pub fn own_parent() -> Option<u32> {
    ProcessStat::read("self")?.parent.try_into().ok()
}

/// Some fields of a process's `stat` file.
struct ProcessStat {
    parent: i32,
    /// It has ended and has not been reaped.
    has_ended: bool,
}

impl ProcessStat {
    fn read(pid: impl Display) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name before it may contain anything, including parentheses.
        let mut after_name = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let has_ended = matches!(after_name.next()?, "Z" | "X");
        Some(ProcessStat { parent: after_name.next()?.parse().ok()?, has_ended })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::getpid;
    use std::process::Command;

    #[test]
    fn children_are_found_with_and_without_kernel_lists() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let (this, pid) = (getpid().as_raw_pid(), i32::try_from(child.id()).unwrap());
        assert_eq!(parent(pid), Some(this));
        assert!(below(this).contains(&pid));
        assert!(scan()[&this].contains(&pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!below(this).contains(&pid));
        assert_eq!(parent(pid), None);
    }
}
