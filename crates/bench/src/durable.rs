//! How long one durable write takes, on the disk of the embedded store or on the database server. No acknowledgement
//! can be faster.

use crate::bench_server::BenchSite;
use crate::percentiles::Percentiles;
use crate::sync::SyncProbe;
use anyhow::Context;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Number of writes in a measurement that is not interleaved with a benchmark's own steps.
const WRITES: usize = 200;

/// The lower bound of all latencies.
#[derive(Debug, Clone, Copy, Serialize)]
pub enum DurableWrite {
    /// One durable write of a page to the disk.
    #[serde(rename = "fdatasync_us")]
    Fdatasync(Percentiles),
    /// One small commit on the database server, including the round trip.
    #[serde(rename = "commit_us")]
    Commit(Percentiles),
}

impl DurableWrite {
    pub const fn us(self) -> Percentiles {
        let (DurableWrite::Fdatasync(us) | DurableWrite::Commit(us)) = self;
        us
    }

    /// The name of the write, for use after "one".
    pub const fn name(self) -> &'static str {
        match self {
            DurableWrite::Fdatasync(_) => "fdatasync",
            DurableWrite::Commit(_) => "small commit",
        }
    }

    pub fn row(self) -> (&'static str, Option<String>) {
        let title = match self {
            DurableWrite::Fdatasync(_) => "fdatasync alone",
            DurableWrite::Commit(_) => "Small commit alone",
        };
        (title, Some(self.us().describe()))
    }
}

/// Measures one write at a time, so that a benchmark can interleave the writes with its own steps.
pub struct Probe {
    /// `None` for a database server, which writes to its own disk.
    disk: Option<SyncProbe>,
    times: Vec<Duration>,
}

impl Probe {
    pub fn new(site: &BenchSite) -> anyhow::Result<Self> {
        let disk = if site.bare.is_none() { Some(SyncProbe::new(site.dir())?) } else { None };
        Ok(Probe { disk, times: Vec::new() })
    }

    pub async fn once(&mut self, site: &mut BenchSite) -> anyhow::Result<()> {
        let time = match (&mut self.disk, &mut site.bare) {
            // Blocks only the current thread. Everything that is measured runs on other threads.
            (Some(disk), _) => disk.once()?,
            (None, Some(bare)) => {
                let start = Instant::now();
                bare.commit_once().await?;
                start.elapsed()
            }
            (None, None) => return Ok(()),
        };
        self.times.push(time);
        Ok(())
    }

    pub fn finish(self) -> DurableWrite {
        let us = Percentiles::of(&self.times);
        if self.disk.is_some() { DurableWrite::Fdatasync(us) } else { DurableWrite::Commit(us) }
    }
}

/// Measures many writes in a row, for benchmarks without steps to interleave them with.
pub async fn measure(site: &mut BenchSite) -> anyhow::Result<DurableWrite> {
    let mut probe = Probe::new(site)?;
    for _ in 0..WRITES {
        probe.once(site).await.context("a durable write cannot be measured")?;
    }
    Ok(probe.finish())
}
