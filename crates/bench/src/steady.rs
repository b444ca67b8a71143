//! A steady mixed load on a server, and samples of how the server handles it.

use crate::bench_server::Stage;
use crate::load::{no_op, submit_batch};
use crate::percentiles::Percentiles;
use crate::pipe::{RecordedStart, ServerCounts};
use crate::progress;
use crate::recorder::JOB_TYPE;
use crate::samples::SampleFile;
use anyhow::Context;
use punctual_client::{Client, SubmitJob, host};
use serde::Serialize;
use std::str::FromStr;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Interval between submits, and the maximum number of jobs per submit.
const SUBMIT_INTERVAL: Duration = Duration::from_millis(100);
pub const BATCH_MAX: u64 = 1_000;
/// How far in the future the one-time jobs are due.
const AHEAD: Duration = Duration::from_secs(2);
/// How long the last jobs may take to finish.
const FINISH_MAX: Duration = Duration::from_secs(60);
/// At full rate: concurrent batches, open jobs above which no more are submitted, and recurring jobs.
const FULL_BATCHES: u64 = 4;
const FULL_OPEN_MAX: u64 = 100_000;
const FULL_RECURRING: u64 = 100;
/// Bounds of the requested executions per second.
const RATE_MIN: u64 = 10;
const RATE_MAX: u64 = 100_000;

/// The requested executions per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SteadyRate {
    PerSecond(u64),
    /// As many as the server can handle.
    Full,
}

impl FromStr for SteadyRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            _ if text == "full" => Ok(SteadyRate::Full),
            Ok(rate @ RATE_MIN..=RATE_MAX) => Ok(SteadyRate::PerSecond(rate)),
            _ => Err(format!("a number from {RATE_MIN} to {RATE_MAX}, or `full`")),
        }
    }
}

impl SteadyRate {
    pub const fn per_second(self) -> Option<u64> {
        match self {
            SteadyRate::PerSecond(rate) => Some(rate),
            SteadyRate::Full => None,
        }
    }
}

/// The load.
#[derive(Debug, Clone, Copy)]
pub struct SteadyLoad {
    pub duration: Duration,
    pub rate: SteadyRate,
    pub payload_bytes: u64,
    pub sample_every: Duration,
}

impl SteadyLoad {
    fn recurring(self) -> u64 {
        self.rate.per_second().map_or(FULL_RECURRING, |rate| rate / 5)
    }

    /// Number of runs of each recurring job: one per second.
    fn runs(self) -> u32 {
        u32::try_from(self.duration.as_secs()).unwrap_or(u32::MAX).max(1)
    }
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct Sample {
    pub seconds: f64,
    pub server_memory_bytes: u64,
    /// Of the files, or of the tables on a database server.
    pub disk_bytes: u64,
    /// Part of the above. Grows until the first checkpoint of the log, whatever the load.
    pub write_ahead_log_bytes: Option<u64>,
    /// Row versions that wait for vacuum, if the database counts them.
    pub dead_rows: Option<u64>,
    pub done: u64,
    pub done_per_second: f64,
    /// Of the scheduled jobs that started since the last sample; absent if none did.
    pub late_p99_us: Option<u64>,
}

/// A run in progress.
pub struct Steady {
    load: SteadyLoad,
    started_at: Instant,
    due_at_once: SubmitJob,
    later: SubmitJob,
    /// Submitted jobs besides the recurring ones.
    submitted: u64,
    pub expected: u64,
    pub early: u64,
    /// The latest counts.
    pub counts: Option<ServerCounts>,
    /// Lateness of the starts since the last sample.
    late: Vec<Duration>,
    pub samples: Vec<Sample>,
    file: Option<SampleFile>,
}

impl Steady {
    pub fn new(load: SteadyLoad, file: Option<SampleFile>) -> anyhow::Result<Self> {
        Ok(Steady {
            load,
            started_at: Instant::now(),
            due_at_once: no_op("noop", load.payload_bytes)?,
            later: no_op(JOB_TYPE, load.payload_bytes)?,
            submitted: 0,
            expected: 0,
            early: 0,
            counts: None,
            late: Vec::new(),
            samples: Vec::new(),
            file,
        })
    }

    /// Submits jobs that fire once per second, spread evenly over it.
    pub async fn start_recurring(&mut self, client: &Client) -> anyhow::Result<()> {
        let count = self.load.recurring();
        let first = host::wall_time().plus(AHEAD);
        let jobs: Vec<SubmitJob> = (0..count)
            .map(|number| SubmitJob {
                interval: Some("1s".to_owned()),
                start_at: Some(first.shifted(1_000_000 * number as i64 / count.max(1) as i64)),
                max_runs: Some(self.load.runs()),
                ..self.later.clone()
            })
            .collect();
        for batch in jobs.chunks(BATCH_MAX as usize) {
            submit_batch(client, batch).await?;
        }
        self.expected += count * u64::from(self.load.runs());
        Ok(())
    }

    /// Submits at the requested rate and takes samples until the time is up.
    pub async fn go_on(&mut self, stage: &mut Stage) -> anyhow::Result<()> {
        let SteadyLoad { duration, sample_every, .. } = self.load;
        let bar = progress("soaking, s", duration.as_secs());
        self.started_at = Instant::now();
        let mut sample_at = sample_every;
        loop {
            while let Ok(start) = stage.starts.try_recv() {
                self.record(start);
            }
            let elapsed = self.started_at.elapsed();
            if elapsed >= duration {
                self.submit_last(stage).await?;
                self.sample(stage).await?;
                bar.finish_and_clear();
                return Ok(());
            }
            if elapsed >= sample_at {
                self.sample(stage).await?;
                sample_at = next_on_grid(sample_every, self.started_at.elapsed());
                bar.set_position(elapsed.as_secs());
            }
            // Check the clock after each submit. A server that cannot keep up is not flooded, and samples are taken
            // on time.
            let count = self.due_by(elapsed, stage).await?;
            if count > 0 {
                self.submit(&stage.client, count).await?;
            } else {
                let next = (elapsed + SUBMIT_INTERVAL).min(sample_at).min(duration);
                tokio::time::sleep_until((self.started_at + next).into()).await;
            }
        }
    }

