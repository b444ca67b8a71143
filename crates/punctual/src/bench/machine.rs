//! What the process has used of the machine, and what the disk takes for one durable write.

use anyhow::Context;
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// What one log page of a small commit takes.
const SYNC_BYTES: usize = 4_096;
const SYNC_PAGES: u64 = 256;

/// CPU time of all threads of this process so far.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The most memory that this process has held at once.
pub fn peak_memory_bytes() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").context("cannot read the memory in use")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = peak.and_then(|value| value.trim().strip_suffix(" kB"));
    let kilobytes: u64 = kilobytes.and_then(|value| value.trim().parse().ok()).context("no peak memory")?;
    Ok(kilobytes * 1024)
}

/// Durable writes of one page each, on the disk of a directory: no commit there can be faster.
///
/// One write at a time, so that a benchmark can take them in between its own steps. Taken all at once, before
/// or after, they would meet another moment of a busy machine and say nothing about the steps.
pub struct SyncProbe {
    file: File,
    round: u64,
}

impl SyncProbe {
    pub fn new(dir: &Path) -> anyhow::Result<Self> {
        let mut file = tempfile::tempfile_in(dir).context("cannot write there")?;
        // At its full size, as a write-ahead log is after its first round.
        file.write_all(&vec![0; SYNC_PAGES as usize * SYNC_BYTES])?;
        file.sync_all()?;
        Ok(SyncProbe { file, round: 0 })
    }

    pub fn once(&mut self) -> anyhow::Result<Duration> {
        let start = Instant::now();
        self.file.seek(SeekFrom::Start(self.round % SYNC_PAGES * SYNC_BYTES as u64))?;
        self.file.write_all(&[self.round as u8; SYNC_BYTES])?;
        self.file.sync_data()?;
        self.round += 1;
        Ok(start.elapsed())
    }
}

/// How many processors' worth of work the machine had to do in the last minute, this process included.
pub fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0.0)
}

/// A warning for whoever reads the numbers of a machine that was busy with something else.
pub fn busy_warning(load_before: f64) -> Option<String> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    (load_before > processors / 4.0).then(|| {
        format!(
            "the machine was busy (load {load_before:.1} on {processors:.0} processors): do not compare these \
             figures"
        )
    })
}

/// The value below which this share of the sorted times lies.
pub fn percentile(sorted: &[Duration], percent: f64) -> Duration {
    let place = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
    sorted.get(place.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_taken_from_the_values_themselves() {
        let times: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(percentile(&times, 50.0), Duration::from_millis(100));
        assert_eq!(percentile(&times, 99.0), Duration::from_millis(198));
        assert_eq!(percentile(&times, 100.0), Duration::from_millis(200));
        assert_eq!(percentile(&[], 50.0), Duration::ZERO);
    }
}
