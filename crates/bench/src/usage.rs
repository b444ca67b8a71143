//! The CPU time and memory that a process has used, and the cost of a job for server and client.

use crate::bench_server::Stage;
use crate::units::megabytes;
use anyhow::Context;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::time::Duration;

/// CPU time and memory that a process has used so far.
#[derive(Debug, Clone, Copy)]
pub struct ProcessUsage {
    /// User and system time of all threads.
    pub cpu: Duration,
    /// Current resident memory.
    pub resident_bytes: u64,
    /// Peak resident memory.
    pub peak_bytes: u64,
}

impl ProcessUsage {
    pub fn of_process(pid: u32) -> anyhow::Result<ProcessUsage> {
        let read = |name: &str| {
            let path = format!("/proc/{pid}/{name}");
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
        };
        let (stat, status) = (read("stat")?, read("status")?);
        Ok(ProcessUsage {
            cpu: cpu_of_stat(&stat).context("no CPU time in /proc")?,
            resident_bytes: bytes_of_status(&status, "VmRSS:").context("no memory in /proc")?,
            peak_bytes: bytes_of_status(&status, "VmHWM:").context("no peak memory in /proc")?,
        })
    }
}

/// The 14th and 15th field. Fields are counted after the process name, which is in brackets and may contain anything.
fn cpu_of_stat(stat: &str) -> Option<Duration> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Duration::from_secs_f64((user + system) as f64 / rustix::param::clock_ticks_per_second() as f64))
}

fn bytes_of_status(status: &str, name: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

fn own_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// CPU time of all processors of the machine so far, for any process.
#[derive(Debug, Clone, Copy)]
pub struct Processors {
    all_ticks: u64,
    idle_ticks: u64,
}

impl Processors {
    pub fn now() -> anyhow::Result<Self> {
        let stat = std::fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        processors_of_stat(&stat).context("no processors in /proc/stat")
    }

    /// The share of CPU time that was in use since an earlier reading.
    pub fn busy_since(self, before: Processors) -> f64 {
        let all = self.all_ticks.saturating_sub(before.all_ticks).max(1);
        1.0 - self.idle_ticks.saturating_sub(before.idle_ticks) as f64 / all as f64
    }
}

/// The line of all processors lists the time per kind of work. The fourth and fifth values are idle and waiting for
/// disks.
fn processors_of_stat(stat: &str) -> Option<Processors> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    // Guest time, after the eighth value, is already included in the first.
    let ticks: Vec<u64> = line.split_whitespace().take(8).map_while(|text| text.parse().ok()).collect();
    let idle_ticks = ticks.get(3)? + ticks.get(4)?;
    Some(Processors { all_ticks: ticks.iter().sum(), idle_ticks })
}

/// The cost of jobs, separately for the server and the measuring client, which are different processes.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Cost {
    pub server_cpu_ms_per_1000_jobs: f64,
    pub client_cpu_ms_per_1000_jobs: f64,
    /// Peak memory of the server since its start.
    pub server_peak_memory_bytes: u64,
}

impl Cost {
    pub fn rows(self) -> [(&'static str, Option<String>); 2] {
        [
            (
                "CPU per 1,000 jobs",
                Some(format!(
                    "{:.1} ms in the server, {:.1} ms in the client",
                    self.server_cpu_ms_per_1000_jobs, self.client_cpu_ms_per_1000_jobs
                )),
            ),
            ("Peak memory", Some(format!("{} of the server", megabytes(self.server_peak_memory_bytes)))),
        ]
    }
}

/// Measures usage from now on.
pub struct Meter {
    server_cpu: Duration,
    client_cpu: Duration,
}

impl Meter {
    pub fn start(stage: &Stage) -> anyhow::Result<Self> {
        Ok(Meter { server_cpu: stage.usage()?.cpu, client_cpu: own_cpu() })
    }

    pub fn stop(self, stage: &Stage, jobs: u64) -> anyhow::Result<Cost> {
        let server = stage.usage()?;
        let per_1000 = |time: Duration| time.as_secs_f64() * 1e6 / jobs.max(1) as f64;
        Ok(Cost {
            server_cpu_ms_per_1000_jobs: per_1000(server.cpu.saturating_sub(self.server_cpu)),
            client_cpu_ms_per_1000_jobs: per_1000(own_cpu().saturating_sub(self.client_cpu)),
            server_peak_memory_bytes: server.peak_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_parsed_from_the_kernels_format() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 150 50 3 4 20 0 1 0 5 6 7";
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        assert_eq!(cpu_of_stat(stat), Some(Duration::from_secs_f64(200.0 / ticks)));
        let status = "Name:\tpunctual\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!(bytes_of_status(status, "VmHWM:"), Some(2 * 1024 * 1024));
        assert_eq!(bytes_of_status(status, "VmSwap:"), None);
    }

    #[test]
    fn processors_are_busy_unless_idle_or_waiting_for_disks() {
        let before = processors_of_stat("cpu  10 0 10 70 10 0 0 0 5 0\ncpu0 1 1 1 1 1\n").unwrap();
        let after = processors_of_stat("cpu  40 0 20 100 20 5 5 10 9 0\n").unwrap();
        assert_eq!((before.all_ticks, before.idle_ticks), (100, 80));
        assert_eq!(after.busy_since(before), 0.6);
    }

    #[test]
    fn this_process_has_used_cpu_time_and_memory() {
        let usage = ProcessUsage::of_process(std::process::id()).unwrap();
        assert!(0 < usage.resident_bytes && usage.resident_bytes <= usage.peak_bytes);
    }
}
