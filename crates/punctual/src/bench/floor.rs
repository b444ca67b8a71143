//! The floor under the server: the same rows in full batches through the same database from one thread, without
//! rules, HTTP or hand-over between threads, and the disk's own durable writes.

use crate::bench::percentiles::Percentiles;
use crate::bench::words::{grouped, percent};
use crate::bench::{PlaceArgs, progress, sync};
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
    /// The rates are absent for database servers: there is no floor for them yet.
    pub insert_per_second: Option<f64>,
    pub claim_complete_per_second: Option<f64>,
    /// Jobs of the future inserted.
    pub hold_per_second: Option<f64>,
    /// One durable write of a page on this machine, which a database server need not be.
    pub fdatasync_us: Percentiles,
}

/// The jobs that the floor is to be measured with.
#[derive(Debug, Clone, Copy)]
pub struct FloorJobs {
    pub jobs: u64,
    pub batch: u64,
    pub payload_bytes: u64,
}

pub async fn measure(place: &PlaceArgs, dir: &Path, like: FloorJobs) -> anyhow::Result<Floor> {
    let dir = dir.to_owned();
    if place.database_server()?.is_some() {
        let fdatasync_us = sync::measure(&dir)?;
        let (jobs, batch) = (0, like.batch);
        let [insert_per_second, claim_complete_per_second, hold_per_second] = [None; 3];
        return Ok(Floor {
            jobs,
            batch,
            insert_per_second,
            claim_complete_per_second,
            hold_per_second,
            fdatasync_us,
        });
    }
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
        insert_per_second: Some(best.insert_per_sec),
        claim_complete_per_second: Some(best.claim_complete_per_sec),
        hold_per_second: Some(best.hold_per_sec),
        fdatasync_us,
    })
}

/// A rate, and what share of the bare database's it is.
pub fn beside(rate: f64, floor: Option<f64>) -> String {
    let Some(floor) = floor else {
        return format!("{} jobs/s; the bare database is not measured on a server", grouped(rate));
    };
    let share = percent(rate / floor.max(f64::EPSILON));
    format!("{} jobs/s, {share} of the {} of the bare database on one thread", grouped(rate), grouped(floor))
}

/// A rate as a share of the floor's, where that is known.
pub fn share(rate: f64, floor: Option<f64>) -> Option<f64> {
    floor.map(|floor| rate / floor)
}
