//! The cgroups of one command: one that contains its processes, and those that apply its limits to the whole
//! tree, where they can be created below the server's. Where none can be created for a limit, resource limits
//! of single processes are used instead.

use crate::containment::cgroup::{self, CommandCgroup, Memberships, Version, read};
use punctual_worker::process::protocol::{CommandLimits, Enclosure, Hold};
use rustix::io::{FdFlags, fcntl_setfd};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// The cgroups of one command; removed with it. A process is in one cgroup of each hierarchy, so all uses of
/// one hierarchy share a cgroup.
#[derive(Debug, Default)]
pub struct Cgroups {
    groups: Vec<CommandCgroup>,
    memory: Option<(PathBuf, Version)>,
    limits_processes: bool,
}

impl Cgroups {
    /// Creates the enclosure, and the cgroups that the limits need and the machine allows.
    pub fn create(enclosure: &Enclosure, limits: CommandLimits) -> io::Result<Self> {
        let mut cgroups = Cgroups::default();
        if let Hold::Cgroup { parent } = &enclosure.hold {
            cgroups.make(parent.join(&enclosure.name))?;
        }
        if limits.memory_bytes.is_none() && limits.processes.is_none() {
            return Ok(cgroups);
        }
        let memberships = Memberships::read();
        let mut limit = |controller: &str, limit: Option<u64>, files: [&str; 2]| {
            let (parent, version) = memberships.of_controller(controller)?;
            let [v1_file, v2_file] = files;
            let file = if version == Version::V1 { v1_file } else { v2_file };
            let dir = parent.join(&enclosure.name);
            cgroups.limit(&dir, file, limit?).then_some((dir, version))
        };
        let memory = limit("memory", limits.memory_bytes, ["memory.limit_in_bytes", "memory.max"]);
        let processes = limit("pids", limits.processes, ["pids.max", "pids.max"]);
        if let (Some((dir, _)), Some(bytes)) = (&memory, limits.memory_bytes) {
            // Swapped memory counts as well; not every kernel supports it.
            let _ = fs::write(dir.join("memory.memsw.limit_in_bytes"), bytes.to_string());
            let _ = fs::write(dir.join("memory.swap.max"), "0");
        }
        cgroups.memory = memory;
        cgroups.limits_processes = processes.is_some();
        Ok(cgroups)
    }

    /// The files that a process writes to in order to enter. Programs that this process starts inherit them.
    pub fn entrances(&self) -> io::Result<Vec<Entrance>> {
        self.groups.iter().map(|group| Entrance::open(&group.processes_file())).collect()
    }

    pub fn limit_memory(&self) -> bool {
        self.memory.is_some()
    }

    pub fn limit_processes(&self) -> bool {
        self.limits_processes
    }

    /// Kills all processes in them.
    pub fn kill(&self) {
        for group in &self.groups {
            cgroup::kill(&group.dir);
        }
    }

    /// Whether the kernel has killed a process because of the memory limit.
    pub fn out_of_memory(&self) -> bool {
        let events = match &self.memory {
            None => return false,
            Some((dir, Version::V1)) => read(dir.join("memory.oom_control")),
            Some((dir, Version::V2)) => read(dir.join("memory.events")),
        };
        events.lines().filter_map(|line| line.strip_prefix("oom_kill ")).any(|count| count.trim() != "0")
    }

    /// Creates a cgroup that does not exist yet; returns whether it did.
    fn make(&mut self, dir: PathBuf) -> io::Result<bool> {
        if self.groups.iter().any(|group| group.dir == dir) {
            return Ok(false);
        }
        self.groups.push(CommandCgroup::create(dir)?);
        Ok(true)
    }

    /// Whether the limit could be set. If not, the useless cgroup is removed.
    fn limit(&mut self, dir: &Path, file: &str, limit: u64) -> bool {
        let Ok(is_new) = self.make(dir.to_owned()) else { return false };
        let is_set = fs::write(dir.join(file), limit.to_string()).is_ok();
        if is_new && !is_set {
            self.groups.pop();
        }
        is_set
    }
}

/// The open file that a process writes to in order to enter a cgroup.
pub struct Entrance(File);

impl Entrance {
    fn open(file: &Path) -> io::Result<Self> {
        let open = File::options().write(true).open(file);
        let file = open.map_err(|error| io::Error::other(format!("{}: {error}", file.display())))?;
        fcntl_setfd(&file, FdFlags::empty())?;
        Ok(Entrance(file))
    }

    /// Where programs that inherit it find it.
    pub fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }
}

/// Where this process could create a cgroup with this controller, if anywhere. Creates none.
pub fn place(controller: &str) -> Option<PathBuf> {
    let (dir, version) = Memberships::read().of_controller(controller)?;
    let hands_on =
        || read(dir.join("cgroup.subtree_control")).split_whitespace().any(|name| name == controller);
    let can_write = rustix::fs::access(&dir, rustix::fs::Access::WRITE_OK).is_ok();
    (can_write && (version == Version::V1 || hands_on())).then_some(dir)
}
