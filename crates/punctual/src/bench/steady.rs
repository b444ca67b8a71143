//! A steady mixed load on a server, and samples of how it bears it.

use crate::bench::load::{no_op, submit_batch};
use crate::bench::percentiles::Percentiles;
use crate::bench::pipe::{Counts, Start};
use crate::bench::progress;
use crate::bench::recorder::JOB_TYPE;
use crate::bench::stage::Stage;
use punctual_client::{Client, SubmitJob, host};
use serde::Serialize;
use std::time::{Duration, Instant};

/// Jobs are submitted this often, at most so many at once.
const SUBMIT_INTERVAL: Duration = Duration::from_millis(100);
pub const BATCH_MAX: u64 = 1_000;
/// How far ahead the one-time jobs are due.
const AHEAD: Duration = Duration::from_secs(2);
/// How long the last jobs may take to finish.
const FINISH_MAX: Duration = Duration::from_secs(60);

/// What the server is to bear.
#[derive(Debug, Clone, Copy)]
pub struct SteadyLoad {
    pub duration: Duration,
    /// Executions per second.
    pub rate: u64,
    pub payload_bytes: u64,
    pub sample_every: Duration,
}

impl SteadyLoad {
    fn recurring(self) -> u64 {
        self.rate / 5
    }

    /// Runs of each recurring job: one a second.
    fn runs(self) -> u32 {
        u32::try_from(self.duration.as_secs()).unwrap_or(u32::MAX).max(1)
    }
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct Sample {
    pub seconds: f64,
    pub server_memory_bytes: u64,
    /// Unknown of a database server.
    pub disk_bytes: Option<u64>,
    /// Part of the above. It grows until the log is first written back, whatever else happens.
    pub write_ahead_log_bytes: Option<u64>,
    pub done_per_second: f64,
    /// Of the scheduled jobs that started since the last sample; absent if none did.
    pub late_p99_us: Option<u64>,
}

/// A run under way.
pub struct Steady {
    load: SteadyLoad,
    started_at: Instant,
    due_at_once: SubmitJob,
    later: SubmitJob,
    /// Jobs submitted beside the recurring ones.
    submitted: u64,
    pub expected: u64,
    pub early: u64,
    /// Since the last sample.
    late: Vec<Duration>,
    pub samples: Vec<Sample>,
}

impl Steady {
    pub fn new(load: SteadyLoad) -> anyhow::Result<Self> {
        Ok(Steady {
            load,
            started_at: Instant::now(),
            due_at_once: no_op("noop", load.payload_bytes)?,
            later: no_op(JOB_TYPE, load.payload_bytes)?,
            submitted: 0,
            expected: 0,
            early: 0,
            late: Vec::new(),
            samples: Vec::new(),
        })
    }

    /// Jobs that fire once a second, spread over it.
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

    /// Submits at the rate and takes samples, until the time is over.
    pub async fn go_on(&mut self, stage: &mut Stage) -> anyhow::Result<()> {
        let SteadyLoad { duration, sample_every: every, .. } = self.load;
        let bar = progress("soaking, s", duration.as_secs());
        self.started_at = Instant::now();
        let mut ticks = tokio::time::interval(SUBMIT_INTERVAL.min(every));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut sample_at, mut done_before, mut sampled_at) = (every, 0, Duration::ZERO);
        loop {
            ticks.tick().await;
            let elapsed = self.started_at.elapsed();
            self.submit_due(&stage.client, elapsed.min(duration)).await?;
            while let Ok(start) = stage.starts.try_recv() {
                self.record(start);
            }
            if elapsed >= sample_at || elapsed >= duration {
                let done = stage.counts().await?.succeeded;
                let now = self.started_at.elapsed();
                self.sample(stage, now, (done - done_before) as f64 / (now - sampled_at).as_secs_f64())?;
                (sample_at, done_before, sampled_at) = (now + every, done, now);
                bar.set_position(now.as_secs());
            }
            if elapsed >= duration {
                bar.finish_and_clear();
                return Ok(());
            }
        }
    }

    /// Submits what the rate asks for by now. A server that cannot keep up is not flooded: one batch at a time.
    async fn submit_due(&mut self, client: &Client, elapsed: Duration) -> anyhow::Result<()> {
        let submits_per_second = self.load.rate - self.load.recurring();
        let wanted = (elapsed.as_secs_f64() * submits_per_second as f64) as u64;
        while self.submitted < wanted {
            let count = (wanted - self.submitted).min(BATCH_MAX);
            let at = host::wall_time().plus(AHEAD);
            let job = |number: u64| match number % 8 {
                // Three of eight: three tenths of all, as eight tenths are submitted here.
                0..3 => SubmitJob { execute_at: Some(at), ..self.later.clone() },
                _ => self.due_at_once.clone(),
            };
            let jobs: Vec<SubmitJob> = (self.submitted..self.submitted + count).map(job).collect();
            submit_batch(client, &jobs).await?;
            self.submitted += count;
            self.expected += count;
        }
        Ok(())
    }

    fn record(&mut self, start: Start) {
        self.early += u64::from(start.is_early());
        self.late.push(start.late());
    }

    fn sample(&mut self, stage: &Stage, at: Duration, done_per_second: f64) -> anyhow::Result<()> {
        let late = std::mem::take(&mut self.late);
        let disk = stage.disk()?;
        self.samples.push(Sample {
            seconds: at.as_secs_f64(),
            server_memory_bytes: stage.usage()?.resident_bytes,
            disk_bytes: disk.map(|disk| disk.bytes),
            write_ahead_log_bytes: disk.map(|disk| disk.write_ahead_log_bytes),
            done_per_second,
            late_p99_us: (!late.is_empty()).then(|| Percentiles::of(&late).p99),
        });
        Ok(())
    }

    /// Waits for the last jobs and counts them all.
    pub async fn finish(&mut self, stage: &mut Stage) -> anyhow::Result<Counts> {
        let gives_up_at = Instant::now() + FINISH_MAX;
        loop {
            while let Ok(start) = stage.starts.try_recv() {
                self.record(start);
            }
            let counts = stage.counts().await?;
            if counts.succeeded + counts.otherwise >= self.expected || Instant::now() > gives_up_at {
                return Ok(counts);
            }
            tokio::time::sleep(SUBMIT_INTERVAL).await;
        }
    }
}