    /// Submits the rest of the jobs that the rate requires, unless the server is far behind.
    async fn submit_last(&mut self, stage: &mut Stage) -> anyhow::Result<()> {
        if self.load.rate == SteadyRate::Full {
            return Ok(());
        }
        let count = self.due_by(self.load.duration, stage).await?;
        self.submit(&stage.client, count).await
    }

    /// How many jobs to submit now, up to the maximum per submit.
    async fn due_by(&mut self, elapsed: Duration, stage: &mut Stage) -> anyhow::Result<u64> {
        let recurred = |per_second: u64| (elapsed.as_secs_f64() * per_second as f64) as u64;
        match self.load.rate {
            SteadyRate::PerSecond(rate) => {
                let wanted = recurred(rate - self.load.recurring());
                Ok(wanted.saturating_sub(self.submitted).min(BATCH_MAX))
            }
            SteadyRate::Full => {
                let done = self.count(stage).await?.succeeded;
                let open = (self.submitted + recurred(self.load.recurring())).saturating_sub(done);
                Ok(if open < FULL_OPEN_MAX { FULL_BATCHES * BATCH_MAX } else { 0 })
            }
        }
    }

    async fn submit(&mut self, client: &Client, count: u64) -> anyhow::Result<()> {
        let at = host::wall_time().plus(AHEAD);
        let job = |number: u64| match number % 8 {
            // Three of eight: three tenths of all executions, because eight tenths are submitted here.
            0..3 => SubmitJob { execute_at: Some(at), ..self.later.clone() },
            _ => self.due_at_once.clone(),
        };
        let jobs: Vec<SubmitJob> = (self.submitted..self.submitted + count).map(job).collect();
        let mut under_way = JoinSet::new();
        for batch in jobs.chunks(BATCH_MAX as usize) {
            let (client, batch) = (client.clone(), batch.to_vec());
            under_way.spawn(async move { submit_batch(&client, &batch).await });
        }
        while let Some(done) = under_way.join_next().await {
            done.context("a submit was interrupted")??;
        }
        self.submitted += count;
        self.expected += count;
        Ok(())
    }

    fn record(&mut self, start: RecordedStart) {
        self.early += u64::from(start.is_early());
        self.late.push(start.late());
    }

    async fn count(&mut self, stage: &mut Stage) -> anyhow::Result<ServerCounts> {
        let counts = stage.counts().await?;
        self.counts = Some(counts);
        Ok(counts)
    }

    async fn sample(&mut self, stage: &mut Stage) -> anyhow::Result<()> {
        let done = self.count(stage).await?.succeeded;
        let seconds = self.started_at.elapsed().as_secs_f64();
        let before = self.samples.last().map_or((0, 0.0), |sample| (sample.done, sample.seconds));
        let late = std::mem::take(&mut self.late);
        let disk = stage.disk().await?;
        let sample = Sample {
            seconds,
            server_memory_bytes: stage.usage()?.resident_bytes,
            disk_bytes: disk.bytes,
            write_ahead_log_bytes: disk.write_ahead_log_bytes,
            dead_rows: disk.dead_rows,
            done,
            done_per_second: (done - before.0) as f64 / (seconds - before.1).max(1e-9),
            late_p99_us: (!late.is_empty()).then(|| Percentiles::of(&late).p99),
        };
        if let Some(file) = &mut self.file {
            file.keep(&sample);
        }
        self.samples.push(sample);
        Ok(())
    }

    /// Waits for the last jobs to finish and takes the final counts.
    pub async fn finish(&mut self, stage: &mut Stage) -> anyhow::Result<()> {
        let gives_up_at = Instant::now() + FINISH_MAX;
        loop {
            while let Ok(start) = stage.starts.try_recv() {
                self.record(start);
            }
            let counts = self.count(stage).await?;
            if counts.succeeded + counts.otherwise >= self.expected || Instant::now() > gives_up_at {
                return Ok(());
            }
            tokio::time::sleep(SUBMIT_INTERVAL).await;
        }
    }
}

/// The next multiple of the interval: one late sample does not shift the following ones.
fn next_on_grid(every: Duration, now: Duration) -> Duration {
    let passed = now.as_nanos() / every.as_nanos().max(1);
    every.saturating_mul(u32::try_from(passed + 1).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_stay_on_their_grid() {
        let every = Duration::from_millis(250);
        let next = |ms| next_on_grid(every, Duration::from_millis(ms)).as_millis();
        assert_eq!([0, 249, 250, 251, 499, 1_300].map(next), [250, 250, 500, 500, 500, 1_500]);
    }

    #[test]
    fn a_rate_is_a_number_or_full() {
        assert_eq!("500".parse(), Ok(SteadyRate::PerSecond(500)));
        assert_eq!("full".parse(), Ok(SteadyRate::Full));
        for wrong in ["9", "100001", "fast", ""] {
            assert!(wrong.parse::<SteadyRate>().is_err(), "{wrong}");
        }
    }
}
