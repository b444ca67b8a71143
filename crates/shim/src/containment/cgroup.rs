//! Cgroups as directories: where this process can create them, and how to kill everything in one. Knows both
//! versions of the interface, and nothing of commands.

use crate::mountinfo::{self, Mount};
use punctual_worker::process::containment::Remains;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The file that a process writes to in order to enter a cgroup, and that lists its processes.
pub const PROCESSES: &str = "cgroup.procs";
/// How often the freezer's state is read before its processes are killed anyway.
const FREEZE_READS_MAX: usize = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    V1,
    V2,
}

/// A cgroup that is removed on drop.
#[derive(Debug)]
pub struct CommandCgroup {
    pub dir: PathBuf,
}

impl CommandCgroup {
    pub fn create(dir: PathBuf) -> io::Result<Self> {
        fs::create_dir(&dir)?;
        Ok(CommandCgroup { dir })
    }

    /// The file that a process writes to in order to enter.
    pub fn processes_file(&self) -> PathBuf {
        self.dir.join(PROCESSES)
    }
}

impl Drop for CommandCgroup {
    fn drop(&mut self) {
        // Its processes are dead by now; if not, the worker finds them.
        let _ = remove(&self.dir);
    }
}

/// Sends SIGKILL to every process in a cgroup and in its descendants.
pub fn kill(dir: &Path) {
    // Since Linux 5.14: kills all of them at once, including processes that are being forked.
    if fs::write(dir.join("cgroup.kill"), "1").is_err() {
        kill_one_by_one(dir);
    }
}

