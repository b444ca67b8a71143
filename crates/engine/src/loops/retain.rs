//! Deletes old data in bounded steps: history, logs, skipped ranges and responses to requests; finished jobs,
//! if configured; the remains of deleted jobs; old roll-ups; old entries of the audit log; and blobs that no execution refers to. A duty of the leader. The store also creates upcoming
//! partitions in these steps.
//!
//! All ages of a run are computed from one reading of the store's clock, which is checked first: after a jump
//! of the clock nothing is deleted by its age for a while.

use crate::{Duties, EngineContext};
use punctual_core::limits;
use punctual_core::ports::{Horizon, Retirement, StoreError};
use punctual_core::time::Timestamp;
use std::time::Duration;

/// Rows deleted, or jobs checked, in one transaction.
const STEP_ROWS: usize = 1_000;

pub(crate) async fn retain(context: &EngineContext) {
    if context.config.duties == Duties::OwnCommits {
        return;
    }
    let mut swept_at = None;
    loop {
        context.host.clock.sleep(context.config.retain_interval).await;
        if let Err(error) = round(context, &mut swept_at).await {
            tracing::warn!(%error, "expired data could not be deleted; retrying later");
        }
    }
}

/// `swept_at` is when this process has last looked for unused blobs.
async fn round(context: &EngineContext, swept_at: &mut Option<Timestamp>) -> Result<(), StoreError> {
    context.look_at_removed_logs().await?;
    let store = &context.store;
    let steady = context.steady_time().await?;
    if !context.leads() {
        return Ok(());
    }
    while store.delete_unused(STEP_ROWS).await? {}
    let Some(now) = steady else { return Ok(()) };
    let horizon = Horizon {
        history: now.minus(context.config.history_kept),
        requests: now.minus(limits::REQUESTS_KEPT),
    };
    while store.retain(horizon, STEP_ROWS).await?.more {}
    if let Some(kept) = context.config.jobs_kept {
        retire(context, now, kept).await?;
    }
    while store.purge(now.minus(limits::DELETED_KEPT), STEP_ROWS).await? {}
    crate::series::retain(context, now).await?;
    if let Some(kept) = context.config.audit_kept {
        while store.retain_audit(now.minus(kept), STEP_ROWS).await? == STEP_ROWS as u64 {}
    }
    // After the executions that they belong to.
    if swept_at.is_none_or(|at| now.since(at) >= limits::BLOB_SWEEP_INTERVAL) {
        *swept_at = Some(now);
        crate::blobs::sweep(context, now).await;
    }
    Ok(())
}

async fn retire(context: &EngineContext, now: Timestamp, kept: Duration) -> Result<(), StoreError> {
    let mut after = None;
    loop {
        let step = Retirement { finished_before: now.minus(kept), after, limit: STEP_ROWS };
        after = context.store.retire(now, step).await?.next;
        if after.is_none() {
            return Ok(());
        }
    }
}
