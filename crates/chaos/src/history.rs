//! Reads the final state through the API: every job with all its executions and skipped occurrences, page by
//! page.

use crate::observed::{FoundExecution, FoundJob, FoundSkip};
use anyhow::{Context, Result, ensure};
use futures_util::{StreamExt, TryStreamExt, stream};
use punctual_client::{Client, ExecutionBody, JobBody, JobFilter};
use punctual_core::job::JobStatus;
use serde::Deserialize;

/// Histories that are read concurrently.
const READ_AT_ONCE: usize = 8;
/// The server's maximum. Skipped ranges are on the first page only, so a job with more of them cannot be
/// checked.
const PAGE_ITEMS: usize = 1_000;

/// Every job of the cluster, with its full history.
pub async fn read_all(node: &Client) -> Result<Vec<FoundJob>> {
    let jobs = stream::iter(jobs(node, None).await?);
    jobs.map(|job| async move { of(node, job).await }).buffered(READ_AT_ONCE).try_collect().await
}

/// How many jobs are unfinished.
pub async fn unfinished(node: &Client) -> Result<usize> {
    Ok(jobs(node, Some(JobStatus::Active)).await?.len())
}

async fn jobs(node: &Client, status: Option<JobStatus>) -> Result<Vec<JobBody>> {
    let mut all = Vec::new();
    let mut filter = JobFilter { status, limit: Some(PAGE_ITEMS), ..JobFilter::default() };
    loop {
        let page = node.jobs(&filter).await.context("list the jobs")?;
        all.extend(page.items);
        filter.cursor = page.next_cursor;
        if filter.cursor.is_none() {
            return Ok(all);
        }
    }
}

async fn of(node: &Client, job: JobBody) -> Result<FoundJob> {
    let (mut executions, mut skips, mut cursor) = (Vec::new(), Vec::new(), None);
    loop {
        let page = node.executions(job.job_id, Some(PAGE_ITEMS), cursor.as_deref()).await;
        let page = page.with_context(|| format!("read the history of job {}", job.job_id))?;
        executions.extend(page.items.into_iter().map(found));
        skips.extend(page.skipped.into_iter().map(|skip| FoundSkip {
            first: skip.first,
            last: skip.last,
            count: skip.count,
            reason: skip.reason,
        }));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    ensure!(skips.len() < PAGE_ITEMS, "job {} has more skipped ranges than the server shows", job.job_id);
    let is_finished = job.is_finished();
    Ok(FoundJob { id: job.job_id, key: job.idempotency_key, is_finished, executions, skips })
}

fn found(execution: ExecutionBody) -> FoundExecution {
    /// The recorder's answer, inside the result of the web call.
    #[derive(Deserialize)]
    struct CallResult {
        body: RunNumber,
    }
    #[derive(Deserialize)]
    struct RunNumber {
        run: u64,
    }
    let result = execution.result.as_ref();
    let run = result.and_then(|result| serde_json::from_str::<CallResult>(result.get()).ok());
    FoundExecution {
        id: execution.execution_id,
        scheduled_time: execution.scheduled_time,
        status: execution.status,
        worker: execution.worker_id,
        completed_at: execution.completed_at,
        run: run.map(|result| result.body.run),
    }
}
