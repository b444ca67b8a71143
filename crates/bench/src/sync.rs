//! How long the disk takes for one durable write.

use anyhow::Context;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// The log page that a small commit writes.
const SYNC_BYTES: usize = 4_096;
const SYNC_PAGES: u64 = 256;

/// Durable writes of one page each, on the disk of a directory: no commit there can be faster.
///
/// Measures one write at a time, so that a benchmark can interleave the writes with its own steps. Measured all at
/// once before or after, they would see a different load and say nothing about the steps.
pub struct SyncProbe {
    file: File,
    round: u64,
}

impl SyncProbe {
    pub fn new(dir: &Path) -> anyhow::Result<Self> {
        let mut file = tempfile::tempfile_in(dir).context("cannot write there")?;
        // At its full size, like a write-ahead log after its first checkpoint.
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
