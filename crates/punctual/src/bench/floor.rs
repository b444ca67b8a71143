//! The floor under the server: the same rows in full batches through the same database from one thread, without
//! rules, HTTP or hand-over between threads, and the disk's own durable writes.

use crate::bench::percentiles::Percentiles;
use crate::bench::words::{grouped, percent};
use crate::bench::{progress, sync};
use anyhow::Context;
use punctual_store::sqlite::{self, FloorOptions, measure_floor};
use serde::Serialize;
use std::path::Path;

/// Rows of the floor at most: its rate no longer changes by then.
const FLOOR_JOBS_MAX: u64 = 200_000;
/// The better of this many measurements counts: others on the machine can only slow it down.
const ROUNDS: u64 = 2;

#[derive(Debug, Clone, Copy, Serialize)]
pub struct Floor {
    pub jobs: u64,
    pub batch: u64,
    pub insert_per_second: f64,
    pub claim_complete_per_second: f64,
    /// Jobs of the future inserted.
    pub hold_per_second: f64,
    /// One durable write of a page.
    pub fdatasync_us: Percentiles,
}

/// The jobs that the floor is to be measured with.
#[derive(Debug, Clone, Copy)]
pub struct FloorJobs {
    pub jobs: u64,
    pub batch: u64,
    pub payload_bytes: u64,
}

pub async fn measure(dir: &Path, like: FloorJobs) -> anyhow::Result<Floor> {
    let dir = dir.to_owned();
    let measured = tokio::task::spawn_blocking(move || measure_blocking(&dir, like));
    measured.await.context("the floor broke off")?
}

fn measure_blocking(dir: &Path, like: FloorJobs) -> anyhow::Result<Floor> {
    let bar = progress("floor", ROUNDS);
    let jobs = like.jobs.min(FLOOR_JOBS_MAX);
    let options = FloorOptions {
        jobs: jobs as usize,
        batch: like.batch as usize,
        payload_bytes: like.payload_bytes as usize,
    };
    let mut best = sqlite::Floor { insert_per_sec: 0.0, claim_complete_per_sec: 0.0, hold_per_sec: 0.0 };
    for _ in 0..ROUNDS {
        let floor = measure_floor(dir, options)?;
        best = sqlite::Floor {
            insert_per_sec: best.insert_per_sec.max(floor.insert_per_sec),
            claim_complete_per_sec: best.claim_complete_per_sec.max(floor.claim_complete_per_sec),
            hold_per_sec: best.hold_per_sec.max(floor.hold_per_sec),
        };
        bar.inc(1);
    }
    let fdatasync_us = sync::measure(dir)?;
    bar.finish_and_clear();
    Ok(Floor {
        jobs,
        batch: like.batch,
        insert_per_second: best.insert_per_sec,
        claim_complete_per_second: best.claim_complete_per_sec,
        hold_per_second: best.hold_per_sec,
        fdatasync_us,
    })
}

/// A rate, and what share of the bare database's it is.
pub fn beside(rate: f64, floor: f64) -> String {
    let share = percent(rate / floor.max(f64::EPSILON));
    format!("{} jobs/s, {share} of the {} of the bare database on one thread", grouped(rate), grouped(floor))
}
