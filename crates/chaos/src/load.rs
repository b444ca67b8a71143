//! Clients of the cluster: they submit and read jobs, and try the next API node when one does not answer.

use crate::chance::Chance;
use crate::member::now;
use crate::observed::{Attempts, ClientRequest, OverlapAllowed, RequestedJob, Times};
use crate::recorder::{CallBehaviour, Recorder};
use anyhow::{Context, Result};
use punctual_client::{Client, ClientError, RetryBody, RetryStrategy, SubmitJob};
use punctual_core::ids::JobId;
use punctual_core::schedule::OverlapPolicy;
use punctual_core::time::Timestamp;
use serde_json::json;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long a client waits for one node before it tries the next one.
pub const TRY_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a client tries before it abandons a request.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Pause after all nodes have failed.
const ROUND_PAUSE: Duration = Duration::from_millis(200);
/// Retries of jobs that must eventually succeed: they may be hit by every fault of a run.
const RETRIES: u32 = 1_000;
/// Delay between a failed attempt and the next one.
const RETRY_DELAY: &str = "500ms";
/// Longer than any run may keep all schedulers from working: no occurrence is so late that it may be skipped.
const MISFIRE_GRACE: &str = "30m";
/// One-time jobs are due at most this long after the submit.
const DELAY_MAX: Duration = Duration::from_secs(8);
/// Clients that submit sequentially, and clients that read.
const SUBMITTERS: usize = 4;
const READERS: usize = 2;
/// Pause between two reads of one client.
const LOOK_PAUSE: Duration = Duration::from_millis(250);

/// The load of a run.
#[derive(Debug, Clone, Copy)]
pub struct LoadOptions {
    pub seed: u64,
    pub recurring: usize,
    pub one_time: usize,
    /// The time over which one-time jobs are spread and recurring jobs fire.
    pub lasts: Duration,
    /// The lease of workers: some handlers take longer than that.
    pub lease: Duration,
}

pub struct ClientLoad<'a> {
    options: LoadOptions,
    recorder: &'a Recorder,
    nodes: Vec<Client>,
    turn: AtomicUsize,
    wishes: Mutex<Vec<RequestedJob>>,
    asked: Mutex<Vec<ClientRequest>>,
}

impl<'a> ClientLoad<'a> {
    pub fn new(options: LoadOptions, recorder: &'a Recorder, nodes: Vec<Client>) -> Self {
        let (turn, wishes, asked) = (AtomicUsize::new(0), Mutex::default(), Mutex::default());
        ClientLoad { options, recorder, nodes, turn, wishes, asked }
    }

    /// Submits the recurring jobs, which fire from `from` on, before any fault.
    pub async fn submit_recurring(&self, from: Timestamp) -> Result<()> {
        let until = from.plus(self.options.lasts);
        for index in 0..self.options.recurring {
            let (job, wish) = recurring(index, self.options.lease, from..until, self.recorder)?;
            self.submit(job, wish).await.with_context(|| format!("submit recurring job {index}"))?;
        }
        Ok(())
    }

    /// Submits a job whose type no worker has, and returns its name. Each of its runs expires.
    pub async fn submit_unserved(&self, from: Timestamp) -> Result<String> {
        let name = "unserved";
        let job = SubmitJob {
            interval: Some("2s".to_owned()),
            start_at: Some(from),
            end_at: Some(from.plus(self.options.lasts)),
            misfire_grace: Some("1s".parse()?),
            expires_after: Some("2s".parse()?),
            idempotency_key: Some(name.to_owned()),
            ..SubmitJob::named(name.to_owned()).with_type("unserved")
        };
        self.ask(async |node| node.submit(&job).await).await.context("submit the job that cannot run")?;
        Ok(name.to_owned())
    }

