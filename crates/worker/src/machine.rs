//! Measures a Linux machine: processors, memory and disk. If a control group (version 2) limits the worker,
//! its limits count, with those of the enclosing groups; otherwise the whole machine. Values that cannot be
//! read are left out.
//!
//! Reading may block on a file system that hangs: the caller must keep [`LinuxMachine::look`] away from
//! anything that must not wait.

use punctual_core::health::{Measured, Room};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Microseconds per tick of `/proc/stat`.
const TICK_US: u64 = 10_000;

pub struct LinuxMachine {
    proc: PathBuf,
    groups: PathBuf,
    /// A path on the disk to measure.
    disk: PathBuf,
    last: Mutex<Option<Ticks>>,
}

/// The processor time used so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ticks {
    /// Of all processors together.
    total: u64,
    busy: u64,
    processors: u64,
    /// The control group's usage in microseconds, if it is limited.
    group_us: Option<u64>,
}

impl LinuxMachine {
    /// Measures this machine and the disk with this directory.
    pub fn with_disk(disk: impl Into<PathBuf>) -> Self {
        LinuxMachine {
            proc: "/proc".into(),
            groups: "/sys/fs/cgroup".into(),
            disk: disk.into(),
            last: Mutex::default(),
        }
    }

    /// Measures; processor use since the previous call.
    pub fn look(&self) -> Measured {
        let groups = self.own_groups();
        Measured { cpu_pct: self.cpu(&groups), memory: self.memory(&groups), disk: self.disk() }
    }

    fn cpu(&self, groups: &[PathBuf]) -> Option<u8> {
        let quota = groups.iter().filter_map(|group| Some((group, quota(&read(&group.join("cpu.max"))?)?)));
        let bound = quota.min_by(|(_, one), (_, other)| one.total_cmp(other));
        let used = |group: &Path| value_of(&read(&group.join("cpu.stat"))?, "usage_usec");
        let group_us = bound.as_ref().and_then(|(group, _)| used(group));
        let now = Ticks { group_us, ..ticks(&read(&self.proc.join("stat"))?)? };
        let before = self.last.lock().unwrap_or_else(PoisonError::into_inner).replace(now)?;
        busy_pct(before, now, bound.map(|(_, processors)| processors))
    }

    /// The fullest memory: the machine's, or that of a limited group.
    fn memory(&self, groups: &[PathBuf]) -> Option<Room> {
        let info = read(&self.proc.join("meminfo"))?;
        let kib = |name| value_of(&info, name).map(|kib| kib.saturating_mul(1024));
        let machine = Some(Room { free: kib("MemAvailable:")?, total: kib("MemTotal:")? });
        let bounds = groups.iter().filter_map(|group| group_memory(group));
        machine.into_iter().chain(bounds).min_by(|one, other| share(*one).total_cmp(&share(*other)))
    }

    fn disk(&self) -> Option<Room> {
        let found = rustix::fs::statvfs(&self.disk).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Some(Room { free: bytes(found.f_bavail), total: bytes(found.f_blocks) })
    }

