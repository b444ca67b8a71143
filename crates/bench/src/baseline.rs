//! The baseline of the server: one durable write, and the same rows in full batches through the same database,
//! without rules, HTTP or hand-over between threads. The embedded store uses one thread for it, a database server as
//! many connections as the measured server has writers.

use crate::bench_server::BenchSite;
use crate::durable::{self, DurableWrite};
use crate::units::{grouped, percent};
use crate::{PlaceArgs, progress};
use anyhow::Context;
use punctual_store::baseline::{BaselineOptions, BaselineRates};
use punctual_store::sqlite::measure_baseline;
use serde::Serialize;

/// Maximum rows of the baseline. Its rate does not change with more rows.
const BASELINE_JOBS_MAX: u64 = 200_000;
/// The best of this many measurements counts, because other processes on the machine can only slow it down.
const ROUNDS: u64 = 2;

#[derive(Debug, Clone, Copy, Serialize)]
pub struct MeasuredBaseline {
    pub jobs: u64,
    pub batch: u64,
    /// Threads or connections that write.
    pub writers: u64,
    pub insert_per_second: f64,
    pub claim_complete_per_second: f64,
    /// Rate at which future jobs are inserted.
    pub hold_per_second: f64,
    #[serde(flatten)]
    pub durable_write: DurableWrite,
}

/// The jobs to measure the baseline with.
#[derive(Debug, Clone, Copy)]
pub struct BaselineJobs {
    pub jobs: u64,
    pub batch: u64,
    pub payload_bytes: u64,
}

pub async fn measure(place: &PlaceArgs, like: BaselineJobs) -> anyhow::Result<MeasuredBaseline> {
    let bar = progress("baseline", ROUNDS);
    let options = BaselineOptions {
        jobs: like.jobs.min(BASELINE_JOBS_MAX) as usize,
        batch: like.batch as usize,
        payload_bytes: like.payload_bytes as usize,
    };
    let mut best = BaselineRates { insert_per_sec: 0.0, claim_complete_per_sec: 0.0, hold_per_sec: 0.0 };
    let mut durable_write = None;
    for _ in 0..ROUNDS {
        // A new database for each measurement: rows of the previous one would slow it down.
        let mut site = BenchSite::prepare(place).await?;
        let baseline = measure_once(&mut site, options).await.context("the baseline cannot be measured")?;
        best = BaselineRates {
            insert_per_sec: best.insert_per_sec.max(baseline.insert_per_sec),
            claim_complete_per_sec: best.claim_complete_per_sec.max(baseline.claim_complete_per_sec),
            hold_per_sec: best.hold_per_sec.max(baseline.hold_per_sec),
        };
        durable_write = Some(durable::measure(&mut site).await?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(MeasuredBaseline {
        jobs: options.jobs as u64,
        batch: like.batch,
        writers: place.database_server()?.map_or(1, |server| server.writers as u64),
        insert_per_second: best.insert_per_sec,
        claim_complete_per_second: best.claim_complete_per_sec,
        hold_per_second: best.hold_per_sec,
        durable_write: durable_write.context("the baseline was not measured")?,
    })
}

async fn measure_once(site: &mut BenchSite, options: BaselineOptions) -> anyhow::Result<BaselineRates> {
    if let Some(bare) = &mut site.bare {
        return Ok(bare.measure_baseline(options).await?);
    }
    let dir = site.dir().to_owned();
    let measured = tokio::task::spawn_blocking(move || measure_baseline(&dir, options));
    Ok(measured.await.context("the baseline measurement was interrupted")??)
}

impl MeasuredBaseline {
    /// A rate, followed by its share of the bare database's rate.
    pub fn beside(&self, rate: f64, baseline: f64) -> String {
        let share = percent(share(rate, baseline));
        let how = if self.is_embedded() {
            "on one thread".to_owned()
        } else {
            format!("over {} connections", self.writers)
        };
        let (rate, baseline) = (grouped(rate), grouped(baseline));
        format!("{rate} jobs/s, {share} of the baseline {baseline} of the bare database {how}")
    }

    const fn is_embedded(&self) -> bool {
        matches!(self.durable_write, DurableWrite::Fdatasync(_))
    }

    /// Rate of inserting, claiming and completing, one after the other.
    pub fn both_per_second(&self) -> f64 {
        1.0 / (1.0 / self.insert_per_second + 1.0 / self.claim_complete_per_second)
    }
}

/// A rate as a share of the baseline.
pub fn share(rate: f64, baseline: f64) -> f64 {
    rate / baseline.max(f64::EPSILON)
}
