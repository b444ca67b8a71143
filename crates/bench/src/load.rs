//! Submits many jobs over HTTP, in concurrent batches.

use crate::bad_option;
use anyhow::{Context, bail};
use indicatif::ProgressBar;
use punctual_client::{BatchItem, Client, SubmitJob};
use punctual_config::exit::CliError;
use punctual_core::ids::JobId;
use punctual_core::limits::{PAYLOAD_BYTES_MAX, SUBMIT_BATCH_MAX};
use serde::Serialize;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Maximum bytes of a job's JSON besides its payload.
const ENVELOPE_BYTES: u64 = 200;
/// Bytes that the server accepts in one batch, and in all concurrent requests, with a margin.
const BATCH_BYTES_MAX: u64 = 7 * 1024 * 1024;
const UNDER_WAY_BYTES_MAX: u64 = 30 * 1024 * 1024;

#[derive(Debug, Clone, Copy, clap::Args, Serialize)]
pub struct LoadArgs {
    /// Jobs per submit
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=SUBMIT_BATCH_MAX as u64))]
    pub batch: u64,
    /// Number of concurrent submits
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=64))]
    pub submitters: u64,
    /// Bytes of each job's payload
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(2..=PAYLOAD_BYTES_MAX as u64))]
    pub payload_bytes: u64,
}

impl LoadArgs {
    /// Checks that the server accepts this much at once.
    pub fn check(self) -> Result<(), CliError> {
        let batch_bytes = self.batch * (self.payload_bytes + ENVELOPE_BYTES);
        if batch_bytes > BATCH_BYTES_MAX {
            return Err(bad_option(format!(
                "--batch {} with --payload-bytes {} is more than a server accepts in one request: reduce either of them",
                self.batch, self.payload_bytes
            )));
        }
        if batch_bytes * self.submitters > UNDER_WAY_BYTES_MAX {
            return Err(bad_option(format!(
                "--submitters {} with --batch {} is more than a server accepts at once: reduce either of them",
                self.submitters, self.batch
            )));
        }
        Ok(())
    }
}

/// A no-op job of this type, due immediately.
pub fn no_op(job_type: &str, payload_bytes: u64) -> anyhow::Result<SubmitJob> {
    // A JSON string of exactly this size, including the quotes.
    let payload = format!("\"{}\"", "x".repeat(payload_bytes.saturating_sub(2) as usize));
    Ok(SubmitJob {
        payload: Some(RawValue::from_string(payload)?),
        ..SubmitJob::named("bench").with_type(job_type)
    })
}

/// Submits the jobs with these numbers and returns how long it took.
pub async fn submit_all(
    client: &Client,
    load: LoadArgs,
    total: u64,
    bar: &ProgressBar,
    job: impl Fn(u64) -> SubmitJob + Send + Sync + 'static,
) -> anyhow::Result<Duration> {
    let job = Arc::new(job);
    let start = Instant::now();
    let mut under_way = JoinSet::new();
    let mut submitted = 0;
    while submitted < total || !under_way.is_empty() {
        while submitted < total && (under_way.len() as u64) < load.submitters {
            let numbers = submitted..total.min(submitted + load.batch);
            submitted = numbers.end;
            let (client, job) = (client.clone(), job.clone());
            under_way.spawn(async move {
                let jobs: Vec<SubmitJob> = numbers.map(|number| job(number)).collect();
                submit_batch(&client, &jobs).await.map(|ids| ids.len() as u64)
            });
        }
        if let Some(done) = under_way.join_next().await {
            bar.inc(done.context("a submit was interrupted")??);
        }
    }
    Ok(start.elapsed())
}

/// Submits one batch and fails unless the server accepts every job.
pub async fn submit_batch(client: &Client, jobs: &[SubmitJob]) -> anyhow::Result<Vec<JobId>> {
    let answer = client.submit_batch(jobs).await?;
    let ids: Vec<JobId> = answer
        .items
        .into_iter()
        .map(|item| match item {
            BatchItem::Submitted(submitted) => Ok(submitted.job_id),
            BatchItem::Refused { error } => bail!("a job was rejected: {error}"),
        })
        .collect::<anyhow::Result<_>>()?;
    if ids.len() != jobs.len() {
        bail!("{} jobs were submitted, {} answered", jobs.len(), ids.len());
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_that_is_too_large_is_rejected_with_the_name_of_the_option() {
        let usual = LoadArgs { batch: 1_000, submitters: 4, payload_bytes: 200 };
        assert!(usual.check().is_ok());
        let large = LoadArgs { payload_bytes: 100_000, ..usual }.check().unwrap_err();
        assert!(large.message.starts_with("--batch 1000 with --payload-bytes 100000"), "{large}");
        let many = LoadArgs { batch: 10_000, submitters: 64, ..usual }.check().unwrap_err();
        assert!(many.message.starts_with("--submitters 64"), "{many}");
    }

    #[test]
    fn a_payload_has_exactly_its_size() {
        let job = no_op("noop", 200).unwrap();
        assert_eq!(job.payload.unwrap().get().len(), 200);
    }
}
