//! A cgroup of its own for a command with limits, where one can be made below the server's. It holds the whole tree
//! to its limit, tells when that was reached, and can be killed at once. Where none can be made, resource limits of
//! single processes take its place.

use punctual_worker::process::protocol::CommandLimits;
use rustix::process::{Pid, Signal, getpid, kill_process};
use std::fs;
use std::path::{Path, PathBuf};

/// The cgroups of one command; removed with it.
#[derive(Debug, Default)]
pub struct Cgroups {
    memory: Option<Group>,
    processes: Option<Group>,
}

/// One cgroup, and which generation of the interface it has.
#[derive(Debug)]
struct Group {
    dir: PathBuf,
    version: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

impl Cgroups {
    /// Makes what the limits need and the machine allows.
    pub fn create(limits: CommandLimits) -> Self {
        let (mounts, memberships) = match (limits.memory_bytes, limits.processes) {
            (None, None) => return Cgroups::default(),
            _ => (read("/proc/self/mountinfo"), read("/proc/self/cgroup")),
        };
        let create = |controller: &str, limit: Option<u64>, files: [&str; 2]| {
            let (parent, version) = home(controller, &mounts, &memberships)?;
            Group::create(&parent, version, controller, limit?, files)
        };
        Cgroups {
            memory: create("memory", limits.memory_bytes, ["memory.limit_in_bytes", "memory.max"]),
            processes: create("pids", limits.processes, ["pids.max", "pids.max"]),
        }
    }

    /// The files by which a process enters.
    pub fn memberships(&self) -> Vec<PathBuf> {
        self.groups().map(|group| group.dir.join("cgroup.procs")).collect()
    }

    pub fn limit_memory(&self) -> bool {
        self.memory.is_some()
    }

    pub fn limit_processes(&self) -> bool {
        self.processes.is_some()
    }

    /// Kills all that is in them.
    pub fn kill(&self) {
        for group in self.groups() {
            if fs::write(group.dir.join("cgroup.kill"), "1").is_ok() {
                continue;
            }
            for pid in read(group.dir.join("cgroup.procs")).lines().filter_map(|line| line.parse().ok()) {
                if let Some(pid) = Pid::from_raw(pid) {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
        }
    }

    /// Whether the kernel has killed something because the memory limit was reached.
    pub fn out_of_memory(&self) -> bool {
        let Some(group) = &self.memory else { return false };
        let events = match group.version {
            Version::V1 => read(group.dir.join("memory.oom_control")),
            Version::V2 => read(group.dir.join("memory.events")),
        };
        events.lines().filter_map(|line| line.strip_prefix("oom_kill ")).any(|count| count.trim() != "0")
    }

    fn groups(&self) -> impl Iterator<Item = &Group> {
        self.memory.iter().chain(&self.processes)
    }
}

impl Group {
    fn create(
        parent: &Path,
        version: Version,
        controller: &str,
        limit: u64,
        [v1_file, v2_file]: [&str; 2],
    ) -> Option<Self> {
        let dir = parent.join(format!("punctual-{controller}-{}", getpid().as_raw_pid()));
        fs::create_dir(&dir).ok()?;
        // From here on it is removed again if anything fails.
        let group = Group { dir, version };
        let file = if version == Version::V1 { v1_file } else { v2_file };
        fs::write(group.dir.join(file), limit.to_string()).ok()?;
        if controller == "memory" {
            // Memory that is moved out to disk counts as well; not every kernel can.
            let _ = fs::write(group.dir.join("memory.memsw.limit_in_bytes"), limit.to_string());
            let _ = fs::write(group.dir.join("memory.swap.max"), "0");
        }
        Some(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // What was in it is dead by now.
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Where this process could make a cgroup with this controller, if anywhere. Makes none.
pub fn place(controller: &str) -> Option<PathBuf> {
    let (dir, version) = home(controller, &read("/proc/self/mountinfo"), &read("/proc/self/cgroup"))?;
    let hands_on =
        || read(dir.join("cgroup.subtree_control")).split_whitespace().any(|name| name == controller);
    let can_write = rustix::fs::access(&dir, rustix::fs::Access::WRITE_OK).is_ok();
    (can_write && (version == Version::V1 || hands_on())).then_some(dir)
}

fn read(file: impl AsRef<Path>) -> String {
    fs::read_to_string(file).unwrap_or_default()
}

/// The directory of the cgroup of this controller in which this process is.
fn home(controller: &str, mounts: &str, memberships: &str) -> Option<(PathBuf, Version)> {
    // Number, controllers, path.
    let memberships = || memberships.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let v1 = memberships().find(|(controllers, _)| controllers.split(',').any(|name| name == controller));
    let (version, path) = match v1 {
        Some((_, path)) => (Version::V1, path),
        None => (Version::V2, memberships().find(|(controllers, _)| controllers.is_empty())?.1),
    };
    let mount = mounts.lines().filter_map(Mount::read).find(|mount| match version {
        Version::V1 => mount.kind == "cgroup" && mount.options.split(',').any(|name| name == controller),
        Version::V2 => mount.kind == "cgroup2",
    })?;
    let below_root = Path::new(path).strip_prefix(mount.root).ok()?;
    Some((Path::new(mount.point).join(below_root), version))
}

/// A mounted file system.
struct Mount<'a> {
    /// Which directory of the file system is mounted.
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    /// A line of `mountinfo`.
    fn read(line: &'a str) -> Option<Self> {
        let (place, what) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let (root, point) = (place.next()?, place.next()?);
        let mut what = what.split(' ');
        let (kind, options) = (what.next()?, what.nth(1)?);
        Some(Mount { root, point, kind, options })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIXED: &str = "\
30 24 0:26 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
32 24 0:28 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";

    #[test]
    fn the_own_cgroup_is_found_in_both_generations() {
        let memberships = "4:memory:/a/b\n1:cpu,cpuacct:/\n0::/c";
        let at = |controller| home(controller, MIXED, memberships);
        assert_eq!(at("memory"), Some(("/sys/fs/cgroup/memory/a/b".into(), Version::V1)));
        assert_eq!(at("cpu"), Some(("/sys/fs/cgroup/cpu,cpuacct/".into(), Version::V1)));
        assert_eq!(at("pids"), Some(("/sys/fs/cgroup/unified/c".into(), Version::V2)));
        let unified = "25 24 0:23 /x /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
        assert_eq!(home("memory", unified, "0::/x/y"), Some(("/sys/fs/cgroup/y".into(), Version::V2)));
        assert_eq!(home("memory", unified, "0::/elsewhere"), None);
        assert_eq!(home("memory", "", "0::/"), None);
    }
}
