//! Runs no-op jobs on a fresh server until their outcomes are recorded. They are submitted beforehand or during the
//! run.

use crate::load::{self, LoadArgs};
use crate::pace::{self, Pace};
use crate::pipe::MachineMoment;
use crate::stage::{DiskUsage, Stage, StageOptions};
use crate::units::per_second;
use crate::usage::{Cost, Meter};
use crate::{PlaceArgs, progress};
use anyhow::bail;
use indicatif::ProgressBar;
use punctual_client::{SetQueue, SubmitJob};
use std::time::{Duration, Instant};

/// The queue of jobs that do not name one.
pub const QUEUE: &str = "default";
/// Maximum time until the limits have admitted as many jobs as they allow, and the interval at which that is checked.
const SETTLE_MAX: Duration = Duration::from_secs(60);
const SETTLE_PAUSE: Duration = Duration::from_millis(20);

/// The jobs to run, and the server to run them on.
#[derive(Clone, Copy)]
pub struct NoOps<'a> {
    pub place: &'a PlaceArgs,
    pub stage: StageOptions,
    pub load: LoadArgs,
    pub jobs: u64,
    /// Number of keys that the jobs share; 0 for no keys.
    pub keys: u64,
    /// Settings of the queue, if any.
    pub queue: Option<&'a SetQueue>,
}

/// The result of no-ops that were submitted beforehand.
pub struct DrainedNoops {
    pub submit_per_second: f64,
    pub submit_seconds: f64,
    /// Jobs on a wait list after all were submitted and before any ran.
    pub in_line: u64,
    pub pace: Pace,
    pub succeeded: u64,
    pub cost: Cost,
    pub disk_before: DiskUsage,
    pub disk: DiskUsage,
}

/// The result of no-ops that were submitted during the run.
pub struct Together {
    pub pace: Pace,
    pub succeeded: u64,
    pub cost: Cost,
}

impl NoOps<'_> {
    /// Submits all jobs while the worker is paused, then lets it run.
    pub async fn drain(self) -> anyhow::Result<DrainedNoops> {
        Stage::measure(self.place, self.stage, async |stage| {
            self.set_queue(stage).await?;
            stage.pause_worker().await?;
            let disk_before = stage.disk().await?;
            let meter = Meter::start(stage)?;
            let bar = progress("submitting", self.jobs);
            let submit_time =
                load::submit_all(&stage.client, self.load, self.jobs, &bar, self.job()?).await?;
            bar.finish_and_clear();
            let in_line = self.settled(stage).await?;
            let bar = progress("draining", self.jobs);
            let since = MachineMoment::now();
            stage.resume_worker().await?;
            let pace = pace::watch(stage, self.jobs, since, &bar).await?;
            bar.finish_and_clear();
            Ok(DrainedNoops {
                submit_per_second: per_second(self.jobs, submit_time),
                submit_seconds: submit_time.as_secs_f64(),
                in_line,
                pace,
                cost: meter.stop(stage, self.jobs)?,
                succeeded: stage.counts().await?.succeeded,
                disk_before,
                disk: stage.disk().await?,
            })
        })
        .await
    }

    /// Submits jobs to a server that runs them at the same time.
    pub async fn together(self) -> anyhow::Result<Together> {
        Stage::measure(self.place, self.stage, async |stage| {
            self.set_queue(stage).await?;
            let client = stage.client.clone();
            let meter = Meter::start(stage)?;
            let (unseen, bar) = (ProgressBar::hidden(), progress("together", self.jobs));
            let since = MachineMoment::now();
            let (_, pace) = tokio::try_join!(
                load::submit_all(&client, self.load, self.jobs, &unseen, self.job()?),
                pace::watch(stage, self.jobs, since, &bar),
            )?;
            bar.finish_and_clear();
            let cost = meter.stop(stage, self.jobs)?;
            Ok(Together { pace, cost, succeeded: stage.counts().await?.succeeded })
        })
        .await
    }

    async fn set_queue(self, stage: &Stage) -> anyhow::Result<()> {
        if let Some(settings) = self.queue {
            stage.client.set_queue(QUEUE, settings).await?;
        }
        Ok(())
    }

    /// Returns the job for a number. Jobs with adjacent numbers have different keys.
    fn job(self) -> anyhow::Result<impl Fn(u64) -> SubmitJob + Send + Sync + 'static> {
        let (job, keys) = (load::no_op("noop", self.load.payload_bytes)?, self.keys);
        Ok(move |number: u64| {
            let concurrency_key = number.checked_rem(keys).map(|key| format!("key-{key}"));
            SubmitJob { concurrency_key, ..job.clone() }
        })
    }

    /// Waits until the queue's limit has admitted as many jobs as it allows, so that admissions are not part of the
    /// drain. Returns how many jobs are on wait lists then.
    async fn settled(self, stage: &Stage) -> anyhow::Result<u64> {
        let limit = self.queue.and_then(|settings| settings.concurrency).map_or(u64::MAX, u64::from);
        let expected = self.jobs.min(limit);
        let gives_up_at = Instant::now() + SETTLE_MAX;
        loop {
            let seen = stage.client.queue(QUEUE).await?;
            if seen.queued == expected && seen.queued + seen.in_line == self.jobs {
                return Ok(seen.in_line);
            }
            if seen.queued > expected || Instant::now() > gives_up_at {
                bail!(
                    "{} of {} jobs are queued and {} wait, but {expected} should be queued",
                    seen.queued,
                    self.jobs,
                    seen.in_line
                );
            }
            tokio::time::sleep(SETTLE_PAUSE).await;
        }
    }
}
