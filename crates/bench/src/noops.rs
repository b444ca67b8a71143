//! Runs no-op jobs on a fresh server until their outcomes are recorded. They are submitted beforehand or during the
//! run.

use crate::bench_server::{DiskUsage, Stage, StageOptions};
use crate::failures::{FailureLoad, FailureSubmitter};
use crate::load::{self, LoadArgs};
use crate::pace::{self, Pace};
use crate::pipe::MachineMoment;
use crate::units::per_second;
use crate::usage::{Cost, Meter};
use crate::{PlaceArgs, progress};
use anyhow::bail;
use indicatif::ProgressBar;
use punctual_client::{SetQueue, SubmitJob};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The queue of jobs that do not name one.
pub const QUEUE: &str = "default";
/// Maximum time until the limits have admitted as many jobs as they allow, and the interval at which that is checked.
const SETTLE_MAX: Duration = Duration::from_secs(60);
const SETTLE_PAUSE: Duration = Duration::from_millis(20);
/// How long it may take until all failures are notified, and the pause between two looks.
const NOTIFIED_WITHIN: Duration = Duration::from_secs(1_800);
const NOTIFIED_PAUSE: Duration = Duration::from_millis(100);

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
    /// Failures of other jobs during a drain.
    pub failures: Option<FailureLoad>,
}

/// The result of no-ops that were submitted beforehand.
pub struct DrainedNoops {
    pub submit_per_second: f64,
    pub submit_seconds: f64,
    /// Jobs on a wait list after all were submitted and before any ran.
    pub in_line: u64,
    pub pace: Pace,
    pub succeeded: u64,
    pub failures: FailuresSeen,
    pub cost: Cost,
    pub disk_before: DiskUsage,
    pub disk: DiskUsage,
}

/// What came of failures during a drain.
#[derive(Debug, Clone, Copy, Default)]
pub struct FailuresSeen {
    pub failed: u64,
    /// Of these, during the drain itself.
    pub failed_during_drain: u64,
    /// Events in messages.
    pub notified: u64,
    /// How long after the drain the last failure was notified.
    pub catch_up: Duration,
}

/// What came of no-ops that were submitted meanwhile.
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
            if let Some(failures) = self.failures {
                failures.set_rules(&stage.client).await?;
            }
            stage.pause_worker().await?;
            let disk_before = stage.disk().await?;
            let meter = Meter::start(stage)?;
            let bar = progress("submitting", self.jobs);
            let submit_time =
                load::submit_all(&stage.client, self.load, self.jobs, &bar, self.job()?).await?;
            bar.finish_and_clear();
            let in_line = self.settled(stage).await?;
            let pace = self.drain_submitted(stage).await?;
            let cost = meter.stop(stage, self.jobs)?;
            let failures = self.failures_seen(stage).await?;
            Ok(DrainedNoops {
                submit_per_second: per_second(self.jobs, submit_time),
                submit_seconds: submit_time.as_secs_f64(),
                in_line,
                pace,
                cost,
                succeeded: stage.counts().await?.succeeded,
                failures,
                disk_before,
                disk: stage.disk().await?,
            })
        })
        .await
    }

    async fn drain_submitted(self, stage: &mut Stage) -> anyhow::Result<Pace> {
        let bar = progress("draining", self.jobs);
        let Some(failures) = self.failures else {
            let since = MachineMoment::now();
            stage.resume_worker().await?;
            let pace = pace::watch(stage, self.jobs, since, &bar).await?;
            bar.finish_and_clear();
            return Ok(pace);
        };
        let submitter = FailureSubmitter::start(stage.client.clone(), failures).await?;
        let is_over = AtomicBool::new(false);
        let since = MachineMoment::now();
        stage.resume_worker().await?;
        let watching = async {
            let pace = pace::watch_beside_failures(stage, self.jobs, since, &bar).await;
            is_over.store(true, Ordering::Relaxed);
            pace
        };
        let (pace, ()) = tokio::try_join!(watching, submitter.run(&is_over))?;
        bar.finish_and_clear();
        Ok(pace)
    }

    /// Waits until all failures have ended, and with rules until all are notified.
    async fn failures_seen(self, stage: &mut Stage) -> anyhow::Result<FailuresSeen> {
        let Some(load) = self.failures else { return Ok(FailuresSeen::default()) };
        let failed_during_drain = stage.counts().await?.failed;
        let start = Instant::now();
        loop {
            let queue = stage.client.queue(QUEUE).await?;
            let counts = stage.counts().await?;
            let is_drained = queue.queued + queue.running + queue.waiting == 0;
            let is_notified = load.rules == 0 || counts.notified_events >= counts.failed;
            if is_drained && is_notified {
                let (failed, notified) = (counts.failed, counts.notified_events);
                return Ok(FailuresSeen { failed, failed_during_drain, notified, catch_up: start.elapsed() });
            }
            if start.elapsed() > NOTIFIED_WITHIN {
                bail!("only {} of {} failures were notified", counts.notified_events, counts.failed);
            }
            tokio::time::sleep(NOTIFIED_PAUSE).await;
        }
    }

    /// Submits to a server that executes meanwhile.
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
