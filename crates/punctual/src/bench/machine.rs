//! What the process has used of the machine, and what the disk takes for one durable write.

use anyhow::Context;
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// What one log page of a small commit takes.
const SYNC_BYTES: usize = 4_096;
const SYNC_ROUNDS: usize = 300;

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

/// How long single durable writes take on the disk of this directory, shortest first: no commit can be faster.
pub fn sync_times(dir: &Path) -> anyhow::Result<Vec<Duration>> {
    let mut file = tempfile::tempfile_in(dir).context("cannot write there")?;
    let mut times = Vec::with_capacity(SYNC_ROUNDS);
    prepare(&mut file)?;
    for round in 0..SYNC_ROUNDS {
        let start = Instant::now();
        file.seek(SeekFrom::Start((round * SYNC_BYTES) as u64))?;
        file.write_all(&[round as u8; SYNC_BYTES])?;
        file.sync_data()?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    Ok(times)
}

/// A file at its full size, as a write-ahead log is after its first round.
fn prepare(file: &mut File) -> anyhow::Result<()> {
    file.write_all(&vec![0; SYNC_ROUNDS * SYNC_BYTES])?;
    Ok(file.sync_all()?)
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
