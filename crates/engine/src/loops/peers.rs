//! Hints between this process and its peers on the store, and a scan of what those have started.

use crate::EngineContext;
use crate::pause::ErrorPause;
use punctual_core::ids::{Epoch, OccurrenceId};
use punctual_core::limits;
use punctual_core::ports::{ReadyHint, RunningPlace, StoreError};
use std::collections::BTreeMap;

/// Marks waiting polls as unchecked when peers announce work for them.
pub(crate) async fn receive_hints(context: &EngineContext) {
    let Some(queue) = &context.peers.ready_queue else { return };
    let mut error_pause = ErrorPause::default();
    loop {
        match queue.receive().await {
            Ok(hint) => {
                error_pause.succeeded();
                if !context.peers.is_receiving() {
                    tracing::debug!(queue = queue.kind(), "hints of other processes arrive");
                    context.peers.received();
                }
                context.counters.hints_received.add(1);
                match hint {
                    ReadyHint::Lanes(lanes) => context.poll_registry.wake(&lanes),
                    ReadyHint::AnyLane => context.poll_registry.wake_all(),
                }
            }
            Err(error) => {
                context.counters.hint_errors.add(1);
                if context.peers.failed(error.clone()) {
                    tracing::warn!(queue = queue.kind(), %error, "hints of other processes cannot be received; \
                                                                 polling for their work instead");
                }
                // While hints arrived, scans were rare.
                context.poll_registry.wake_all();
                context.host.clock.sleep(error_pause.failed()).await;
            }
        }
    }
}

/// Tells peers of work that they could claim.
pub(crate) async fn publish_hints(context: &EngineContext) {
    let Some(queue) = &context.peers.ready_queue else { return };
    let mut error_pause = ErrorPause::default();
    loop {
        let hint = context.peers.unpublished().await;
        match queue.publish(hint.clone()).await {
            Ok(()) => {
                error_pause.succeeded();
                context.counters.hints_published.add(1);
                context.host.clock.sleep(limits::TELL_PAUSE).await;
            }
            Err(error) => {
                tracing::debug!(queue = queue.kind(), %error, "other processes could not be notified of new work; \
                                                              they find it by polling");
                context.counters.hint_errors.add(1);
                // Some of them may still receive, and scan rarely.
                context.peers.publish_later(hint);
                context.host.clock.sleep(error_pause.failed()).await;
            }
        }
    }
}

/// Running executions, with their lease epochs.
type RunningEpochs = BTreeMap<OccurrenceId, Epoch>;

/// Tells listeners what other processes have started or changed. Their commits are not visible here, so the
/// running executions are compared from time to time. Listeners read finished ones from history themselves.
pub(crate) async fn watch(context: &EngineContext) {
    if !context.config.shares_store {
        return;
    }
    let mut seen = RunningEpochs::new();
    loop {
        context.host.clock.sleep(context.config.watch_interval).await;
        if !context.events.has_listeners() {
            seen.clear();
            continue;
        }
        match running(context).await {
            Ok(now) => {
                context.events.touched(moved(&seen, &now));
                seen = now;
            }
            Err(error) => {
                tracing::warn!(%error, "running executions could not be read for event streams; retrying");
                context.counters.store_errors.add(1);
            }
        }
    }
}

async fn running(context: &EngineContext) -> Result<RunningEpochs, StoreError> {
    let mut running = RunningEpochs::new();
    let mut after: Option<RunningPlace> = None;
    loop {
        let page = context.store.running(after, limits::PAGE_ITEMS_MAX).await?;
        running.extend(page.items.into_iter().map(|open| (open.live.id, open.live.epoch)));
        after = page.next;
        if after.is_none() || running.len() >= limits::WATCHED_RUNNING_MAX {
            return Ok(running);
        }
    }
}

/// Executions that have started running since the last scan, and those that no longer run.
fn moved(before: &RunningEpochs, now: &RunningEpochs) -> Vec<OccurrenceId> {
    let begun = now.iter().filter(|(id, epoch)| before.get(id) != Some(epoch));
    let gone = before.iter().filter(|(id, _)| !now.contains_key(id));
    begun.chain(gone).map(|(id, _)| *id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::ids::JobId;
    use punctual_core::time::Timestamp;

    #[test]
    fn what_began_ended_or_was_leased_again_has_moved() {
        let job = JobId::new(Timestamp::EPOCH, 1);
        let running = |leases: &[(u32, u32)]| -> RunningEpochs {
            leases.iter().map(|(number, epoch)| (job.occurrence(*number), Epoch(*epoch))).collect()
        };
        let before = running(&[(1, 1), (2, 1), (3, 1)]);
        let now = running(&[(1, 1), (2, 2), (4, 1)]);
        assert_eq!(moved(&before, &now), [2, 4, 3].map(|number| job.occurrence(number)));
        assert_eq!(moved(&now, &now), []);
    }
}