    /// The control groups of the process, innermost first.
    fn own_groups(&self) -> Vec<PathBuf> {
        let own = read(&self.proc.join("self/cgroup")).unwrap_or_default();
        let Some(path) = own.lines().find_map(|line| line.strip_prefix("0::/")) else { return vec![] };
        // A path that leads out of the mounted hierarchy belongs to another namespace.
        if path.split('/').any(|part| part == "..") {
            return vec![];
        }
        let innermost = self.groups.join(path);
        innermost
            .ancestors()
            .take_while(|group| group.starts_with(&self.groups))
            .map(Path::to_owned)
            .collect()
    }
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// The number after a name, in a file with one name and number per line.
fn value_of(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name).filter(|rest| rest.starts_with(' ')))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The processors that `cpu.max` allows; `None` for all.
fn quota(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    let (quota, period): (f64, f64) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

fn ticks(stat: &str) -> Option<Ticks> {
    let mut lines = stat.lines();
    let all = lines.next()?.strip_prefix("cpu ")?;
    // user, nice, system, idle, iowait, irq, softirq, steal; guest time is included in the first two.
    let counts: Vec<u64> = all.split_whitespace().take(8).filter_map(|count| count.parse().ok()).collect();
    let total = counts.iter().sum();
    let idle = counts.get(3)? + counts.get(4).unwrap_or(&0);
    let processors = lines.take_while(|line| line.starts_with("cpu")).count() as u64;
    Some(Ticks { total, busy: total - idle, processors: processors.max(1), group_us: None })
}

/// Processor use between two measurements; `None` if no time has passed.
fn busy_pct(before: Ticks, now: Ticks, bound: Option<f64>) -> Option<u8> {
    let total = now.total.checked_sub(before.total).filter(|total| *total > 0)?;
    let machine = now.busy.saturating_sub(before.busy) as f64 / total as f64;
    let elapsed_us = (total * TICK_US / now.processors) as f64;
    let group = match (before.group_us, now.group_us, bound) {
        (Some(before), Some(now), Some(processors)) => {
            now.saturating_sub(before) as f64 / (elapsed_us * processors)
        }
        _ => 0.0,
    };
    Some((machine.max(group) * 100.0).round().clamp(0.0, 100.0) as u8)
}

/// The memory limit and use of a group, if it is limited. Page cache counts as free, because the kernel can
/// reclaim it.
fn group_memory(group: &Path) -> Option<Room> {
    let number = |file: &str| read(&group.join(file))?.trim().parse::<u64>().ok();
    let (total, used) = (number("memory.max")?, number("memory.current")?);
    let cached = read(&group.join("memory.stat")).and_then(|stat| value_of(&stat, "inactive_file"));
    let used = used.saturating_sub(cached.unwrap_or(0));
    Some(Room { free: total.saturating_sub(used), total })
}

fn share(room: Room) -> f64 {
    room.free as f64 / room.total.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 50 0 50 350 50 0 0 0 0 0\ncpu1 50 0 50 350 50 0 0 0 0 0\nintr 1\n";
    const LATER: &str = "cpu  150 0 150 750 150 0 0 0 0 0\ncpu0 1\ncpu1 1\nintr 1\n";

    /// A machine made of files: name and content.
    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, LinuxMachine) {
        let directory = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let machine = LinuxMachine {
            proc: directory.path().join("proc"),
            groups: directory.path().join("groups"),
            disk: directory.path().to_owned(),
            last: Mutex::default(),
        };
        (directory, machine)
    }

    const MEMINFO: &str = "MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    500 kB\n";

    #[test]
    fn processors_are_as_busy_as_they_were_since_the_look_before() {
        let (directory, machine) = machine(&[("proc/stat", STAT), ("proc/meminfo", MEMINFO)]);
        assert_eq!(machine.look().cpu_pct, None, "there was no look before");
        fs::write(directory.path().join("proc/stat"), LATER).unwrap();
        assert_eq!(machine.look().cpu_pct, Some(50));
        assert_eq!(machine.look().cpu_pct, None, "no time has passed");
    }

    #[test]
    fn a_bounded_group_is_as_busy_as_its_share() {
        let (directory, machine) = machine(&[
            ("proc/stat", STAT),
            ("proc/self/cgroup", "0::/jobs/worker\n"),
            ("groups/jobs/worker/cpu.max", "max 100000\n"),
            ("groups/jobs/cpu.max", "50000 100000\n"),
            ("groups/jobs/cpu.stat", "usage_usec 1000\nuser_usec 1\n"),
        ]);
        machine.look();
        fs::write(directory.path().join("proc/stat"), LATER).unwrap();
        // One second has passed on two processors, of which the group may use half of one.
        fs::write(directory.path().join("groups/jobs/cpu.stat"), "usage_usec 451000\n").unwrap();
        assert_eq!(machine.look().cpu_pct, Some(90));
    }

    #[test]
    fn the_fullest_memory_counts_and_cached_files_are_free() {
        let (directory, machine) = machine(&[
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", "0::/jobs/worker\n"),
            ("groups/jobs/worker/memory.max", "max\n"),
            ("groups/jobs/memory.max", "1000\n"),
            ("groups/jobs/memory.current", "900\n"),
            ("groups/jobs/memory.stat", "anon 1\ninactive_file 100\n"),
        ]);
        assert_eq!(machine.look().memory, Some(Room { free: 200, total: 1000 }));
        fs::write(directory.path().join("groups/jobs/memory.current"), "150\n").unwrap();
        assert_eq!(machine.look().memory, Some(Room { free: 500 * 1024, total: 1000 * 1024 }));
    }

    #[test]
    fn what_cannot_be_read_is_left_out() {
        let (directory, machine) = machine(&[("proc/self/cgroup", "0::/../elsewhere\n")]);
        let measured = machine.look();
        assert_eq!((measured.cpu_pct, measured.memory), (None, None));
        assert!(measured.disk.is_some_and(|disk| disk.total >= disk.free));
        drop(directory);
        assert_eq!(machine.look(), Measured::default());
    }

    #[test]
    fn this_machine_can_be_looked_at() {
        let machine = LinuxMachine::with_disk(".");
        let memory = machine.look().memory.expect("memory");
        assert!(memory.free <= memory.total && memory.total > 0);
    }
}
