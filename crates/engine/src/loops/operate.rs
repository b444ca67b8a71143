//! Advances operations on many jobs, deletes those that finished long ago, and keeps the pause of the cluster. A duty of
//! the leader. Two leaders perform the same steps, and one of them records the outcome.

use crate::pause::ErrorPause;
use crate::{Duties, Engine};
use futures_util::future::select;
use punctual_core::limits;
use punctual_core::time::Monotonic;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

pub(crate) async fn operate(engine: &Arc<Engine>) {
    let context = &engine.context;
    let Some(interval) = context.config.operations_interval else { return };
    if context.config.duties == Duties::OwnCommits {
        return;
    }
    let clock = &context.host.clock;
    let (mut paused_at, mut retained_at) = (None, None);
    let mut pause = ErrorPause::default();
    loop {
        select(pin!(context.operations.notified()), clock.sleep(interval)).await;
        let mut has_more = true;
        while context.leads() && has_more {
            match engine.advance_operations().await {
                Ok(has_continued) => {
                    pause.succeeded();
                    has_more = has_continued;
                }
                Err(error) => {
                    tracing::warn!(%error, "operations could not continue; retrying");
                    context.counters.store_errors.add(1);
                    clock.sleep(pause.failed()).await;
                }
            }
            // A long operation must not delay the end of a pause.
            if is_due(&mut paused_at, interval, clock.monotonic())
                && let Err(error) = engine.reconcile_cluster_pause().await
            {
                tracing::debug!(%error, "the pause of the cluster could not be checked; retrying later");
            }
        }
        if context.leads()
            && is_due(&mut retained_at, limits::OPERATIONS_RETAIN_INTERVAL, clock.monotonic())
            && let Err(error) = engine.retain_operations().await
        {
            tracing::debug!(%error, "old operations could not be deleted; retrying later");
        }
    }
}

/// Whether something that is done at an interval is to be done now. If so, it counts as done.
fn is_due(last: &mut Option<Monotonic>, interval: Duration, now: Monotonic) -> bool {
    // Timers may wake a little early.
    let is_due = last.is_none_or(|last| now.since(last) >= interval.mul_f32(0.9));
    if is_due {
        *last = Some(now);
    }
    is_due
}
