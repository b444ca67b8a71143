//! Leftovers of a worker that was killed together with a stopped shim: the next worker that starts on the
//! machine finds and ends them.

use super::cgroup::{self, Memberships, read};
use super::owner::Owner;
use super::{NAME_PREFIX, kill_below};
use punctual_core::limits;
use punctual_core::ports::Clock;
use punctual_worker::process::containment::{Remains, ShimProcess};
use rustix::process::{Pid, Signal, geteuid};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const ROUND_PAUSE: Duration = Duration::from_millis(10);

/// Kills all commands whose worker is gone, and returns when none of their processes is left.
pub async fn end_all(clock: &dyn Clock) {
    let groups = groups();
    let shims = shims();
    if groups.is_empty() && shims.is_empty() {
        return;
    }
    tracing::warn!(
        cgroups = groups.len(),
        shims = shims.len(),
        "stopping commands of a worker that was killed"
    );
    let until = Instant::now() + limits::LEFTOVERS_WAIT_MAX;
    while end(&groups, &shims) == Remains::Processes {
        if Instant::now() > until {
            tracing::error!(?groups, ?shims, "cannot stop commands of a worker that was killed");
            return;
        }
        clock.sleep(ROUND_PAUSE).await;
    }
}

/// Sends SIGKILL to everything in the cgroups and below the shims, and to the shims that have nothing left.
fn end(groups: &[PathBuf], shims: &[ShimProcess]) -> Remains {
    let mut remains = Remains::Nothing;
    for group in groups {
        if cgroup::kill_and_remove(group) == Remains::Processes {
            remains = Remains::Processes;
        }
    }
    for shim in shims {
        if kill_below(shim) == Remains::Processes {
            remains = Remains::Processes;
        } else {
            shim.signal(Signal::KILL);
        }
    }
    remains
}

/// The cgroups of this user's commands whose worker is gone, in all hierarchies: a worker may start in
/// another cgroup than the last one.
fn groups() -> Vec<PathBuf> {
    let user = geteuid().as_raw();
    let is_own = |dir: &Path| std::fs::metadata(dir).is_ok_and(|metadata| metadata.uid() == user);
    let mut found = Vec::new();
    let mut dirs = Memberships::read().roots();
    let mut scanned = 0;
    while let Some(dir) = dirs.pop() {
        scanned += 1;
        if scanned > limits::CGROUPS_SCANNED_MAX {
            tracing::warn!(
                limit = limits::CGROUPS_SCANNED_MAX,
                "too many cgroups: not all were searched for old commands"
            );
            break;
        }
        for below in cgroup::subdirectories(&dir) {
            match owner_of(&below) {
                Some(owner) if is_own(&below) && owner.is_gone() => found.push(below),
                Some(_) => {}
                None => dirs.push(below),
            }
        }
    }
    found
}

/// The owner of a command's cgroup, or of its directory.
pub fn owner_of(dir: &Path) -> Option<Owner> {
    let name = dir.file_name()?.to_str()?.strip_prefix(NAME_PREFIX)?;
    name.rsplit_once('-')?.0.parse().ok()
}

/// Shims of this user whose worker is gone.
fn shims() -> Vec<ShimProcess> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return vec![] };
    let user = geteuid().as_raw();
    let found = entries.flatten().filter_map(|entry| {
        let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
        let is_left = || {
            let is_own = entry.metadata().is_ok_and(|metadata| metadata.uid() == user);
            is_own && owner_of_shim(&read(entry.path().join("cmdline"))).is_some_and(|owner| owner.is_gone())
        };
        if is_left() { ShimProcess::found(pid, is_left) } else { None }
    });
    found.collect()
}

/// The owner of a shim, from its command line.
fn owner_of_shim(command_line: &str) -> Option<Owner> {
    let mut args = command_line.split('\0').skip(1);
    if args.next()? != crate::SUBCOMMAND {
        return None;
    }
    args.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_is_encoded_in_names_and_command_lines() {
        let this = Owner::this();
        assert_eq!(owner_of(Path::new(&format!("/x/{NAME_PREFIX}{this}-17"))), Some(this));
        assert_eq!(owner_of(Path::new("/x/punctual-memory-17")), None);
        assert_eq!(owner_of(Path::new("/x/user.slice")), None);
        assert_eq!(owner_of_shim(&format!("/proc/self/exe\0__shim\0{this}\0")), Some(this));
        assert_eq!(owner_of_shim(&format!("sh\0-c\0{this}\0")), None);
        assert_eq!(owner_of_shim(""), None);
    }
}
