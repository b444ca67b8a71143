//! What one durable write takes, on the disk of the embedded store or on the database server: no acknowledgement can
//! be faster.

use crate::percentiles::Percentiles;
use crate::stage::Ground;
use crate::sync::SyncProbe;
use anyhow::Context;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Writes of a measurement that is not taken in between something else.
const WRITES: usize = 200;

/// The floor under latencies.
#[derive(Debug, Clone, Copy, Serialize)]
pub enum DurableWrite {
    /// One durable write of a page on the disk.
    #[serde(rename = "fdatasync_us")]
    Fdatasync(Percentiles),
    /// One small commit on the database server, from here to there and back.
    #[serde(rename = "commit_us")]
    Commit(Percentiles),
}

impl DurableWrite {
    pub const fn us(self) -> Percentiles {
        let (DurableWrite::Fdatasync(us) | DurableWrite::Commit(us)) = self;
        us
    }

    /// What it is, after "one".
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

/// Takes the time of one write at a time, so that a benchmark can take them in between its own steps.
pub struct Probe {
    /// None for database servers: they have their own.
    disk: Option<SyncProbe>,
    times: Vec<Duration>,
}

impl Probe {
    pub fn new(ground: &Ground) -> anyhow::Result<Self> {
        let disk = if ground.bare.is_none() { Some(SyncProbe::new(ground.dir())?) } else { None };
        Ok(Probe { disk, times: Vec::new() })
    }

    pub async fn once(&mut self, ground: &mut Ground) -> anyhow::Result<()> {
        let time = match (&mut self.disk, &mut ground.bare) {
            // Blocks the thread of this function only: everything measured runs on others.
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

/// Many of them in a row, for benchmarks that have no steps to take them in between.
pub async fn measure(ground: &mut Ground) -> anyhow::Result<DurableWrite> {
    let mut probe = Probe::new(ground)?;
    for _ in 0..WRITES {
        probe.once(ground).await.context("a durable write cannot be measured")?;
    }
    Ok(probe.finish())
}
