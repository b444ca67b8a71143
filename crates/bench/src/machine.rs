//! The machine and the time of the run, so that results of different runs can be distinguished later.

use punctual_client::host;
use punctual_config::output;
use serde::Serialize;
use std::path::Path;

#[derive(Debug, Clone, Serialize)]
pub struct MachineFacts {
    pub date: String,
    pub version: &'static str,
    /// `release` or `debug`. A debug build says nothing about speed.
    pub build: &'static str,
    pub cores: usize,
    pub cpu_model: Option<String>,
    pub memory_bytes: Option<u64>,
    pub file_system: Option<String>,
    pub kernel: Option<String>,
    /// The machine's load average over the last minute before the run.
    pub load_before: f64,
}

impl MachineFacts {
    /// Describes this machine now, with the file system of `dir`.
    pub fn here(dir: &Path) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let load = read("/proc/loadavg").split(' ').next().and_then(|number| number.parse().ok());
        let kernel = read("/proc/sys/kernel/osrelease").trim().to_owned();
        MachineFacts {
            date: output::time(host::wall_time()),
            version: env!("CARGO_PKG_VERSION"),
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            cpu_model: field(&read("/proc/cpuinfo"), "model name"),
            memory_bytes: memory_bytes(&read("/proc/meminfo")),
            file_system: file_system(&read("/proc/self/mountinfo"), dir),
            kernel: Some(kernel).filter(|kernel| !kernel.is_empty()),
            load_before: load.unwrap_or(0.0),
        }
    }

    pub fn rows(&self) -> [(&'static str, Option<String>); 3] {
        let memory = self.memory_bytes.map(|bytes| format!("{:.0} GB", bytes as f64 / 1e9));
        let facts = [
            Some(format!("{} cores", self.cores)),
            self.cpu_model.clone(),
            memory,
            self.file_system.clone(),
            self.kernel.as_ref().map(|kernel| format!("Linux {kernel}")),
        ];
        let version = format!("Punctual {}, {} build, {}", self.version, self.build, self.date);
        [
            ("Machine", Some(facts.into_iter().flatten().collect::<Vec<_>>().join(", "))),
            ("Version", Some(version)),
            ("Warning", self.warning()),
        ]
    }

    /// Why the figures should not be compared with those of other runs.
    fn warning(&self) -> Option<String> {
        let busy = self.load_before > self.cores as f64 / 4.0;
        let reasons = [
            busy.then(|| format!("the machine was busy (load {:.1})", self.load_before)),
            (self.build == "debug").then(|| "this is a debug build".to_owned()),
        ];
        let reasons: Vec<String> = reasons.into_iter().flatten().collect();
        (!reasons.is_empty()).then(|| format!("{}: do not compare these figures", reasons.join(" and ")))
    }
}

/// The value of the first line `name : value`.
fn field(text: &str, name: &str) -> Option<String> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines
        .map(|(key, value)| (key.trim(), value.trim()))
        .find(|(key, _)| *key == name)
        .map(|(_, v)| v.to_owned())
}

fn memory_bytes(meminfo: &str) -> Option<u64> {
    let kilobytes: u64 = field(meminfo, "MemTotal")?.strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// The type of the file system with the longest mount point above `dir`. If several are mounted there, the last one
/// hides the others.
fn file_system(mountinfo: &str, dir: &Path) -> Option<String> {
    let dir = dir.canonicalize().ok()?;
    let mounts = mountinfo.lines().filter_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mount_point = Path::new(place.split(' ').nth(4)?);
        dir.starts_with(mount_point).then_some((mount_point.as_os_str().len(), kind.split(' ').next()?))
    });
    mounts.max_by_key(|(length, _)| *length).map(|(_, kind)| kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_is_that_of_the_nearest_mount_point() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().canonicalize().unwrap();
        let mounts = format!(
            "1 0 8:1 / / rw,relatime shared:1 - overlay overlay rw\n\
             2 1 8:2 / {0} rw - ext4 /dev/sda rw\n\
             3 1 8:3 / {0} rw - xfs /dev/sdb rw\n\
             4 1 8:4 / {0}x rw - tmpfs none rw",
            place.display()
        );
        assert_eq!(file_system(&mounts, dir.path()).as_deref(), Some("xfs"));
        assert_eq!(file_system(&mounts, Path::new("/")).as_deref(), Some("overlay"));
    }

    #[test]
    fn facts_are_parsed_from_the_kernels_format() {
        assert_eq!(field("a\t: b\nmodel name\t: Fast: CPU\n", "model name").as_deref(), Some("Fast: CPU"));
        assert_eq!(memory_bytes("MemTotal:       24 kB\n"), Some(24 * 1024));
    }
}
