//! The processes below this one, as `/proc` shows them.

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;

/// Sends the signal to every process below this one, parents first: a shell whose command has been killed must not
/// get to start the next one.
pub fn signal_all(signal: Signal) {
    let root = getpid().as_raw_pid();
    let below = below(root);
    let tree: BTreeSet<i32> = below.iter().copied().chain([root]).collect();
    for pid in below {
        signal_one(pid, &tree, signal);
    }
}

/// Sends the signal to a process if it still belongs to the tree: the number may have gone to another meanwhile.
fn signal_one(pid: i32, tree: &BTreeSet<i32>, signal: Signal) {
    let Some(id) = Pid::from_raw(pid) else { return };
    match pidfd_open(id, PidfdFlags::empty()) {
        Ok(process) => {
            if parent(pid).is_some_and(|parent| tree.contains(&parent)) {
                let _ = pidfd_send_signal(process, signal);
            }
        }
        Err(Errno::SRCH) => {}
        // The kernel is older than pidfds, or does not let us have them.
        Err(_) => {
            let _ = kill_process(id, signal);
        }
    }
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
            // A kernel without these lists: look at every process of the machine, once.
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

/// Who would reap this process.
fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may contain anything, also parentheses.
    let after_name = stat.rsplit_once(')')?.1;
    after_name.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn children_are_found_in_both_ways() {
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