fn kill_one_by_one(dir: &Path) {
    let groups = with_groups_below(dir);
    let frozen = Frozen::new(dir);
    for group in &groups {
        for pid in read(group.join(PROCESSES)).lines().filter_map(|line| line.parse().ok()) {
            if let Some(pid) = Pid::from_raw(pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
    drop(frozen);
}

/// Removes a cgroup with its descendants, unless they contain processes.
pub fn remove(dir: &Path) -> Remains {
    for group in with_groups_below(dir).iter().rev() {
        match fs::remove_dir(group) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(_) => return Remains::Processes,
        }
    }
    Remains::Nothing
}

/// Kills the processes in a cgroup and removes it if it is empty.
pub fn kill_and_remove(dir: &Path) -> Remains {
    // Usually the shim has removed it already.
    if remove(dir) == Remains::Nothing {
        return Remains::Nothing;
    }
    kill(dir);
    remove(dir)
}

/// A cgroup and all its descendants, parents first.
pub fn with_groups_below(dir: &Path) -> Vec<PathBuf> {
    let mut groups = vec![dir.to_owned()];
    let mut next = 0;
    while let Some(group) = groups.get(next) {
        groups.extend(subdirectories(group));
        next += 1;
    }
    groups
}

pub fn subdirectories(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return vec![] };
    let is_dir = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    entries.flatten().filter(is_dir).map(|entry| entry.path()).collect()
}

/// Processes that cannot fork while their pids are read, where the kernel can freeze them.
struct Frozen {
    thaw: Option<(PathBuf, &'static str)>,
}

impl Frozen {
    fn new(dir: &Path) -> Self {
        let (v2, v1) = (dir.join("cgroup.freeze"), dir.join("freezer.state"));
        if fs::write(&v2, "1").is_ok() {
            until(|| read(dir.join("cgroup.events")).lines().any(|line| line == "frozen 1"));
            return Frozen { thaw: Some((v2, "0")) };
        }
        if fs::write(&v1, "FROZEN").is_ok() {
            until(|| read(&v1).trim() == "FROZEN");
            // In version 1, frozen processes do not even die.
            return Frozen { thaw: Some((v1, "THAWED")) };
        }
        Frozen { thaw: None }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        if let Some((file, state)) = &self.thaw {
            let _ = fs::write(file, state);
        }
    }
}

fn until(mut condition: impl FnMut() -> bool) {
    for _ in 0..FREEZE_READS_MAX {
        if condition() {
            return;
        }
        rustix::thread::sched_yield();
    }
}

pub fn read(file: impl AsRef<Path>) -> String {
    fs::read_to_string(file).unwrap_or_default()
}

/// The cgroups of this process.
#[derive(Debug)]
pub struct Memberships {
    mounts: String,
    groups: String,
}

impl Memberships {
    pub fn read() -> Self {
        Memberships { mounts: read(mountinfo::FILE), groups: read("/proc/self/cgroup") }
    }

    /// The directory of this process's cgroup for this controller.
    pub fn of_controller(&self, controller: &str) -> Option<(PathBuf, Version)> {
        let dir = self.version_1(controller).map(|dir| (dir, Version::V1));
        if self.lines().any(|(controllers, _)| names(controllers, controller)) {
            return dir;
        }
        self.version_2().map(|dir| (dir, Version::V2))
    }

    /// The directory of the cgroup in the version 1 hierarchy with this controller.
    pub fn version_1(&self, controller: &str) -> Option<PathBuf> {
        let path = self.lines().find(|(controllers, _)| names(controllers, controller))?.1;
        self.place(path, |mount| mount.kind == "cgroup" && names(mount.options, controller))
    }

    /// The directory of the cgroup in the version 2 hierarchy.
    pub fn version_2(&self) -> Option<PathBuf> {
        let path = self.lines().find(|(controllers, _)| controllers.is_empty())?.1;
        self.place(path, |mount| mount.kind == "cgroup2")
    }

    /// The mount points of the hierarchies.
    pub fn roots(&self) -> Vec<PathBuf> {
        let mounts = self.mounts.lines().filter_map(Mount::read);
        let cgroups = mounts.filter(|mount| matches!(mount.kind, "cgroup" | "cgroup2"));
        cgroups.map(|mount| mount.point).collect()
    }

    /// The controllers and path of each hierarchy.
    fn lines(&self) -> impl Iterator<Item = (&str, &str)> {
        self.groups.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'))
    }

    fn place(&self, path: &str, is_it: impl Fn(&Mount<'_>) -> bool) -> Option<PathBuf> {
        let mount = self.mounts.lines().filter_map(Mount::read).find(is_it)?;
        let below_root = Path::new(path).strip_prefix(mount.root).ok()?;
        // A path outside the mounted part cannot be reached.
        let leads_out = below_root.components().any(|part| part == std::path::Component::ParentDir);
        // Joining an empty path would add a slash.
        (!leads_out).then(|| mount.point.join(below_root).components().collect())
    }
}

fn names(list: &str, name: &str) -> bool {
    list.split(',').any(|listed| listed == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::{Duration, Instant};

    /// How long a killed tree may take to end. Generous, because the machine may be busy.
    const PATIENCE: Duration = Duration::from_secs(60);
    const MIXED: &str = "\
30 24 0:26 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
32 24 0:28 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";

    fn memberships(mounts: &str, groups: &str) -> Memberships {
        Memberships { mounts: mounts.to_owned(), groups: groups.to_owned() }
    }

    #[test]
    fn the_own_cgroup_is_found_in_both_versions() {
        let mixed = memberships(MIXED, "4:memory:/a/b\n1:cpu,cpuacct:/\n0::/c");
        assert_eq!(mixed.of_controller("memory"), Some(("/sys/fs/cgroup/memory/a/b".into(), Version::V1)));
        assert_eq!(mixed.of_controller("cpu"), Some(("/sys/fs/cgroup/cpu,cpuacct/".into(), Version::V1)));
        assert_eq!(mixed.of_controller("pids"), Some(("/sys/fs/cgroup/unified/c".into(), Version::V2)));
        assert_eq!(mixed.roots().len(), 3);
        let unified = "25 24 0:23 /x /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
        let home = |groups| memberships(unified, groups).version_2();
        assert_eq!(home("0::/x/y"), Some("/sys/fs/cgroup/y".into()));
        assert_eq!(home("0::/elsewhere"), None);
        assert_eq!(home("0::/x/../y"), None);
        assert_eq!(memberships("", "0::/").version_2(), None);
    }

    /// Cgroups in which this process may create others.
    fn own_groups() -> Vec<PathBuf> {
        let memberships = Memberships::read();
        let all = [memberships.version_2(), memberships.version_1("freezer"), memberships.version_1("pids")];
        let can_write = |dir: &PathBuf| rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).is_ok();
        let groups: Vec<PathBuf> = all.into_iter().flatten().filter(can_write).collect();
        assert!(!groups.is_empty() || !rustix::process::geteuid().is_root(), "{memberships:?}");
        groups
    }

    #[test]
    fn processes_that_keep_forking_are_killed_with_and_without_cgroup_kill() {
        for parent in own_groups() {
            for kill in [kill, kill_one_by_one] {
                let group =
                    CommandCgroup::create(parent.join(format!("test-{}", std::process::id()))).unwrap();
                let script = r#"mkdir "$1/below" && echo 0 >"$1/below/cgroup.procs" || exit
                    echo in; while :; do (setsid sh -c : &) ; done"#;
                let mut child = Command::new("sh")
                    .args(["-c", script, "sh"])
                    .arg(&group.dir)
                    .stdout(std::process::Stdio::piped())
                    .spawn()
                    .unwrap();
                let mut said = [0; 3];
                io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
                assert_eq!(remove(&group.dir), Remains::Processes, "{}", parent.display());
                let start = Instant::now();
                while remove(&group.dir) == Remains::Processes {
                    assert!(start.elapsed() < PATIENCE, "still there: {}", parent.display());
                    kill(&group.dir);
                    let _ = child.try_wait();
                }
                assert!(!child.wait().unwrap().success());
            }
        }
    }
}