    /// Submits the one-time jobs over the run and reads submitted jobs. Returns when its time is over and the
    /// last request is answered or abandoned.
    pub async fn run(&self) {
        let (start, next) = (Instant::now(), AtomicU64::new(0));
        let submitters = (0..SUBMITTERS).map(|_| self.submit_one_time(start, &next));
        let readers = (0..READERS).map(|index| self.look(start, index as u64));
        futures_util::future::join(
            futures_util::future::join_all(submitters),
            futures_util::future::join_all(readers),
        )
        .await;
    }

    async fn submit_one_time(&self, start: Instant, next: &AtomicU64) {
        let count = self.options.one_time as u64;
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return;
            }
            let share = index as f64 / count as f64;
            tokio::time::sleep_until(start + self.options.lasts.mul_f64(share)).await;
            if let Ok((job, wish)) = one_time(&self.options, index, self.recorder) {
                // The outcome is recorded either way.
                let _ = self.submit(job, wish).await;
            }
        }
    }

    async fn look(&self, start: Instant, index: u64) {
        let mut chance = Chance::new(self.options.seed ^ (index + 1));
        while start.elapsed() < self.options.lasts {
            if let Some(job) = self.acknowledged(&mut chance) {
                let _ = self.ask(async |node| node.job(job).await).await;
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    }

    fn acknowledged(&self, chance: &mut Chance) -> Option<JobId> {
        let wishes = self.wishes.lock().unwrap_or_else(PoisonError::into_inner);
        (!wishes.is_empty()).then(|| chance.of(&wishes).acknowledged)?
    }

    /// Submits a job, and records the wish and the outcome.
    pub async fn submit(&self, job: SubmitJob, wish: RequestedJob) -> Result<JobId, ClientError> {
        let answer = self.ask(async |node| node.submit(&job).await).await;
        let acknowledged = answer.as_ref().ok().map(|submitted| submitted.job_id);
        let wish = RequestedJob { acknowledged, ..wish };
        self.wishes.lock().unwrap_or_else(PoisonError::into_inner).push(wish);
        answer.map(|submitted| submitted.job_id)
    }

    /// Tries the nodes in turn until one answers or the patience ends.
    async fn ask<T>(
        &self,
        request: impl AsyncFn(&Client) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let (from, start) = (now(), Instant::now());
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        let mut tries = 0;
        let outcome = loop {
            let node = &self.nodes[(first + tries) % self.nodes.len()];
            tries += 1;
            let outcome = match tokio::time::timeout(TRY_TIMEOUT, request(node)).await {
                Ok(outcome) => outcome,
                Err(_) => Err(ClientError::Unexpected(format!("no response within {TRY_TIMEOUT:?}"))),
            };
            if outcome.is_ok() || start.elapsed() >= PATIENCE {
                break outcome;
            }
            if tries % self.nodes.len() == 0 {
                tokio::time::sleep(ROUND_PAUSE).await;
            }
        };
        let failure = outcome.as_ref().err().map(ToString::to_string);
        let asked =
            ClientRequest { from, until: now(), tries: u32::try_from(tries).unwrap_or(u32::MAX), failure };
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
        outcome
    }

    /// All requests so far.
    pub fn asked(&self) -> Vec<ClientRequest> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn nodes(&self) -> &[Client] {
        &self.nodes
    }

    pub fn into_observed(self) -> (Vec<RequestedJob>, Vec<ClientRequest>) {
        let inner = |error: PoisonError<_>| error.into_inner();
        (
            self.wishes.into_inner().unwrap_or_else(PoisonError::into_inner),
            self.asked.into_inner().unwrap_or_else(inner),
        )
    }
}

/// A job that calls the recorder.
pub fn calling(name: String, url: &str) -> Result<SubmitJob> {
    let job = SubmitJob::named(name.clone()).with_type("http");
    let job = job.with_payload(&json!({"url": url, "method": "POST"}))?;
    let retry = RetryBody {
        strategy: Some(RetryStrategy::Fixed),
        delay: Some(RETRY_DELAY.parse()?),
        ..RetryBody::default()
    };
    Ok(SubmitJob { idempotency_key: Some(name), max_retries: Some(RETRIES), retry: Some(retry), ..job })
}

/// Every kind of recurring job in turn: by interval and by cron, with and without overlap, quick and slow,
/// with failing attempts.
fn recurring(
    index: usize,
    lease: Duration,
    window: Range<Timestamp>,
    recorder: &Recorder,
) -> Result<(SubmitJob, RequestedJob)> {
    const STEPS_MS: [u64; 5] = [1_000, 2_000, 3_000, 5_000, 1_500];
    let step = Duration::from_millis(STEPS_MS[index % STEPS_MS.len()]);
    let is_cron = index % 2 == 1 && step.subsec_millis() == 0;
    let overlap = if index % 3 == 1 { OverlapAllowed::Allow } else { OverlapAllowed::Skip };
    let takes = match index % 10 {
        // Longer than its step, so that occurrences overlap; and longer than a lease, but not many at once.
        7 => step + step / 4,
        9 if overlap == OverlapAllowed::Skip => lease + Duration::from_secs(1),
        other => Duration::from_millis(10 + 20 * other as u64),
    };
    let Range { start: from, end: until } = window;
    let behaviour = CallBehaviour { takes, failing_attempts: u32::from(index % 8 == 1) };
    let key = format!("recurring-{index}");
    let job = calling(key.clone(), &recorder.url(behaviour))?;
    let seconds = step.as_secs();
    let job = SubmitJob {
        interval: (!is_cron).then(|| format!("{}ms", step.as_millis())),
        cron_expression: is_cron.then(|| format!("*/{seconds} * * * * *")),
        start_at: Some(from),
        end_at: Some(until),
        misfire_grace: Some(MISFIRE_GRACE.parse()?),
        overlap_policy: (overlap == OverlapAllowed::Allow).then_some(OverlapPolicy::Allow),
        ..job
    };
    let first = if is_cron { next_multiple(from, step) } else { from };
    let times = Times::Every { first, step, last: until };
    Ok((job, RequestedJob { key, times, overlap, attempts: Attempts::UntilItSucceeds, acknowledged: None }))
}

/// Steps in seconds that divide a minute, as in `*/5`, give the same times on every clock.
fn next_multiple(from: Timestamp, step: Duration) -> Timestamp {
    let step_us = i64::try_from(step.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_micros((from.as_micros() + step_us - 1) / step_us * step_us)
}

/// Every kind of one-time job: immediate or delayed, quick and slow, with failing attempts, and with only one
/// attempt.
fn one_time(options: &LoadOptions, index: u64, recorder: &Recorder) -> Result<(SubmitJob, RequestedJob)> {
    let LoadOptions { seed, lease, .. } = *options;
    let mut chance = Chance::new(seed.rotate_left(17) ^ index);
    let takes = match index % 20 {
        3 => chance.between(lease / 3, lease + Duration::from_secs(2)),
        _ => chance.between(Duration::from_millis(5), Duration::from_millis(200)),
    };
    let attempts = if index % 10 == 6 { Attempts::AtMostOne } else { Attempts::UntilItSucceeds };
    // Every other job with only one attempt fails, which causes a notification.
    let failing_attempts = u32::from(index % 10 == 4 || index % 20 == 16);
    let at = (!index.is_multiple_of(3)).then(|| {
        let at = now().plus(chance.between(Duration::from_millis(100), DELAY_MAX));
        // Rounded down to the millisecond, as people write times.
        Timestamp::from_micros(at.as_micros() / 1_000 * 1_000)
    });
    let key = format!("one-time-{index}");
    let job = calling(key.clone(), &recorder.url(CallBehaviour { takes, failing_attempts }))?;
    let max_retries = if attempts == Attempts::AtMostOne { Some(0) } else { job.max_retries };
    let job = SubmitJob { execute_at: at, max_retries, ..job };
    Ok((
        job,
        RequestedJob {
            key,
            times: Times::Once { at },
            overlap: OverlapAllowed::Skip,
            attempts,
            acknowledged: None,
        },
    ))
}
